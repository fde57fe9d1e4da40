"""How long a report of a run with a large log takes, and how much memory, beside ``gzip`` of the same log.

    python -m bench report [--size-mb 100] [--folder DIR]

The log is that of ``bench scan``, kept by ``fitserve diagnose --save``. A bundle reads the kept log, redacts it, packs it and hashes it;
``gzip -1`` packs the same file at the same level and does nothing else, ``sha256sum`` only hashes it. Each is one process; elapsed and
processor time and the largest resident memory are the system's own figures (wait4).
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.scan import block

FITSERVE = [sys.executable, "-m", "fitserve"]


def write_log(path: Path, size_bytes: int) -> None:
    """Write the log in another process: the largest memory of a parent counts as its children's (exec keeps the mark)."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    part = block(random.Random(1))
    with path.open("wb") as out:
        written = 0
        while written < size_bytes:
            written += out.write(part)
    os._exit(0)


def run(arguments: list[str], output: Path) -> tuple[float, float, float]:
    """Elapsed seconds, processor seconds and MiB of a process whose stdout goes into a file."""
    begin = time.monotonic()
    actions = [(os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)]
    actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0o600))
    pid = os.posix_spawnp(arguments[0], arguments, os.environ, file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Write the log, keep it, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mb", type=int, default=100)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        log, out = Path(folder, "serve.log"), Path(folder, "out")
        os.environ["FITSERVE_DATA_DIR"] = folder
        write_log(log, options.size_mb * 1_000_000)
        report = [*FITSERVE, "report", "last"]
        runs = {
            "diagnose": [*FITSERVE, "diagnose", str(log)],
            "diagnose --save": [*FITSERVE, "diagnose", "--save", str(log)],
            "report --bundle": [*report, "--bundle", str(Path(folder, "run.zip"))],
            "report BUNDLE.zip": [*FITSERVE, "report", str(Path(folder, "run.zip"))],
            "report --log 1": [*report, "--log", "1"],
            "report --format html": [*report, "--format", "html"],
            "report --format text": report,
            "gzip -1": ["gzip", "-1", "-c", str(log)],
            "sha256sum": ["sha256sum", str(log)],
        }
        measured = {name: run(arguments, out) for name, arguments in runs.items()}
        print(
            f"a log of {log.stat().st_size / 1e6:,.0f} MB; packed {Path(folder, 'run.zip').stat().st_size / 1e6:,.1f} MB"
        )
    print(f"{'':<22}{'elapsed':>10}{'processor':>12}{'memory':>12}")
    for name, (elapsed, processor, mebibytes) in measured.items():
        print(f"{name:<22}{elapsed:>8.2f} s{processor:>10.2f} s{mebibytes:>8.0f} MiB")


if __name__ == "__main__":
    main()
