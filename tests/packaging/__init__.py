"""The packages that a release is made of: what they contain, and that they work where nothing else is installed."""
