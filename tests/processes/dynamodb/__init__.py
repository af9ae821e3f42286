"""Field cases with leases in DynamoDB: real hosts, and a proxy between them and the table."""
