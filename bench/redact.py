"""How fast a busy server's log is redacted, beside ``grep``, ``sed`` and detect-secrets on the same file.

    python -m bench redact [--size-mb 200] [--folder DIR]

The log is that of ``bench scan`` with a traceback, a command line and a user's path now and then. ``grep -E`` only counts the lines with an
address, ``sed -E`` replaces addresses and home folders (two rules, no pseudonyms), detect-secrets scans some of its lines for keys alone
(it is not there where the package is not installed). One process and one core each, the file in the page cache; speeds are over
processor time, so that other work on the machine counts less; the start of Python is counted.
"""

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from bench.scan import block, timed

SCANNED_LINES = 2000
EXTRAS = (
    b'(EngineCore pid=9) ERROR 06-03 12:00:00 [core.py:9]   File "/home/mkessler/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 9, in step\n',
    b"(APIServer pid=1) INFO 06-03 12:00:00 [utils.py:261] non-default args: {'model': 'x/y-7B', 'api_key': ['sk-0a1b2c3d4e5f60718293a4b5']}\n",
    b"gpu-node07:327:537 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>\n",
    b"INFO 06-03 12:00:00 [logger.py:43] Received request chatcmpl-0a1b: prompt: 'Dear Doctor', params: SamplingParams(n=1, max_tokens=512), prompt_token_ids: [1, 2], lora_request: None.\n",
)
EVERY_LINES = 200


def write_log(path: Path, size_bytes: int) -> None:
    """Write the log: every 200th line is one of the others."""
    lines = block(random.Random(1)).splitlines(keepends=True)
    mixed = []
    for at, line in enumerate(lines):
        mixed.append(line)
        if at % EVERY_LINES == 0:
            mixed.append(EXTRAS[at // EVERY_LINES % len(EXTRAS)])
    part = b"".join(mixed)
    with path.open("wb") as out:
        written = 0
        while written < size_bytes:
            written += out.write(part)


def run(command: list[str | Path], *, counts: bool = False) -> float:
    """Processor seconds of a command in the C locale, its output thrown away; grep would stop early where it sees that."""
    environment = {**os.environ, "LC_ALL": "C"}

    def work() -> None:
        subprocess.run(
            command, stdout=subprocess.PIPE if counts else subprocess.DEVNULL, env=environment, check=True
        )

    return timed(work)[1]


def detect_secrets_speed(path: Path) -> float | None:
    """MB per second of processor time of detect-secrets over some lines; None where it is not installed."""
    if importlib.util.find_spec("detect_secrets") is None:
        return None
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    with path.open(encoding="utf-8") as log, default_settings():
        lines = list(islice(log, SCANNED_LINES))
        begin = time.process_time()
        for line in lines:
            list(scan_line(line))
        seconds = time.process_time() - begin
    return sum(map(len, lines)) / 1e6 / seconds


def main() -> None:
    """Write the log, run all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mb", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "serve.log")
        write_log(path, options.size_mb * 1_000_000)
        megabytes = path.stat().st_size / 1e6
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        address = r"([0-9]{1,3}\.){3}[0-9]{1,3}"
        seconds = {
            "fitserve redact": run([sys.executable, "-m", "fitserve", "redact", path]),
            "grep -c -E, 1 rule": run(["grep", "-c", "-E", address, path], counts=True),
            "sed -E, 2 rules": run(["sed", "-E", f"s/{address}/ip/g; s#/home/[^/]+/#/home/user/#g", path]),
        }
        theirs = detect_secrets_speed(path)
    print(f"{megabytes:,.0f} MB, processor time, output thrown away")
    for name, taken in seconds.items():
        print(f"{name:<22}{taken:8.2f} s{megabytes / taken:10.1f} MB/s")
    if theirs is not None:
        print(f"{'detect-secrets, keys':<22}{'':10}{theirs:10.3f} MB/s  ({SCANNED_LINES:,} lines)")


if __name__ == "__main__":
    main()
