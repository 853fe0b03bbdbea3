"""The client of the command line: sends a command to a service over HTTP and keeps the answer byte for byte."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec
from yarl import URL

from jobqueue.cli.credentials import token_of
from jobqueue.errors import SettingsError

_CONNECT_S = 5.0
_ANSWER_S = 70.0  # longer than the longest deadline that a service may have (settings.redis_timeout_s)


class Unreachable(Exception):
    """No service answered; the message says where and why."""


class Answer(NamedTuple):
    """An answer, parsed and as it arrived."""

    fields: dict[str, Any]
    raw: bytes


class Refusal(Exception):
    """The service refused the command; the message names it, and the job if there is one."""

    def __init__(self, command: str, answer: Answer) -> None:
        self.answer = answer
        what = f"{command} {answer.fields['id']}" if answer.fields.get("id") else command
        super().__init__(f"{what}: {answer.fields.get('error')} ({answer.fields.get('code')})")


class Client:
    """One service. `async with`, which raises Unreachable for a token that cannot be sent."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=credentials())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session
        await self._session.close()

    async def ask(self, command: str, **fields: Any) -> Answer:
        """Send one command; its answer. Raises Refusal, Unreachable."""
        request = msgspec.json.encode({"command": command, **fields})
        status, kind, raw = await self._post(request, _ANSWER_S + fields.get("wait", 0))
        answer = Answer(_parsed(raw), raw)
        if not isinstance(answer.fields.get("success"), bool):
            raise Unreachable(f"what answers at {self.url} is not a job queue: status {status}, {kind}")
        if not answer.fields["success"]:
            raise Refusal(command, answer)
        return answer

    async def _post(self, request: bytes, within_s: float) -> tuple[int, str, bytes]:
        assert self._session
        timeout = aiohttp.ClientTimeout(total=within_s, sock_connect=_CONNECT_S)
        try:
            async with self._session.post(
                URL(f"{self.url}/command"), data=request, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status, response.content_type, await response.read()
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise Unreachable(f"no service listens at {self.url}: {_reason(error)}") from None
        except TimeoutError:
            raise Unreachable(f"the service at {self.url} did not answer within {within_s:.0f} s") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise Unreachable(f"the service at {self.url} cannot be asked: {_reason(error)}") from None


def credentials() -> dict[str, str]:
    """The header that shows the token, if there is one. Raises Unreachable for one that cannot be sent."""
    try:
        token = token_of()
    except SettingsError as error:
        raise Unreachable(str(error)) from None
    return {"Authorization": f"Bearer {token}"} if token else {}


def _reason(error: Exception) -> str:
    """The reason, without aiohttp's own words around it."""
    if isinstance(error, TimeoutError):
        return f"no connection within {_CONNECT_S:.0f} s"
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return "that is not a URL such as http://127.0.0.1:8000"
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, OSError) and inner.errno:
        # Below 0: a host name that was not found; its message is in the error.
        return os.strerror(inner.errno).lower() if inner.errno > 0 else f"{inner.strerror}".lower()
    return str(inner) or type(inner).__name__


def _parsed(raw: bytes) -> dict[str, Any]:
    """A JSON object, with integers of any size; empty for anything else."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
