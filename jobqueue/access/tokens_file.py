"""The file of tokens, the setting `tokens_file`: TOML with a table `[[token]]` for each, digests only.

It is for those who keep their tokens with the rest of their configuration: `jobqueue token create … --record FILE`
writes such a table. The service never writes to it.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jobqueue.access.records import MOST, Record, from_table
from jobqueue.errors import BadField, SettingsError

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
