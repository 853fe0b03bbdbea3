"""The scope of a token: what it may do, and whether that is within what the token of its giver may."""

from __future__ import annotations

import functools
import re

from jobqueue.access import rights
from jobqueue.access.grants import Grant
from jobqueue.access.records import Record
from jobqueue.errors import BadField, Forbidden
from jobqueue.schema import fields

_WILD = re.compile(r"[*?]+")
_LIMITS = ("expires", "rate", "burst", "bytes", "waits")


def beyond(giver: Record, record: Record) -> Forbidden | None:
    """Why one who has the token `giver` may not give this one: nobody gives more than they have."""
    fault = beyond_reach(giver, record)
    if fault:
        return fault
    for name in _LIMITS:
        own, given = getattr(giver, name), getattr(record, name)
        if own is not None and (given is None or given > own):
            return Forbidden(f"{name} may not be beyond that of your own token")
    if giver.own_ids and not record.own_ids:
        return Forbidden("own_ids holds for your own token, and so for those that you give")
    return None


def beyond_reach(giver: Record, record: Record) -> Forbidden | None:
    """Why one who has the token `giver` has no say over this one: it may do, or reaches, what their own does not."""
    grant = Grant(giver, "")
    for right in record.rights:
        if not grant.may(right):
            return Forbidden(f"your token lacks the right {right}", right=right)
    topic = beyond_topics(giver, record)
    return Forbidden(f"your token does not reach all of the topics {topic}", topic=topic) if topic else None


def beyond_names(giver: Record, record: Record) -> Forbidden | None:
    """Why one who has the token `giver` may not create this one: a certificate may be meant for another's token."""
    if record.certificate and not reaches_all(giver):
        return Forbidden("only a token that reaches all topics may give a certificate")
    return beyond(giver, record)


def reaches_all(giver: Record) -> bool:
    """Whether a token reaches all topics."""
    return not giver.topics or any(covers(own, "*") for own in giver.topics)


def beyond_topics(giver: Record, record: Record) -> str:
    """The first pattern of a token with topics that one who has the token `giver` does not reach; empty: there is
    none."""
    if not giver.topics:
        return ""
    patterns = record.topics or ("*",)
    return next((each for each in patterns if not any(covers(own, each) for own in giver.topics)), "")


def refusal(record: Record, right: str, topic: str | None, *, is_live: bool) -> str:
    """Why a token may not do something, in words; empty: it may. `right`: a right, or the name of a command. Raises
    BadField for a right that does not exist."""
    if right not in rights.WORDS:
        raise BadField(f"right must be {fields.expected(fields.TestedRight)}", field="right")
    if not is_live:
        return "the token is revoked" if record.revoked else "the token has expired"
    grant = Grant(record, "")
    if not grant.may(right):
        return f"the token lacks the right {rights.right_for(right)}"
    if topic is not None and not grant.reaches(topic):
        return f"the token does not reach the topic {topic}"
    return ""


@functools.lru_cache(maxsize=16_384)  # long ones take milliseconds, and each look at a list of tokens asks for all
def covers(pattern: str, other: str) -> bool:
    """Whether each topic that the other pattern matches is matched by this one. In both, `*` stands for any characters
    and `?` for one. False is a doubt where this one has a `?`."""
    return _covers(_ordered(pattern), _ordered(other))


def _ordered(pattern: str) -> str:
    """The same pattern with each `*` behind the `?` beside it, and only one."""
    return _WILD.sub(lambda run: "?" * run[0].count("?") + "*" * ("*" in run[0]), pattern)


def _covers(pattern: str, other: str) -> bool:
    """By the ends of `other` that the beginning of `pattern` read so far leaves to be matched."""
    ends = {0}
    for sign in pattern:
        if sign == "*":
            ends = set(range(min(ends), len(other) + 1)) if ends else set()
        else:
            ends = {at + 1 for at in ends if at < len(other) and _matches(sign, other[at])}
    return len(other) in ends


def _matches(sign: str, of_other: str) -> bool:
    return of_other != "*" if sign == "?" else sign == of_other
