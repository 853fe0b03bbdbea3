"""What the commands `token` and `whoami` do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from buckets.errors import JobQueueError, NotFound
from jobqueue.access.grants import Grant
from jobqueue.access.issuing import (
    Issued,
    Issuing,
    Known,
    beyond,
    beyond_names,
    beyond_reach,
    beyond_topics,
    reaches_all,
)
from jobqueue.access.tokens import Record
from jobqueue.commands.answers import Answer, success
from jobqueue.errors import Forbidden
from jobqueue.schema import params

_GIVEN = ("name", "rights", "topics", "expires", "rate", "burst", "bytes", "waits", "own_ids", "certificate")
_SHOWN = ("id", "name", "rights", "topics", "expires", "rate", "burst", "bytes", "waits", "own_ids")


async def carry_out(issuing: Issuing | None, command: params.Token, grant: Grant) -> Answer:
    """The answer to `token`. Raises Forbidden for anything that the asker's own token lacks, and on a service without
    tokens: there, anybody could create a token and keep access after tokens become required."""
    if issuing is None:
        raise Forbidden("this service asks for no tokens; on its machine, `jobqueue token` creates them in Redis")
    return await _ACTIONS[command.action](issuing, command, grant)


async def _create(issuing: Issuing, command: params.Token, grant: Grant) -> Answer:
    given = {name: value for name in _GIVEN if (value := getattr(command, name)) is not None}
    objection, latest = _unless(beyond_names, grant), grant.record.expires
    any_name = reaches_all(grant.record)
    return _issued(await issuing.create(given, grant.name, objection, latest, any_name=any_name))


async def _list(issuing: Issuing, command: params.Token, grant: Grant) -> Answer:
    return success(tokens=[shown(known) for known in await issuing.all() if _sees(grant, known)])


async def _show(issuing: Issuing, command: params.Token, grant: Grant) -> Answer:
    return success(**shown(await _found(issuing, command, grant)))


async def _revoke(issuing: Issuing, command: params.Token, grant: Grant) -> Answer:
    await _found(issuing, command, grant)
    record = await issuing.revoke(command.id or "", _unless(beyond_reach, grant))
    return success(**shown(await issuing.find(record.id)))


async def _rotate(issuing: Issuing, command: params.Token, grant: Grant) -> Answer:
    await _found(issuing, command, grant)
    return _issued(await issuing.rotate(command.id or "", command.keep or 0.0, _unless(beyond, grant)))


async def _test(issuing: Issuing, command: params.Token, grant: Grant) -> Answer:
    await _found(issuing, command, grant)
    why = await issuing.refusal(command.id or "", command.right or "", command.topic)
    return success(id=command.id, allowed=not why, why=why or None)


def _sees(grant: Grant, known: Known) -> bool:
    """True if the asker may see a token: their own, or one that reaches only topics that their own token reaches."""
    return known.record.id == grant.token_id or not beyond_topics(grant.record, known.record)


async def _found(issuing: Issuing, command: params.Token, grant: Grant) -> Known:
    """The token that a command names. Raises NotFound if it does not exist or the asker may not see it."""
    known = await issuing.find(command.id or "")
    if not _sees(grant, known):
        raise NotFound("no such token")
    return known


_ACTIONS: dict[str, Callable[[Issuing, params.Token, Grant], Awaitable[Answer]]] = {
    "create": _create,
    "list": _list,
    "show": _show,
    "revoke": _revoke,
    "rotate": _rotate,
    "test": _test,
}


def _unless(
    fault: Callable[[Record, Record], Forbidden | None], grant: Grant
) -> Callable[[Record], JobQueueError | None]:
    """The objection, by `fault`, to a record that may do more than the asker's own token."""
    return lambda record: fault(grant.record, record)


def _issued(issued: Issued) -> Answer:
    return success(**shown(Known(issued.record, None, in_file=False, is_live=True)), token=issued.token.text)


def shown(known: Known) -> dict[str, Any]:
    """A record as answers show it."""
    record, used, in_file, is_live = known
    fields = {
        **{"id": record.id, "name": record.name},
        "state": "live" if is_live else "revoked" if record.revoked else "expired",
        "source": "file" if in_file else "redis",
        **{name: getattr(record, name) for name in ("rights", "topics", "created", "created_by", "expires")},
        "used": used,
        **{name: getattr(record, name) for name in ("rate", "burst", "bytes", "waits", "own_ids")},
        "certificate": record.certificate or None,
    }
    if record.revoked:
        fields["revoked"] = record.revoked
    if record.previous and is_live:
        fields["old_until"] = record.previous_until
    return fields


def bearer(grant: Grant) -> Answer:
    """The answer to `whoami`."""
    if grant.everything:
        return success(open=True)
    commands = [name for name in params.BY_NAME if grant.may(name)]
    return success(open=False, commands=commands, **{name: getattr(grant.record, name) for name in _SHOWN})
