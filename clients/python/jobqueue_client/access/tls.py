"""TLS: what https connections trust, and what they show. Certificates are always checked."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

File = str | os.PathLike[str]


@dataclass(frozen=True)
class Tls:
    """Files in PEM, read when a client is created.

    `ca_file`: the authorities that are trusted, instead of the system's. `cert_file`: the client's certificate with its
    chain, and its key unless that is in `key_file`, unencrypted.
    """

    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None

    def context(self, urls: Sequence[str]) -> ssl.SSLContext | None:
        """For connections to these URLs; None if none of them is https. Raises ValueError that names the option."""
        given = [name for name in ("ca_file", "cert_file", "key_file") if getattr(self, name) is not None]
        if not any(url.lower().startswith("https:") for url in urls):
            if given:
                raise ValueError(f"{given[0]} is for https URLs")
            return None
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file")
        return self._loaded()

    def _loaded(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ValueError(f"ca_file cannot be used: {_why(error)}: {self.ca_file}") from None
        if self.cert_file is not None:
            try:
                # Without a password, OpenSSL asks the terminal for that of an encrypted key.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except OSError as error:
                files = " and ".join(str(file) for file in (self.cert_file, self.key_file) if file is not None)
                name = "cert_file" if self.key_file is None else "cert_file and key_file"
                raise ValueError(f"{name} cannot be used: {_why(error)}: {files}") from None
        return context


def speaks_tls(url: str, within_s: float) -> bool:
    """Return True if what listens at an http URL speaks TLS: it closes a plain connection without a word."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), within_s) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # such as that a certificate is wanted
    except (OSError, ValueError):
        return False


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not PEM"
    return error.strerror or str(error)
