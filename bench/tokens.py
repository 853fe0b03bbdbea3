"""`make bench-tokens`: adds one a request over 64 connections, without tokens and with them.

Four services take turns, each on a Redis of its own: an open one, one whose token may do everything, one whose token
has topics, and one whose token has topics and a rate. A round measures each once, in another order; the ratio to the
open one is that of the same round. `python -m bench.tokens 20 3` sets the number of rounds and the seconds
of each measurement.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.compare import FAR_S
from bench.compare.load.compiled import load
from bench.compare.systems.service import Service
from bench.compare.systems.store import Store
from bench.figures import percentile
from tests.kit.service import JOBQUEUE

CONNECTIONS = 64
ROUNDS, SECONDS = 12, 3.0
WANTED = {"a token": 0.97, "a token with topics": 0.92, "a token with topics and a rate": 0.92}
_OPEN = "open"
_EMPTY = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  if not (key:find(':meta$') or key:find(':tokens$') or key:find(':roll$') or key:find(':lock:')) then
    redis.call('UNLINK', key)
  end
end
"""
_FLAGS = {
    "a token": ("--may", "admin"),
    "a token with topics": ("--may", "produce", "--topics", "bench,other-*"),
    "a token with topics and a rate": ("--may", "produce", "--topics", "bench,other-*", "--rate", "1000000"),
}


class Contender(NamedTuple):
    """A service, and the header that its clients send."""

    service: Service
    store: Store
    header: str


def contender(name: str, folder: Path, stack: ExitStack) -> Contender:
    """Start a service, and make its token if it wants one."""
    folder.mkdir()
    store = Store(folder, None)
    stack.callback(store.stop)
    service = Service(folder)
    flags = ["--redis", store.url, "--workers", "1"]
    header = ""
    if name in _FLAGS:
        config = folder / "jobqueue.toml"
        config.write_text('access = "tokens"\n')
        flags += ["--config", str(config)]
        command = [*JOBQUEUE, "token", "create", "bench", *_FLAGS[name], "--redis", store.url]
        token = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        header = f"Authorization: Bearer {token.strip()}"
    service.start(*flags)
    stack.callback(service.stop)
    return Contender(service, store, header)


def rate(each: Contender, seconds: float, first: int) -> tuple[float, int]:
    """Adds a second, and how many there were."""
    address, plan = str(each.service.port), {"adders": CONNECTIONS, "for_ms": round(seconds * 1000), "first": first}
    done = load("http", address, **plan, delay_ms=FAR_S * 1000, **({"header": each.header} if each.header else {}))
    return done.added / done.seconds, done.added


def measure(rounds: int, seconds: float) -> dict[str, list[float]]:
    """The adds a second of each contender, round by round."""
    found: dict[str, list[float]] = {name: [] for name in (_OPEN, *_FLAGS)}
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, ExitStack() as stack:
        contenders = {
            name: contender(name, Path(folder) / str(place), stack) for place, name in enumerate((_OPEN, *_FLAGS))
        }
        first = 0
        for number in range(rounds + 1):
            names = list(contenders)
            random.Random(number).shuffle(names)
            for name in names:
                each, added = rate(contenders[name], seconds, first)
                first += added + CONNECTIONS
                if number:  # the first round warms up
                    found[name].append(each)
                contenders[name].store.ask(("EVAL", _EMPTY, 0))
    return found


def main(rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
    """Measure and print."""
    found = measure(rounds, seconds)
    print(f"adds one a request, {CONNECTIONS} connections, {rounds} rounds of {seconds:g} s")
    for name, rates in found.items():
        ratios = [each / open_ for each, open_ in zip(rates, found[_OPEN], strict=True)]
        spread = f"{percentile(ratios, 25):.3f} to {percentile(ratios, 75):.3f}"
        wanted = f"   (target: {WANTED[name]:.2f})" if name in WANTED else ""
        print(
            f"{name:32} {statistics.median(rates):8,.0f} a second, {statistics.median(ratios):.3f} ({spread}){wanted}"
        )


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))
