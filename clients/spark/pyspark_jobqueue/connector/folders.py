"""Files in a local or remote folder: a path, or a URI that pyarrow knows (file://, s3://, gs://, hdfs://).

s3a:// and s3n:// count as s3://."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

from pyspark_jobqueue.connector.options import without_secret
from pyspark_jobqueue.errors import BadOption

# Some of Spark's URIs have a single slash: `dbfs:/bad` does not mean a local folder `dbfs:`.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Folder:
    """A folder, created when the first file is written."""

    def __init__(self, where: str, *inner: str) -> None:
        from pyarrow import fs  # noqa: PLC0415 - heavy

        uri = where if _URI.match(where) else Path(where).absolute().as_uri()
        self._files, path = fs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", uri))  # Hadoop's names for it
        self._path = "/".join((path.rstrip("/"), *inner))

    @staticmethod
    def check(where: str, option: str) -> None:
        """Raises BadOption if there can be no such folder."""
        try:
            Folder(where)
        except Exception as error:  # pyarrow raises many kinds
            shown = without_secret(where)
            why = str(error).replace(where, shown)
            raise BadOption(f"option {option} must be a folder or the URI of one, not {shown!r}: {why}") from None

    def write(self, name: str) -> PartialFile:
        """Begin a file."""
        self._files.create_dir(self._path, recursive=True)
        return PartialFile(self._files, self._path, name)

    def drop(self, name: str) -> None:
        """Delete a file, if it is there."""
        path = f"{self._path}/{name}"
        if self._files.get_file_info(path).is_file:
            self._files.delete_file(path)


class PartialFile:
    """A file that is being written. It gets its name once it is complete; until then its name starts with an
    underscore, which makes Spark ignore it."""

    def __init__(self, files: Any, path: str, name: str) -> None:
        self._files = files
        self._path = f"{path}/{name}"
        self._fresh = f"{path}/_{name}.{uuid.uuid4().hex}"
        self._stream = files.open_output_stream(self._fresh)

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def keep(self) -> None:
        """Publish the complete file, in place of an older one."""
        self._stream.close()
        self._files.move(self._fresh, self._path)

    def drop(self) -> None:
        """Discard the file."""
        self._stream.close()
        self._files.delete_file(self._fresh)
