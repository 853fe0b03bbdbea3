"""The program `jobqueue`. `healthcheck`, which runs every few seconds, does not wait for the rest to load."""

from __future__ import annotations

import resource
import sys


def main() -> None:
    """Run the command that the arguments name."""
    # A core file would hold tokens and bodies. Programs that are started from here do not write one either.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    arguments = sys.argv[1:]
    if arguments[:1] == ["healthcheck"] and {"-h", "--help"}.isdisjoint(arguments):
        from jobqueue.cli import healthcheck  # noqa: PLC0415

        sys.exit(healthcheck.main(arguments[1:]))
    from jobqueue.cli import main as commands  # noqa: PLC0415

    commands.main(prog_name="jobqueue")
