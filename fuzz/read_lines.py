"""Searches for bytes that break the reading of logs, guided by coverage.

    pip install '.[fuzz]'
    python fuzz/read_lines.py fuzz/corpus -max_total_time=600

Whatever the bytes are: no exception, numbers of physical lines only, in one order, and texts that can be written again. A
find is written to ``crash-*``; it becomes a test.
"""

import io
import sys

import atheris

with atheris.instrument_imports(include=["fitserve"]):
    from fitserve.facts.boots import number_boots
    from fitserve.facts.log import read_lines


def check(content: bytes) -> None:
    """Read the bytes, and hold what comes out against what the reading promises."""
    lines = list(read_lines(io.BytesIO(content)))
    numbers = [line.number for line in lines]
    assert numbers in (sorted(numbers), sorted(numbers, reverse=True)), numbers
    if not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        assert set(numbers) <= set(range(1, content.count(b"\n") + 2)), numbers
    for line in lines:
        line.text.encode()
        assert "\n" not in line.text
    assert len(list(number_boots(lines))) == len(lines)


def main() -> None:
    """Run the fuzzer with libFuzzer's options."""
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
