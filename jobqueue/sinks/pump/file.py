"""The file of `jobqueue deliver`: where the service is, and the sinks."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from jobqueue.access.secret_values import filled
from jobqueue.errors import SettingsError, missing_library
from jobqueue.schema import fields
from jobqueue.schema.mistakes import Misfit, hint, misfit
from jobqueue.settings import read
from jobqueue.sinks import KINDS, OUR_HEADERS, Common, Template

MOST_SINKS = 50
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Service(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings at the top of the file."""

    url: Annotated[str, Meta(min_length=1)] = "http://127.0.0.1:8000"
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """0 to answer no scrapes."""
    sinks: dict[str, dict[str, Any]] = {}


class File(Struct, frozen=True):
    """A valid file."""

    service: Service
    sinks: Mapping[str, Common]


def load(path: str, environment: Mapping[str, str] | None = None) -> File:
    """Read a file. Raises SettingsError, which names the file, the sink, the setting, and what is allowed."""
    given = filled(read(path).values, path, environment)
    service = _checked(given, Service, path, "")
    if not 1 <= len(service.sinks) <= MOST_SINKS:
        raise SettingsError(f"{path}: it must have 1 to {MOST_SINKS} tables [sinks.NAME]")
    sinks = {name: _sink(path, name, table) for name, table in service.sinks.items()}
    _check_topics(path, sinks)
    return File(service, sinks)


def kind_of(settings: Common) -> Any:
    """The module of a sink's kind."""
    return importlib.import_module(KINDS[settings.kind].module)


def _sink(path: str, name: str, table: dict[str, Any]) -> Common:
    place = f"{path}: sinks.{name}"
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{place}: the name of a sink must be 1 to 40 characters of A-Z a-z 0-9 . _ -")
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingsError(f"{place}.kind must be one of {', '.join(sorted(KINDS))}{hint(str(kind), KINDS)}")
    try:
        module = importlib.import_module(KINDS[kind].module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "jobqueue":
            raise
        missing = missing_library(kind, error.name or "of its own", KINDS[kind].extra)
        raise SettingsError(f"{place}: {missing}") from None
    settings: Common = _checked(table, module.Settings, path, f"sinks.{name}.")
    _check(place, settings)
    return settings


def _checked(given: Any, kind: Any, path: str, prefix: str) -> Any:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {_explained(misfit(error), kind, prefix)}") from None


def _explained(wrong: Misfit, kind: type[Struct], prefix: str) -> str:
    if wrong.unknown:
        return f"{prefix}{wrong.unknown[:64]} is unknown{hint(wrong.unknown, kind.__struct_fields__)}"
    if wrong.missing:
        return f"{prefix}{wrong.missing} is missing"
    place = f"{prefix}{wrong.path.removeprefix('.')}".rstrip(".")
    return f"{place}: {wrong.fault[0].lower()}{wrong.fault[1:]}"


def _check(place: str, settings: Common) -> None:
    for topic in settings.topics:
        if not fields.is_name(topic):
            raise SettingsError(f"{place}.topics: {topic[:64]!r}: a topic must be {fields.NAME}")
    if settings.body not in settings.forms:
        raise SettingsError(f"{place}.body must be one of {', '.join(settings.forms)}")
    if settings.order == "strict" and settings.most_in_flight > 1:
        raise SettingsError(f'{place}.in_flight must be 1 where order = "strict"')
    for name in settings.headers:
        if not _HEADER.fullmatch(name) or name.lower() in OUR_HEADERS or settings.keeps(name):
            raise SettingsError(f"{place}.headers: {name[:64]!r} may not be set here")
    for name in settings.templates:
        try:
            Template(getattr(settings, name))
        except ValueError as error:
            raise SettingsError(f"{place}.{name} {error}") from None
    if settings.schemes:
        scheme = urlsplit(getattr(settings, "url", "")).scheme
        if scheme not in settings.schemes:
            raise SettingsError(f"{place}.url must begin with {' or '.join(f'{each}://' for each in settings.schemes)}")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError(f"{place}: tls_cert and tls_key go together")


def _check_topics(path: str, sinks: Mapping[str, Common]) -> None:
    owners: dict[str, str] = {}
    for name, settings in sinks.items():
        for topic in settings.topics:
            if topic in owners:
                where = f"in sinks.{owners[topic]} too" if owners[topic] != name else "there twice"
                raise SettingsError(f"{path}: sinks.{name}.topics: {topic} is {where}; a topic belongs to one sink")
            owners[topic] = name
