"""The settings of a namespace: founding and reading them, and what can still be read from damaged ones.

Each shard has a hash `meta` with the format of the data, the hash function that spreads ids over shards, and the
numbers of shards and buckets. Once founded, a namespace keeps these numbers, whatever a process asks for. In format 2,
far jobs wait in slices (lua/include/slices.lua), and `meta` says how far ahead; until `jobqueue upgrade`, a namespace
that an earlier version founded has format 1. If events are on (buckets/events/switch.py), `meta` also has the switch
and the word of the stream.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buckets.errors import JobQueueError, Unfit
from buckets.keys import FAMILIES, NAMESPACE, Keys
from buckets.pages import Pages
from buckets.redis.client import Redis
from buckets.scripts import Value

FORMAT = 2
"""The newest format of the data."""
SLICES_MS = 3_600_000
"""How far ahead a job must be due to wait in a slice, in a new namespace."""
HASH = "crc32"
_MOST_SHARDS = 255
_NUMBERED = re.compile(rf"({FAMILIES['BUCKET']}|{FAMILIES['SLICE']}|{FAMILIES['LOCK']})(\d{{1,3}})")
_SLICES = re.compile("[1-9][0-9]{3,11}")
LEAST_ENTRIES, MOST_ENTRIES = 1_000, 1_000_000_000
MANY_ENTRIES = 1_000_000
"""The most entries of a stream by default."""
_SWITCH = {"events": re.compile("[1-9][0-9]{0,9}"), "touches": re.compile("1"), "stream": re.compile("[0-9a-f]{1,32}")}
_WAY_OUT = "If it is damaged, run `jobqueue fsck --repair`"


class Numbers(NamedTuple):
    """How many shards a namespace has, and how many buckets each shard."""

    shards: int
    buckets: int


def numbers_of(meta: Mapping[str, str]) -> Numbers | None:
    """The numbers in the settings of a shard, or None if the settings are of another version or damaged."""
    slices_ms = slices_of(meta)
    if slices_ms is None:
        return None
    own = _format(slices_ms) | {"hash": HASH}
    numbers = [meta.get(name, "") for name in Numbers._fields]
    required, optional = {*own, *Numbers._fields}, meta.keys() & _SWITCH.keys()
    if meta.keys() - optional != required or any(meta[name] != value for name, value in own.items()):
        return None
    if not all(_is_of_switch(name, meta[name]) for name in optional):
        return None
    if not all(each.isascii() and each.isdigit() and 0 < int(each[:4]) <= _MOST_SHARDS for each in numbers):
        return None
    return Numbers(*map(int, numbers))


def slices_of(meta: Mapping[str, str]) -> int | None:
    """How far ahead (ms) a job must be due to wait in a slice, according to the settings of a shard; 0 for format 1,
    without slices; None if the settings do not tell."""
    if meta.get("format") == "1":
        return 0
    is_known = meta.get("format") == str(FORMAT) and _SLICES.fullmatch(meta.get("slices", ""))
    return int(meta["slices"]) if is_known else None


def _format(slices_ms: int) -> dict[str, str]:
    return {"format": str(FORMAT), "slices": str(slices_ms)} if slices_ms else {"format": "1"}


class Switch(NamedTuple):
    """The settings for recording events, where recording is on."""

    entries: int
    """The most entries that the stream of a shard may have."""
    touches: bool = False
    """Whether touches are recorded, too."""


def switch_of(meta: Mapping[str, str]) -> Switch | None:
    """The switch in the settings of a shard, even damaged ones, or None if events are off."""
    if not _is_of_switch("events", meta.get("events", "")):
        return None
    return Switch(int(meta["events"]), meta.get("touches") == "1")


def _is_of_switch(name: str, value: str) -> bool:
    if not _SWITCH[name].fullmatch(value):
        return False
    return name != "events" or LEAST_ENTRIES <= int(value) <= MOST_ENTRIES


def fresh_word() -> str:
    """A word for a new stream of events, which distinguishes it from earlier streams of the shard."""
    return secrets.token_hex(8)


async def read_meta(redis: Redis, keys: Keys) -> dict[str, str]:
    """The settings of a shard as they are; empty if there are none."""
    return _fields(await redis.read("HGETALL", keys.meta))


def _fields(flat: list[Any]) -> dict[str, str]:
    words = [word.decode("utf-8", "replace") for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


async def look(redis: Redis, namespace: str) -> Numbers | None:
    """The numbers with which `open_namespace` would join a namespace, or None if it would found the namespace. Raises
    Unfit when `open_namespace` would; changes nothing."""
    first = await _looked(redis, Keys(namespace, 0))
    for shard in range(1, first.shards if first else 0):
        await _looked(redis, Keys(namespace, shard))
    return first


async def _looked(redis: Redis, keys: Keys) -> Numbers | None:
    try:
        meta = await read_meta(redis, keys)
    except JobQueueError as error:
        raise _blamed(error, keys) from None
    return _joined(keys, meta) if meta else None


class Founded(NamedTuple):
    """The settings of a shard that are now in effect."""

    numbers: Numbers
    switch: Switch | None
    slices_ms: int
    """As `slices_of` returns it."""


async def open_namespace(redis: Redis, namespace: str, wanted: Numbers) -> list[Founded]:
    """Found the namespace with the wanted numbers, or join an existing one. Returns the settings of each shard.

    Raises Unfit for a bad name, and for a namespace that another version wrote or that is damaged.
    """
    if not NAMESPACE.fullmatch(namespace):
        raise Unfit("a namespace has 1 to 32 characters of A-Z a-z 0-9 . _ -")
    first = await found(redis, Keys(namespace, 0), wanted)
    opened = [first]
    for shard in range(1, first.numbers.shards):
        opened.append(await found(redis, Keys(namespace, shard), first.numbers, slices_ms=first.slices_ms))
    return opened


async def found(
    redis: Redis, keys: Keys, wanted: Numbers, switch: Switch | None = None, slices_ms: int = SLICES_MS
) -> Founded:
    """Write the settings of a shard unless it has some; returns those in effect. Raises Unfit."""
    settings = {**_format(slices_ms), **wanted._asdict(), "hash": HASH}
    flat: list[Value] = [text for pair in settings.items() for text in pair]
    try:
        reply = await redis.call(
            "create_shard",
            flat,
            meta=keys.meta,
            never=keys.never,
            now="",
            entries=switch.entries if switch else "",
            touches=int(switch is not None and switch.touches),
            fresh=fresh_word(),
        )
        meta = _fields(reply)
    except JobQueueError as error:
        raise _blamed(error, keys) from None
    return Founded(_joined(keys, meta), switch_of(meta), slices_of(meta) or 0)


def _blamed(error: JobQueueError, keys: Keys) -> JobQueueError:
    """The error itself, or one that says that the settings of a shard are not a hash."""
    if "WRONGTYPE" not in error.message:
        return error
    return Unfit(f"{keys.meta} is not a hash: another program wrote it. {_WAY_OUT}")


def _joined(keys: Keys, meta: Mapping[str, str]) -> Numbers:
    numbers = numbers_of(meta)
    if numbers is None:
        raise Unfit(f"{keys.meta} was written by another version or is damaged: {meta}. {_WAY_OUT}")
    return numbers


async def join(redis: Redis, namespace: str) -> Numbers:
    """The numbers of an existing namespace, according to the shards that answer. Raises Unfit if there is no such
    namespace, or if it is damaged or of another version; Unavailable if no shard answers."""
    if not NAMESPACE.fullmatch(namespace):
        raise Unfit("a namespace has 1 to 32 characters of A-Z a-z 0-9 . _ -")
    every = (Keys(namespace, shard) for shard in range(_MOST_SHARDS))
    replies = await asyncio.gather(*(read_meta(redis, keys) for keys in every), return_exceptions=True)
    errors = [reply for reply in replies if isinstance(reply, BaseException)]
    metas = [reply for reply in replies if not isinstance(reply, BaseException) and reply]
    votes = {numbers_of(meta) for meta in metas}
    numbers = votes.pop() if len(votes) == 1 else None
    if numbers:
        return numbers
    if metas:
        raise Unfit(f"the settings of the namespace {namespace} are of another version or damaged. {_WAY_OUT}")
    raise errors[0] if errors else Unfit(f"there is no namespace {namespace} in this Redis; start the service first")


@dataclass(frozen=True, slots=True)
class Examination:
    """The numbers of a namespace, as far as they can be known, and what is wrong with the settings of its shards."""

    numbers: Numbers
    faults: dict[int, str] = field(default_factory=dict)
    """By shard, how its settings differ from these numbers, in words; `gone` if it has no settings."""
    empty: bool = False
    """Whether there is no namespace at all."""
    switches: list[Switch | None] = field(default_factory=list)
    """The switch of each shard, as far as it can be read if the settings are damaged."""
    slices_ms: int = SLICES_MS
    """As `slices_of` returns it, of the whole namespace."""


@dataclass(frozen=True, slots=True)
class _Shard:
    """The key of a shard's settings: its Redis type, and its fields if it is a hash."""

    kind: str
    fields: dict[str, str]


async def _shard(redis: Redis, keys: Keys) -> _Shard:
    kind = (await redis.read("TYPE", keys.meta)).decode()
    return _Shard(kind, await read_meta(redis, keys) if kind == "hash" else {})


async def examine(redis: Redis, namespace: str, buckets: int) -> Examination:
    """Read the settings of a namespace that may be damaged, which `open_namespace` would refuse. `buckets`: the number
    of buckets to assume if nothing reveals it.

    Raises Unfit for a namespace of another version, whose data this version cannot judge.
    """
    shards = await asyncio.gather(*(_shard(redis, Keys(namespace, shard)) for shard in range(_MOST_SHARDS)))
    for each in shards:
        number = each.fields.get("format", "")
        if number.isdigit() and not 1 <= int(number[:9]) <= FORMAT:
            raise Unfit(f"the namespace {namespace} was written by another version: {each.fields}")
    keys = await _keys(redis, namespace) if _is_doubtful(shards) else {}
    if not keys and all(each.kind == "none" for each in shards):
        return Examination(Numbers(1, buckets), empty=True)
    votes = Counter(vote for each in shards if (vote := numbers_of(each.fields)))
    if votes and not _is_lone_voice(shards, keys):
        numbers = votes.most_common(1)[0][0]
    else:
        numbers = Numbers(_count_shards(shards, keys), _count_buckets(shards, keys, buckets))
    faults = {shard: fault for shard in range(numbers.shards) if (fault := _fault(shards[shard], numbers))}
    switches = [switch_of(each.fields) for each in shards[: numbers.shards]]
    return Examination(numbers, faults, switches=switches, slices_ms=_slices_ms(shards, keys))


def _slices_ms(shards: list[_Shard], keys: dict[int, set[str]]) -> int:
    """What most shards say; if none does, whether there are slices. A shard whose settings are lost must not go back
    to format 1 while others have slices, nor the other way round while older versions run."""
    votes = Counter(slices_ms for each in shards if (slices_ms := slices_of(each.fields)) is not None)
    if votes:
        return votes.most_common(1)[0][0]
    return SLICES_MS if any(name.startswith(FAMILIES["SLICE"]) for names in keys.values() for name in names) else 0


def _is_doubtful(shards: list[_Shard]) -> bool:
    """Whether the settings alone do not determine the numbers, so that the keys must be scanned."""
    votes = [numbers for each in shards if (numbers := numbers_of(each.fields))]
    return not votes or (len(votes) == 1 and votes[0].shards > 1)


def _is_lone_voice(shards: list[_Shard], keys: dict[int, set[str]]) -> bool:
    """Whether only one shard claims that there are more shards, and those have no keys at all."""
    return _is_doubtful(shards) and max(keys, default=0) == 0


async def _keys(redis: Redis, namespace: str) -> dict[int, set[str]]:
    """The shards that have keys, each with its keys that contain the number of a bucket."""
    numbered: dict[int, set[str]] = {}
    form = re.compile(rf"\{{{re.escape(namespace)}:(\d{{1,3}})\}}:(.*)", re.S)
    async for page in Pages(redis).keys(f"{{{namespace}:*}}:*"):
        for key in page:
            match = form.fullmatch(key.decode("utf-8", "replace"))
            if match:
                names = numbered.setdefault(int(match[1]), set())
                names |= {match[2]} if _NUMBERED.fullmatch(match[2]) else set()
    return numbered


def _count_shards(shards: list[_Shard], keys: dict[int, set[str]]) -> int:
    present = [shard for shard, each in enumerate(shards) if each.kind != "none"]
    return 1 + max([*present, *keys], default=0)


def _count_buckets(shards: list[_Shard], keys: dict[int, set[str]], otherwise: int) -> int:
    for each in shards:
        numbers = numbers_of({**each.fields, "shards": "1"})
        if numbers:
            return numbers.buckets
    numbered = [match for names in keys.values() for name in names if (match := _NUMBERED.fullmatch(name))]
    return max(otherwise, *(1 + int(match[2]) for match in numbered)) if numbered else otherwise


def _fault(shard: _Shard, numbers: Numbers) -> str:
    if shard.kind == "none":
        return "gone"
    if shard.kind != "hash":
        return f"a {shard.kind}"
    return "" if numbers_of(shard.fields) == numbers else f"fields {', '.join(sorted(shard.fields))}"
