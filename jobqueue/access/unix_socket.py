"""The Unix socket that a service listens on in addition to its port: the setting `socket`."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from buckets.errors import Unfit

MODE = 0o660  # the owner and the group of the file may connect
_BACKLOG = 1024


class UnixSocket:
    """Listens on a path until it is closed, which removes the file. A file left behind by a killed service is
    replaced."""

    def __init__(self, path: str) -> None:
        """Raises Unfit when nothing can listen there."""
        self._path = Path(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            check_path(self._path)
            with _blamed(self._path):
                self._listen()
        except Unfit:
            self.socket.close()
            raise

    def _listen(self) -> None:
        self._path.unlink(missing_ok=True)
        os.fchmod(self.socket.fileno(), MODE)  # on Linux the file is created with this mode, less the umask
        self.socket.bind(str(self._path))
        self._path.chmod(MODE)
        self.socket.listen(_BACKLOG)
        self.socket.setblocking(False)
        self._own = self._path.stat()

    def close(self) -> None:
        """Stop listening, and remove the file, unless another file has replaced it."""
        self.socket.close()
        with contextlib.suppress(OSError):
            if os.path.samestat(self._path.lstat(), self._own):
                self._path.unlink()


def check_path(path: Path) -> None:
    """Raise Unfit if no socket can be opened at this path; changes nothing. A socket file on which nobody listens is no
    obstacle."""
    with _blamed(path):
        if not os.access(path.parent, os.W_OK | os.X_OK):
            path.parent.stat()  # raises if the folder does not exist
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise FileExistsError(errno.EEXIST, "there is another file")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            if probe.connect_ex(str(path)) not in (errno.ECONNREFUSED, errno.ENOENT):
                raise OSError(errno.EADDRINUSE, "")


@contextlib.contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """Turn an OSError into an Unfit that names the path."""
    try:
        yield
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened: {error.strerror or error}"
        raise Unfit(f"the socket {path} {why}") from None
