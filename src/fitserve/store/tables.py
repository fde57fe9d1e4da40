"""The journal's tables at the newest schema. A change here goes with a file in ``migrations/versions``.

A run's record is kept whole, as JSON: it is the truth. The other columns repeat what is listed and searched.
Types that SQLite and PostgreSQL share.
"""

import sqlalchemy as sa

SCHEMA = 1
"""The newest schema; ``journal_schema`` holds it as four digits, the name of the migration that leads to it."""

metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("made_by", sa.Text, nullable=False),
    sa.Column("started_utc", sa.Text, nullable=False),
    sa.Column("saved_utc", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("verified", sa.Boolean),
    sa.Column("record", sa.Text, nullable=False),
)

logs = sa.Table(
    "logs",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

trials = sa.Table(
    "trials",
    metadata,
    sa.Column("run", sa.ForeignKey("runs.run", ondelete="CASCADE"), primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("cause", sa.Text),
    sa.Column("flag", sa.Text),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("log", sa.ForeignKey("logs.digest"), index=True),
)

VERSION_TABLE = "journal_schema"

version_metadata = sa.MetaData()

version = sa.Table(
    VERSION_TABLE,
    version_metadata,
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""As Alembic makes it; in a MetaData of its own, as Alembic wants it."""


def version_name(schema: int) -> str:
    """The name of a schema: ``0001``."""
    return f"{schema:04d}"
