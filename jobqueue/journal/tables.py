"""The tables of a journal. Users read the views (views.py); tables may change from version to version.

Times are since the epoch, by Redis's clock, in the unit that the comment of a column says. States, verbs and causes are
the numbers of buckets/job.py. Ids, topics and names compare by bytes. A **place** locates an event: the id of its entry
(`ms`, `seq`) in the stream of a shard, and its number in the entry (`n`).

`source` names one namespace on one Redis: after a move to another Redis, the namespace is another source.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects import mysql

from jobqueue.metrics.process import LATENESS_S

MOST_SOURCE = 64  # characters
_LONG_BLOB = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_LONG_TEXT = Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")


def _name(length: int = 255) -> String:
    """A name of ASCII characters that is compared by bytes."""
    return (
        String(length, collation="C")
        .with_variant(String(length, collation="BINARY"), "sqlite")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def _words(length: int) -> String:
    """Text from users, with any characters."""
    return String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


metadata = MetaData()

position = Table(
    "jq_position",
    metadata,
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),  # rises each time Redis goes back
    Column("ms", BigInteger, nullable=False),  # the last entry in the journal
    Column("seq", BigInteger, nullable=False),
    Column("entries", BigInteger, nullable=False),  # drained in this epoch
    Column("stream", _name(32), nullable=False),  # the word that identifies the stream
    Column("since", BigInteger, nullable=False),  # us: when this journal began
    Column("time", BigInteger, nullable=False),  # us: everything recorded until then is in the journal, or in a gap
)
"""How far each shard is drained."""

choice = Table(
    "jq_choice",
    metadata,
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("since", BigInteger, primary_key=True, autoincrement=False),  # us: later events are kept this way
    Column("events", _name(8), nullable=False),  # all, ends, none
    Column("bodies", SmallInteger, nullable=False),  # 1: kept
)
"""Which events and bodies are kept, since the first time that not all of them were kept."""

event = Table(
    "jq_event",
    metadata,
    Column("ms", BigInteger, primary_key=True, autoincrement=False),
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("n", Integer, primary_key=True, autoincrement=False),
    # 0; the epoch, if another event had this place before Redis went back; -1 or lower for a walk.
    Column("branch", Integer, primary_key=True, autoincrement=False),
    Column("id", _name(), nullable=False),  # empty for a topic's event; `~` and the name for a schedule's
    Column("life", BigInteger, nullable=False),  # ms: when the job was created
    Column("topic", _name(), nullable=False),  # empty for a schedule's event
    Column("verb", SmallInteger, nullable=False),
    Column("state_before", SmallInteger, nullable=False),  # 0: none, or a tombstone
    Column("state_after", SmallInteger, nullable=False),  # 0: set aside, vanished, or not a job's event
    Column("at", BigInteger, nullable=False),  # us
    Column("was", BigInteger, nullable=False),  # ms: the record's `next` before the move; for a pause, its end
    Column("due", BigInteger, nullable=False),  # ms
    Column("next", BigInteger, nullable=False),  # ms
    Column("priority", SmallInteger, nullable=False),
    Column("cause", SmallInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("deliveries", Integer, nullable=False),
    Column("lease", BigInteger, nullable=False),  # us
    Column("instance", _words(96), nullable=False),  # the instance that made the move
    Column("actor", _words(255), nullable=False),  # empty: unknown
    Column("worker", _words(255)),  # null: this move did not write it
    Column("reason", _words(1024)),
    Column("checksum", BigInteger, nullable=False),
    Index("jq_event_id", "id", "ms"),
    postgresql_partition_by="RANGE (ms)",
    sqlite_with_rowid=False,  # saves one B-tree
)
"""The events. PostgreSQL and MariaDB have partitions by day (UTC) of `ms`."""

job = Table(
    "jq_job",
    metadata,
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("id", _name(), primary_key=True),
    Column("shard", SmallInteger, nullable=False),
    Column("life", BigInteger, nullable=False),
    Column("topic", _name(), nullable=False),
    Column("state", SmallInteger, nullable=False),  # 0: set aside or vanished
    Column("priority", SmallInteger, nullable=False),
    Column("cause", SmallInteger, nullable=False),
    Column("due", BigInteger, nullable=False),  # ms
    Column("next", BigInteger, nullable=False),  # ms
    Column("ttr", BigInteger, nullable=False),  # ms
    Column("tries", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("deliveries", Integer, nullable=False),
    Column("step", SmallInteger, nullable=False),
    Column("lease", BigInteger, nullable=False),  # us
    Column("keeps_body", SmallInteger, nullable=False),
    Column("options", _LONG_BLOB),  # the optional block of the record, unknown tags included; null: missed
    Column("worker", _words(255)),  # from the options, for queries; null: it has none
    Column("reason", _words(1024)),
    Column("body", _LONG_TEXT),
    Column("body_kept", SmallInteger, nullable=False),  # 0: bodies are not kept; 1: kept here; 2: missed
    Column("ms", BigInteger, nullable=False),  # the place of its last event
    Column("seq", BigInteger, nullable=False),
    Column("n", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),  # us: when that happened
    Column("ended", BigInteger),  # us; null: the job lives
    Index("jq_job_topic", "source", "topic", "state", "next", "id"),
    Index("jq_job_ended", "ended"),
)
"""The newest life of each job, as of its last event, with all that its record has."""

token = Table(
    "jq_token",
    metadata,
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("id", _name(), primary_key=True),
    Column("changed", BigInteger, nullable=False),  # us: of two records of a token, the last one to change counts
    # us: when it was revoked or expired, or since when a revocation may have been missed; null: never
    Column("ended", BigInteger),
    Column("record", _LONG_TEXT, nullable=False),  # JSON, as Redis has it
)
"""The tokens that Redis has had, as they were last changed. No view shows them, because the records have digests."""

schedule = Table(
    "jq_schedule",
    metadata,
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("name", _name(), primary_key=True),
    Column("shard", SmallInteger, nullable=False),
    Column("topic", _name(), nullable=False),  # empty: the definition cannot be read
    Column("revision", BigInteger, nullable=False),  # us: when it was defined
    Column("start", BigInteger, nullable=False),  # ms: where an interval counts from
    Column("next", BigInteger, nullable=False),  # ms: its next time; 0: none
    Column("last", BigInteger, nullable=False),  # ms: the time of its last occurrence; 0: none yet
    Column("definition", _LONG_TEXT, nullable=False),  # JSON, as its record has it; see body_kept
    Column("body_kept", SmallInteger, nullable=False),  # 0: the definition is here without the body
    Column("ms", BigInteger, nullable=False),  # the place of its last event
    Column("seq", BigInteger, nullable=False),
    Column("n", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),  # us: when that happened
    Column("gone", BigInteger),  # us: when it was removed, or found to have vanished; null: it lives
)
"""The schedules, each as of its last event."""

minute = Table(
    "jq_minute",
    metadata,
    Column("minute", BigInteger, primary_key=True, autoincrement=False),  # minutes since the epoch
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("topic", _name(), primary_key=True),
    Column("verb", SmallInteger, primary_key=True, autoincrement=False),
    Column("state", SmallInteger, primary_key=True, autoincrement=False),  # after the move
    Column("events", BigInteger, nullable=False),
    # About first deliveries: how many, and how late, from due to delivered; 0 in other rows.
    Column("firsts", BigInteger, nullable=False),
    Column("late_sum", Float(53), nullable=False),  # s
    Column("late_most", Float(53), nullable=False),  # s
    *(Column(f"late_{number}", BigInteger, nullable=False) for number in range(len(LATENESS_S) + 1)),
    sqlite_with_rowid=False,
)
"""Sums by minute. `late_<n>` counts first deliveries by lateness: more than LATENESS_S[n - 1] and at most LATENESS_S[n]
seconds; the last one counts all above. Walks, vanished jobs and schedules are not counted."""

gap = Table(
    "jq_gap",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("source", _name(MOST_SOURCE), nullable=False),
    Column("shard", SmallInteger, nullable=False),
    Column("epoch", Integer, nullable=False),
    # 1: lost, events that never reached the journal; 2: forgotten by Redis; 3: none, but the records must be walked.
    Column("kind", SmallInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),  # the last place before it
    Column("from_seq", BigInteger, nullable=False),
    Column("to_ms", BigInteger, nullable=False),  # the last place in it
    Column("to_seq", BigInteger, nullable=False),
    Column("entries", BigInteger, nullable=False),  # lost entries; 0 if events were off, or for forgotten ones
    Column("found", BigInteger, nullable=False),  # us
    Column("walked", BigInteger),  # us: when a walk had filled it, or a restore had healed it; null: not yet
)
"""What the journal does not have (lost), and what it has but Redis has forgotten, as after a failover."""

refused = Table(
    "jq_refused",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("source", _name(MOST_SOURCE), nullable=False),
    Column("shard", SmallInteger, nullable=False),
    Column("ms", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("n", Integer, nullable=False),  # -1: the whole entry
    Column("time", BigInteger, nullable=False),  # us: when it was refused
    Column("reason", _words(1024), nullable=False),
    Column("raw", _LONG_BLOB, nullable=False),  # an id, a zero byte, its value; or a whole entry
)
"""What could not be read or stored."""

total = Table(
    "jq_total",
    metadata,
    Column("source", _name(MOST_SOURCE), primary_key=True),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    Column("topic", _name(), primary_key=True),  # empty: for all topics without a row
    Column("ms", BigInteger, nullable=False),  # the place in the stream at which the totals were read
    Column("seq", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),  # us: when they were read
    Column("created", BigInteger, nullable=False),
    Column("finished", BigInteger, nullable=False),
    Column("deleted", BigInteger, nullable=False),
    Column("replaced", BigInteger, nullable=False),
)
"""Redis's totals at the time from which the events must add up: when the journal began, or was last walked."""

restore = Table(
    "jq_restore",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("source", _name(MOST_SOURCE), nullable=False),
    Column("begun", BigInteger, nullable=False),  # us
    Column("ended", BigInteger),  # us; null: it runs, or was killed
    Column("options", Text, nullable=False),  # JSON
    Column("cursor", Text, nullable=False),  # JSON
    Column("sums", Text, nullable=False),  # JSON
)
"""Runs of restore."""

left = Table(
    "jq_left",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("run", Integer, nullable=False),  # its number in jq_restore
    Column("why", _name(MOST_SOURCE), nullable=False),  # the name of a count
    Column("id", _name(), nullable=False),
    Index("jq_left_run", "run"),
)
"""Jobs that should have come back in a run, and did not."""

for _table in metadata.tables.values():
    _table.dialect_kwargs.update(mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")
