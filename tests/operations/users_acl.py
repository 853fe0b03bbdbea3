"""The ACL file of deploy/redis, made from the code: `make acl` writes it.

What the service sends to Redis stands in the Lua scripts and in Python as literals, `call('HGET', …)` and
`read("HGET", …)`; redis-py adds what opens a connection. Each literal in capitals counts that is a command of Redis; in
Python only in a call, a tuple or a list.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import redis

from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT

FILE = ROOT / "deploy" / "redis" / "users.acl"

_OF_CONNECTIONS = {"client|setname", "select"}
_FOLDERS = ("buckets", "jobqueue")
# The embedded Redis belongs to its service and has no users; the rest speak HTTP, whose methods are called alike.
_ELSEWHERE = (
    *("redis_server/embedded", "redis_server/probe", "redis_server/program", "redis_server/torn_aof"),
    *("protocols", "web", "wires", "sinks"),
)
_NOT_SENT = {"sentinel", "readonly"}  # to Sentinels alone; the word of an error
NEWER = {"waitaof"}  # than 7.0, which refuses a file that names them

_LUA_COMMENT = re.compile(r"--.*")
_LUA_WORD = re.compile(r"['\"]([A-Z]+)['\"](?=(?:, ['\"]([A-Z]+)['\"])?)")
"""With the word behind it, if that is the next argument."""
_WORD = re.compile(r"[A-Z]+")


def commands() -> set[str]:
    """The commands that the service sends, `name` or `name|subcommand`, as an ACL has them."""
    known = _known()
    pairs = {*_of_scripts(), *_of_python()}
    return _OF_CONNECTIONS | {found for pair in pairs if (found := _named(pair, known))} - _NOT_SENT


def _named(pair: tuple[str, str], known: set[str]) -> str | None:
    name, sub = (word.lower() for word in pair)
    both = f"{name}|{sub}"
    return both if both in known else name if name in known | NEWER else None


def _of_scripts() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "buckets" / "lua").rglob("*.lua"):
        yield from _LUA_WORD.findall(_LUA_COMMENT.sub("", path.read_text()))


def _of_python() -> Iterator[tuple[str, str]]:
    for folder in _FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if not str(path.relative_to(ROOT / folder)).startswith(_ELSEWHERE):
                yield from _literals(ast.parse(path.read_text()))


def _literals(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each word in capitals in a call, a tuple or a list, with the word behind it: commands may follow a default."""
    for node in ast.walk(tree):
        given = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple | ast.List) else []
        words = [each.value if isinstance(each, ast.Constant) else "" for each in given]
        words = [each if isinstance(each, str) and _WORD.fullmatch(each) else "" for each in words]
        yield from zip_longest(words, words[1:], fillvalue="")


def _known() -> set[str]:
    """The commands and subcommands that the server at hand knows."""
    with (
        tempfile.TemporaryDirectory(prefix="jq-") as folder,
        RedisServer(Path(folder)) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        return {each.decode() for each in client.execute_command("COMMAND LIST")}


def text() -> str:
    """The file. A password has to be put in the place of `resetpass`.

    Nobody can be the user `default`, which is off. It has its rights for the append-only file: servers read the
    transactions in it with them, and some leave out what they do not allow.
    """
    allowed = " ".join(f"+{command}" for command in sorted(commands() - NEWER))
    return (
        "user default off ~* &* +@all\n"
        f"user jobqueue on resetpass resetkeys ~{{jq:* resetchannels &{{jq:* -@all {allowed}\n"
    )


if __name__ == "__main__":
    print(text(), end="")
