"""Adds schedules. A walk of each shard reads the schedules that were defined before this revision."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "2"
down_revision = "1"

_TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")


def _name(length: int = 255) -> sa.String:
    return (
        sa.String(length, collation="C")
        .with_variant(sa.String(length, collation="BINARY"), "sqlite")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def upgrade() -> None:
    """Create the table of schedules, and ask for walks."""
    op.create_table(
        "jq_schedule",
        sa.Column("source", _name(64), primary_key=True),
        sa.Column("name", _name(), primary_key=True),
        sa.Column("shard", sa.SmallInteger, nullable=False),
        sa.Column("topic", _name(), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("revision", "start", "next", "last")),
        sa.Column("definition", _TEXT, nullable=False),
        sa.Column("body_kept", sa.SmallInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("ms", "seq")),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("gone", sa.BigInteger),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
    op.execute(
        "INSERT INTO jq_gap (source, shard, epoch, kind, from_ms, from_seq, to_ms, to_seq, entries, found) "
        "SELECT source, shard, epoch, 3, ms, seq, ms, seq, 0, time FROM jq_position"
    )
