"""The settings of a namespace as they are found, damaged perhaps: a check must read what `Shards.open` would refuse."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field

from buckets.errors import Unfit
from buckets.keys import FAMILIES, Keys
from buckets.pages import Pages
from buckets.redis.client import Redis
from buckets.shards import FORMAT, numbers_of

_SHARDS = 255  # looked at: as many as there may be
_NUMBERED = re.compile(rf"({FAMILIES['BUCKET']}|{FAMILIES['LOCK']})(\d{{1,3}})")


@dataclass(frozen=True, slots=True)
class Meta:
    """The numbers of a namespace, and the shards whose settings are not these: why, in words."""

    shards: int
    buckets: int
    faults: dict[int, str] = field(default_factory=dict)
    empty: bool = False  # there is no namespace at all


@dataclass(frozen=True, slots=True)
class _Found:
    """One shard's key: its type, and its fields."""

    kind: str
    fields: dict[str, str]


async def _read(redis: Redis, keys: Keys) -> _Found:
    kind = (await redis.read("TYPE", keys.meta)).decode()
    flat = await redis.read("HGETALL", keys.meta) if kind == "hash" else []
    words = [word.decode("utf-8", "replace") for word in flat]
    return _Found(kind, dict(zip(words[::2], words[1::2], strict=True)))


async def examine(redis: Redis, namespace: str, buckets: int) -> Meta:
    """Read the settings; `buckets` is the number to take when nothing tells it.

    Raises Unfit for a namespace of another version: what it holds is not ours to judge.
    """
    found = await asyncio.gather(*(_read(redis, Keys(namespace, shard)) for shard in range(_SHARDS)))
    for each in found:
        if each.fields.get("format", str(FORMAT)) != str(FORMAT) and each.fields["format"].isdigit():
            raise Unfit(f"the namespace {namespace} was written by another version: {each.fields}")
    keys = await _keys(redis, namespace) if _is_doubtful(found) else {}
    if not keys and all(each.kind == "none" for each in found):
        return Meta(1, buckets, empty=True)
    votes = Counter(numbers for each in found if (numbers := numbers_of(each.fields)))
    numbers = votes.most_common(1)[0][0] if votes and not _is_lone_voice(found, keys) else None
    shards = numbers[0] if numbers else _shards(found, keys)
    number = numbers[1] if numbers else _buckets(found, keys, buckets)
    faults = {shard: fault for shard in range(shards) if (fault := _fault(found[shard], (shards, number)))}
    return Meta(shards, number, faults)


def _is_doubtful(found: list[_Found]) -> bool:
    """Whether the keys must be looked at to know the numbers."""
    voices = [numbers for each in found if (numbers := numbers_of(each.fields))]
    return not voices or (len(voices) == 1 and voices[0][0] > 1)


def _is_lone_voice(found: list[_Found], keys: dict[int, set[str]]) -> bool:
    """One shard says that there are more, and of these there is no key at all."""
    return _is_doubtful(found) and max(keys, default=0) == 0


async def _keys(redis: Redis, namespace: str) -> dict[int, set[str]]:
    """The shards that have keys, and of these the keys that bear a bucket's number."""
    found: dict[int, set[str]] = {}
    form = re.compile(rf"\{{{re.escape(namespace)}:(\d{{1,3}})\}}:(.*)", re.S)
    async for page in Pages(redis).keys(f"{{{namespace}:*}}:*"):
        for key in page:
            match = form.fullmatch(key.decode("utf-8", "replace"))
            if match:
                names = found.setdefault(int(match[1]), set())
                names |= {match[2]} if _NUMBERED.fullmatch(match[2]) else set()
    return found


def _shards(found: list[_Found], keys: dict[int, set[str]]) -> int:
    present = [shard for shard, each in enumerate(found) if each.kind != "none"]
    return 1 + max([*present, *keys], default=0)


def _buckets(found: list[_Found], keys: dict[int, set[str]], otherwise: int) -> int:
    for each in found:
        numbers = numbers_of({**each.fields, "shards": "1"})
        if numbers:
            return numbers[1]
    numbered = [match for names in keys.values() for name in names if (match := _NUMBERED.fullmatch(name))]
    return max(otherwise, *(1 + int(match[2]) for match in numbered)) if numbered else otherwise


def _fault(found: _Found, numbers: tuple[int, int]) -> str:
    if found.kind == "none":
        return "gone"
    if found.kind != "hash":
        return f"a {found.kind}"
    return "" if numbers_of(found.fields) == numbers else f"fields {', '.join(sorted(found.fields))}"
