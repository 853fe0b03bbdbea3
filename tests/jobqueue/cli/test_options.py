"""The options of the command line: one for each field of the protocol, and no others."""

from __future__ import annotations

from typing import Annotated, Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from msgspec import Meta, Struct

from jobqueue.cli import service_commands
from jobqueue.cli.options import fields_of, parameters
from jobqueue.protocols.command import protocol
from jobqueue.schema import params

# Options that are not fields.
OWN = {"url", "config", "as_json", "text", "yes", "all", "watch", "token_file", "ca_file", "cert_file", "key_file"}
COMMANDS = {str(command.name): command for command in service_commands.commands()}


def test_a_command_takes_each_of_its_fields_and_nothing_else() -> None:
    # `TTR` is another spelling of `ttr`, and a pop's TOPIC... are its topic or its topics.
    fields = {name: {field.lower() for field in params.FIELDS[name]} for name in COMMANDS}
    fields["pop"] -= {"topic"}
    taken = {name: {str(each.name) for each in command.params} - OWN for name, command in COMMANDS.items()}
    assert taken == fields


def test_each_command_of_the_protocol_is_there_with_help_for_each_option() -> None:
    assert COMMANDS.keys() == params.BY_NAME.keys() - {"token", "operation", "explain"}
    for command in COMMANDS.values():
        shown = CliRunner().invoke(command, ["--help"]).output
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, (command.name, option.name)
                assert option.opts[0] in shown


def test_the_description_of_a_field_is_the_help_of_its_option() -> None:
    class Told(Struct, tag="told", tag_field="command"):
        delay: Annotated[float, Meta(ge=0, description="inside")] | None = None
        at: Annotated[float | None, Meta(description="outside")] = None

    assert {option.name: getattr(option, "help", "") for option in parameters("told", Told)} == {
        "delay": "inside",
        "at": "outside",
    }


def read(name: str, *arguments: str) -> Any:
    """The fields that the service gets for what was typed, read as the service reads them."""
    command = click.Command(name, params=parameters(name, params.BY_NAME[name]), callback=fields_of_kwargs)
    fields = command.main(list(arguments), standalone_mode=False)
    return protocol.parse(msgspec.json.encode({"command": name, **fields}), 1000)


def fields_of_kwargs(**given: Any) -> dict[str, Any]:
    return fields_of(given)


def test_what_is_typed_is_what_the_service_reads() -> None:
    job = read(
        *("add", "t", '{"a": 2.50}', "--delay", "1.5", "--backoff", "15,0.25m,30s", "--tag", "x", "--tag", "y"),
        *("--header", "a=b=c", "--priority", "9", "--if-exists", "replace", "--ttr", "0", "--durability", "local"),
        *("--key", "customer:7"),
    )
    assert (job.topic, bytes(job.body), job.delay, job.backoff) == ("t", b'{"a": 2.50}', 1.5, [15, 15, 30])
    assert (job.tags, job.headers, job.priority, job.if_exists) == (["x", "y"], {"a": "b=c"}, 9, "replace")
    assert (job.ttr, job.durability, job.id, job.key) == (0, "local", None, "customer:7")
    assert read("add", "t", "1", "--backoff", "").backoff == []
    assert read("pop", "a", "--wait", "1m").wait == 60
    assert read("add", "t", "1", "--at", "1893456000").at == 1893456000
    assert read("add", "t", "1", "--at", "2030-01-01T00:00:00Z").at.year == 2030
    assert read("release", "a").attempt is None
    assert read("release", "a", "--no-attempt").attempt is False
    assert read("pop", "a").topic == "a"
    assert read("pop", "a", "b", "--wait", "5").topics == ["a", "b"]
    every = read("schedule", "n", "--topic", "t", "--body", "{}", "--every", "1h30m", "--jitter", "5m", "--paused")
    assert (every.name, every.topic, bytes(every.body), every.every, every.jitter) == ("n", "t", b"{}", 5400, 300)
    assert (every.paused, every.cron, every.start) == (True, None, None)
    calendar = read("schedule", "n", "--topic", "t", "--body", "1", "--cron", "0 9 * * 1", "--zone", "Europe/Berlin")
    assert (calendar.cron, calendar.zone, calendar.every) == ("0 9 * * 1", "Europe/Berlin", None)
    assert read("schedules", "n*").pattern == "n*"
    taken = read("pop", "--id", "j")
    assert (taken.id, taken.topic, taken.topics) == ("j", None, None)


@pytest.mark.parametrize("typed", ["nan", "inf", "1e999", "soon", ""])
def test_what_is_not_a_duration_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        read("add", "t", "1", "--delay", typed)


@pytest.mark.parametrize("typed", ["hello", "{a: 1}", "", "1 2", "'x'", "\udcff", "[" * 100_000])
def test_a_body_that_is_no_json_is_refused(typed: str) -> None:
    with pytest.raises(click.UsageError, match="BODY is not"):
        read("add", "t", typed)


def test_a_body_may_be_any_text() -> None:
    assert bytes(fields_of({"body": 'a "b"\n'}, text=True)["body"]) == b'"a \\"b\\"\\n"'
