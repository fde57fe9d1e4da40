"""Print a journal of the newest schema as SQL, with one run, its two trials and a log in it.

Usage: dump_schema.py > tests/store/schemas/NNNN.sql, once for each schema, before it is released.
"""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from fitserve.report.record import Record
from fitserve.store.journal import open_journal
from fitserve.trial.outcome import Change, Trial
from fitserve.verify.verification import Check, Verification


def main() -> None:
    """Save and print."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "serve.log"
        log.write_text("INFO the log of trial 1\n", encoding="utf-8")
        journal = open_journal({"FITSERVE_DATA_DIR": folder})
        digest = journal.keep_log(log)
        change = Change(flag="max_model_len", to=76304, why="76,304 tokens fit", cost="capacity")
        check = Check(name="models", passed=True, expected="a list", actual="a list", seconds=0.1)
        journal.save(
            Record(
                run="20260101-000000-aaaaaa",
                kind="fix",
                started_utc="2026-01-01T00:00:00+00:00",
                fitserve_version="0.1.0",
                command=["vllm", "serve", "some/model"],
                trials=[
                    Trial(n=1, argv=["vllm"], outcome="failed", cause="no-kv-cache-blocks", seconds=1.5),
                    Trial(n=2, argv=["vllm"], outcome="served", change=change, seconds=2.5),
                ],
                logs={1: str(digest)},
                verification=Verification(url="http://127.0.0.1:8000", checks=[check]),
                outcome="served",
                final_command=["vllm", "serve", "some/model", "--max-model-len", "76304"],
                seconds=4.0,
            )
        )
        with closing(sqlite3.connect(Path(folder) / "journal.db")) as connection:
            print("\n".join(connection.iterdump()))


if __name__ == "__main__":
    main()
