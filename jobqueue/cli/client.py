"""The client of the command line: sends a command to a service over HTTP and keeps the answer byte for byte."""

from __future__ import annotations

import asyncio
import copy
import json
import os
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec
from jobqueue_client.access import Access, speaks_tls
from jobqueue_client.http import SPEAKS_TLS, words
from yarl import URL

from jobqueue.cli.access import advice

_ACTOR = "X-Jobqueue-Actor"
_UNIX = "unix://"
_CONNECT_S = 5.0
_UNAUTHORIZED = 401
_ANSWER_S = 70.0  # longer than the longest deadline that a service may have (settings.redis_timeout_s)


class Unreachable(Exception):
    """No service answered; the message says where and why."""


class Answer(NamedTuple):
    """An answer, parsed and as it arrived."""

    fields: dict[str, Any]
    raw: bytes


class Refusal(Exception):
    """The service refused the command. The message names the command, and the job if there is one, and says what to
    do."""

    def __init__(self, command: str, answer: Answer, *, has_token: bool) -> None:
        self.command, self.answer = command, answer
        fields = answer.fields
        what = f"{command} {fields['id']}" if fields.get("id") else command
        hint = advice(fields, has_token=has_token)
        super().__init__(f"{what}: {fields.get('error')} ({fields.get('code')}){hint}")


class Client:
    """One service, to be used in `async with`, which raises Unreachable for a token that cannot be sent. `url`: an http
    or https URL, or `unix:///path` for the Unix socket on which the service listens."""

    def __init__(self, url: str, access: Access) -> None:
        self.url = url.rstrip("/")
        self._access = access
        self._token = access.token
        self._actor = ""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = session_of(self._access, self.url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session
        await self._session.close()

    def acting_as(self, actor: str) -> Self:
        """A copy of this client that acts on behalf of a person, and names this person to the service. It is usable
        only as long as this client. The token needs the right to act for others."""
        other = copy.copy(self)
        other._actor = actor
        return other

    async def ask(self, command: str, **fields: Any) -> Answer:
        """Send one command, and return the answer. Raises Refusal, Unreachable."""
        request = msgspec.json.encode({"command": command, **fields})
        status, kind, raw = await self._post(request, _ANSWER_S + fields.get("wait", 0))
        answer = Answer(_parsed(raw), raw)
        if not isinstance(answer.fields.get("success"), bool):
            raise Unreachable(f"what answers at {self.url} is not a job queue: status {status}, {kind}")
        if not answer.fields["success"]:
            raise Refusal(command, answer, has_token=self._token.authorization is not None)
        return answer

    async def _post(self, request: bytes, within_s: float) -> tuple[int, str, bytes]:
        """The status, the content type and the body of the reply. If the token was refused and its file has a new one,
        the request is sent again."""
        authorization = self._token.authorization
        reply = await self._posted(request, within_s, authorization)
        if reply[0] == _UNAUTHORIZED and self._token.is_replaced(authorization):
            reply = await self._posted(request, within_s, self._token.authorization)
        return reply

    async def _posted(self, request: bytes, within_s: float, authorization: str | None) -> tuple[int, str, bytes]:
        assert self._session
        headers = {"Authorization": authorization} if authorization else {}
        if self._actor:
            headers[_ACTOR] = self._actor
        timeout = aiohttp.ClientTimeout(total=within_s, sock_connect=_CONNECT_S)
        try:
            async with self._session.post(
                URL(f"{base_of(self.url)}/command"),
                data=request,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                return response.status, response.content_type, await response.read()
        except aiohttp.ClientSSLError as error:
            raise Unreachable(f"{self.url}: {reason(error)}") from None
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise Unreachable(f"no service listens at {self.url}: {reason(error)}") from None
        except TimeoutError:
            raise Unreachable(f"the service at {self.url} did not answer within {within_s:.0f} s") from None
        except (aiohttp.ClientError, ValueError) as error:
            if await is_tls(self.url, error):
                raise Unreachable(f"{self.url}: {SPEAKS_TLS}") from None
            raise Unreachable(f"the service at {self.url} cannot be asked: {reason(error)}") from None


def session_of(access: Access, url: str) -> aiohttp.ClientSession:
    """A session for connections to the service at `url`, which trusts the authorities of `access`."""
    if url.startswith(_UNIX):
        return aiohttp.ClientSession(connector=aiohttp.UnixConnector(url.removeprefix(_UNIX)))
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.tls or True))


def base_of(url: str) -> str:
    """The base URL to which paths are appended for requests to the service at `url`."""
    return "http://localhost" if url.startswith(_UNIX) else url


async def is_tls(url: str, error: Exception) -> bool:
    """Return True if a request to an http URL failed because the server speaks TLS: it then closes a plain connection,
    or answers something that is not HTTP."""
    failed = aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | aiohttp.ClientResponseError | LookupError
    return (
        isinstance(error, failed) and url.startswith("http:") and await asyncio.to_thread(speaks_tls, url, _CONNECT_S)
    )


def reason(error: Exception) -> str:
    """The reason, without aiohttp's own words around it."""
    if isinstance(error, TimeoutError):
        return f"no connection within {_CONNECT_S:.0f} s"
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return "that is not a URL such as http://127.0.0.1:8000"
    if isinstance(error, aiohttp.ClientSSLError):
        return words(error).replace("ca_file", "--ca-file")
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, OSError) and inner.errno:
        # A number below 0 means that a host name was not found; the error has its message.
        return os.strerror(inner.errno).lower() if inner.errno > 0 else f"{inner.strerror}".lower()
    return str(inner) or type(inner).__name__


def _parsed(raw: bytes) -> dict[str, Any]:
    """The fields of a JSON object, with integers of any size; an empty dict for anything else."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
