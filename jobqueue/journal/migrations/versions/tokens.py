"""Adds tokens. The next reader writes the existing tokens."""

import sqlalchemy as sa
from alembic import op

from jobqueue.journal.migrations.versions.schedules import _TEXT, _name

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Create the table of tokens."""
    op.create_table(
        "jq_token",
        sa.Column("source", _name(64), primary_key=True),
        sa.Column("id", _name(), primary_key=True),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.Column("record", _TEXT, nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
