"""What the user may do as whom a service connects to Redis, by its ACL. Redis says so in a script, for which it asks no
further right."""

from __future__ import annotations

import re
from collections.abc import Iterable

from buckets.errors import JobQueueError, Unavailable, Unfit
from buckets.keys import Keys
from buckets.redis.client import Redis
from buckets.scripts import SCRIPTS

_EVERYWHERE = ("add", "due", "pop", "finish", "release", "touch", "sign_in", "beat")
"""The scripts that every service runs all the time."""
_AT_TIMES = {"DUMP", "XADD"}  # for what cannot be read, and for a journal
_WITH_SUBCOMMANDS = {"MEMORY", "XGROUP", "XINFO"}  # for a journal; they cannot be judged by their first word
_WORD = re.compile(r"--.*|'([A-Z]+)'")
_A_USER_THAT_MAY = "deploy/redis/users.acl has a user that may"


async def judge_rights(redis: Redis, namespace: str) -> list[str]:
    """The warnings about what the user may not do on the server of shard 0; none where Redis does not say.

    Raises Unfit where jobs cannot be moved, Unavailable where Redis does not answer.
    """
    keys = Keys(namespace, 0)
    needed = _commands_of(_EVERYWHERE) - _AT_TIMES
    asked = sorted(_commands_of(SCRIPTS) - _WITH_SUBCOMMANDS)
    try:
        found = await redis.call("lacking", asked, meta=keys.meta, never=keys.never, bell=keys.bell)
    except Unavailable:
        raise
    except JobQueueError as error:
        if error.message.startswith("NOPERM"):
            raise Unfit(f"Redis lets its user run no script: {error.message}; {_A_USER_THAT_MAY}") from None
        return []
    lacking = [command.decode() for command in found]
    names = ", ".join(lacking)
    if needed.intersection(lacking):
        raise Unfit(f"the Redis user may not run {names}, and no job moves without; {_A_USER_THAT_MAY}")
    return [f"The Redis user may not run {names}: what needs them fails; {_A_USER_THAT_MAY}."] if names else []


def _commands_of(scripts: Iterable[str]) -> set[str]:
    """The commands that scripts run, among the other words in capitals of their strings."""
    return {word for name in scripts for word in _WORD.findall(SCRIPTS[name].text)} - {""}
