"""The Redis of a service: an embedded one, or one that somebody else runs.

`opening` provides the service's Redis, and checks whether it is fit before it gets a job. The `embedded` Redis is
started from a `program` on its own `data_directory`. `program` also probes it, and `data_directory` has its append-only
file rewritten after a power cut.
"""
