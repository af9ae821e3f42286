"""Field cases in virtual time: faults that users of comparable hosts met, each a test named after its case."""
