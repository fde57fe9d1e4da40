"""Kill processes with SIGKILL while they save, and look at the journal after each.

Usage: kill_savers.py FOLDER KILLS SEED fresh|same

``fresh`` gives each process a new folder, so that it is killed while it makes its journal too. Prints one JSON
object: how many kills, how many processes had saved anything, and every fault found.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec

# Imported before the fork, so that the time until the kill is spent in saving.
import fitserve.store.database
import fitserve.store.sql_journal  # noqa: F401
from fitserve.report.record import Record
from fitserve.store.journal import open_journal
from fitserve.trial.outcome import Trial

LONG = "vLLM says " * 2000


def record_with(run: str, trials: int) -> Record:
    """A record that grows by about 20 kB with each trial."""
    return Record(
        run=run,
        kind="fix",
        started_utc="2026-01-01T00:00:00+00:00",
        fitserve_version="0",
        command=["vllm", "serve", "m"],
        trials=[Trial(n=n, argv=[LONG], outcome="failed", seconds=1.0) for n in range(1, trials + 1)],
    )


def save_for_ever(folder: Path, run: str, told: int) -> None:
    """Save the record of a run again and again, each time with a trial more, and tell after each save."""
    journal = open_journal({"FITSERVE_DATA_DIR": str(folder)})
    log = folder / f"{run}.log"
    trials = 0
    while True:
        log.write_text(f"{run} {trials} {LONG}", encoding="utf-8")
        digest = journal.keep_log(log)
        record = record_with(run, trials)
        journal.save(msgspec.structs.replace(record, logs={trials: digest} if trials and digest else {}))
        os.write(told, trials.to_bytes(2, "big"))
        trials += 1


def kill_one(folder: Path, run: str, seconds: float, *, after_a_save: bool) -> int:
    """Start a process that saves, kill it after some time, and return how many saves it told of.

    The time counts from its start, or from its first save: on a busy machine too, kills fall into both.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            save_for_ever(folder, run, write_end)
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as told:
        first = told.read(2) if after_a_save else b""
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"the saving process ended by itself: status {status}")
        return len(first + told.read()) // 2


def faults_after(folder: Path, run: str, saves: int) -> list[str]:
    """What is wrong with the journal of a process that had told of so many saves."""
    journal = open_journal({"FITSERVE_DATA_DIR": str(folder)})
    found = []
    runs = {summary.run: summary for summary in journal.latest(1000)}
    if saves and run not in runs:
        found.append(f"{run}: {saves} saves, and the run is not there")
    if run in runs:
        # The save that was under way when the process died may be there or not, and nothing between.
        record = journal.load(run)
        if len(record.trials) not in (saves - 1, saves):
            found.append(f"{run}: {saves} saves, and {len(record.trials)} trials")
        if len(record.trials) != runs[run].trials:
            found.append(f"{run}: the list says {runs[run].trials} trials, the record {len(record.trials)}")
        if record != msgspec.structs.replace(record_with(run, len(record.trials)), logs=record.logs):
            found.append(f"{run}: the record is not what was saved")
        found += [f"{run}: a log is empty" for digest in record.logs.values() if not journal.read_log(digest)]
    return found


def main() -> None:
    """Kill, look, and print what was found."""
    top, kills, seed, mode = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    dice = random.Random(seed)
    faults: list[str] = []
    with_saves = 0
    for number in range(kills):
        folder = top / (f"{number:04d}" if mode == "fresh" else "one")
        folder.mkdir(parents=True, exist_ok=True)
        run = f"20260101-{number:06d}-aaaaaa"
        saves = kill_one(folder, run, dice.uniform(0, 0.06), after_a_save=number % 2 == 1)
        with_saves += saves > 0
        faults += faults_after(folder, run, saves)
    for database in top.glob("*/journal.db"):
        with closing(sqlite3.connect(database)) as connection:
            [answer] = connection.execute("PRAGMA integrity_check").fetchone()
        faults += [] if answer == "ok" else [f"{database.parent.name}: {answer}"]
    print(json.dumps({"kills": kills, "with_saves": with_saves, "faults": faults}))


if __name__ == "__main__":
    main()
