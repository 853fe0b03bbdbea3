"""The tokens that this process knows, from Redis and from a file.

All of them are held in memory, so that a request costs one lookup. A change is announced on the bell; if that message
is lost, the list of members reports the new version within half a second. While Redis is away, the tokens stay valid as
they were last read.

Redis may lose data: a failover loses the last changes, an emptied Redis all of them. Of two records of one token, the
one that was changed last counts, and a process writes records back that are newer than those in Redis. So a token that
was revoked stays revoked.

The setting `tokens_file` names the file: TOML with a table `[[token]]` for each token, digests only. It is for those
who keep their tokens with the rest of their configuration: `jobqueue token create … --record FILE` writes such a table.
The service never writes to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from buckets import Members, Notifier
from buckets.access import Entry, Stored, Tokens
from buckets.errors import JobQueueError
from buckets.redis.outage import Outage
from buckets.waiting.notifier import Listener
from jobqueue.access.tokens import MOST, Record, as_json, from_json, from_table
from jobqueue.errors import BadField, SettingsError


class LiveTokens:
    """The tokens that are live at one moment, by digest, name and certificate."""

    def __init__(self) -> None:
        self.by_digest: dict[bytes, Record] = {}
        """After a rotation, also by the old digest as long as it is valid."""
        self.by_name: dict[str, Record] = {}
        self.by_certificate: dict[str, Record] = {}
        self.ended: dict[bytes, Record] = {}
        """The tokens that are no longer live, and those of old digests that are no longer valid."""
        self.next_end = math.inf
        """When the next live token or old digest ends, in unix seconds."""

    def take(self, records: Iterable[Record], now: float) -> bool:
        """Hold the live tokens of these records. Returns whether the live tokens have changed. `now`: unix seconds."""
        before = self.by_digest
        self.by_digest, self.by_name, self.by_certificate, self.ended = {}, {}, {}, {}
        self.next_end = math.inf
        for record in sorted(records, key=_newest_first):  # of two with the same name, the older one wins
            digest = bytes.fromhex(record.digest)
            if record.is_live(now):
                self._add(digest, record, now)
            else:
                self.ended[digest] = record
        return self.by_digest != before

    def _add(self, digest: bytes, record: Record, now: float) -> None:
        self.by_digest[digest] = record
        self.by_name[record.name] = record
        if record.certificate:
            self.by_certificate[record.certificate] = record
        if record.expires is not None:
            self.next_end = min(self.next_end, record.expires)
        if record.previous:
            previous = bytes.fromhex(record.previous)
            if now < record.previous_until:
                self.by_digest[previous] = record
                self.next_end = min(self.next_end, record.previous_until)
            else:
                self.ended[previous] = record


def _newest_first(record: Record) -> float:
    return -record.created


def merge(stored: Stored, known: Mapping[str, Record], now: float) -> tuple[dict[str, Record], list[Record]]:
    """Returns the records of Redis, updated with those records of `known` that were changed later or that Redis lacks;
    and a list of only these updates, which must be written to Redis. Tokens that ended long ago are left out. `now`:
    unix seconds."""
    records = {
        token: record
        for token, raw in stored.records.items()
        if (record := from_json(raw)) and not record.is_forgotten(now)
    }
    newer = []
    for token, record in known.items():
        theirs = records.get(token)
        if theirs is not None and theirs.changed >= record.changed:
            records[token] = record if theirs == record else theirs  # the same object, where nothing has changed
        elif not record.is_forgotten(now):
            records[token] = record
            newer.append(record)
    return records, newer


_MOST_BYTES = 16 << 20
SAME_S = 1.0
"""How long a file must stay unchanged before it is read."""


class TokensFile:
    """The path of the file, and whether it has changed. A file that is still being written does not count as changed
    yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._told = self._stamp()
        self._since = -math.inf

    def has_changed(self, now: float) -> bool:
        """Whether the file has changed in time or size, and has stayed unchanged for a second since. Each change is
        reported once. `now`: seconds of any clock."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen, self._since = stamp, now
        if not self.is_changing or now - self._since < SAME_S:
            return False
        self._told = stamp
        return True

    @property
    def is_changing(self) -> bool:
        """Whether the last look at the file saw a change that has not been reported yet."""
        return self._seen != self._told

    def is_as_seen(self) -> bool:
        """Whether the file is unchanged since the last look."""
        return self._stamp() == self._seen

    def _stamp(self) -> tuple[int, ...]:
        try:
            found = Path(self.path).stat()
        except (OSError, ValueError):
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino


def read(path: str) -> list[Record]:
    """The records of a file. Raises SettingsError."""
    place = f"the file {path} of tokens_file"
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise SettingsError(f"{place} is larger than {_MOST_BYTES >> 20} MiB")
        tables = tomllib.loads(data.decode())
    except OSError as error:
        raise SettingsError(f"{place} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{place} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{place} is not TOML: {_where(error)}") from None
    except RecursionError:
        raise SettingsError(f"{place} is not TOML: it is nested too deeply") from None
    except ValueError:  # a path with a null byte
        raise SettingsError(f"{place} cannot be read") from None
    records = _records(tables, place)
    fault = fault_of(records, ())
    if fault:
        raise SettingsError(f"{place} is refused: {fault}")
    return records


def _where(error: tomllib.TOMLDecodeError) -> str:
    """Where the error is, without the faulty text, which may be a token that does not belong there."""
    _, _, place = str(error).rpartition(" (")
    return place.removesuffix(")")


def _records(tables: dict[str, Any], place: str) -> list[Record]:
    entries = tables.get("token", [])
    if tables.keys() - {"token"} or not isinstance(entries, list):
        raise SettingsError(f"{place} may have nothing but tables [[token]]")
    records = []
    for number, entry in enumerate(entries, 1):
        try:
            if not isinstance(entry, dict):
                raise BadField("it is no table")
            records.append(from_table(entry))
        except BadField as error:
            raise SettingsError(f"{place}, token {number}: {error.message}") from None
    return records


def fault_of(records: Sequence[Record], others: Iterable[Record]) -> str:
    """Why the records of a file cannot be used together with the live ones in Redis, or an empty string if they can.
    The reason names the id of a token, never more of it."""
    all_records = [*records, *others]
    fields: tuple[Callable[[Record], str], ...] = (
        lambda record: record.id,
        lambda record: record.name,
        lambda record: record.certificate,
    )
    for field in fields:
        count = Counter(field(record) for record in all_records)
        doubled = next((each for each in records if field(each) and count[field(each)] > 1), None)
        if doubled is not None:
            return f"the id, the name or the certificate of the token {doubled.id} is there twice"
    return f"there are more than {MOST} tokens" if len(all_records) > MOST else ""


log = structlog.get_logger()

STALE_S = 3.0  # after so long without an answer from Redis, a token may exist that this process does not know
TRUSTED_S = 3600.0  # after the last answer from Redis; later, a process does not write its own records back
FILE_S = 5.0  # between two looks at the file
USES_S = 60.0  # between two reports of which tokens were used
_EMPTY = (
    "the file {} of tokens_file is refused: it has no token, and had some before; the last one is ended by an `expires`"
    " in the past, or by a restart without it"
)
_AGAIN_S = 0.5  # before Redis is asked again after it did not answer
_LEAVE_S = 1.0  # the longest that a shutdown waits for Redis
_MINUTE_S = 60


class Table:
    """The tokens of a process. `run` keeps them up to date."""

    def __init__(self, tokens: Tokens, members: Members, notifier: Notifier, file: TokensFile | None = None) -> None:
        """`members`: provides Redis's clock, by which tokens expire, and reports the version of the tokens."""
        self._tokens = tokens
        self._members = members
        self._file = file
        self._live = LiveTokens()
        self._records: dict[str, Record] = {}  # from Redis, by id
        self._filed: Sequence[Record] = ()
        self._version = 0
        self._wake = asyncio.Event()
        self._is_outdated = True
        self._is_file_wanted = file is not None
        # Loop times:
        self._confirmed_at = 0.0  # when the last request that Redis answered, for the tokens or their version, was sent
        self._looked_at = 0.0  # when the file was last checked
        self._reported_at = asyncio.get_running_loop().time()
        self._used: set[str] = set()
        self._outage = Outage(logging.getLogger(__name__), "tokens.lost", "tokens.found")
        self._has_none = False
        self.was_read = False
        """Whether Redis has answered at least once."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each change of the live tokens."""
        self.before_report: list[Callable[[], None]] = []
        """Called before a report of which tokens were used, to note the latest uses."""
        members.on_version = self._told
        notifier.register(Listener(tokens=self._rung, subscribed=self._subscribed))

    def __repr__(self) -> str:
        return f"Table({len(self._live.by_name)} tokens)"

    @property
    def is_stale(self) -> bool:
        """Whether a token may exist that this table lacks: for 3 s the table was neither read nor confirmed."""
        return not self.was_read or asyncio.get_running_loop().time() - self._confirmed_at > STALE_S

    @property
    def filed(self) -> Sequence[Record]:
        """The records of the file."""
        return self._filed

    def of_digest(self, digest: bytes) -> Record | None:
        """The live token with this digest; after a rotation, the old digest works, too, as long as it is valid."""
        return self._live.by_digest.get(digest)

    def ended(self, digest: bytes) -> Record | None:
        """The token with this digest that is no longer live, as long as it is remembered."""
        return self._live.ended.get(digest)

    def of_name(self, name: str) -> Record | None:
        """The live token with this name."""
        return self._live.by_name.get(name)

    def of_certificate(self, name: str) -> Record | None:
        """The live token for this name from a client certificate."""
        return self._live.by_certificate.get(name)

    def live(self) -> list[Record]:
        """All live tokens."""
        return list(self._live.by_name.values())

    def note_used(self, token_id: str) -> None:
        """Note that a token was used; this is reported to Redis within a minute."""
        self._used.add(token_id)

    def heard(self) -> None:
        """Have the tokens read again now, because they were changed."""
        self._is_outdated = True
        self._wake.set()

    def reload_file(self) -> None:
        """Read the file again, once it has stayed unchanged for a second."""
        self._is_file_wanted = self._file is not None
        self._wake.set()

    def _rung(self, version: int) -> None:
        if version != self._version:
            self.heard()

    def _subscribed(self, shard: int) -> None:
        if shard == 0:  # messages may have been lost
            self.heard()

    def _told(self, version: int, asked: float) -> None:
        """Compare the version that the list of members reports. `asked`: loop time at which the list was requested."""
        if version != self._version:
            self.heard()
        elif not self._is_outdated:
            self._confirmed_at = max(self._confirmed_at, asked)

    async def run(self) -> None:
        """Reload on every change until cancelled, then report which tokens were used."""
        try:
            while True:
                self._wake.clear()
                pause = await self._ticked()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
        finally:
            with contextlib.suppress(JobQueueError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._report()

    async def _ticked(self) -> float:
        """Like `tick`, but logs an error instead of raising it; an outage of Redis is logged once."""
        try:
            return await self.tick()
        except JobQueueError as error:
            self._outage.begin(error)
        except Exception:
            log.exception("tokens.failed")
        return _AGAIN_S

    async def tick(self) -> float:
        """Do everything that is due now. Returns in how many seconds more may be due. Raises JobQueueError."""
        now = asyncio.get_running_loop().time()
        if self._members.redis_s() >= self._live.next_end:  # even if Redis does not answer
            self._refresh()
        if self._is_outdated:
            await self._read()
            self._outage.end()
        if self._file and (self._is_file_wanted or self._file.is_changing or now - self._looked_at >= FILE_S):
            self._looked_at = now
            if self._file.has_changed(now) or (self._is_file_wanted and not self._file.is_changing):
                self._is_file_wanted = False
                await self._read_file()
        if now - self._reported_at >= USES_S:
            self._reported_at = now
            await self._report()
        self._warn_of_none()
        look_s = SAME_S if self._file and self._file.is_changing else FILE_S
        return max(min(self._live.next_end - self._members.redis_s(), look_s), 0.0)

    def _warn_of_none(self) -> None:
        """Log once that there are no tokens, so that nobody has access."""
        has_none = not (self._live.by_name or self._is_file_wanted)
        if has_none and not self._has_none:
            log.warning("tokens.none", advice="jobqueue token create NAME --may admin")
        self._has_none = has_none

    async def _read(self) -> None:
        asked = asyncio.get_running_loop().time()
        self._is_outdated = False
        try:
            newer = self._take(await self._tokens.read(), asked)
            if newer:
                entries = [Entry(record.id, record.changed, as_json(record)) for record in newer]
                await self._tokens.write(entries, least=self._version)
                log.warning("tokens.restored", tokens=[record.id for record in newer[:100]], number=len(newer))
        except BaseException:
            self._is_outdated = True
            raise

    def _take(self, stored: Stored, asked: float) -> list[Record]:
        """Use the records that Redis has. Returns the records of this process that are newer."""
        is_trusted = self.was_read and asked - self._confirmed_at < TRUSTED_S
        self._records, newer = merge(stored, self._records if is_trusted else {}, stored.now_us / 1e6)
        self._version = max(stored.version, self._version) if newer else stored.version
        self._confirmed_at = asked
        self.was_read = True
        self._refresh()
        return newer

    def _refresh(self) -> None:
        """Update which tokens are live now."""
        if self._live.take([*self._records.values(), *self._filed], self._members.redis_s()):
            for changed in self.on_change:
                changed()

    async def _read_file(self) -> None:
        """Use the records of the file, unless any of them is wrong."""
        assert self._file
        try:
            records = await asyncio.to_thread(read, self._file.path)  # it may take a second
            if not self._file.is_as_seen():
                return  # it is read once it stops changing
            if self._filed and not records:
                raise SettingsError(_EMPTY.format(self._file.path))
            now = self._members.redis_s()
            fault = fault_of(records, [record for record in self._records.values() if record.is_live(now)])
            if fault:
                raise SettingsError(f"the file {self._file.path} of tokens_file is refused: {fault}")
        except SettingsError as error:
            log.error("tokens.refused", error=str(error))
            return
        self._filed = records
        log.info("tokens.reloaded", number=len(records))
        self._refresh()

    async def _report(self) -> None:
        """Report which tokens were used."""
        for note in self.before_report:
            note()
        if not self._used:
            return
        minute = int(self._members.redis_s()) // _MINUTE_S * _MINUTE_S
        used, self._used = self._used, set()
        try:
            await self._tokens.note_used(dict.fromkeys(sorted(used), minute))
        except BaseException:
            self._used |= used
            raise
