"""The types of answers in the clients, made from the OpenAPI description: `python -m jobqueue.reference.client_types`.

It writes clients/python/jobqueue_client/answers.py and clients/node/types/answers.d.ts. This module contains only the
names of the types: users import them, so they must stay the same even if the service's structs are renamed.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jobqueue.reference import entries
from jobqueue.reference.openapi import description

Schema = Mapping[str, Any]

_WIDTH = 120

# For each type, the answers whose fields it has. A field is optional unless all of these answers require it. Answers in
# brackets only add fields, all of which are optional.
PYTHON = {
    "AddedJob": "Copy",
    "Added": "Added (AddedCopies)",
    "Scheduled": "Scheduled",
    "Unscheduled": "Unscheduled",
    "ScheduleRow": "DescribedSchedule",
    "ScheduleList": "ScheduleList",
    "Settled": "Finished Deleted Buried",
    "Touched": "Touched",
    "Timed": "Moved Updated",
    "Kicked": "KickedJob",
    "TopicKicked": "KickedTopic",
    "Details": "Described Known",
    "Standing": "Standing",
    "TimelineLine": "Line",
    "TimelineSums": "Sums",
    "Explained": "Explained",
    "Peeked": "Page",
    "Found": "Search",
    "SearchBegun": "SearchBegun",
    "TopicRow": "Listed",
    "Topics": "Listing",
    "WorkerRow": "Polling",
    "Workers": "WorkerList",
    "InstanceRow": "ListedInstance",
    "Instances": "InstanceList",
    "Finding": "FindingShown",
    "Health": "Examined",
    "Stats": "Figures",
    "ForecastBin": "ForecastBin",
    "LargestTopic": "LargestTopic",
    "Forecast": "Outlook",
    "Setting": "ShownSetting",
    "Policy": "Policy",
    "SettingsShown": "SettingList",
    "Lateness": "Lateness",
    "FiguresBin": "FiguresBin",
    "Figures": "PastFigures",
    "Paused": "Paused",
    "Resumed": "Resumed",
    "Left": "Left",
    "Purged": "Purged",
    "LoggedAction": "LoggedAction",
    "Actions": "ActionLog",
    "TokenRecord": "TokenRecord",
    "TokenTold": "TokenIssued TokenShown (TokenList TokenTested)",
    "OperationRow": "OperationListed",
    "OperationTold": "OperationPlanned OperationShown (OperationList)",
    "Identity": "Bearer",
}
NODE = {
    "AddedJob": "Copy",
    "AddAnswer": "Added (AddedCopies)",
    "ScheduleAnswer": "Scheduled",
    "UnscheduleAnswer": "Unscheduled",
    "ScheduleRow": "DescribedSchedule",
    "SchedulesAnswer": "ScheduleList",
    "PoppedJob": "HandedOut",
    "PopAnswer": "Popped NothingPopped PoppedJobs",
    "FinishAnswer": "Finished",
    "DeleteAnswer": "Deleted",
    "TouchAnswer": "Touched",
    "MoveAnswer": "Moved",
    "UpdateAnswer": "Updated",
    "BuryAnswer": "Buried",
    "KickAnswer": "KickedJob",
    "KickTopicAnswer": "KickedTopic",
    "JobDescription": "Described",
    "GetAnswer": "Known",
    "Standing": "Standing",
    "TimelineLine": "Line",
    "TimelineSums": "Sums",
    "ExplainAnswer": "Explained",
    "PeekAnswer": "Page",
    "FindAnswer": "Search",
    "SearchBegunAnswer": "SearchBegun",
    "TopicRow": "Listed",
    "TopicsAnswer": "Listing",
    "WorkerRow": "Polling",
    "WorkersAnswer": "WorkerList",
    "InstanceRow": "ListedInstance",
    "InstancesAnswer": "InstanceList",
    "Finding": "FindingShown",
    "HealthAnswer": "Examined",
    "StatsAnswer": "Figures",
    "ForecastBin": "ForecastBin",
    "LargestTopic": "LargestTopic",
    "ForecastAnswer": "Outlook",
    "Lateness": "Lateness",
    "FiguresBin": "FiguresBin",
    "FiguresAnswer": "PastFigures",
    "PauseAnswer": "Paused",
    "ResumeAnswer": "Resumed",
    "PurgeAnswer": "Purged",
    "LeaveAnswer": "Left",
    "LoggedAction": "LoggedAction",
    "ActionsAnswer": "ActionLog",
    "OperationRow": "OperationListed",
    "OperationAnswer": "OperationShown",
    "OperationPlanAnswer": "OperationPlanned",
    "OperationListAnswer": "OperationList",
    "TokenRecord": "TokenRecord",
    "TokenAnswer": "TokenShown",
    "TokenIssuedAnswer": "TokenIssued",
    "TokenListAnswer": "TokenList",
    "TokenTestAnswer": "TokenTested",
    "Setting": "ShownSetting",
    "Policy": "Policy",
    "SettingsAnswer": "SettingList",
    "WhoamiAnswer": "Bearer",
}

_STATES = ["delayed", "ready", "reserved", "dead", "finished", "deleted"]
_PYTHON_HEAD = '''"""The answers to commands, as received. docs/protocol.md describes them; times are unix seconds.

Made by `make docs` from the structs of the service; its names are chosen in jobqueue/reference/client_types.py.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from jobqueue_client.fields import LiveState

State = Literal["delayed", "ready", "reserved", "dead", "finished", "deleted"]
Counts = dict[LiveState, int]
Answer = dict[str, Any]
"""Any answer, as in the results of a batch."""'''
_NODE_HEAD = """\
/**
 * The answers to the commands. Times are unix seconds.
 *
 * Made by `make docs` from the structs of the service; its names are chosen in jobqueue/reference/client_types.py.
 */

export type JobState = 'delayed' | 'ready' | 'reserved' | 'dead' | 'finished' | 'deleted';

export type LiveState = Exclude<JobState, 'finished' | 'deleted'>;

export type Counts = Record<LiveState, number>;
"""
_NODE_TAIL = """
/** The answer to a command of a batch. */
export type AnswerTo<C> = C extends { command: infer N extends keyof Answers } ? Answers[N] : never;
"""


class _Field(NamedTuple):
    """A field of a type: its schemas in the answers, and whether all answers require it."""

    name: str
    schemas: list[Schema]
    is_required: bool


class _Type(NamedTuple):
    """A type of a client, with the description of its answers."""

    name: str
    about: str
    fields: list[_Field]


class _Types:
    """The types of a client, made from its table of names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        schemas = description()["components"]["schemas"]
        self.of: dict[str, str] = {}
        """By answer: the first type that has the fields of the answer."""
        self.all: list[_Type] = []
        for name, text in names.items():
            own, _, lent = text.partition(" (")
            for answer in own.split():
                self.of.setdefault(answer, name)
            answers = [schemas[each] for each in own.split()]
            made = _fields(answers, [schemas[each] for each in lent.rstrip(")").split()])
            self.all.append(_Type(name, _about([each.get("description", "") for each in answers]), made))

    def name(self, ref: str) -> str:
        """The name of the type to which a schema reference points."""
        return self.of[ref.rpartition("/")[2]]


def _fields(own: list[Schema], lent: list[Schema]) -> list[_Field]:
    found: dict[str, list[Schema]] = {}
    for answer in own:
        for name, schema in answer["properties"].items():
            found.setdefault(name, []).append(schema)
    for answer in lent:
        found |= {name: [schema] for name, schema in answer["properties"].items() if name not in found}
    required = set.intersection(*(set(answer.get("required", ())) for answer in own))
    return [_Field(name, schemas, name in required) for name, schemas in found.items()]


def _about(texts: list[str]) -> str:
    """The text of a type, from the texts of its answers. Texts like "The answer to finish." become one sentence."""
    begin = "The answer to "
    if len(texts) == 1 or not all(text.startswith(begin) and text.endswith(".") for text in texts):
        return texts[0]
    *some, last = (text.removeprefix(begin).removesuffix(".") for text in texts)
    return f"{begin}{', '.join(some)} or {last}."


def _options(schemas: list[Schema]) -> Iterator[Schema]:
    """The alternative schemas of a value, without duplicates."""
    flat = [part for schema in schemas for part in schema.get("anyOf", [schema])]
    enums = sorted({word for part in flat for word in part.get("enum", ())}, key=_rank)
    if enums:
        yield {"enum": enums}
    seen: list[Schema] = []
    for part in flat:
        bare = {key: value for key, value in part.items() if key not in ("description", "title", "examples")}
        if "enum" not in part and bare not in seen:
            seen.append(bare)
            yield bare


def _rank(word: str) -> tuple[int, str]:
    """States in the order of a job's life; other words by name."""
    return (_STATES.index(word) if word in _STATES else len(_STATES)), word


def python() -> str:
    """answers.py of the Python client."""
    types = _Types(PYTHON)
    lines = [_PYTHON_HEAD]
    for each in types.all:
        lines.append(f"\n\nclass {each.name}(TypedDict):")
        if each.about:
            words = f'"""{each.about[0].upper()}{each.about[1:]}"""'
            lines += [*textwrap.wrap(words, _WIDTH, initial_indent="    ", subsequent_indent="    "), ""]
        for field in each.fields:
            kind = " | ".join(dict.fromkeys(_python(schema, field.name, types) for schema in _options(field.schemas)))
            kind = "Any" if "Any" in kind.split(" | ") else kind
            lines.append(f"    {field.name}: {kind if field.is_required else f'NotRequired[{kind}]'}")
    return "\n".join(lines) + "\n"


_PYTHON_KINDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def _python(schema: Schema, name: str, types: _Types) -> str:
    match schema:
        case {"type": "object"} if name == "counts":
            kind = "Counts"
        case {"$ref": ref}:
            kind = types.name(ref)
        case {"enum": words}:
            kind = "State" if words == _STATES else f"Literal[{', '.join(map(json.dumps, words))}]"
        case {"const": False}:
            kind = "Literal[False]"
        case {"type": "array", "items": items}:
            kind = f"list[{_python(items, '', types)}]"
        case {"type": "object"}:
            kind = f"dict[str, {_python(schema.get('additionalProperties', {}), '', types)}]"
        case {"type": plain}:
            kind = _PYTHON_KINDS[plain]
        case {"anyOf": parts}:
            kind = " | ".join(_python(each, name, types) for each in parts)
        case _:
            kind = "Any"
    return kind


_NODE_KINDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NODE_OBJECTS = {
    "counts": "Counts",
    "filter": "Record<string, string | number>",
    "newest_dead": "{ id: string; cause: string; reason: string | null; dead_since: number }",
    "others": "{ parked: number; jobs: number }",
}
"""The types of objects whose content the description does not define, by the field of the object."""


def node() -> str:
    """answers.d.ts of the Node client. `T` is the body of a job."""
    types = _Types(NODE)
    generic = _generic(types)
    lines = [_NODE_HEAD]
    for each in types.all:
        lines += _doc(each.about, "")
        lines.append(f"export interface {each.name}{'<T = unknown>' if each.name in generic else ''} {{")
        for field in each.fields:
            kind = " | ".join(
                dict.fromkeys(_node(schema, field.name, types, generic) for schema in _options(field.schemas))
            )
            if field.name == "value" and each.name not in generic:
                kind = "unknown"
            if field.name != "success":
                lines += _doc(next((each["description"] for each in field.schemas if "description" in each), ""), "  ")
            lines.append(f"  {field.name}{'' if field.is_required else '?'}: {kind};")
        lines.append("}\n")
    lines += ["/** The answer to each command. */", "interface Answers {"]
    for entry in entries():
        names = dict.fromkeys(types.of[answer.__name__] for answer in entry.answers if answer.__name__ in types.of)
        lines.append(f"  {entry.name}: {' | '.join(names)};")
    return "\n".join(lines) + "\n}\n" + _NODE_TAIL


def _generic(types: _Types) -> set[str]:
    """The types that contain job bodies, directly or in nested types."""
    found = {each.name for each in types.all if "value" in [field.name for field in each.fields]} - {"Setting"}
    while True:
        parts = [f'/{answer}"' for answer, name in types.of.items() if name in found]
        more = {each.name for each in types.all if any(part in json.dumps(each.fields) for part in parts)}
        if more <= found:
            return found
        found |= more


def _node(schema: Schema, name: str, types: _Types, generic: set[str]) -> str:
    match schema:
        case {"type": "object"} if name in _NODE_OBJECTS:
            kind = _NODE_OBJECTS[name]
        case {"$ref": ref}:
            kind = f"{types.name(ref)}{'<T>' if types.name(ref) in generic else ''}"
        case {"enum": words}:
            kind = "JobState" if words == _STATES else " | ".join(f"'{word}'" for word in words)
        case {"const": value}:
            kind = json.dumps(value)
        case {"type": "array", "items": items}:
            inner = _node(items, "", types, generic)
            kind = f"({inner})[]" if " | " in inner else f"{inner}[]"
        case {"type": "object"}:
            kind = f"Record<string, {_node(schema.get('additionalProperties', {}), '', types, generic)}>"
        case {"type": plain}:
            kind = _NODE_KINDS[plain]
        case {"anyOf": parts}:
            kind = " | ".join(_node(each, name, types, generic) for each in parts)
        case _:
            kind = "T" if name == "value" else "unknown"
    return kind


def _doc(text: str, indent: str) -> list[str]:
    """A comment with this text."""
    if not text:
        return []
    one = f"{indent}/** {text} */"
    if len(one) <= _WIDTH:
        return [one]
    lines = textwrap.wrap(text, _WIDTH, initial_indent=f"{indent} * ", subsequent_indent=f"{indent} * ")
    return [f"{indent}/**", *lines, f"{indent} */"]


_CLIENTS = Path(__file__).parents[2] / "clients"
FILES = {
    "answers.py": (_CLIENTS / "python/jobqueue_client/answers.py", python),
    "answers.d.ts": (_CLIENTS / "node/types/answers.d.ts", node),
}
"""The files in a checkout, and the function that makes each file."""

if __name__ == "__main__":
    for path, make in FILES.values():
        path.write_text(make())
