"""The first revision: its tables are created directly, not by a migration."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Does nothing: there is no older revision."""
