"""`jobqueue deliver`: hands due jobs to brokers."""

from __future__ import annotations

import asyncio
import logging
import sys

import click

from jobqueue.errors import SettingsError

DONE, LEFT, NOT_BEGUN = 0, 1, 2


@click.command("deliver", short_help="Hand due jobs to brokers, databases or a URL.")
@click.option("--config", "path", required=True, metavar="FILE", help="the service and the sinks (TOML)")
@click.option("--check", "checks", is_flag=True, help="connect to each, report what is there, and send nothing")
@click.option("--only", multiple=True, metavar="NAME", help="this sink of the file; may be repeated")
@click.option(
    "--log-format", type=click.Choice(["auto", "text", "json"]), default="auto", help="format of the logs [auto]"
)
def deliver_command(path: str, checks: bool, only: tuple[str, ...], log_format: str) -> None:
    """Hand the due jobs of topics to the sinks of a file, and finish each once it is confirmed.

    It runs until SIGTERM or Ctrl-C, beside as many others as you like. SIGHUP: read the file again. Exit code 1: not
    all that was taken was settled in time, or a sink was refused by the service; 2: it could not begin.
    """
    # Loading takes 0.3 s: `jobqueue --help` and a wrong option do not wait for it.
    from jobqueue import logs  # noqa: PLC0415
    from jobqueue.sinks.pump import deliver  # noqa: PLC0415

    logs.set_up("error" if checks else "info", log_format)
    # Events reach us by hooks and errors; what these log beside may hold headers and bodies, or reads as the service's.
    for name in ("jobqueue_client", "buckets.redis", "nats", "aio_pika", "aiormq", "stompman", "aiokafka"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        work = deliver.check(path, frozenset(only), click.echo) if checks else deliver.deliver(path, frozenset(only))
        sys.exit(DONE if asyncio.run(work) else LEFT)
    except (SettingsError, ValueError) as error:
        click.echo(f"Error: {error}", err=True)
    except OSError as error:
        click.echo(f"Error: metrics_port: {error.strerror}", err=True)
    sys.exit(NOT_BEGUN)
