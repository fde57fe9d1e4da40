"""What was left beside the journal comes in once, whoever opens it, and nothing of it is lost."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fitserve.errors import MachineError
from fitserve.report.record import Record
from fitserve.store.inbox import leave, take_in
from fitserve.store.journal import NullJournal, open_journal

MakeRecord = Callable[..., Record]


def leave_some(folder: Path, make_record: MakeRecord, number: int = 40) -> list[str]:
    """Leave runs of one trial with a log each; their ids."""
    names = [f"20260101-000000-{n:06x}" for n in range(number)]
    for name in names:
        log = folder / "its.log"
        log.write_text(f"{name}\n")
        assert leave(make_record(name), log, {"FITSERVE_DATA_DIR": str(folder)}) is None
    return names


def test_processes_take_in_side_by_side(tmp_path: Path, make_record: MakeRecord) -> None:
    """Several processes that open the journal at once: every run is there once, with its log, and none complains."""
    names = leave_some(tmp_path, make_record)
    program = "from fitserve.store.journal import open_journal; open_journal()"
    environ = {**os.environ, "FITSERVE_DATA_DIR": str(tmp_path), "FITSERVE_DB": ""}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE)
        for _ in range(4)
    ]

    assert [b""] * 4 == [process.communicate()[1] for process in processes]
    journal = open_journal(environ)
    assert names == [record.run for record in journal.every()]
    assert [f"{name}\n".encode() for name in names] == [
        journal.read_log(record.logs[1]) for record in journal.every()
    ]
    assert [] == list((tmp_path / "inbox").iterdir())


def test_what_cannot_be_kept_stays(tmp_path: Path, make_record: MakeRecord) -> None:
    """A journal that keeps nothing leaves the runs and their logs where they are."""
    names = leave_some(tmp_path, make_record, 2)

    take_in(NullJournal(MachineError("full")), {"FITSERVE_DATA_DIR": str(tmp_path)})

    kept = sorted(f"{name}.{kind}" for name in names for kind in ("json", "log"))
    assert kept == sorted(path.name for path in (tmp_path / "inbox").iterdir())
