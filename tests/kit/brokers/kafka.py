"""librdkafka's own cluster, which speaks the protocol of Kafka; or a real one, which JOBQUEUE_TEST_KAFKA names.

It keeps nothing when it ends, and has other ports when it starts again: it is frozen here, and never killed.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]

from tests.kit.brokers import Broker, Received


class Kafka(Broker):
    kind = "kafka"
    most_body = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self._address = os.environ.get("JOBQUEUE_TEST_KAFKA", "")
        self._file = self.folder / "address"
        self._kept: list[Any] = []
        self._read: dict[TopicPartition, int] = defaultdict(int)  # how far
        self._topic = f"jobs-{uuid.uuid4().hex[:8]}"

    @property
    def address(self) -> str:
        return self._address or self._file.read_text()

    def command(self) -> list[str]:
        if self._address:
            return ["sleep", "infinity"]
        return [sys.executable, "-m", "tests.kit.brokers.kafka", str(self._file)]

    async def answers(self) -> bool:
        return bool(self._address) or self._file.exists()

    async def prepare(self, topics: list[str]) -> None:
        """It makes topics when they are asked for."""

    def table(self) -> dict[str, Any]:
        return {"kind": "kafka", "url": f"kafka://{self.address}", "topic": self._topic}

    async def received(self) -> list[Received]:
        found = []
        for record in await self.records():
            headers = {name: value.decode() for name, value in record.headers}
            found.append(Received(headers["jobqueue-key"], headers, record.value))
        return found

    async def records(self) -> list[Any]:
        """What came since the last time is added to what is kept here: the cluster gives one batch at a time."""
        options = {"bootstrap_servers": self.address, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 10}
        consumer = AIOKafkaConsumer(self._topic, **options)
        await consumer.start()
        try:
            ends = await consumer.end_offsets(consumer.assignment())
            for partition in ends:
                consumer.seek(partition, self._read[partition])
            while any(self._read[partition] < end for partition, end in ends.items()):
                for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                    for record in records:
                        self._kept.append(record)
                        self._read[partition] = record.offset + 1
        finally:
            await consumer.stop()
        return list(self._kept)


def main(file: Path) -> None:
    """Run a cluster of one broker, and write its address to a file."""
    from confluent_kafka import Producer  # noqa: PLC0415 - where it is not asked for, it need not be there

    cluster = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=20).brokers.values()
    part = file.with_suffix(".part")
    part.write_text(f"{broker.host}:{broker.port}")
    part.rename(file)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
