"""
Directed schedules: the narrow windows that random ones seldom hit, each as a test of its own.

A schedule says what happens at which moment, and little else: what must be true afterwards is asked by the checkers of
the simulation, by name (`tests.simulation.checkers`, `liveness`), and by the few demands of `checks` that hold for one
schedule alone. So a change of the product that breaks a rule is seen the same way here and in a swarm.

`schedules` has the register of them all, `stage` the world in which they play, `puppet` a host without a will.
"""
