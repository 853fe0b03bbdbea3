"""The commands: the native ones, those that only dialects give, what carries out those of a request, and the parts of
answers."""
