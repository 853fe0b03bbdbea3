"""The Redis that comes with the service, and the judgement on one that somebody else runs."""
