"""The settings: data with defaults. A file (TOML) < the environment (`JOBQUEUE_…`) < flags.

Only this module reads files and the environment. Every setting stands in conf/jobqueue.toml with its default.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from jobqueue.errors import SettingsError

Seconds = Annotated[float, Meta(ge=0)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator may set. Units stand in the names."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    redis: str = ""
    redis_timeout_s: Annotated[float, Meta(ge=0.1, le=60)] = 5.0
    allow_eviction: bool = False
    data: str = "jobqueue-data"
    redis_server: str = ""
    namespace: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,32}$")] = "jq"
    buckets: Annotated[int, Meta(ge=1, le=64)] = 8
    grace_s: Annotated[float, Meta(ge=0.1, le=600)] = 10.0
    max_request_bytes: Annotated[int, Meta(ge=1024)] = 16 << 20
    max_body_bytes: Annotated[int, Meta(ge=1)] = 256 << 10
    default_ttr_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    default_tries: Annotated[int, Meta(ge=0, le=65_535)] = 16
    default_retention_s: Annotated[float, Meta(ge=0, le=2_592_000)] = 60.0
    default_priority: Annotated[int, Meta(ge=0, le=9)] = 4
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = "auto"


PREFIX = "JOBQUEUE_"
_CONFIG = "CONFIG"  # JOBQUEUE_CONFIG names the file
_NO_SETTINGS = {PREFIX + _CONFIG, f"{PREFIX}URL"}  # JOBQUEUE_URL tells the command line where a service listens


def load(
    flags: Mapping[str, Any] | None = None, file: str | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings that hold. Raises SettingsError with a sentence that names the setting and its source."""
    environment = os.environ if environment is None else environment
    path = file or environment.get(PREFIX + _CONFIG)
    values: dict[str, Any] = {}
    if path:
        values |= _checked(_read(path), f"the file {path}")
    values |= _checked(_from_environment(environment), "the environment")
    values |= _checked({name: value for name, value in (flags or {}).items() if value is not None}, "the flags")
    if 0 < values.get("default_ttr_s", 60) < 0.1:
        raise SettingsError("default_ttr_s must be 0 (at most once) or a number of seconds from 0.1 to 86400")
    return msgspec.convert(values, Settings)


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the settings file {path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in _NO_SETTINGS and not _is_service_link(name, value)
    }


def _is_service_link(name: str, value: str) -> bool:
    """Kubernetes and Docker set such variables for a service that is called jobqueue itself."""
    return value.startswith(("tcp://", "udp://")) or re.match(rf"{PREFIX}(SERVICE|PORT)_", name) is not None


def _checked(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values of one source, each of its setting's type."""
    known = Settings.__struct_fields__
    fields = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    checked = {}
    for name, value in values.items():
        if name not in fields:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{source} has a setting {name} that there is not{hint}")
        try:
            checked[name] = msgspec.convert(value, fields[name], strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            raise SettingsError(f"{name} in {source}: {error}") from None
    return checked
