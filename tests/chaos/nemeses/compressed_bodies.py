"""Small bodies that would be large once inflated, with each `Content-Encoding` that an HTTP library may know, at every
port and path, with a token and without, with a length and in chunks.

Inflated, they would take seconds of the service's event loop. None may, so no lock of a timer is lost meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import zlib
from pathlib import Path

from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Stage
from tests.kit.ports import free_ports

_BODIES = 120
_ENCODINGS = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress", "GZIP", "gzip, gzip")
_SIZE = 240 << 20  # of a body, inflated
_DIALECTS = {"lmstfy": "/add", "camellia": "/camellia/delayQueue/sendMsg", "mykit": "/add"}
_TOKENS = ("", "Authorization: Bearer jqt_none\r\n")


class CompressedBodies(Nemesis):
    def __init__(self, every_s: float) -> None:
        super().__init__(every_s)
        self._body = b""
        self._ports: dict[str, int] = {}

    def environment(self, folder: Path) -> dict[str, str]:
        """HTTP dialects at ports of their own; there is one instance."""
        squeezer = zlib.compressobj(9, wbits=31)
        self._body = squeezer.compress(bytes(_SIZE)) + squeezer.flush()
        self._ports = dict(zip(_DIALECTS, free_ports(len(_DIALECTS)), strict=True))
        file = folder / "dialects.toml"
        file.write_text("".join(f"[protocols.{name}]\nport = {port}\n" for name, port in self._ports.items()))
        return {"JOBQUEUE_CONFIG": str(file)}

    async def strike(self, stage: Stage) -> None:
        places = [(stage.instances[0].port, path) for path in ("/command", "/healthz", "/nowhere")]
        places += [(port, _DIALECTS[name]) for name, port in self._ports.items()]
        kinds = itertools.cycle(itertools.product(_ENCODINGS, places, _TOKENS, (False, True)))
        with stage.history.fault("compressed-bodies"):
            sent = (self._send(*kind) for kind in itertools.islice(kinds, _BODIES))
            statuses = set(await asyncio.gather(*sent))
        assert statuses <= {b"415", b""}, f"a compressed body was answered {statuses}"
        log = (stage.folder / "instance-0.log").read_text()
        assert "lock.lost" not in log, "a lock of a timer was lost"

    async def _send(self, encoding: str, place: tuple[int, str], token: str, in_chunks: bool) -> bytes:
        """The status of the answer; nothing where the connection was closed before it was read."""
        size, body = len(self._body), self._body
        length = "Transfer-Encoding: chunked" if in_chunks else f"Content-Length: {size}"
        data = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if in_chunks else body
        head = f"POST {place[1]} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}{length}\r\nContent-Encoding: {encoding}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", place[0])
        try:
            with contextlib.suppress(OSError):
                writer.write(head.encode() + data)
                return (await reader.readline()).split(b" ")[1:2][0]
        except IndexError:
            pass
        finally:
            writer.close()
        return b""
