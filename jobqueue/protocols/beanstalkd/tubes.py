"""Tubes: their names, and which of them the connections of this process use and watch."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator

from jobqueue.wires import parameters

DEFAULT = "default"
MOST_WATCHED = 100

_LONGEST = 200
_CHARACTERS = (string.ascii_letters + string.digits + "-+/;.$_()").encode()
_UNFIT = re.compile(r'[\x00-\x1f\x7f"\\]')  # in a line, or within quotes


def is_tube(name: bytes) -> bool:
    """Whether it may be the name of a tube."""
    return 0 < len(name) <= _LONGEST and not name.startswith(b"-") and not name.translate(None, _CHARACTERS)


class Names:
    """Tubes by the names of their topics, and back."""

    __slots__ = ("_prefix", "_topics")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._topics: dict[str, str] = {}  # of names in use: thousands of connections share one string

    @property
    def within(self) -> str:
        """Where its topics are, as the conditions of commands say it."""
        return f"{self._prefix}*" if self._prefix else ""

    @property
    def prefix(self) -> str:
        """What its topics begin with."""
        return self._prefix

    def topic(self, tube: str) -> str | None:
        """The topic of a tube; None where its name is too long."""
        topic = self._prefix + parameters.escaped(tube)
        return topic if parameters.fits(topic) else None

    def tube(self, topic: str) -> str:
        """The tube of a topic. One that would break a line, or the quotes around it, stays escaped."""
        name = topic.removeprefix(self._prefix)
        plain = parameters.plain(name)
        return name if _UNFIT.search(plain) else plain


class Tubes:
    """What the connections of this process do with their tubes, by topic."""

    def __init__(self) -> None:
        self.using: Counter[str] = Counter()
        self.watching: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        """Deleted jobs; of a tube that is in use here."""
        self.pauses: Counter[str] = Counter()
        self._known: dict[str, str] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self.using or topic in self.watching

    def __iter__(self) -> Iterator[str]:
        return iter(self.using | self.watching)

    def shared(self, topic: str) -> str:
        """The same string for all connections that use or watch a topic."""
        return self._known.setdefault(topic, topic)

    def use(self, topic: str) -> str:
        """A connection uses it from now on."""
        self.using[topic] += 1
        return self.shared(topic)

    def watch(self, topic: str) -> str:
        """A connection watches it from now on."""
        self.watching[topic] += 1
        return self.shared(topic)

    def unuse(self, topic: str) -> None:
        """A connection uses it no more."""
        self._end(self.using, topic)

    def ignore(self, topic: str) -> None:
        """A connection watches it no more."""
        self._end(self.watching, topic)

    def count(self, counter: Counter[str], topic: str) -> None:
        """Count what was done with a tube; one that nobody here uses is not remembered."""
        if topic in self:
            counter[topic] += 1

    def _end(self, counter: Counter[str], topic: str) -> None:
        counter[topic] -= 1
        if not counter[topic]:
            del counter[topic]
        if topic not in self:
            for each in (self.deletes, self.pauses, self._known):
                each.pop(topic, None)
