"""Stores: where the items live. Import each store by its own module; `base` is the contract."""
