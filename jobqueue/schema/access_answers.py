"""The answers to the commands about access: see `schema.answers`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jobqueue.schema.answer_fields import Cursor, Yes


class LoggedAction(Struct, forbid_unknown_fields=True):
    """An action in the log of actions."""

    at: Annotated[float, Meta(description="when it began, in unix seconds")]
    actor: Annotated[
        str,
        Meta(
            description="the name of the token; after a slash, the person that `X-Jobqueue-Actor` named; for "
            "`jobqueue token` over Redis and `jobqueue restore`, the user and the machine; `-`: not known"
        ),
    ]
    action: Annotated[
        str,
        Meta(
            description="the command, of `token` with its `action`, of `operation` with `do`; `reload` for settings "
            "that were read again; `restore`, with what it restores, for `jobqueue restore`"
        ),
    ]
    outcome: Annotated[str, Meta(description="OK, the code of its error, or `not known`: it was cut off")]
    done: Annotated[
        int, Meta(description="how many jobs, topics, tokens or settings it changed; of a purge, those of this request")
    ]
    request: Annotated[str, Meta(description="the id of the request, if there was one")] | UnsetType = UNSET
    token: Annotated[str, Meta(description="the id of the token, if there was one")] | UnsetType = UNSET
    topic: Annotated[str, Meta(description="the topic, if the command named one")] | UnsetType = UNSET
    id: Annotated[str | int, Meta(description="the job or token, if the command named one")] | UnsetType = UNSET
    name: Annotated[str, Meta(description="as in the command; of `jobqueue restore`, its run")] | UnsetType = UNSET
    state: Annotated[str, Meta(description="as in the command")] | UnsetType = UNSET
    count: Annotated[int, Meta(description="as in the command")] | UnsetType = UNSET
    seconds: Annotated[float, Meta(description="as in the command")] | UnsetType = UNSET
    operation: Annotated[str, Meta(description="the operation, if the command steered one")] | UnsetType = UNSET
    kind: Annotated[str, Meta(description="what that operation does")] | UnsetType = UNSET
    jobs: Annotated[int, Meta(description="how many jobs its plan has")] | UnsetType = UNSET
    filter: Annotated[dict[str, Any], Meta(description="which jobs it takes")] | UnsetType = UNSET
    within: Annotated[str, Meta(description="how topics begin, for a dialect's command")] | UnsetType = UNSET
    changed: Annotated[list[str], Meta(description="the settings that changed")] | UnsetType = UNSET
    address: Annotated[str, Meta(description="the client's address and port")] | UnsetType = UNSET


class ActionLog(Struct, forbid_unknown_fields=True):
    """The answer to actions."""

    success: Yes
    actions: Annotated[list[LoggedAction], Meta(description="the newest first; about the last 5,000 are kept")]
    cursor: Cursor


class _TokenFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is kept of a token; points in time are in unix seconds."""

    id: Annotated[str, Meta(description="its 8 characters that are no secret")]
    name: Annotated[str, Meta(description="as in create")]
    state: Annotated[Literal["live", "expired", "revoked"], Meta(description="whether it holds")]
    source: Annotated[Literal["redis", "file"], Meta(description="where its record is kept")]
    rights: Annotated[list[str], Meta(description="as in create")]
    topics: Annotated[list[str], Meta(description="as in create; none: all topics")]
    created: Annotated[float, Meta(description="when it was created; 0: not known")]
    created_by: Annotated[str, Meta(description="by whom")]
    expires: Annotated[float | None, Meta(description="when it ends; null: never")]
    used: Annotated[int | None, Meta(description="the minute of its last use; null: none is known")]
    rate: Annotated[int | None, Meta(description="as in create")]
    burst: Annotated[int | None, Meta(description="as in create")]
    bytes: Annotated[int | None, Meta(description="as in create")]
    waits: Annotated[int | None, Meta(description="as in create")]
    own_ids: Annotated[bool, Meta(description="as in create")]
    certificate: Annotated[str | None, Meta(description="as in create")]
    old_until: (
        Annotated[float, Meta(description="if its secret was exchanged: until when the old one holds, too")] | UnsetType
    ) = UNSET


class TokenRecord(_TokenFields, forbid_unknown_fields=True, kw_only=True):
    """A token in a listing."""

    revoked: Annotated[float, Meta(description="if it was revoked: when")] | UnsetType = UNSET


class TokenShown(TokenRecord, forbid_unknown_fields=True, kw_only=True):
    """The answer to token with show or revoke."""

    success: Yes


class TokenIssued(_TokenFields, forbid_unknown_fields=True, kw_only=True):
    """The answer to token with create or rotate."""

    success: Yes
    token: Annotated[str, Meta(description="the token, which is shown this once")]


class TokenList(Struct, forbid_unknown_fields=True):
    """The answer to token with list."""

    success: Yes
    tokens: Annotated[list[TokenRecord], Meta(description="each as show has it; ended ones for 7 days")]


class TokenTested(Struct, forbid_unknown_fields=True):
    """The answer to token with test."""

    success: Yes
    id: Annotated[str, Meta(description="the token")]
    allowed: Annotated[bool, Meta(description="whether it may do that")]
    why: Annotated[str | None, Meta(description="if not: why, as a sentence for people")]


class Bearer(Struct, forbid_unknown_fields=True):
    """The answer to whoami."""

    success: Yes
    open: Annotated[bool, Meta(description="whether the service asks for no tokens; then the rest is left out")]
    id: Annotated[str, Meta(description="the token, by its 8 characters that are no secret")] | UnsetType = UNSET
    name: Annotated[str, Meta(description="its name")] | UnsetType = UNSET
    rights: Annotated[list[str], Meta(description="what it may do")] | UnsetType = UNSET
    commands: Annotated[list[str], Meta(description="the commands that these rights allow")] | UnsetType = UNSET
    topics: Annotated[list[str], Meta(description="the topics that it reaches; none: all")] | UnsetType = UNSET
    expires: Annotated[float | None, Meta(description="when it ends; null: never")] | UnsetType = UNSET
    rate: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    burst: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    bytes: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    waits: Annotated[int | None, Meta(description="as of token")] | UnsetType = UNSET
    own_ids: Annotated[bool, Meta(description="as of token")] | UnsetType = UNSET
