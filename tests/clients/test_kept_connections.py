"""An idle connection that broke while its caller was busy is not reused: a `run` sent on it would be lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from jobqueue_client import AsyncClient, Client, Unreachable

SERVER = """
import http.server
class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "16")
        self.end_headers()
        self.wfile.write(b'{"success":true}')
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def service() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of a server in a process of its own, and that process."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process
        process.kill()


def die(process: subprocess.Popen[str]) -> None:
    """Keep the caller busy until the service is gone."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_in_a_thread() -> None:
    with service() as (url, process), Client(url, retry_for_s=0) as client:
        client.pause("t")
        die(process)
        with pytest.raises(Unreachable) as caught:
            client.run("1")
        assert not caught.value.maybe_done


async def test_in_a_loop_that_was_held_up() -> None:
    with service() as (url, process):
        async with AsyncClient(url, retry_for_s=0) as client:
            await client.pause("t")
            die(process)
            with pytest.raises(Unreachable) as caught:
                await client.run("1")
            assert not caught.value.maybe_done
