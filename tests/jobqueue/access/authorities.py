"""Certificates for tests, and the files that a service reads them from."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme

from jobqueue.settings import Settings

NAMES = ("localhost", "127.0.0.1")


class Files:
    """The TLS files of one service, in a folder."""

    def __init__(self, folder: Path, *, clients: trustme.CA | None = None, days: float = 90, must: bool = True) -> None:
        """With `clients`, certificates of that authority are asked for; `must`: it does not go without."""
        self._folder = folder
        self._must = must
        self.authority = trustme.CA()
        self.has_clients = clients is not None
        self.issue(days=days)
        if clients:
            self.trust(clients)

    def issue(self, *names: str, days: float = 90) -> None:
        """A new certificate, and its key."""
        until = datetime.now(UTC) + timedelta(days=days)
        made = self.authority.issue_cert(*(names or NAMES), not_before=until - timedelta(days=400), not_after=until)
        self.cert.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(self.key))

    def trust(self, clients: trustme.CA) -> None:
        """Let in the clients of this authority alone."""
        clients.cert_pem.write_to_path(str(self.client_ca))

    @property
    def cert(self) -> Path:
        return self._folder / "cert.pem"

    @property
    def key(self) -> Path:
        return self._folder / "key.pem"

    @property
    def client_ca(self) -> Path:
        return self._folder / "client_ca.pem"

    @property
    def options(self) -> dict[str, Any]:
        """The settings that name them."""
        named = {"tls_cert": str(self.cert), "tls_key": str(self.key)}
        if self.has_clients:
            named |= {"tls_client_ca": str(self.client_ca), "tls_client": "required" if self._must else "optional"}
        return named

    @property
    def settings(self) -> Settings:
        return Settings(**self.options)

    def toml(self) -> str:
        """The lines of a settings file."""
        return "".join(f'{name} = "{value}"\n' for name, value in self.options.items())

    def client(self, clients: trustme.CA | None = None, name: str = "worker.example", **options: Any) -> ssl.SSLContext:
        """The context of a client that trusts the service; with `clients`, it has a certificate of that authority.
        `options`: of its certificate."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if clients:
            clients.issue_cert(name, **options).configure_cert(context)
        return context
