"""The command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from buckets.errors import JobQueueError
from jobqueue import __version__, logs, settings
from jobqueue.app import Service, serve
from jobqueue.errors import SettingsError

_EXAMPLES = """
jobqueue serves on {url} - try, from another terminal:

  curl {url}/command -d '{{"command":"add","topic":"order-close","id":"order-close:1","delay":5,"body":{{"order":1}}}}'
  curl {url}/command -d '{{"command":"pop","topic":"order-close","wait":10}}'
  curl {url}/command -d '{{"command":"finish","id":"order-close:1"}}'
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jobqueue")
def main() -> None:
    """A delay-queue service: jobs over HTTP, kept in Redis, handed to workers on time."""


@main.command("serve")
@click.option("--config", metavar="FILE", help="settings in TOML; see conf/jobqueue.toml")
@click.option("--host", help="address to listen on [127.0.0.1]")
@click.option("--port", type=int, help="port to listen on; 0: any free one [8000]")
@click.option("--redis", metavar="URL", help="use this Redis instead of one of our own")
@click.option("--data", metavar="DIR", help="directory of our own Redis [jobqueue-data]")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="form of the logs [auto]")
@click.option("--examples", is_flag=True, help="print three curl lines to try")
def serve_command(config: str | None, examples: bool, **flags: Any) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    try:
        chosen, file = settings.load(flags, config), settings.file_of(config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    logs.set_up(chosen.log_level, chosen.log_format)

    def started(service: Service) -> None:
        if examples:
            click.echo(_EXAMPLES.format(url=service.url))

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(chosen, started, (lambda: settings.load(flags, config)) if file else None))
    except JobQueueError as error:
        raise click.ClickException(error.message) from None
    except OSError as error:
        raise click.ClickException(f"cannot listen on {chosen.host}:{chosen.port}: {error.strerror or error}") from None


def _loop_factory() -> Any:
    """uvloop where there is one: 1.2 times the requests (docs/libraries.md)."""
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - not there on Windows

    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
