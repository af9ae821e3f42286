"""Locks among real processes: kills, processes that are frozen, and writes that a database has to refuse."""
