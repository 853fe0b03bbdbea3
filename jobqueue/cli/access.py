"""What the command line shows a service, and whom it trusts: its options and their variables.

There is no option for the token itself: everybody on a machine sees the arguments of all programs. It is taken from
JOBQUEUE_TOKEN, or from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from jobqueue_client.access.options import Access, AccessFields

_FILES = {
    "token_file": "file with the token to show, instead of JOBQUEUE_TOKEN",
    "ca_file": "authorities to trust at an https URL, instead of the system's (PEM)",
    "cert_file": "certificate to show at an https URL (PEM)",
    "key_file": "its key, if that is in a file of its own (PEM)",
}
_BY_ANOTHER = "another token is given by JOBQUEUE_TOKEN or --token-file"


def parameters() -> list[click.Option]:
    """The options."""
    return [
        click.Option(
            ["--" + name.replace("_", "-")],
            metavar="FILE",
            envvar=f"JOBQUEUE_{name.upper()}",
            show_envvar=True,
            help=text,
        )
        for name, text in _FILES.items()
    ]


def accepted(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: add the options to a command that click makes of a function."""
    command.__dict__.setdefault("__click_params__", []).extend(reversed(parameters()))
    return command


def taken(given: dict[str, Any]) -> AccessFields:
    """The values of these options, which are removed from those of a command."""
    files: AccessFields = {
        "token_file": given.pop("token_file"),
        "ca_file": given.pop("ca_file"),
        "cert_file": given.pop("cert_file"),
        "key_file": given.pop("key_file"),
    }
    return files


def shown(url: str, files: AccessFields) -> Access:
    """What to show at this URL. Raises UsageError."""
    from jobqueue_client.access.options import Access  # noqa: PLC0415 - takes time that `--help` does not wait for

    try:
        return Access.of([url], None, **files)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def advice(answer: dict[str, Any], *, has_token: bool) -> str:
    """What to do about a refusal, to stand behind its sentence; nothing if that is not about the token."""
    if answer.get("code") == "UNAUTHORIZED" and has_token:
        return f"; the one that was shown is unknown, expired or revoked, and {_BY_ANOTHER}"
    if answer.get("code") == "UNAUTHORIZED":
        return "; set JOBQUEUE_TOKEN, or use --token-file"
    if answer.get("code") == "FORBIDDEN" and (answer.get("right") or answer.get("topic")):
        return f"; {_BY_ANOTHER}"
    return ""
