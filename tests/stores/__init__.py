"""The stores and their proof: one suite of scenarios for all of them, and what is particular to each."""
