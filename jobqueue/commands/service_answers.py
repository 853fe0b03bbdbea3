"""The parts of the answers about the service itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from buckets import Instance
from jobqueue.commands.answers import Answer
from jobqueue.settings import TABLES, URLS, Loaded, Settings, TopicSettings

Reaches = Callable[[str], bool]

_SECRET = ("token",)  # of dialects
_DEFAULT = "default"


def instance(found: Instance) -> Answer:
    """A process of the service."""
    about = found.about
    return {
        "instance": found.name or None,
        "host": about.host if about else None,
        "pid": about.pid if about else None,
        "worker": about.worker if about else None,
        "version": about.version if about else None,
        "started": about.started / 1000 if about else None,
        "signed": found.signed / 1000,
        "timers": {str(shard): buckets for shard, buckets in found.timers.items()} if about else None,
        "parked": found.waiting,
    }


def settings_in_force(loaded: Loaded, reaches: Reaches) -> Answer:
    """The settings with where they came from, and the policies and virtual topics within reach. Of a secret only
    whether it is set."""
    chosen = loaded.settings
    virtual = {
        name: [target for target in targets if reaches(target)]
        for name, targets in chosen.virtual_topics.items()
        if reaches(name)
    }
    return {
        "settings": [*_settings(loaded), *_of_roles(chosen), *_of_dialects(chosen)],
        "policies": [_policy(chosen, name, topic) for name, topic in chosen.topics.items() if reaches(name)],
        "virtual_topics": virtual,
    }


def _settings(loaded: Loaded) -> Iterator[Answer]:
    for name in Settings.__struct_fields__:
        if name not in TABLES:
            source = loaded.sources.get(name, _DEFAULT)
            value = getattr(loaded.settings, name)
            if name in URLS:  # a worker is told where the embedded Redis is, which is no setting
                value = _secret(value and source != _DEFAULT)
            yield {"name": name, "value": value, "source": source}


def _of_roles(chosen: Settings) -> Iterator[Answer]:
    """The file of each token that the console has for a group, which only a file can set."""
    for group, file in chosen.console_roles.items():
        yield {"name": f"console_roles.{group}", "value": file, "source": "file"}


def _of_dialects(chosen: Settings) -> Iterator[Answer]:
    """Those of the dialects that are on, which only a file can set."""
    for dialect, options in chosen.protocols.open():
        defaults = type(options)()
        for name in options.__struct_fields__:
            value = getattr(options, name)
            source = _DEFAULT if value == getattr(defaults, name) else "file"
            shown = _secret(value) if name in _SECRET else value
            yield {"name": f"protocols.{dialect}.{name}", "value": shown, "source": source}


def _secret(value: object) -> str:
    return "set" if value else "not set"


def _policy(chosen: Settings, name: str, topic: TopicSettings) -> Answer:
    """What holds for a topic, and which of it the topic sets itself."""
    defaults = TopicSettings()
    own = [each for each in topic.__struct_fields__ if getattr(topic, each) != getattr(defaults, each)]
    return {"topic": name, **{each: _in_force(chosen, topic, each) for each in topic.__struct_fields__}, "own": own}


def _in_force(chosen: Settings, topic: TopicSettings, name: str) -> Any:
    value = getattr(topic, name)
    return getattr(chosen, f"default_{name}", None) if value is None else value
