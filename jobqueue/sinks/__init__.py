"""Sinks: where due jobs are delivered without a consumer. Each sink is a folder and knows nothing of the others."""
