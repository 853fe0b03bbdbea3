"""Fixtures for the tests of the connector and the pipelines: one Spark session per process, one service per file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark_jobqueue import session

from tests.kit.redis_server import RedisServer
from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests are too short for Java's second compiler to pay off, and one collector thread is enough. Set in the environment,
# so that it applies to the sessions of programs too.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Each query would be compiled to Java classes: a fifth of the CPU time of these tests, for a few rows each.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings that make a session small and quiet."""


@pytest.fixture(scope="session", autouse=True)
def spark_home() -> Iterator[None]:
    """Spark's home without its `python` folder. Spark passes that to its Python processes as a zip without compiled
    modules, which costs each process a second of compiling. Without it they import the installed package."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, pytest.MonkeyPatch.context() as patch:
        for each in Path(pyspark.__file__).parent.iterdir():
            if each.name != "python":
                (Path(folder) / each.name).symlink_to(each)
        patch.setenv("SPARK_HOME", folder)
        yield


@pytest.fixture(scope="session")
def spark(spark_home: None) -> Iterator[SparkSession]:
    """A session with two cores and three attempts per task."""
    with tempfile.TemporaryDirectory(prefix="jq-spark-") as folder:
        os.environ["SPARK_LOCAL_DIRS"] = folder
        made = session.begin("tests", "local[2,3]", {**CONF, "spark.sql.warehouse.dir": f"{folder}/warehouse"})
        yield made
        made.stop()


@pytest.fixture(scope="module")
def serving(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[Serving]:
    """The service for the tests of a module, in its own namespace; each test uses a topic of its own."""
    namespace = f"{request.module.__name__.rpartition('.')[2]}.{os.getpid()}"
    with Serving("--redis", redis_server.url, "--namespace", namespace) as serving:
        yield serving


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic named after the test."""
    return "".join(each if each.isalnum() else "." for each in request.node.name)[:200]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jq-") as made:
        yield Path(made)
