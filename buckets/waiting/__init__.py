"""Waiting pops, the subscriptions that notify them and the timers, and the workers that poll."""
