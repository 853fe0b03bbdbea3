"""One suite over all kinds of sinks, each with its real broker."""
