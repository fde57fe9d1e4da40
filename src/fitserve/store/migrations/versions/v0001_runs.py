"""Schema 1: runs, their trials, the logs of the trials."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """From nothing."""
    op.create_table(
        "runs",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("started_utc", sa.Text, nullable=False),
        sa.Column("saved_utc", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("verified", sa.Boolean),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "logs",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "trials",
        sa.Column("run", sa.Text, sa.ForeignKey("runs.run", ondelete="CASCADE"), primary_key=True),
        sa.Column("n", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("cause", sa.Text),
        sa.Column("flag", sa.Text),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("log", sa.Text, sa.ForeignKey("logs.digest")),
    )
    op.create_index("ix_trials_log", "trials", ["log"])
