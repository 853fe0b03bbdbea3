"""The load generator: many connections in one thread, cheap enough not to be what is measured."""
