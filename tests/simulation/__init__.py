"""
The simulation: the real hosts on virtual time, under every fault that we can name, each run decided by one seed.

`play` runs one seed, `parameters` draws it, `storm` disturbs calls and `troubles` hosts and stream, `checkers` and
`liveness` judge, `rare` counts what seldom happens, `many` runs seeds on all cores. `python -m tests.simulation SEED`
repeats one run exactly.
"""
