"""How fast a gigabyte of log is searched for its failure, beside ``grep -c -F -f`` on the same file and needles.

    python -m bench scan [--size-mb 1000] [--folder DIR]

The log is a compose log of a server that served for hours: access lines, statistics, health checks of a gateway, and one
failure deep inside. The needles are those of the message catalogue. One process and one core each, the file in the page
cache; speeds are over processor time, so that other work on the machine counts less. `ratio` is our speed over grep's.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fitserve.facts.messages.catalogue import needles
from fitserve.facts.scan import read_candidates

FAILURE = (
    "vllm-1  | (EngineCore pid=9) ERROR 06-03 12:00:00 [core.py:9] torch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 14.69 MiB is free.\n"
)
BLOCK_LINES = 200_000
FAILS_AT = 0.7


def block(rng: random.Random) -> bytes:
    """Some minutes of a busy server."""
    lines = []
    for place in range(BLOCK_LINES):
        clock = f"{place // 3600 % 24:02}:{place // 60 % 60:02}:{place % 60:02}"
        peer = f"10.42.{rng.randrange(4)}.{rng.randrange(255)}:{rng.randrange(30_000, 60_000)}"
        kind = rng.random()
        if kind < 0.75:
            text = f'INFO:     {peer} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        elif kind < 0.90:
            text = f'INFO:     {peer} - "GET /metrics HTTP/1.1" 200 OK'
        elif kind < 0.95:
            text = (
                f"INFO 06-03 {clock} [loggers.py:259] Engine 000: Avg prompt throughput: {rng.random() * 900:.1f} tokens/s, "
                f"Avg generation throughput: {rng.random() * 900:.1f} tokens/s, Running: {rng.randrange(9)} reqs, Waiting: 0 reqs, "
                f"GPU KV cache usage: {rng.random() * 90:.1f}%, Prefix cache hit rate: {rng.random() * 90:.1f}%"
            )
        else:
            text = (
                f"INFO 06-03 {clock} [async_llm.py:259] Added request chatcmpl-{rng.getrandbits(128):032x}."
            )
        lines.append(f"vllm-1  | (APIServer pid=1) {text}\n")
    return "".join(lines).encode()


def write_log(path: Path, size_bytes: int) -> int:
    """Write the log; returns the number of the failure's line."""
    part = block(random.Random(1))
    written = failure_line = 0
    with path.open("wb") as out:
        while written < size_bytes:
            if not failure_line and written >= FAILS_AT * size_bytes:
                failure_line = written // len(part) * BLOCK_LINES + 1
                out.write(FAILURE.encode())
            written += out.write(part)
    return failure_line


def grep(path: Path, needle_file: Path) -> None:
    """Count with ``grep -c -F -f`` in the C locale."""
    command: list[str | Path] = ["grep", "-c", "-F", "-f", needle_file, path]
    subprocess.run(
        command, env={"LC_ALL": "C", "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, check=True
    )


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the clock and of the processor that child processes took."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    work()
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return end - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scan(path: Path) -> None:
    """Scan in this process; prints the candidates, the failure's line and the peak memory."""
    candidates = failure = 0
    with path.open("rb") as stream:
        for line in read_candidates(stream, needles()):
            candidates += 1
            failure = line.number if "CUDA out of memory" in line.text else failure
    peak = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    print(candidates, failure, int(peak.split()[1]) / 1024)


def main() -> None:
    """Write the log, run both, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scan:
        scan(options.scan)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path, needle_file = Path(folder, "serve.log"), Path(folder, "needles")
        failure_line = write_log(path, options.size_mb * 1_000_000)
        needle_file.write_bytes(b"\n".join(needles()) + b"\n")
        megabytes = path.stat().st_size / 1e6
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        said: list[str] = []
        command = [sys.executable, __file__, "--scan", str(path)]
        ours = timed(lambda: said.extend(subprocess.check_output(command, text=True).split()))
        greps = timed(lambda: grep(path, needle_file))
    if int(said[1]) != failure_line:
        sys.exit(f"error: the failure in line {failure_line} was found in line {said[1]}")
    print(f"{megabytes:,.0f} MB, {len(needles()):,} needles, failure in line {failure_line:,}")
    print(f"{'':12}{'clock s':>9}{'cpu s':>9}{'MB/s':>9}{'peak MiB':>10}")
    print(f"{'fitserve':12}{ours[0]:9.2f}{ours[1]:9.2f}{megabytes / ours[1]:9.0f}{float(said[2]):10.0f}")
    print(f"{'grep -F -f':12}{greps[0]:9.2f}{greps[1]:9.2f}{megabytes / greps[1]:9.0f}")
    print(f"{'ratio':12}{greps[1] / ours[1]:27.2f}")
    print(f"{int(said[0]):,} lines were taken apart; the start of Python and of the catalogue is counted")


if __name__ == "__main__":
    main()
