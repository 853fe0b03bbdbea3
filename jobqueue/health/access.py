"""Findings about who has access, and how they prove it. What keeps a service from starting is judged elsewhere
(start.py)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from buckets.errors import Unfit
from jobqueue.access import tls, token_table
from jobqueue.access.modes import beyond_loopback, check_may_start
from jobqueue.access.secret_values import is_open_to_all
from jobqueue.access.tls import expiry
from jobqueue.errors import SettingsError
from jobqueue.health.findings import Finding, Findings, Level
from jobqueue.settings import Settings

_DAY_S = 86_400.0
_SOON_S = 14 * _DAY_S
"""A certificate that expires within this time gets a warning."""


async def check_access(chosen: Settings) -> Findings:
    """Findings about the settings of access."""
    async for finding in _mode(chosen):
        yield finding
    for finding in await asyncio.to_thread(_check_files, chosen):  # a file of tokens may be long
        yield finding


def _check_files(chosen: Settings) -> list[Finding]:
    return [*_secret_files(chosen), *_tokens_file(chosen), *_tls(chosen)]


async def _mode(chosen: Settings) -> Findings:
    """Who has access, if the service may start with these settings."""
    try:
        await check_may_start(chosen)
        beyond = await beyond_loopback(chosen.host)
    except Unfit:
        return
    if chosen.access == "tokens":
        yield Finding("ok", "access", "every request needs a token")
    elif beyond:
        yield Finding("warn", "access", f"everybody who reaches {', '.join(beyond)} may do everything (allow_open)")
    else:
        yield Finding("ok", "access", "open to every program on this machine, and to no other machine")


def _secret_files(chosen: Settings) -> Iterator[Finding]:
    """A warning for each secret of the settings whose file anybody may read; a mounted secret often has that mode."""
    files = {
        "redis_file": chosen.redis_file,
        "journal_file": chosen.journal_file,
        "tls_key": chosen.tls_key,
        "console_tls_key": chosen.console_tls_key,
    }
    files |= {f"protocols.{name}.token_file": options.token_file for name, options in chosen.protocols.open()}
    files |= {f"console_roles.{group}": file for group, file in chosen.console_roles.items()}
    for name, path in files.items():
        if path and is_open_to_all(path):
            yield Finding("warn", name, f"every user of this machine may read {path}; chmod 600 keeps the secret")


def _tokens_file(chosen: Settings) -> Iterator[Finding]:
    """How many tokens `tokens_file` has, if it is set and can be read."""
    if chosen.tokens_file:
        with suppress(SettingsError):
            number = len(token_table.read(chosen.tokens_file))
            yield Finding("ok", "tokens_file", f"tokens in {chosen.tokens_file}: {number}")


def _tls(chosen: Settings) -> Iterator[Finding]:
    """How long the certificates of the service and of its console are still valid. Unusable files are skipped."""
    with suppress(Unfit):
        if chosen.tls_cert:
            yield _lasting("tls", chosen.tls_cert, tls.read(chosen).expires)
    with suppress(OSError, ValueError):
        if file := chosen.console_tls_cert:
            yield _lasting("console_tls", file, expiry(Path(file).read_text()))


def _lasting(subject: str, file: str, expires: float) -> Finding:
    """How long a certificate is still valid. `expires`: Unix time."""
    left_s = expires - time.time()
    if left_s <= 0:
        return Finding("bad", subject, f"the certificate in {file} has expired")
    level: Level = "warn" if left_s < _SOON_S else "ok"
    return Finding(level, subject, f"the certificate in {file} holds for {left_s / _DAY_S:.0f} more days")
