"""The Redis of a service: the embedded one, or one that somebody else runs.

`opening` gives the service its Redis. The `embedded` one is started from a `program` on a `data_directory` of its own,
watched by `probe`, and mended after a power cut (`torn_aof`). `fitness` judges either before it is trusted with a job.
"""
