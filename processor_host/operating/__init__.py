"""
What an operator does to a group by hand, each as a function over an `Operator`: a store, a group, a clock and a random.

Knows no command line; `processor_host.cli` asks, shows and ends with a status. Everything goes through the protocol of
the hosts: conditional writes, asks that are honoured, fences of what was watched, and a session of capacity 0 for what
must be held. So each may run beside hosts at work, and be killed at any moment.
"""

__all__: list[str] = []
