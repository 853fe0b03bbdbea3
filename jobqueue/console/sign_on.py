"""Single sign-on: a person whom a proxy has signed in acts with the token of their group, and under their own name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from aiohttp import web
from jobqueue_client.access.options import Access

from jobqueue.cli.client import Client, Refusal
from jobqueue.console.options import Options
from jobqueue.console.proxies import User
from jobqueue.console.questions import Questions
from jobqueue.console.visit import Person

log = structlog.get_logger()

_ASKED_WITHIN_S = 1.0
_NAMES_ACTORS = ("admin", "actor")


class SignOn:
    """The roles. A person in several has the first that the settings name. `open` before use, `close` at the end."""

    def __init__(self, options: Options, questions: Questions) -> None:
        self._roles = {group: Client(options.url, Access(token, options.tls)) for group, token in options.roles.items()}
        self._may_act = not options.read_only
        self._questions = questions

    async def open(self) -> None:
        for client in self._roles.values():
            await client.__aenter__()

    async def close(self) -> None:
        for client in self._roles.values():
            await client.__aexit__(None, None, None)

    async def person(self, user: User, address: str) -> Person:
        """Who a user is here. Raises HTTPForbidden for those without a role, and Away."""
        group = next((each for each in self._roles if each in user.groups), None)
        if group is None:
            log.warning("session.refused", status=403, user=user.name, address=address)
            raise web.HTTPForbidden(reason=f"{user.name} is in no group that has a role here")
        client, key = self._roles[group], f"role {group}"
        bearer = await self._bearer(client, key, group)
        return Person(acting(client, bearer, user.name), key, bearer, self._may_act, is_open=False, user=user.name)

    async def _bearer(self, client: Client, key: str, group: str) -> Mapping[str, Any]:
        try:
            return (await self._questions.ask(client, key, _ASKED_WITHIN_S, "whoami", {})).fields
        except Refusal as refusal:
            if refusal.answer.fields.get("code") != "UNAUTHORIZED":
                raise
        raise web.HTTPForbidden(reason=f"the service does not know the token of the group {group}, or it has ended")


def acting(client: Client, bearer: Mapping[str, Any], person: str) -> Client:
    """A client that names the person who acts, where the service believes it: one that is open believes everybody."""
    is_believed = bool(bearer.get("open")) or any(right in bearer.get("rights", ()) for right in _NAMES_ACTORS)
    return client.acting_as(person) if is_believed else client
