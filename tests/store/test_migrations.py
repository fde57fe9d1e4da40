"""A journal of every earlier schema becomes one of today's.

Each file of ``schemas`` is a journal as the tool with that schema left it. A new schema needs a migration in
``store/migrations/versions`` and its journal here: ``python tests/store/programs/dump_schema.py``.
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fitserve.errors import MachineError
from fitserve.store.journal import open_journal
from fitserve.store.tables import SCHEMA, VERSION_TABLE, version_name

SCHEMAS = sorted((Path(__file__).parent / "schemas").glob("*.sql"), key=lambda path: path.stem)
OPEN = "import sys\nfrom fitserve.store.journal import open_journal\nopen_journal()\nprint('alembic' in sys.modules)"


def make_journal(script: Path, folder: Path) -> dict[str, str]:
    """The journal that a file of ``schemas`` holds, and the environment that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "journal.db")) as connection:
        connection.executescript(script.read_text(encoding="utf-8"))
    return {"FITSERVE_DATA_DIR": str(folder)}


def shape(folder: Path) -> dict[str, Any]:
    """Everything that the database's catalogue says of its tables, and the schema's name."""
    engine = sa.create_engine(f"sqlite:///{folder / 'journal.db'}", poolclass=sa.pool.NullPool)
    look = sa.inspect(engine)
    described = {
        table: {
            "columns": [{**column, "type": str(column["type"])} for column in look.get_columns(table)],
            "primary_key": look.get_pk_constraint(table),
            "foreign_keys": sorted(look.get_foreign_keys(table), key=str),
            "indexes": sorted(look.get_indexes(table), key=str),
        }
        for table in look.get_table_names()
    }
    with engine.connect() as connection:
        names = connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    return {"tables": described, "names": names}


def test_every_schema_is_kept() -> None:
    """There is a journal of each schema from nothing to the newest."""
    assert [version_name(schema) for schema in range(SCHEMA + 1)] == [path.stem for path in SCHEMAS]


@pytest.mark.parametrize("script", SCHEMAS, ids=lambda path: path.stem)
def test_an_older_journal_becomes_the_newest(script: Path, tmp_path: Path) -> None:
    """Opening an older journal gives the tables of a new one, and every run and log in it."""
    open_journal({"FITSERVE_DATA_DIR": str(tmp_path / "new")})
    environ = make_journal(script, tmp_path / "old")
    journal = open_journal(environ)

    assert shape(tmp_path / "new") == shape(tmp_path / "old")
    if script.stem != version_name(0):
        [summary] = journal.latest(10)
        record = journal.load("last")
        assert ("fix", "served", True, 2) == (
            summary.made_by,
            summary.outcome,
            summary.verified,
            summary.trials,
        )
        assert ["failed", "served"] == [trial.outcome for trial in record.trials]
        assert b"INFO the log of trial 1\n" == journal.read_log(record.logs[1])


@pytest.mark.parametrize(
    ("script", "imported"), [(SCHEMAS[0], "True"), (SCHEMAS[-1], "False")], ids=["oldest", "newest"]
)
def test_alembic_is_imported_for_an_older_journal_alone(script: Path, imported: str, tmp_path: Path) -> None:
    """Only a journal that must be upgraded pays for Alembic."""
    environ = make_journal(script, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", OPEN],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )

    assert imported == done.stdout.strip()


def test_processes_upgrade_at_once(tmp_path: Path) -> None:
    """Processes that open an older journal at the same time upgrade it once, and none of them fails."""
    environ = make_journal(SCHEMAS[0], tmp_path)
    programs = [
        subprocess.Popen([sys.executable, "-c", OPEN], env={**os.environ, **environ}, stderr=subprocess.PIPE)
        for _ in range(4)
    ]

    assert [b""] * 4 == [program.communicate()[1] for program in programs]
    assert [version_name(SCHEMA)] == shape(tmp_path)["names"]


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    """A journal of a later version of the tool is left alone, and both schemas are named."""
    environ = make_journal(SCHEMAS[-1], tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0099'")
    before = (tmp_path / "journal.db").read_bytes()
    with pytest.raises(MachineError) as error:
        open_journal(environ)

    assert f"the journal has schema 99, and this fitserve knows up to {SCHEMA}" == error.value.what
    assert "upgrade fitserve" == error.value.hint
    assert before == (tmp_path / "journal.db").read_bytes()
