"""How a request is answered by a task, whoever read it: its log, and the jobs of a client that is gone. And what that
needs of a request that aiohttp read: its body, and the client that its answer goes to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from buckets import Job
from jobqueue.access.authentication import Entry, credential
from jobqueue.access.caller import CALLER
from jobqueue.access.connections import close_if_hung_up
from jobqueue.access.grants import GRANT, HEADER, NOBODY, USER, Grant, named
from jobqueue.errors import BadJson, TooLarge
from jobqueue.logs import REQUEST
from jobqueue.protocols import Reply
from jobqueue.protocols.command.in_flight import Work
from jobqueue.web.fast_path import CHALLENGE, UNAUTHORIZED
from jobqueue.web.peer import Peer
from jobqueue.web.port import Client

log = structlog.get_logger()


async def respond(give_back: Callable[[Sequence[Job]], None], work: Work, request_id: str, client: Client) -> None:
    """Answer a request with the reply that some work makes.

    When this is cancelled, or the answer cannot be made or sent, the jobs reserved for the client go back.
    """
    REQUEST.set(request_id)
    reserved: list[Job] = []
    try:
        reply = await work(reserved)
        if reply.status >= 500 and reply.status != HTTPStatus.SERVICE_UNAVAILABLE:  # of which each command is logged
            log.warning("request.failed", status=reply.status)
        await client.send(reply, request_id, has_jobs=bool(reserved))
    except ConnectionError:
        give_back(reserved)
    except BaseException:
        give_back(reserved)
        raise


def let_in(entry: Entry, request: web.BaseRequest) -> Grant:
    """What a request may do; from here on the commands that are carried out for it may do that, in the name of whom it
    names. Raises Unauthorized, Unavailable, Forbidden, BadField."""
    GRANT.set(NOBODY)
    USER.set("")
    shown = credential(", ".join(request.headers.getall("Authorization", ())))  # several together are none
    grant = entry.grant(shown, cast(Peer, CALLER.get()))
    USER.set(named(request.headers.getall(HEADER, ()), grant))
    GRANT.set(grant)
    return grant


async def body_of(request: web.Request) -> bytes:
    """The body of a request. Raises the reason why it cannot be read."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge(f"the request is too large; at most {request.client_max_size} bytes are allowed") from None
    except (web.RequestPayloadError, HttpProcessingError):  # a bad chunk
        raise BadJson("the request's body is damaged") from None


class AiohttpClient:
    """The client of a request. Its answer is written here, not by aiohttp's handler, to learn whether it could be."""

    def __init__(self, request: web.Request, is_closing: Callable[[], bool], *, challenges: bool = False) -> None:
        """`is_closing`: whether the service is stopping, so that the answer is the last of its connection.
        `challenges`: whether one for want of a token says how to show it, and is the last, too."""
        self._request = request
        self._is_closing = is_closing
        self._challenges = challenges
        self.response = web.Response()

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer: see `Client`."""
        if has_jobs:
            close_if_hung_up(self._request.transport)
        response = self.response
        response.set_status(reply.status)
        response.body = reply.body
        response.headers["Content-Type"] = reply.content_type
        is_challenge = self._challenges and reply.status == UNAUTHORIZED
        if is_challenge:
            response.headers.update(CHALLENGE)
        response.headers["X-Request-Id"] = request_id
        if reply.retry_after is not None:
            response.headers["Retry-After"] = str(reply.retry_after)
        if self._is_closing() or is_challenge:
            response.force_close()
        await response.prepare(self._request)
        await response.write_eof()
