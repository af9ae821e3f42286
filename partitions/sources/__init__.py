"""Sources: partitioned streams. Import each source by its own module; `base` is the contract."""
