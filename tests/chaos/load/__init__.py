"""The load: producers and consumers over HTTP that record everything they ask and hear."""
