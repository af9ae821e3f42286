"""Tests of the status page in a real browser."""
