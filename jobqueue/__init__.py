"""The service: the engine of `buckets`, reached by JSON over HTTP."""

__version__ = "0.1.0"
