"""Files in a folder anywhere: a path, or a URI that pyarrow knows (file://, s3://, gs://, hdfs://; s3a:// is s3://)."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

from pyspark_jobqueue.connector.options import without_secret
from pyspark_jobqueue.errors import BadOption

# Some of Spark's have one slash only: `dbfs:/bad` is no folder `dbfs:` here.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Folder:
    """A folder, made where it is not there."""

    def __init__(self, where: str, *inner: str) -> None:
        from pyarrow import fs  # noqa: PLC0415 - heavy

        uri = where if _URI.match(where) else Path(where).absolute().as_uri()
        self._files, path = fs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", uri))  # Hadoop's names of it
        self._path = "/".join((path.rstrip("/"), *inner))

    @staticmethod
    def check(where: str, option: str) -> None:
        """Raises BadOption for a folder that there cannot be."""
        try:
            Folder(where)
        except Exception as error:  # pyarrow raises many kinds
            shown = without_secret(where)
            why = str(error).replace(where, shown)
            raise BadOption(f"option {option} must be a folder or its URI, not {shown!r}: {why}") from None

    def write(self, name: str) -> Writing:
        """Begin a file."""
        self._files.create_dir(self._path, recursive=True)
        return Writing(self._files, self._path, name)

    def drop(self, name: str) -> None:
        """Delete a file, if it is there."""
        path = f"{self._path}/{name}"
        if self._files.get_file_info(path).is_file:
            self._files.delete_file(path)


class Writing:
    """A file under way. It has its name when it is whole; before, one with an underscore, which Spark overlooks."""

    def __init__(self, files: Any, path: str, name: str) -> None:
        self._files = files
        self._path = f"{path}/{name}"
        self._fresh = f"{path}/_{name}.{uuid.uuid4().hex}"
        self._stream = files.open_output_stream(self._fresh)

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def keep(self) -> None:
        """It is whole: it takes the place of an older one."""
        self._stream.close()
        self._files.move(self._fresh, self._path)

    def drop(self) -> None:
        """It counts for nothing."""
        self._stream.close()
        self._files.delete_file(self._fresh)
