"""LeadTime: how long before a time a command must leave to reach Redis at that time.

The way takes a few tenths of a millisecond: the process wakes, the command travels, Redis wakes. How many depends on
the machine and its load, so it is learned: a command that came too early makes the lead shorter, one that did not makes
it longer by a little. So the lead settles where one in ten comes too early (a quantile by stochastic approximation,
after Robbins and Monro). Too early costs one more command and never a job that is early: Redis's clock decides.
"""

from __future__ import annotations

_EARLY = 0.1  # of all
_STEP_S = 30e-6
_LONGEST_S = 500e-6  # beyond that it is load, which no lead helps against


class LeadTime:
    """The lead of one kind of command."""

    def __init__(self) -> None:
        self.lead_s = 0.0

    def takes(self, wait_s: float) -> bool:
        """Whether a wait is long enough to be shortened: who came early should not be early again."""
        return wait_s > 2 * _LONGEST_S

    def shorten(self, wait_s: float) -> float:
        """How long to sleep in order to arrive in `wait_s`."""
        return wait_s - self.lead_s if self.takes(wait_s) else wait_s

    def learn(self, *, early: bool) -> None:
        """A command that left with this lead has arrived."""
        lead = self.lead_s + (-_STEP_S * (1 - _EARLY) if early else _STEP_S * _EARLY)
        self.lead_s = min(max(lead, 0.0), _LONGEST_S)
