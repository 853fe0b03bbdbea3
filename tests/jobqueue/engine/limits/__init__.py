"""The limits of topics, over several services that share a Redis."""
