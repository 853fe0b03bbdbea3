"""The service: the machine of `buckets`, reached by JSON over HTTP."""

__version__ = "0.1.0"
