"""Where a report's run is from: the journal, or a bundle."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from fitserve.report.html.extras import Frontier
from fitserve.report.record import Record


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its logs.

    Attributes:
        record: the run.
        logs: the trials whose logs are there.
        open_log: opens one.
        frontier: as it came with the run; None where it is to be worked out.
        redacted: private things were hidden before.
        redactions: how many, as the bundle says.
        path: the bundle; None for the journal.
    """

    record: Record
    logs: list[int]
    open_log: Callable[[int], AbstractContextManager[Any]]
    frontier: Frontier | None = None
    redacted: bool = False
    redactions: dict[str, tuple[int, int]] = {}
    path: Path | None = None


def open_source(run: str) -> Source:
    """The run by its name in the journal, or by its file.

    Raises:
        InputError: there is no such run, or the file is no bundle.
        MachineError: the journal cannot be read.
    """
    path = Path(run)
    if path.suffix.lower() == ".zip":
        return _bundled(path)
    from fitserve.store.journal import open_journal_to_read

    journal = open_journal_to_read()
    record = journal.load(run)
    return Source(
        record=record,
        logs=sorted(record.logs),
        open_log=lambda n: journal.open_log(record.logs[n]),
    )


def _bundled(path: Path) -> Source:
    from fitserve.report.bundle_read import read_bundle

    bundle = read_bundle(path)
    return Source(
        record=bundle.record,
        logs=bundle.logs,
        open_log=bundle.open_log,
        frontier=bundle.frontier,
        redacted=bundle.manifest.redacted,
        redactions=bundle.manifest.redactions,
        path=path,
    )
