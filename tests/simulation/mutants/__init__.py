"""
Mutants: wrong products, each by one change to the text of one module, to prove that the simulation would see it.

`table` names every change with the rule it breaks, `copies` makes a product of each, `judge` plays schedules and seeds
against one, `__main__` runs them all and prints the table: `python -m tests.simulation.mutants` or `make mutants`.
"""
