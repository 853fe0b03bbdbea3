"""The options, and their environment variables, that say which service the command line asks, which token and
certificate it shows, and whom it trusts.

There is no option for the token itself: everybody on a machine can see the arguments of all programs. The token is read
from JOBQUEUE_TOKEN, or from a file. `--config` names a file that has all of these values, or the settings file of the
service.
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
    """The options for the token and for TLS."""
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
    """Decorator: add the options of `parameters` to a function that becomes a click command."""
    return _with(command, parameters())


def of_service() -> list[click.Option]:
    """The options that say which service to ask, and those of `parameters`."""
    text = f"where the service listens [{DEFAULT_URL}]"
    url = click.Option(["--url"], envvar="JOBQUEUE_URL", show_envvar=True, help=text)
    return [url, click.Option(["--config"], metavar="FILE", help=_CONFIG), *parameters()]


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: as `accepted`, with the options of `of_service`."""
    return _with(command, of_service())


def _with(command: Callable[..., None], options: list[click.Option]) -> Callable[..., None]:
    command.__dict__.setdefault("__click_params__", []).extend(reversed(options))
    return command


def asked(given: dict[str, Any]) -> tuple[str, AccessFields]:
    """The URL of the service that a command asks, and the token and TLS files to use there. The options of `asking` are
    removed from `given`. Raises UsageError.

    The service is named by --url or --config on the command line, else by JOBQUEUE_URL, else by the file of
    JOBQUEUE_CONFIG. The token of a file is shown only to the service that the same file names.
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
    """As `asked`, from the file `config`, or from the file that JOBQUEUE_CONFIG names."""
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
    """Read the file `config`, or the file that JOBQUEUE_CONFIG names. Returns None if neither is named. Raises
    UsageError.

    A caller that needs both a profile and settings passes the result to both: a pipe can be read only once.
    """
    path = settings.file_of(config)
    try:
        return settings.read(path) if path else None
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


def profile(file: settings.File | None, files: AccessFields) -> tuple[str, AccessFields] | None:
    """The URL that a file names, and the token and TLS files to use there: those of the options, else those of the
    file. Returns None for a settings file, or if `file` is None. Raises UsageError."""
    if file is None or "url" not in file.values:
        return None
    known = {"url", *_FILES}
    others = [name for name in file.values if name not in known]
    if others and "sinks" not in others:  # the file of `deliver` has more keys
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
    """The URL at which a service with these settings listens, or an empty string if it listens on any free port."""
    if chosen.socket:
        return f"unix://{chosen.socket}"
    if chosen.port == 0:
        return ""
    return str(Place(LOOPBACK.get(chosen.host, chosen.host), chosen.port, "", chosen.tls_cert))


def taken(given: dict[str, Any]) -> AccessFields:
    """The values of the options of `parameters`, which are removed from `given`."""
    files: AccessFields = {
        "token_file": given.pop("token_file"),
        "ca_file": given.pop("ca_file"),
        "cert_file": given.pop("cert_file"),
        "key_file": given.pop("key_file"),
    }
    return files


def shown(url: str, files: AccessFields) -> Access:
    """The token and the TLS context to use at this URL. Raises UsageError."""
    from jobqueue_client.access import Access  # noqa: PLC0415 - takes time that `--help` does not wait for

    try:
        return Access.of([url], None, **files)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def advice(answer: dict[str, Any], *, has_token: bool) -> str:
    """What to do about a refusal, to be appended to its sentence; an empty string if the refusal is not about the
    token."""
    if answer.get("code") == "UNAUTHORIZED" and has_token:
        return f"; the one that was shown is unknown, expired or revoked, and {_BY_ANOTHER}"
    if answer.get("code") == "UNAUTHORIZED":
        return "; set JOBQUEUE_TOKEN, or use --token-file"
    if answer.get("code") == "FORBIDDEN" and (answer.get("right") or answer.get("topic")):
        return f"; {_BY_ANOTHER}"
    return ""
