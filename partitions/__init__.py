"""
Leases on the partitions of a stream: who owns what, proven by conditional writes.

Guaranteed: at most one *valid* holder per partition at any moment, as long as the rates of the hosts' clocks differ by
less than `CLOCK_DRIFT`; and, whatever the clocks do, no checkpoint of an old term is accepted (fencing tokens). Not
guaranteed: that a record is handled once. After a fail-over everything since the last checkpoint is handled again.

A library: it neither logs nor counts nor prints. Import stores and sources by their own modules
(`partitions.stores.sqlite`, `partitions.sources.local`), so that `import partitions` loads no database client.
"""
