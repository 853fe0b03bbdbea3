"""What an answer says of durability is so: nothing is `replicated` while no replica takes anything.

Elsewhere a lie is found when a fault shows it: what was `replicated` is then lost, and no fault may forget that.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.judges.findings import Finding
from tests.chaos.judges.lives import Faults, Life

_NOBODY_TAKES = "freeze-replicas"
_SINCE_S, _UNTIL_S = 1.5, 3.9
"""From its beginning: all replicas stand still until then for sure, and what they took before has been told by then."""


def check_honest(life: Life, trouble: Faults) -> Iterator[Finding]:
    """Nothing that is told while all replicas have stood still for a while is with one of them."""
    still = [(fault.begin + _SINCE_S, fault.begin + _UNTIL_S) for fault in trouble if fault.nemesis == _NOBODY_TAKES]
    for act in (act for acts in life.acts.values() for act in acts):
        if act.answer is None or act.answer.durability != "replicated":
            continue
        if any(since < act.answer.at < until for since, until in still):
            says = f"{act.invoke.command} was `replicated` while all replicas stood still"
            yield Finding("lie", says, life.id, tuple(act.lines))
