"""Benchmarks of sinks."""
