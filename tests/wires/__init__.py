"""The dialects as their systems' clients see them, on one service: a scenario that all run, a matrix of who adds and
who pops, random bytes, kills under load, and the clients of the registries. Nothing of the service's code is used."""
