"""The options of a console, from settings."""

from __future__ import annotations

from ssl import SSLContext

from jobqueue_client.access import Token

from jobqueue.console.options import Options
from jobqueue.console.tls import Certificate
from jobqueue.errors import SettingsError
from jobqueue.settings import Settings


def options_of(settings: Settings, url: str, port: int, tls: SSLContext | None = None) -> Options:
    """`url`: the URL of the service; `tls`: which authorities to trust there; `port`: the port on which the console
    listens. Raises SettingsError for a file that cannot be used."""
    return Options(
        url=url,
        tls=tls,
        host=settings.console_host,
        port=port,
        hosts=settings.console_hosts,
        title=settings.console_title,
        colour=settings.console_colour,
        read_only=settings.console_read_only,
        hides_bodies=settings.console_bodies == "hidden",
        base_path=settings.console_base_path.rstrip("/"),
        trusted_proxies=settings.trusted_proxies,
        user_header=settings.console_user_header,
        groups_header=settings.console_groups_header,
        certificate=_certificate(settings.console_tls_cert, settings.console_tls_key),
        roles={group: _token(group, file) for group, file in settings.console_roles.items()},
    )


def _certificate(cert: str, key: str) -> Certificate | None:
    try:
        return Certificate(cert, key) if cert else None
    except ValueError as error:
        raise SettingsError(f"console_tls_cert and console_tls_key: {error}") from None


def _token(group: str, file: str) -> Token:
    try:
        return Token(token_file=file)
    except ValueError as error:
        raise SettingsError(f"console_roles.{group}: {error}") from None
