"""What an answer says of durability is so: nothing is `replicated` while no replica takes anything.

Elsewhere a lie is found when a fault shows it: what was `replicated` is then lost, and no fault may forget that.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.findings import Finding
from tests.chaos.lives import Faults, Life

_NOBODY_TAKES = "freeze-replicas"
_SINCE_S, _UNTIL_S = 0.5, 3.0
"""From its beginning: in between all replicas stand still for sure (it lasts for 4 s, and has to find them first)."""


def check_honest(life: Life, trouble: Faults) -> Iterator[Finding]:
    """Nothing that was asked and answered while all replicas stood still is with one of them."""
    still = [(fault.begin + _SINCE_S, fault.begin + _UNTIL_S) for fault in trouble if fault.nemesis == _NOBODY_TAKES]
    for act in (act for acts in life.acts.values() for act in acts):
        if act.answer is None or act.answer.durability != "replicated":
            continue
        if any(since < act.invoke.at and act.answer.at < until for since, until in still):
            says = f"{act.invoke.command} was `replicated` while all replicas stood still"
            yield Finding("lie", says, life.id, tuple(act.lines))
