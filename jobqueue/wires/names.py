"""The names of other systems as names of ours: any text, escaped, behind the prefix of the dialect."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from jobqueue.schema.fields import LONGEST_NAME, NAME_CHARACTERS

_OTHER = re.compile(rb"[^" + re.escape(NAME_CHARACTERS.encode()) + rb"]")
_HIDES_TILDE = "/#+@=:%"
_TILDE = re.compile("~([0-9A-F]{2})")


def escaped(text: str) -> str:
    """Each byte of the text's UTF-8 that a name may not have, and `%`, as `%XX`. One text has one spelling. Raises
    UnicodeEncodeError for a lone surrogate."""
    return _OTHER.sub(lambda found: b"%%%02X" % found[0][0], text.encode()).decode()


def plain(name: str) -> str:
    """The text that `escaped` made a name of; bytes that are not UTF-8 become U+FFFD."""
    return unquote_to_bytes(name).decode("utf-8", "replace") if "%" in name else name


def fits(name: str) -> bool:
    """Whether an escaped name with its prefix has an allowed length."""
    return 0 < len(name) <= LONGEST_NAME


def without_colons(topic: str) -> str:
    """A topic as the first part of an id that has a colon behind it."""
    return topic.replace(":", "%3A")


def tilde(name: str) -> str:
    """An id for systems that take only letters, digits, `-` and `_` in one: `/ # + @ = : %` as `~XX`."""
    return "".join(f"~{ord(each):02X}" if each in _HIDES_TILDE else each for each in name)


def without_tilde(name: str) -> str:
    """The id that `tilde` was given."""
    return _TILDE.sub(lambda found: chr(int(found[1], 16)), name)
