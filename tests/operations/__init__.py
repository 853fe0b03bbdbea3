"""What operators do with a running service, as the documents describe it."""
