"""Consume a partitioned stream with many hosts: every partition has exactly one owner, and nothing is lost."""
