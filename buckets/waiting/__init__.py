"""Waiting pops, the subscription that tells them and the timers what has come, and who polls."""
