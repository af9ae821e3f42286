"""Field cases, splits, merges and volume with a stream in Kinesis: real hosts, and servers that speak the protocol."""
