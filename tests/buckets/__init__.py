"""The tests of the machine."""
