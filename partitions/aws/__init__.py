"""
What every store and source on AWS needs: where it is, its clients, and what an error of the SDK means.

Knows no store, no source and no item. Loading `clients` or `faults` loads the SDK, which takes longer than all the
rest; so they are imported by their own names, and only by what talks to AWS.
"""
