"""Acknowledgements: which entries a group of consumers is done with, seen by looking at the stream and its group.

An entry is acknowledged if it is in the stream, was delivered, and is not pending. If it is no longer in the stream,
nothing is known: whatever removed it need not have read it. So its message is sent again, unless consumers delete the
entries that they have acknowledged (`deletes`). If a consumer was deleted together with its pending entries, those were
not acknowledged either.

Trimming removes from a stream the entries that every group of consumers has acknowledged, and those beyond its length.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from buckets.errors import JobQueueError
from buckets.redis.client import Redis
from jobqueue.sinks import Down, Refused, WrongDestination

_PAGE = 250  # entries that one script looks at

# KEYS: the stream. ARGV: the group, 1 if consumers delete what they have acknowledged, and for each entry, in their
# order: its id, the consumer that had it last, and the key of a body that its consumer deletes when it is done.
# Returns the state of each entry: `waits` (for a consumer), the consumer that has it and for how many ms, `done`,
# `kept` (acknowledged, with its body still there), or `gone`. Returns false if there is no such group.
_LOOK = """
local stream, group, deletes = KEYS[1], ARGV[1], ARGV[2] == '1'
local delivered
if redis.call('EXISTS', stream) == 0 then return false end  -- nor has it the group
for _, fields in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local named = {}
  for at = 1, #fields, 2 do named[fields[at]] = fields[at + 1] end
  if named.name == group then delivered = named['last-delivered-id'] end
end
if not delivered then return false end

local function place(id)
  local ms, seq = string.match(id, '(%d+)-(%d+)')
  return tonumber(ms), tonumber(seq)
end
local last_ms, last_seq = place(delivered)

local function is_there(id)
  return #redis.call('XRANGE', stream, id, id) == 1
end

local consumers
local function is_consumer(name)
  if not consumers then
    consumers = {}
    for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
      for at = 1, #fields, 2 do
        if fields[at] == 'name' then consumers[fields[at + 1]] = true end
      end
    end
  end
  return consumers[name]
end

local function delivered_one(id, holder, body)
  if body ~= '' and redis.call('EXISTS', body) == 0 then return 'done' end
  local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if pending then return {pending[2], pending[3]} end
  if body ~= '' then return 'kept' end
  if not is_there(id) then return deletes and 'done' or 'gone' end
  return (holder == '' or is_consumer(holder)) and 'done' or 'gone'
end

local found, may_be_cut = {}, true
for at = 3, #ARGV, 3 do
  local id = ARGV[at]
  local ms, seq = place(id)
  if ms < last_ms or (ms == last_ms and seq <= last_seq) then
    found[#found + 1] = delivered_one(id, ARGV[at + 1], ARGV[at + 2])
  else
    may_be_cut = may_be_cut and not is_there(id)  -- the oldest ones are cut first
    found[#found + 1] = may_be_cut and 'gone' or 'waits'
  end
end
return found
"""
_TAKE_OUT = """
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
return 1
"""

Place = tuple[int, int]


def place_of(entry: bytes) -> Place:
    """The id of an entry, in a form that can be compared."""
    ms, _, seq = entry.partition(b"-")
    return int(ms), int(seq)


@dataclass(eq=False)
class _Awaited:
    """An entry whose acknowledgement is awaited."""

    entry: bytes
    body: str
    done: asyncio.Future[None]
    holder: bytes = b""
    """The consumer that had it at the last look."""
    kept_since: float | None = None
    """Loop time of the look that found it acknowledged with its body still there."""


class Acks:
    """The acknowledgements of one group, in any streams. `timeout_s`: how long a consumer may have an entry. `judged`:
    returns what an error of Redis means. `deletes`: whether consumers delete the entries that they have
    acknowledged."""

    def __init__(
        self,
        redis: Redis,
        group: str,
        timeout_s: float,
        judged: Callable[[JobQueueError], WrongDestination | Down],
        *,
        deletes: bool = False,
    ) -> None:
        self.group = group
        self._redis, self._timeout_s, self._judged, self._deletes = redis, timeout_s, judged, deletes
        self._made: set[str] = set()
        self._awaited: dict[str, dict[Place, _Awaited]] = defaultdict(dict)

    async def make_group(self, stream: str) -> None:
        """Create the group at the beginning of a stream, unless it exists. Raises JobQueueError."""
        if stream in self._made:
            return
        try:
            await self._redis.ask(stream, "XGROUP", "CREATE", stream, self.group, "0", "MKSTREAM")
        except JobQueueError as error:
            if not error.message.startswith("BUSYGROUP"):
                raise
        self._made.add(stream)

    async def wait(self, stream: str, entry: bytes, body: str = "") -> None:
        """Wait until an entry is acknowledged, and, if it has a body, until `body`, the key of the body, is deleted.
        Raises Refused if the entry was not acknowledged in time, or can no longer be, WrongDestination if its stream
        does not have the group."""
        place, done = place_of(entry), asyncio.get_running_loop().create_future()
        self._awaited[stream][place] = _Awaited(entry, body, done)
        try:
            await done
        finally:
            self._awaited[stream].pop(place, None)
            if not self._awaited[stream]:
                del self._awaited[stream]

    def first_awaited(self, stream: str) -> Place | None:
        """The oldest entry that is awaited here, or None."""
        awaited = self._awaited.get(stream)
        return min(awaited) if awaited else None

    async def look(self) -> None:
        """Check which entries have been acknowledged, and remove those that have been pending for too long. Raises
        Down."""
        for stream in list(self._awaited):
            awaited = [each for _, each in sorted(self._awaited.get(stream, {}).items())]
            try:
                for begin in range(0, len(awaited), _PAGE):
                    await self._look_at(stream, awaited[begin : begin + _PAGE])
            except JobQueueError as error:
                self._fail(stream, awaited, self._judged(error))

    def _fail(self, stream: str, awaited: list[_Awaited], error: WrongDestination | Down) -> None:
        """Handle a stream that cannot be looked at. Raises Down."""
        self._made.discard(stream)
        if isinstance(error, Down):
            raise error
        for each in awaited:
            if not each.done.done():
                each.done.set_exception(error)

    async def _look_at(self, stream: str, awaited: list[_Awaited]) -> None:
        named = [value for each in awaited for value in (each.entry, each.holder, each.body)]
        found = await self._redis.ask(stream, "EVAL", _LOOK, 1, stream, self.group, int(self._deletes), *named)
        if found is None:
            self._fail(stream, awaited, WrongDestination(f"the stream {stream} no longer has the group {self.group}"))
            return
        for each, state in zip(awaited, found, strict=True):
            if not each.done.done():
                await self._judge(stream, each, state)

    async def _judge(self, stream: str, each: _Awaited, state: Any) -> None:
        now = asyncio.get_running_loop().time()
        is_over = state == b"gone"
        if state == b"done":
            each.done.set_result(None)
        elif state == b"kept":
            each.kept_since = each.kept_since or now
            is_over = now - each.kept_since >= self._timeout_s
        elif isinstance(state, list):
            each.holder, idle_ms = state
            if idle_ms >= self._timeout_s * 1000:
                is_over = bool(await self._redis.ask(stream, "EVAL", _TAKE_OUT, 1, stream, self.group, each.entry))
        if is_over and not each.done.done():
            each.done.set_exception(Refused("no ack"))


log = structlog.get_logger()

_EVERY_S = 5.0
# KEYS: the stream. ARGV: its maximum length, and the first entry that must stay. Removes a page of the oldest entries
# beyond that length, and returns how many there were.
_SHORTEN = """
local beyond = redis.call('XLEN', KEYS[1]) - ARGV[1]
if beyond <= 0 then return 0 end
local page = redis.call('XRANGE', KEYS[1], '-', '(' .. ARGV[2], 'COUNT', math.min(beyond, 200))
if #page == 0 then return 0 end
local ms, seq = string.match(page[#page][1], '(%d+)-(%d+)')
redis.call('XTRIM', KEYS[1], 'MINID', ms .. '-' .. string.format('%.0f', seq + 1))
return #page
"""


class Trimming:
    """Trims the streams that were written to.

    `acks`: the acknowledgements that are awaited here; the entries that they still await stay. `maxlen`: about how many
    entries a stream with their group may have. `grace_s`: the least time that an acknowledged entry stays, because
    another process may await its acknowledgement.
    """

    def __init__(
        self, redis: Redis, acks: Acks | None = None, maxlen: int | None = None, *, grace_s: float = 0.0
    ) -> None:
        self._redis, self._acks, self._maxlen, self._grace_s = redis, acks, maxlen, grace_s
        self._streams: set[str] = set()
        # By stream: when it was looked at, the first entry that any group needed, and the first that `acks` needed.
        self._seen: defaultdict[str, deque[tuple[float, Place, Place | None]]] = defaultdict(deque)

    def touch(self, stream: str) -> None:
        """Note that a stream was written to."""
        self._streams.add(stream)

    async def run(self) -> None:
        """Trim now and then, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            for stream in list(self._streams):
                try:
                    await self.trim(stream)
                except JobQueueError as error:
                    log.warning("sink.not_trimmed", stream=stream, reason=error.message)

    async def trim(self, stream: str) -> None:
        """Remove the entries that all groups are done with, and the oldest entries beyond `maxlen` that the group of
        `acks` is done with, or nothing if there is no group. Positions of groups only rise, so entries that are read
        meanwhile stay. Raises JobQueueError."""
        groups: list[list[Any]] = await self._redis.ask(stream, "XINFO", "GROUPS", stream)
        if not groups:
            return
        firsts = {name: await self._first_needed(stream, name, last) for name, last in map(_name_and_last, groups)}
        now, seen = asyncio.get_running_loop().time(), self._seen[stream]
        own = firsts.get(self._acks.group.encode()) if self._acks else None
        seen.append((now, min(firsts.values()), own))
        while len(seen) > 1 and seen[1][0] <= now - self._grace_s:
            seen.popleft()
        when, of_all, of_own = seen[0]
        if when <= now - self._grace_s:
            await self._redis.ask(stream, "XTRIM", stream, "MINID", self._first_kept(stream, of_all))
            if self._maxlen and of_own:
                kept = self._first_kept(stream, of_own)
                while await self._redis.ask(stream, "EVAL", _SHORTEN, 1, stream, self._maxlen, kept):
                    pass

    def _first_kept(self, stream: str, needed: Place) -> str:
        awaited = self._acks.first_awaited(stream) if self._acks else None
        ms, seq = min(needed, awaited) if awaited else needed
        return f"{ms}-{seq}"

    async def _first_needed(self, stream: str, group: bytes, last: Place) -> Place:
        """The first entry that is pending in a group, or was not delivered to it yet."""
        _, first, _, _ = await self._redis.ask(stream, "XPENDING", stream, group)
        ms, seq = last
        return min(place_of(first), (ms, seq + 1)) if first else (ms, seq + 1)


def _name_and_last(fields: list[Any]) -> tuple[bytes, Place]:
    """The name of a group, and the last entry that was delivered to it."""
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    return named[b"name"], place_of(named[b"last-delivered-id"])
