"""The first revision: founded as it is, from the tables."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Nothing is older."""
