"""Which service the command line asks, what it shows it, and whom it trusts: its options and their variables.

There is no option for the token itself: everybody on a machine sees the arguments of all programs. It is taken from
JOBQUEUE_TOKEN, or from a file. `--config` names a file that has all of it, or the settings of the service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from jobqueue import settings
from jobqueue.access.secret_values import filled
from jobqueue.cli.healthcheck import LOOPBACK, Place
from jobqueue.errors import SettingsError
from jobqueue.schema.mistakes import hint

if TYPE_CHECKING:
    from jobqueue_client.access import Access, AccessFields

DEFAULT_URL = "http://127.0.0.1:8000"

_FILES = {
    "token_file": "file with the token to show, instead of JOBQUEUE_TOKEN",
    "ca_file": "authorities to trust at an https URL, instead of the system's (PEM)",
    "cert_file": "certificate to show at an https URL (PEM)",
    "key_file": "its key, if that is in a file of its own (PEM)",
}
_CONFIG = (
    "file (TOML) with url, token_file, ca_file, cert_file and key_file, or the settings of a service of this machine;"
    " also JOBQUEUE_CONFIG"
)
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
    return _with(command, parameters())


def of_service() -> list[click.Option]:
    """The options that say which service is asked, and these."""
    text = f"where the service listens [{DEFAULT_URL}]"
    url = click.Option(["--url"], envvar="JOBQUEUE_URL", show_envvar=True, help=text)
    return [url, click.Option(["--config"], metavar="FILE", help=_CONFIG), *parameters()]


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: as `accepted`, with the options that say which service is asked."""
    return _with(command, of_service())


def _with(command: Callable[..., None], options: list[click.Option]) -> Callable[..., None]:
    command.__dict__.setdefault("__click_params__", []).extend(reversed(options))
    return command


def asked(given: dict[str, Any]) -> tuple[str, AccessFields]:
    """The URL of the service that a command asks, and what it is shown, by the options of `asking`, which are removed
    from those of the command. Raises UsageError.

    --url or --config on the command line, else JOBQUEUE_URL, else the file that JOBQUEUE_CONFIG names. A file's token
    is shown to no other service than the file's.
    """
    url, config, files = given.pop("url"), given.pop("config"), taken(given)
    if url is not None and config is not None:
        if click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--url and --config exclude each other: each says which service is asked")
        url = None
    if url is None:
        url, files = _configured(config, files)
    return url, files


def _configured(config: str | None, files: AccessFields) -> tuple[str, AccessFields]:
    """As `asked`, by a file, or by the file that JOBQUEUE_CONFIG names."""
    file = opened(config)
    if file is None:
        return DEFAULT_URL, files
    found = profile(file, files)
    if found is not None:
        return found
    try:
        chosen = settings.load({}, file)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    url = url_of(chosen)
    if not url:
        raise click.UsageError("port = 0 is any free port, which only the log of the service names: use --url")
    return url, files


def opened(config: str | None) -> settings.File | None:
    """What a file has, or the file that JOBQUEUE_CONFIG names; None without a file. Raises UsageError.

    Whoever asks for a profile and then for settings hands on what was read: a pipe can be read once.
    """
    path = settings.file_of(config)
    try:
        return settings.read(path) if path else None
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


def profile(file: settings.File | None, files: AccessFields) -> tuple[str, AccessFields] | None:
    """The URL that a file names, and what its service is shown: what the options say, else the file; None for a file of
    settings, and without a file. Raises UsageError."""
    if file is None or "url" not in file.values:
        return None
    known = {"url", *_FILES}
    others = [name for name in file.values if name not in known]
    if others and "sinks" not in others:  # the file of `deliver` has more
        place = f"{file.path}: {others[0]} is unknown beside url{hint(others[0], known)}"
        raise click.UsageError(f"{place}; known are {', '.join(sorted(known))}")
    try:
        values = filled({name: value for name, value in file.values.items() if name in known}, file.path)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    for name, value in values.items():
        if not isinstance(value, str):
            raise click.UsageError(f"{file.path}: {name} must be text")
    merged: AccessFields = {
        "token_file": files.get("token_file") or values.get("token_file"),
        "ca_file": files.get("ca_file") or values.get("ca_file"),
        "cert_file": files.get("cert_file") or values.get("cert_file"),
        "key_file": files.get("key_file") or values.get("key_file"),
    }
    return values["url"], merged


def url_of(chosen: settings.Settings) -> str:
    """Where a service with these settings listens; empty: on any free port."""
    if chosen.socket:
        return f"unix://{chosen.socket}"
    if chosen.port == 0:
        return ""
    return str(Place(LOOPBACK.get(chosen.host, chosen.host), chosen.port, "", chosen.tls_cert))


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
    from jobqueue_client.access import Access  # noqa: PLC0415 - takes time that `--help` does not wait for

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
