"""A client of the service for tasks: sends batches of commands over persistent connections, and retries until all are
answered.

It uses only http.client and orjson, so that executors need nothing else. After a "not now" (a lost connection, 429, 503
with Retry-After, or a code in `NOT_NOW` for one command of a batch) this client waits and retries, because a task that
fails sends its whole partition again.

TLS failures are explained: an invalid certificate, or a URL with the wrong scheme for its port.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from pyspark_jobqueue.connector.options import Target, read_token
from pyspark_jobqueue.errors import BadOption, Refused, Unreachable

# OpenSSL's reasons for refusing bytes that are not TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
_PROBE_S = 3.0


def trouble(url: str, error: BaseException) -> str | None:
    """Why a request failed, or None if the cause is not TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cure = ". To trust its authority, set SSL_CERT_FILE on the driver and the executors"
        return f"the certificate is not valid: {error.verify_message.rstrip('.')}{cure}"
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return "this port does not speak TLS: use http://"
    is_closed = isinstance(error, ConnectionError | http.client.BadStatusLine)
    is_refused = isinstance(error, ConnectionRefusedError)
    if url.lower().startswith("http:") and is_closed and not is_refused and _speaks_tls(url):
        return "this port speaks TLS: use https://"
    return None


def _speaks_tls(url: str) -> bool:
    """Return True if the server at an http URL speaks TLS, and so closes a plain connection without a response."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), _PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # such as the alert that a client certificate is required
    except (OSError, ValueError):
        return False


NOT_NOW = frozenset({"TOPIC_FULL", "TOO_FAST", "NO_ROOM", "UNAVAILABLE", "SHUTTING_DOWN", "INTERNAL"})
"""The error codes after which the same command may succeed later."""
_LONGEST_WAIT_S = 10.0
# Codes that refuse a whole request for its size, or for one command (a body nested too deeply). The request is sent
# again in halves.
_SPLIT_ON = ("TOO_LARGE", "TOO_MANY", "BAD_JSON")

Answer = Mapping[str, Any]


class Service:
    """One task's client of the service. Safe for any number of threads, each of which gets its own connection.

    `start` picks the first of several URLs, so that tasks spread over them. If a URL does not answer, the next one is
    tried.
    """

    def __init__(self, target: Target, start: int = 0) -> None:
        self._target = target
        self._token = target.token
        self._turn = start % len(target.urls)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()
        self._stopped = threading.Event()
        self.retries = 0
        """Requests sent again so far."""

    def ask(self, command: Mapping[str, Any]) -> Answer:
        """The answer to one command. Raises Refused and Unreachable."""
        (answer,) = self.batch([orjson.dumps(command)])
        if not answer["success"]:
            raise Refused(answer, f"{command['command']}")
        return answer

    def batch(self, commands: Sequence[bytes]) -> list[Answer]:
        """The answers to up to 1,000 commands (each encoded as JSON), in order, including refusals. Commands with the
        answer "not now" are sent again, until more than `max_retries` attempts in a row have answered none of them.

        Raises Refused if the service refuses the request as a whole (a wrong token), Unreachable after these attempts.
        """
        answers: list[Answer | None] = [None] * len(commands)
        left = list(range(len(commands)))
        failures = 0
        while left:
            tried, wait_s, why = self._try([commands[place] for place in left])
            for place, answer in zip(left, tried, strict=True):
                answers[place] = answer
            still = [place for place in left if answers[place] is None]
            failures = 0 if len(still) < len(left) else failures + 1
            left = still
            if left:
                self._pause(failures, wait_s, why)
        return [answer for answer in answers if answer is not None]

    def stop(self) -> None:
        """Stop retrying: threads that wait for a retry raise Unreachable at once."""
        self._stopped.set()

    def close(self) -> None:
        """Close the connections of all threads, which must not use them afterwards."""
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

    def _pause(self, failures: int, wait_s: float, why: str) -> None:
        if failures > self._target.max_retries:
            raise Unreachable(f"gave up after {self._target.max_retries} retries: {why}")
        with self._lock:
            self.retries += 1
        longest = min(_LONGEST_WAIT_S, self._target.retry_wait_s * 2 ** min(max(failures - 1, 0), 16))
        if self._stopped.wait(max(wait_s, random.uniform(longest / 2, longest))):
            raise Unreachable(f"stopped: {why}")

    def _try(self, commands: Sequence[bytes]) -> tuple[list[Answer | None], float, str]:
        """Send the commands once. Returns the answers (None for a command to send again), the minimum wait (s) before
        sending again, and the reason for sending again."""
        turn, shown = self._turn, self._token
        try:
            status, retry_after, data = self._post(self._target.urls[turn], b"[" + b",".join(commands) + b"]")
        except (OSError, http.client.HTTPException) as error:
            self._leave(turn)
            url = self._target.urls[turn]
            why = trouble(url, error)
            return [None] * len(commands), 0.0, f"{url}: {why}" if why else f"{url} does not answer: {error!r}"
        decoded = _decoded(data)
        if status == 200 and isinstance(decoded, list) and len(decoded) == len(commands):
            return self._final_answers(decoded)
        return self._refusal_of_all(commands, turn, shown, status, retry_after, decoded)

    def _final_answers(self, given: list[Answer]) -> tuple[list[Answer | None], float, str]:
        """Like `_try`, given the answers of a batch. Answers that mean "not now" become None."""
        answers = [None if not answer["success"] and answer.get("code") in NOT_NOW else answer for answer in given]
        later = [answer for answer, kept in zip(given, answers, strict=True) if kept is None]
        if not later:
            return answers, 0.0, ""
        wait_s = max(float(answer.get("retry_after") or 0) for answer in later)
        return answers, wait_s, f"{later[0].get('error')} ({later[0].get('code')})"

    def _refusal_of_all(
        self,
        commands: Sequence[bytes],
        turn: int,
        shown: str | None,
        status: int,
        retry_after: float,
        decoded: Any,
    ) -> tuple[list[Answer | None], float, str]:
        """Like `_try`, given a single answer to a whole request."""
        ours = isinstance(decoded, dict) and {"error", "code"} <= decoded.keys()  # gateways answer in JSON too
        answer = decoded if ours else {"error": f"HTTP {status}", "code": "BAD_HTTP"}
        if answer["code"] in _SPLIT_ON or status == 413:  # a proxy returns only the status
            if len(commands) == 1:
                return [{**answer, "success": False, "code": _code_of_one(answer)}], 0.0, ""
            half = len(commands) // 2
            first, second = self._try(commands[:half]), self._try(commands[half:])
            return first[0] + second[0], max(first[1], second[1]), first[2] or second[2]
        if status == 429 or status >= 500 or status == 200:
            self._leave(turn)
            return [None] * len(commands), retry_after, f"{answer['error']} ({answer['code']})"
        if status == 401 and self._is_replaced(shown):
            return [None] * len(commands), 0.0, f"{answer['error']} ({answer['code']})"
        raise Refused(answer, self._target.urls[turn])

    def _is_replaced(self, shown: str | None) -> bool:
        """True if there is now a token other than the refused one. Reads the token file again; ignores a file that is
        missing on this machine or only half written."""
        if self._target.token_file is not None and self._token == shown:
            with contextlib.suppress(BadOption):
                self._token = read_token(self._target.token_file)
        return self._token != shown

    def _post(self, url: str, data: bytes) -> tuple[int, float, bytes]:
        connection = self._connection(url)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request("POST", urlsplit(url).path + "/command", data, headers)
            with connection.getresponse() as response:
                body = response.read()
                return response.status, _seconds(response.getheader("Retry-After")), body
        except BaseException:
            self._drop()
            raise

    def _connection(self, url: str) -> http.client.HTTPConnection:
        """This thread's connection to a URL."""
        if getattr(self._local, "url", None) != url:
            self._drop()
            self._local.connection, self._local.url = _made(url, self._target.timeout_s), url
            with self._lock:
                self._open.add(self._local.connection)
        connection: http.client.HTTPConnection = self._local.connection
        return connection

    def _drop(self) -> None:
        """Close this thread's connection."""
        if getattr(self._local, "url", None) is not None:
            self._local.connection.close()
            self._local.url = None
            with self._lock:
                self._open.discard(self._local.connection)

    def _leave(self, turn: int) -> None:
        """Switch to the next URL, unless another thread already has: a second switch might lead back."""
        with self._lock:
            if self._turn == turn:
                self._turn = (turn + 1) % len(self._target.urls)


def _made(url: str, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return kind(parts.hostname or "", port, timeout=timeout_s)


def _code_of_one(answer: Answer) -> str:
    """The code for a command that was refused on its own. The response of a proxy has no code."""
    return "BAD_JSON" if answer["code"] == "BAD_JSON" else "TOO_LARGE"


def _decoded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _seconds(retry_after: str | None) -> float:
    """Seconds of a Retry-After header; 0 for a date, which leaves the wait to the backoff."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
