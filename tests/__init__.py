"""The tests: `tests.world` is the virtual world, `tests.processes` starts real processes."""
