"""A Redis stream: a message is confirmed when it is in the stream, or when a group of consumers has acknowledged it."""
