"""Whether reading hostile lines costs no more than their length: the time for 4 times the bytes over that for the bytes.

    python -m bench hostile

Linear work has a ratio near 4; above 8 the measurement fails.
"""

import io
import sys
import time

from fitserve.facts.log import read_lines

UNITS = [
    b"a", b"A", b"0", b"(", b"(a", b"(a(", b"(a pid=", b"(a pid=1) ", b"[", b"[a] [", b"[1] ", b"{", b'{"log":', b"<", b"<br>",
    b"<pre ", b"&", b"&lt;", b">", b"> ", b"|", b"a |", b"a | ", b"\x1b", b"\x1b[", b"\x1b[1m", b"\x1b]", b"[1m", b"\r", b"a\r",
    b" ", b"\t", b"#", b"#033[", b"`", b"INFO ", b"INFO: ", b"INFO 06-13 08:00:46 [", b"INFO 06-13 08:00:46 [a.py:1] x",
    b"'INFO 06-13 08:00:46 [a.py:1] x", b"2026-06-12T16:39:25Z ", b"12:34:56 ", b"Jan 20 21:54:55 ", b"E   ", b"\xff", b"\x00",
    b"\xe2\x96\x88", b"[repeated 1x across cluster]", b"[repeated ", b" pid=", b"( pid=",
]  # fmt: skip
SMALL_BYTES = 1 << 18
FACTOR = 4
WORST_RATIO = 8
LEAST_SECONDS = 0.02


def seconds(content: bytes) -> float:
    """The processor time that reading takes, the least of three tries."""
    tries = []
    for _ in range(3):
        begin = time.process_time()
        for _line in read_lines(io.BytesIO(content)):
            pass
        tries.append(time.process_time() - begin)
    return min(tries)


def main() -> None:
    """Measure each unit on one line and on many; fail where the work grows faster than the bytes."""
    worst: list[str] = []
    print(f"{'repeated':36}{'lines':>7}{'256 KiB':>10}{'1 MiB':>10}{'ratio':>8}")
    for unit in UNITS:
        for end in (b"", b"\n"):
            small = (unit + end) * (SMALL_BYTES // len(unit + end))
            little, much = seconds(small), seconds(small * FACTOR)
            ratio = much / max(little, LEAST_SECONDS)
            print(f"{unit!r:36}{'many' if end else 'one':>7}{little:10.3f}{much:10.3f}{ratio:8.1f}")
            if ratio > WORST_RATIO:
                worst.append(repr(unit))
    if worst:
        sys.exit(f"error: the work grows faster than the bytes for {', '.join(worst)}")


if __name__ == "__main__":
    main()
