"""Save runs, each with a log, in the journal of the environment.

Usage: save_some.py NAME RUNS SAVES BYTES [LIMIT]

Each of RUNS runs is saved SAVES times with a text of BYTES more each time. With LIMIT, no file may grow beyond so
many bytes after the first save: a full disk. Ends with ``done`` on stdout and what the journal holds.
"""

import json
import resource
import sys
import tempfile
from pathlib import Path

from fitserve.report.record import Record
from fitserve.store.journal import open_journal
from fitserve.trial.outcome import Trial


def main() -> None:
    """Save and print."""
    name, runs, saves, size_bytes = sys.argv[1], *map(int, sys.argv[2:5])
    journal = open_journal()
    with tempfile.NamedTemporaryFile() as log:
        log.write(b"the same log\n" * 1000)
        log.flush()
        for number in range(runs):
            digest = journal.keep_log(Path(log.name))
            for save in range(1, saves + 1):
                journal.save(
                    Record(
                        run=f"20260101-{number:06d}-{name}",
                        kind="fix",
                        started_utc="2026-01-01T00:00:00+00:00",
                        fitserve_version="0",
                        command=["vllm", "serve", "m"],
                        trials=[
                            Trial(n=n, argv=["x" * size_bytes], outcome="failed", seconds=1.0)
                            for n in range(1, save + 1)
                        ],
                        logs={1: digest} if digest else {},
                    )
                )
                if len(sys.argv) > 5 and number == 0 and save == 1:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[5]), int(sys.argv[5])))
    print(json.dumps({"done": True, "kind": type(journal).__name__}))


if __name__ == "__main__":
    main()
