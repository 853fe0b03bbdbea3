"""docs/tracing.md: its example gives the trace that it shows."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

from tests.kit.collector import Collector, Received
from tests.kit.service import ROOT, ServiceProcess

PAGE = (ROOT / "docs" / "tracing.md").read_text()
SETUP, PRODUCER, WORKER = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def drawn(spans: list[Received], root: Received, depth: int = 0) -> list[tuple[int, str]]:
    """The names below a span, with their depths; children of one span in the order of their names."""
    children = sorted((each for each in spans if each.parent_id == root.span_id), key=lambda each: each.name)
    return [(depth, root.name), *(each for child in children for each in drawn(spans, child, depth + 1))]


def shown() -> list[tuple[int, str]]:
    """The same, from the page."""
    (picture,) = re.findall(r"```text\n(.*?)```", PAGE, re.S)
    lines = [re.sub(r"\s*\(the service\)", "", line) for line in picture.splitlines()]
    return [(len(re.match(r"[│├└─ ]*", line)[0]) // 4, re.sub(r"^[│├└─ ]*", "", line)) for line in lines]  # type: ignore[index]


async def test_the_example_is_one_trace_from_the_web_request_to_the_handler(tmp_path: Path) -> None:
    async with Collector() as collector:
        environment = {**collector.environment, "JOBQUEUE_TRACES": "otlp"}
        async with ServiceProcess("--data", str(tmp_path / "data"), environment=environment) as service:
            programs = [SETUP + each.replace("http://localhost:8000", service.url) for each in (PRODUCER, WORKER)]
            for name, program in zip(("producer", "worker"), programs, strict=True):
                (tmp_path / f"{name}.py").write_text(program)
            own = os.environ | collector.environment
            producer = await asyncio.create_subprocess_exec(sys.executable, tmp_path / "producer.py", env=own)
            assert await producer.wait() == 0
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, tmp_path / "worker.py"), env=own, stdout=asyncio.subprocess.PIPE
            )
            root = await collector.one("POST /orders")
            await collector.one("process example-close-order")
            worker.send_signal(signal.SIGTERM)
            output, _ = await worker.communicate()
            await collector.one("add example-close-order")
    assert output.decode() == f"closing 1001 in the trace {root.trace_id}\n"
    found = [each for each in collector.spans if each.trace_id == root.trace_id]
    assert sorted(drawn(found, root)) == sorted(shown())
    (process,) = collector.named("process example-close-order")
    (send,) = collector.named("send example-close-order")
    assert process.links == [f"{send.trace_id}-{send.span_id}"]
    (receive,) = collector.named("receive example-close-order")
    assert receive.links == process.links
