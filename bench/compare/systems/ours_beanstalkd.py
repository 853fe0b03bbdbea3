"""Our own service by beanstalkd's protocol: driven as the real one is."""

from __future__ import annotations

from bench.compare.systems.served import Served
from tests.kit.ports import free_port


class OursByBeanstalkd(Served):
    NAME = "ours-beanstalkd"
    DESCRIPTION = (
        "`jobqueue serve --workers 1` by beanstalkd's protocol, driven as beanstalkd is: whole seconds, the id in the "
        "body, batches pipelined"
    )
    DIALECT = "beanstalk"
    CYCLE_JOINED = False

    def _flags(self) -> list[str]:
        self._port = free_port()
        config = self._folder / "jobqueue.toml"
        config.write_text(f"[protocols.beanstalkd]\nport = {self._port}\n")
        return ["--config", str(config)]

    def _address(self) -> str:
        return str(self._port)
