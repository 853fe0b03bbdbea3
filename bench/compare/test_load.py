"""The load generator against servers that answer wrongly: what it must not let pass."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from bench.compare import MissingError, WrongError, check, job_id
from bench.compare.load import compiled
from bench.compare.load.compiled import Load, compiler, load, program

_ID = job_id(0)
_POPPED = f'{{"success":true,"id":"{_ID}","value":"x","lease":7}}'
_FINISHED = f'{{"success":true,"id":"{_ID}","state":"finished"}}'
_CREATED = '{"success":true,"result":"created"}'
_RESERVED = f"RESERVED 5 100\r\n{_ID:100}\r\n"
_RECORD = f"$20\r\n{_ID}\r\n"

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")  # CI installs one


@pytest.fixture(scope="module", autouse=True)
def built_strictly() -> Iterator[None]:
    """No warning when it is built; when it runs, a wrong access, a leak or undefined behaviour ends it."""
    strictly = ["-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "FLAGS", [*compiled.FLAGS, *strictly])
        program.cache_clear()
        yield
    program.cache_clear()


def _http(body: str, status: str = "200 OK") -> str:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"


@contextmanager
def _answering(answers: Sequence[str], piece: int) -> Iterator[str]:
    """The port of a server that gives these answers to one connection, in pieces, whatever it is asked; then it hangs
    up when it is asked again."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for answer in answers:
                    connection.recv(1 << 16)
                    for start in range(0, len(answer), piece):
                        connection.sendall(answer[start : start + piece].encode())
                connection.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        yield str(server.getsockname()[1])
        thread.join()


def _told(dialect: str, *answers: str, piece: int = 1 << 16, **plan: int) -> Load:
    with _answering(answers, piece) as port:
        return load(dialect, port, **plan)


def test_jobs_that_were_popped_and_finished_are_told_with_their_times() -> None:
    done = _told("http", _http(_POPPED), _http(_FINISHED), takers=1, jobs=1)
    check(done.got, [_ID])
    assert len(done.at_ms) == 1 and done.cpu_us >= 0


@pytest.mark.parametrize(
    ("dialect", "popped", "finished"),
    [
        ("http", [_http(_POPPED)], _http(_FINISHED)),
        ("beanstalk", [_RESERVED], "DELETED\r\n"),
        ("resp", [f"*1\r\n{_RECORD}", "*1\r\n$1\r\nx\r\n:1\r\n"], ":1\r\n:1\r\n"),
    ],
)
def test_an_answer_in_pieces_is_one_answer(dialect: str, popped: list[str], finished: str) -> None:
    assert _told(dialect, *popped, finished, piece=1, takers=1, jobs=1).got == [_ID]


def test_a_job_that_comes_twice_is_told_twice_and_so_is_found_wrong() -> None:
    done = _told("http", *[_http(_POPPED), _http(_FINISHED)] * 2, takers=1, jobs=2)
    with pytest.raises(WrongError, match="1 lost, 1 doubled"):
        check(done.got, [_ID, job_id(1)])


def test_an_id_that_is_none_of_ours_is_strange() -> None:
    strange = _POPPED.replace(_ID, "order-1234567890abcd")
    done = _told("http", _http(strange), _http(_FINISHED), takers=1, jobs=1)
    with pytest.raises(WrongError, match="1 strange"):
        check(done.got, [_ID])


@pytest.mark.parametrize(
    ("dialect", "plan", "answers"),
    [
        ("http", {"adders": 1, "jobs": 1}, [_http('{"success":true,"result":"kept"}')]),
        ("http", {"adders": 1, "jobs": 2, "size": 2}, [_http(f"[{_CREATED}]")]),
        ("http", {"adders": 1, "jobs": 1}, [_http(_CREATED, "503 Service Unavailable")]),
        ("http", {"takers": 1, "jobs": 1}, [_http(_POPPED), _http('{"success":false,"error":{"code":"STALE_LEASE"}}')]),
        ("http", {"takers": 1, "jobs": 1}, [_http(_POPPED), _http('{"success":true,"state":"ready"}')]),
        ("http", {"takers": 1, "jobs": 1, "size": 2}, [_http(f'{{"jobs":[{_POPPED},{_POPPED}]}}')]),
        ("beanstalk", {"adders": 1, "jobs": 1}, ["DRAINING\r\n"]),
        ("beanstalk", {"takers": 1, "jobs": 1}, [_RESERVED, "NOT_FOUND\r\n"]),
        ("beanstalk", {"takers": 1, "jobs": 1}, ["DEADLINE_SOON\r\n"]),
        ("resp", {"adders": 1, "jobs": 1}, ["+OK\r\n:0\r\n"]),
        ("resp", {"takers": 1, "jobs": 1}, [f"*1\r\n{_RECORD}", "*1\r\n$-1\r\n:1\r\n"]),
        ("resp", {"takers": 1, "jobs": 1}, [f"*1\r\n{_RECORD}", "-OOM\r\n:1\r\n"]),
        ("resp", {"takers": 1, "jobs": 1}, [f"*1\r\n{_RECORD}", "*1\r\n$1\r\nx\r\n:1\r\n", ":0\r\n:1\r\n"]),
    ],
)
def test_a_wrong_answer_ends_it(dialect: str, plan: dict[str, int], answers: list[str]) -> None:
    with pytest.raises(WrongError):
        _told(dialect, *answers, **plan)


def test_a_server_that_hangs_up_ends_it() -> None:
    with pytest.raises(RuntimeError, match="hung up"):
        _told("http", _http(_POPPED), takers=1, jobs=1)


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MissingError, match="apt-get install gcc"):
        compiler()
