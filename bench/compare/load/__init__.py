"""The load: its generator (compiled.py), the works that it drives (driven.py), and consumers that wait."""
