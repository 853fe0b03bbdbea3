"""The lead time: how long before a moment a command must leave to reach Redis at that moment.

It is a few tenths of a millisecond: the process wakes, the command travels, Redis wakes. How many depends on the host
and its load, so the lead is learned: a command that comes too early shortens it, any other lengthens it a little. It
settles where one command in ten comes too early (a quantile by stochastic approximation, after Robbins and Monro). That
costs one more command and never makes a job early: Redis's clock decides.
"""

from __future__ import annotations

_EARLY = 0.1  # the share of commands that come too early
_STEP_S = 30e-6
_LONGEST_S = 500e-6  # beyond that it is load, against which no lead helps


class LeadTime:
    """The lead of one kind of command."""

    def __init__(self) -> None:
        self.lead_s = 0.0

    def applies_to(self, wait_s: float) -> bool:
        """Whether a wait is long enough to be shortened: a command that came too early must not be early again."""
        return wait_s > 2 * _LONGEST_S

    def shorten(self, wait_s: float) -> float:
        """For how many seconds to sleep in order to arrive in `wait_s`."""
        return wait_s - self.lead_s if self.applies_to(wait_s) else wait_s

    def learn(self, *, early: bool) -> None:
        """Learn from a command that left with this lead, whether it was too early."""
        lead = self.lead_s + (-_STEP_S * (1 - _EARLY) if early else _STEP_S * _EARLY)
        self.lead_s = min(max(lead, 0.0), _LONGEST_S)
