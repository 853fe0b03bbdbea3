"""The actor: who is behind a request or a command, for the log of actions."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from contextvars import ContextVar

from jobqueue.access.grants import Grant
from jobqueue.access.rights import ACTOR
from jobqueue.errors import BadField, Forbidden

HEADER = "X-Jobqueue-Actor"
NOBODY = "-"
_LONGEST = 200  # bytes, with the name of the token

USER: ContextVar[str] = ContextVar("user", default="")
"""The person whom the request that is being answered names; empty: it names none."""


def named(headers: Sequence[str], grant: Grant) -> str:
    """The person whom a request names. Raises Forbidden where its token may not do that, and BadField."""
    if not headers:
        return ""
    if not grant.may(ACTOR):
        raise Forbidden(f"the token lacks the right {ACTOR}, which {HEADER} needs", right=ACTOR)
    header = headers[0]
    if len(headers) > 1 or not header or not header.isprintable() or len(actor_of(grant, header).encode()) > _LONGEST:
        words = f"printable UTF-8, of at most {_LONGEST} bytes with the token's name and a slash before it"
        raise BadField(f"{HEADER} must be there once, and be {words}", field=HEADER)
    return header


def operator() -> str:
    """Who gives a command that asks Redis itself: the user and the machine."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a user without a name
        return socket.gethostname()


def actor_of(grant: Grant, user: str) -> str:
    """The actor, in words: the name of the token, and the person whom the request names."""
    if user:
        return f"{grant.name}/{user}" if grant.name else user
    return grant.name or NOBODY
