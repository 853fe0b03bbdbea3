"""The tokens that this process knows, from Redis and from a file.

All of them are held in memory, so that a request costs one look-up. A change is announced on the bell; should that
message be lost, the roll reports within half a second that the version is another one. While Redis is away, the tokens
hold as they were last read.

Redis may forget: a failover loses the last changes, an emptied Redis all of them. Of two records of one token the one
that was changed last holds, and a process writes back what it knows better than Redis. So a token that was revoked
stays revoked.

The file is the setting `tokens_file`: TOML with a table `[[token]]` for each token, digests only. It is for those who
keep their tokens with the rest of their configuration: `jobqueue token create … --record FILE` writes such a table. The
service never writes to it.
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
    """Live tokens by what requests show, at a moment."""

    def __init__(self) -> None:
        self.by_digest: dict[bytes, Record] = {}
        """After a rotation by the old digest, too, as long as that holds."""
        self.by_name: dict[str, Record] = {}
        self.by_certificate: dict[str, Record] = {}
        self.ended: dict[bytes, Record] = {}
        """Those that were live once."""
        self.next_end = math.inf
        """When the next of them ends, in unix seconds."""

    def take(self, records: Iterable[Record], now: float) -> bool:
        """Be the live ones of these; returns whether others were live before. `now`: unix seconds."""
        before = self.by_digest
        self.by_digest, self.by_name, self.by_certificate, self.ended = {}, {}, {}, {}
        self.next_end = math.inf
        for record in sorted(records, key=_newest_first):  # of two with one name the older one counts
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
    """The records that Redis has, with those of `known` in their places that were changed later or that it lacks; and
    these, which Redis is to have. What ended long ago is left out. `now`: unix seconds."""
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
"""For how long a file has to be the same before it is read."""


class TokensFile:
    """The place of the file, and whether it is another one by now: one that is being written in place is not yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._told = self._stamp()
        self._since = -math.inf

    def has_changed(self, now: float) -> bool:
        """Whether it differs in time or size from the file of before, and has been the same for a second. Each change
        is told once. `now`: seconds of any clock."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen, self._since = stamp, now
        if not self.is_changing or now - self._since < SAME_S:
            return False
        self._told = stamp
        return True

    @property
    def is_changing(self) -> bool:
        """Whether a change was seen at the last look that has not been told yet."""
        return self._seen != self._told

    def is_as_seen(self) -> bool:
        """Whether it is still the file of the last look."""
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
    """What is wrong, without the text at fault, which may be a token that does not belong there."""
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
    """Why the records of a file cannot be used beside the live ones that Redis has; empty: they can. It names an id,
    never more of a token."""
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

STALE_S = 3.0  # without a word of Redis, there may be a token that this process does not know
TRUSTED_S = 3600.0  # after Redis answered last; later a process does not claim to know better than Redis
FILE_S = 5.0  # between two looks at the file
USES_S = 60.0  # between two reports of what was used
_EMPTY = (
    "the file {} of tokens_file is refused: it has no token, and had some before; the last one is ended by an `expires`"
    " in the past, or by a restart without it"
)
_AGAIN_S = 0.5  # before Redis is asked again that did not answer
_LEAVE_S = 1.0  # that a shutdown waits for Redis
_MINUTE_S = 60


class Table:
    """The tokens of a process. `run` keeps them up to date."""

    def __init__(self, tokens: Tokens, members: Members, notifier: Notifier, file: TokensFile | None = None) -> None:
        """`members`: by whose clock, Redis's, tokens expire, and who tell the version."""
        self._tokens = tokens
        self._members = members
        self._file = file
        self._live = LiveTokens()
        self._records: dict[str, Record] = {}  # of Redis, by id
        self._filed: Sequence[Record] = ()
        self._version = 0
        self._wake = asyncio.Event()
        self._is_outdated = True
        self._is_file_wanted = file is not None
        # Loop times:
        self._confirmed_at = 0.0  # when Redis was asked that answered last, with the tokens or with their version
        self._looked_at = 0.0  # at the file
        self._reported_at = asyncio.get_running_loop().time()
        self._used: set[str] = set()
        self._outage = Outage(logging.getLogger(__name__), "tokens.lost", "tokens.found")
        self._has_none = False
        self.was_read = False
        """Whether Redis has answered at least once."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each change of what is live."""
        self.before_report: list[Callable[[], None]] = []
        """Called before it is reported which tokens were used, to note that."""
        members.on_version = self._told
        notifier.register(Listener(tokens=self._rung, subscribed=self._subscribed))

    def __repr__(self) -> str:
        return f"Table({len(self._live.by_name)} tokens)"

    @property
    def is_stale(self) -> bool:
        """Whether it may lack a token that exists: for 3 s it was neither read nor confirmed."""
        return not self.was_read or asyncio.get_running_loop().time() - self._confirmed_at > STALE_S

    @property
    def filed(self) -> Sequence[Record]:
        """The records of the file."""
        return self._filed

    def of_digest(self, digest: bytes) -> Record | None:
        """The live token with this digest; after a rotation the old one counts, too, as long as it holds."""
        return self._live.by_digest.get(digest)

    def ended(self, digest: bytes) -> Record | None:
        """The token with this digest that was live once, as long as that is remembered."""
        return self._live.ended.get(digest)

    def of_name(self, name: str) -> Record | None:
        """The live token of this name."""
        return self._live.by_name.get(name)

    def of_certificate(self, name: str) -> Record | None:
        """The live token that this name in a client certificate stands for."""
        return self._live.by_certificate.get(name)

    def live(self) -> list[Record]:
        """All live tokens."""
        return list(self._live.by_name.values())

    def note_used(self, token_id: str) -> None:
        """A token was used, which is reported to Redis within a minute."""
        self._used.add(token_id)

    def heard(self) -> None:
        """The tokens were changed: they are read now."""
        self._is_outdated = True
        self._wake.set()

    def reload_file(self) -> None:
        """Read the file again, as soon as it has been the same for a second."""
        self._is_file_wanted = self._file is not None
        self._wake.set()

    def _rung(self, version: int) -> None:
        if version != self._version:
            self.heard()

    def _subscribed(self, shard: int) -> None:
        if shard == 0:  # messages may have been lost
            self.heard()

    def _told(self, version: int, asked: float) -> None:
        """The roll told the version. `asked`: the loop's time of the question."""
        if version != self._version:
            self.heard()
        elif not self._is_outdated:
            self._confirmed_at = max(self._confirmed_at, asked)

    async def run(self) -> None:
        """Read whenever something was changed, until cancelled; then what was used is reported."""
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
        """As `tick`; an error changes nothing, and is logged once."""
        try:
            return await self.tick()
        except JobQueueError as error:
            self._outage.begin(error)
        except Exception:
            log.exception("tokens.failed")
        return _AGAIN_S

    async def tick(self) -> float:
        """Do what is to be done now; returns after how many seconds there may be more. Raises JobQueueError."""
        now = asyncio.get_running_loop().time()
        if self._members.redis_s() >= self._live.next_end:  # whether Redis answers or not
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
        """Log once that nobody can come in."""
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
        """Know what Redis has; returns what this process knows better."""
        is_trusted = self.was_read and asked - self._confirmed_at < TRUSTED_S
        self._records, newer = merge(stored, self._records if is_trusted else {}, stored.now_us / 1e6)
        self._version = max(stored.version, self._version) if newer else stored.version
        self._confirmed_at = asked
        self.was_read = True
        self._refresh()
        return newer

    def _refresh(self) -> None:
        """Find out what is live now."""
        if self._live.take([*self._records.values(), *self._filed], self._members.redis_s()):
            for changed in self.on_change:
                changed()

    async def _read_file(self) -> None:
        """Take the records of the file over, unless there is something wrong with any of them."""
        assert self._file
        try:
            records = await asyncio.to_thread(read, self._file.path)  # it may take a second
            if not self._file.is_as_seen():
                return  # it is read when it has come to rest
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
