"""Durability claims are true: nothing counts as `replicated` while no replica accepts anything.

A false claim otherwise shows up when a fault exposes it: something `replicated` is lost, which no fault may forget.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.judges.findings import Finding
from tests.chaos.judges.lives import Faults, Life

_NOBODY_TAKES = "freeze-replicas"
_SINCE_S, _UNTIL_S = 1.5, 3.9
"""Seconds after a fault began: by the first, all replicas are sure to be stopped and earlier acknowledgements reported;
until the second, they stay stopped.
"""


def check_honest(life: Life, trouble: Faults) -> Iterator[Finding]:
    """Nothing that is acknowledged while all replicas have been stopped for a while is replicated."""
    still = [(fault.begin + _SINCE_S, fault.begin + _UNTIL_S) for fault in trouble if fault.nemesis == _NOBODY_TAKES]
    for act in (act for acts in life.acts.values() for act in acts):
        if act.answer is None or act.answer.durability != "replicated":
            continue
        if any(since < act.answer.at < until for since, until in still):
            says = f"{act.invoke.command} was `replicated` while all replicas stood still"
            yield Finding("lie", says, life.id, tuple(act.lines))
