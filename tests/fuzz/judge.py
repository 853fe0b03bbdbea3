"""The judge: sends a request to a real service, and fails unless the answer and the state of Redis are right."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import jsonschema_rs
import redis

from jobqueue.errors import BAD_HTTP_STATUS, STATUS, EncodedBody
from tests.fuzz.requests import Lease, Request, damaged, framed, written
from tests.fuzz.wire import PATIENCE_S, Response, Wire

# Every key with a digest of its value and its expiry, but for the locks, the roll, the reports about workers, the
# figures and the fence, which expire by themselves, and for the log of actions, which has the refused ones too. The
# tests' Redis keeps small collections packed and does not compress: equal values have equal dumps.
_STATE = """#!lua flags=no-writes
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if not (string.find(key, '}:lock:') or string.find(key, '}:roll$') or string.find(key, '}:w:')
    or string.find(key, '}:f:') or string.find(key, '}:figured$') or string.find(key, '}:cards$')
    or string.find(key, '}:op:') or string.find(key, '}:ops$')
    or string.find(key, '}:fence$') or string.find(key, '}:actions$')) then
    local dump = redis.call('DUMP', key)
    found[#found + 1] = key .. ' ' .. redis.sha1hex(dump) .. ' ' .. redis.call('PEXPIRETIME', key)
  end
end
table.sort(found)
return table.concat(found, string.char(10))
"""
REDIS_OPTIONS = (
    *("--hash-max-listpack-entries", "1000000", "--zset-max-listpack-entries", "1000000", "--rdbcompression", "no"),
    *("--hash-max-listpack-value", "1000000", "--zset-max-listpack-value", "1000000"),
)
_READS = (
    *("get", "explain", "stats", "forecast", "figures", "peek", "find", "topics", "schedules", "workers"),
    *("instances", "health", "settings", "leave", "whoami", "actions"),
    "operation",  # none is started, as no plan's id is known
)


class Judge:
    """Holds the description, the service and its Redis."""

    def __init__(self, document: dict[str, Any], port: int, socket: str, *, quiet: bool) -> None:
        self._document = document
        self._wire = Wire(port)
        self._redis = redis.Redis(unix_socket_path=socket)
        self._state = self._redis.register_script(_STATE)
        self._quiet = quiet
        self._before = self._look()
        self._leases: dict[str, int] = {}
        self._validators: dict[tuple[str, str, int], Any] = {}
        self.seen: Counter[str] = Counter()  # codes, and commands that were carried out
        self.sent = 0

    def _look(self) -> bytes:
        state: bytes = self._state() if self._quiet else b""
        return state

    def send(self, request: Request) -> None:
        """Send one request and judge the outcome."""
        content = self._with_leases(request.content)
        data = framed(request, damaged(written(content), request.damage))
        begun = time.monotonic()
        half = request.frame in ("short", "bad chunk", "no length")
        response = self._wire.exchange(data, head=request.method == "HEAD", half=half)
        self.sent += 1
        assert time.monotonic() - begun < PATIENCE_S, "it took too long"
        after = self._look()
        before, self._before = self._before, after
        if response is None:
            assert half, "no answer"
        if response is None or self._is_judged(request, response, content):
            assert after == before, f"a refusal changed {_changed(before, after)}"

    def _with_leases(self, content: Any) -> Any:
        if isinstance(content, list):
            return [self._with_leases(each) for each in content]
        if isinstance(content, dict) and isinstance(content.get("lease"), Lease):
            newest = self._leases.get(str(content.get("id")), 5)
            return {**content, "lease": newest + content["lease"].value}
        return content

    def _is_judged(self, request: Request, response: Response, content: Any) -> bool:
        """Fail for a wrong answer; returns whether nothing may have changed."""
        assert response.status < 500 or response.status == 503, (response.status, response.body)
        if request.method == "HEAD":
            return True
        assert response.headers["content-type"].startswith("application/json"), response
        answered = response.json
        path = "/command" if response.status != 200 else request.path.partition("?")[0]
        if path in ("/", "/healthz", "/readyz", "/openapi.json"):
            self._check(path, "get", response.status, answered)
            return True
        self._check("/command", "post", response.status, answered)
        answers = answered if isinstance(answered, list) else [answered]
        for answer in answers:
            self._note(answer)
        if isinstance(answered, dict) and not answered["success"]:
            encoded = BAD_HTTP_STATUS[EncodedBody] if request.frame in ("gzip", "bad gzip", "deflate") else None
            assert response.status in (STATUS[answered["code"]], encoded), answered
            assert (response.status in (429, 503)) == ("retry-after" in response.headers)
        is_intact = request.damage[0] in ("none", "spaces") and isinstance(content, dict)
        if is_intact and isinstance(answered, dict) and answered["success"]:
            self._check_answer(content["command"], answered)
            return content["command"] in _READS
        return not any(answer["success"] for answer in answers)

    def _note(self, answer: dict[str, Any]) -> None:
        self.seen[answer.get("code", "success")] += 1
        for job in [answer, *answer.get("jobs", ())]:
            if isinstance(job, dict) and "lease" in job and "id" in job:
                self._leases[job["id"]] = job["lease"]

    def _check(self, path: str, method: str, status: int, answered: Any) -> None:
        """Check that an answer has a declared status and fits its schema."""
        key = (path, method, status)
        if key not in self._validators:
            response = self._document["paths"][path][method]["responses"][str(status)]
            self._validators[key] = self._validator(response["content"]["application/json"]["schema"])
        error = next(self._validators[key].iter_errors(answered), None)
        assert error is None, (answered, str(error)[:500])

    def _check_answer(self, command: str, answered: Any) -> None:
        self.seen[command] += 1
        key = ("", command, 200)
        if key not in self._validators:
            kinds = self._document["components"]["schemas"].values()
            kind = next(k for k in kinds if k["properties"].get("command", {}).get("enum") == [command])
            self._validators[key] = self._validator({"anyOf": kind["x-answers"]})
        assert self._validators[key].is_valid(answered), (command, answered)

    def _validator(self, schema: dict[str, Any]) -> Any:
        return jsonschema_rs.Draft202012Validator({**schema, "components": self._document["components"]})

    def close(self) -> None:
        self._wire.close()
        self._redis.close()


def _changed(before: bytes, after: bytes) -> list[bytes]:
    return sorted(set(before.split(b"\n")) ^ set(after.split(b"\n")))[:9]
