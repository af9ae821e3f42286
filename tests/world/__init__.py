"""The virtual world: real hosts in one process on virtual time, which tests can delay, cut, freeze and kill."""
