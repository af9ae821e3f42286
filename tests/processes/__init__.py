"""Tests with real processes: hosts started by the command line, and killed, frozen and stopped by their pids."""
