"""The Redis of a scenario (standalone, Sentinel set, Cluster), and the proxies in front of it."""
