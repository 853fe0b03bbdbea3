"""The commands: the native ones, those that only dialects can send, the code that carries out the commands of a
request, and the parts of answers."""
