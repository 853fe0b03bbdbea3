"""The native protocol: one JSON object, or an array of 1 to 1,000 of them, POSTed to one path."""
