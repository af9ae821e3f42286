"""Tests of named leases: sessions outside a host, contending, the lease, and what nobody thought of."""
