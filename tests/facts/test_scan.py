"""The fast path through large logs finds what the slow one finds."""

import html
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitserve.facts.log import read_lines
from fitserve.facts.reading.needles import Haystack
from fitserve.facts.reading.selection import selected
from fitserve.facts.scan import READ_IN_FULL_BYTES, read_candidates
from tests.facts.boots_of import split_boots

NEEDLES = [
    b"out of memory",
    b"No available memory",
    b'"POST /v1/chat/completions HTTP/1.1" 200 OK',
    b"throughput: ",
]
ACCESS = 'INFO:     10.42.3.139:39474 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
QUIET = 'INFO:     10.42.0.7:37143 - "GET /metrics HTTP/1.1" 200 OK ' + "agent " * 40
FAILURE = 'ERROR 06-03 12:00:00 [core.py:9] CUDA out of memory. Tried to <allocate> "20" MiB'


def pieces_of(content: bytes, size: int) -> Iterator[bytes]:
    """The content in pieces."""
    return (content[start : start + size] for start in range(0, len(content), size))


def picked(lines: list[bytes], size: int = 4096, ends_bytes: int = 0) -> list[tuple[int, bytes]]:
    """What is picked of some lines."""
    return list(selected(pieces_of(b"\n".join(lines), size), Haystack(NEEDLES), ends_bytes))


def large(line: str, *, with_failure: bool = True) -> tuple[list[str], int]:
    """The lines of a log too large to be read in full, and the number of its failure's line."""
    lines = [f"{line} {place}" for place in range(READ_IN_FULL_BYTES // len(line) + 1)]
    middle = len(lines) // 2
    if with_failure:
        lines[middle] = FAILURE
    return lines, middle + 1


LINES = st.lists(
    st.one_of(
        st.sampled_from([b"", b"x" * 50, b"out of memory", b"y" * 300, b"No available memory\r"]),
        st.binary(max_size=9),
    ),
    max_size=200,
).map(lambda lines: [line.replace(b"\n", b"") for line in lines])


@given(LINES, st.integers(1, 400), st.integers(0, 500))
def test_every_line_with_a_needle_is_picked(lines: list[bytes], size: int, ends_bytes: int) -> None:
    """However the bytes arrive, every line with a needle is picked under its own number, in order and once."""
    found = picked(lines, size, ends_bytes)
    numbers = [number for number, _ in found]
    wanted = {
        number for number, line in enumerate(lines, start=1) if any(needle in line for needle in NEEDLES)
    }

    assert [(number, lines[number - 1]) for number in numbers] == found
    assert sorted(set(numbers)) == numbers
    assert wanted <= set(numbers)


@given(st.integers(50, 2000), st.integers(100, 5000))
def test_what_stands_around_a_hit_is_picked(place: int, size: int) -> None:
    """Forty lines above a hit and ten below it are picked too, across pieces, and little more."""
    lines = [b"%06d" % number for number in range(2100)]
    lines[place] = b"out of memory"
    numbers = {number for number, _ in picked(lines, size)}

    assert set(range(place - 39, place + 12)) <= numbers
    assert len(numbers) <= 2 * 40 + 1 + 2 * 10


def test_both_ends_are_picked() -> None:
    """The first and the last bytes are picked whatever they hold."""
    lines = [b"%06d" % number for number in range(10_000)]
    numbers = [number for number, _ in picked(lines, 1000, 7000)]

    assert numbers[:1000] == list(range(1, 1001))
    assert numbers[-1000:] == list(range(9001, 10_001))
    assert len(numbers) < 3000


def test_ordinary_traffic_is_sampled() -> None:
    """A needle that every other line holds brings some of them; a rare one among them is found all the same."""
    lines = [ACCESS.encode() if place % 2 else b"" for place in range(60_000)]
    lines[50_000] = FAILURE.encode()
    found = picked(lines)

    assert (50_001, FAILURE.encode()) in found
    assert 1000 < sum(line == ACCESS.encode() for _, line in found) < 3000


def test_a_needle_is_found_escaped() -> None:
    """A needle with quotes and signs is found as JSON and HTML write it."""
    needle = 'a "quoted" <word> & \N{FULL BLOCK}'
    forms = [needle, json.dumps(needle), json.dumps(needle, ensure_ascii=False), html.escape(needle)]
    haystack = Haystack([needle.encode()])

    assert [True] * 4 == [bool(haystack.search(form.encode())) for form in forms]


WRAPPERS: dict[str, Callable[[str, int], str]] = {
    "plain": lambda line, _: line,
    "compose": lambda line, _: f"vllm-1  | {line}",
    "kubectl": lambda line, place: (
        f"2026-01-02T10:{place // 60_000:02}:{place // 1000 % 60:02}.{place % 1000:03}Z {line}"
    ),
    "docker json": lambda line, _: json.dumps({"log": line + "\n", "stream": "stderr"}),
    "html": lambda line, _: html.escape(line),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_large_log(name: str) -> None:
    """The failure deep inside a large log is read as it is line by line, and few other lines are."""
    lines, number = large(QUIET)
    content = "\n".join(WRAPPERS[name](line, place) for place, line in enumerate(lines)).encode()
    found = list(read_candidates(io.BytesIO(content), NEEDLES))
    all_lines = {line.number: line for line in read_lines(io.BytesIO(content))}

    assert [all_lines[line.number] for line in found] == found
    assert [number] == [line.number for line in found if "CUDA out of memory" in line.text]
    assert len(found) < len(lines) // 4


def test_a_large_log_in_utf_16() -> None:
    """A large log in UTF-16 is searched too."""
    lines, number = large(QUIET)
    found = read_candidates(io.BytesIO("\n".join(lines).encode("utf-16")), NEEDLES)

    assert [number] == [line.number for line in found if "CUDA out of memory" in line.text]


def test_a_large_log_with_its_newest_line_first() -> None:
    """Candidates of a newest-first log come oldest first, under their own numbers."""
    lines, _ = large(QUIET)
    texts = [WRAPPERS["kubectl"](line, place) for place, line in enumerate(lines)][::-1]
    numbers = [line.number for line in read_candidates(io.BytesIO("\n".join(texts).encode()), NEEDLES)]

    assert numbers == sorted(numbers, reverse=True)
    assert texts.index(next(text for text in texts if "CUDA out" in text)) + 1 in numbers


def test_a_large_log_broken_by_a_terminal() -> None:
    """In a large log whose lines a terminal has broken, a needle is found over the break."""
    lines, _ = large("INFO 06-03 12:00:00 [core.py:9] " + "word" * 30)
    pieces = [line[start : start + 60] for line in lines for start in range(0, len(line), 60)]
    found = read_candidates(io.BytesIO("\n".join(pieces).encode()), NEEDLES)

    assert [pieces.index(FAILURE[:60]) + 1] == [
        line.number for line in found if "CUDA out of memory" in line.text
    ]


def test_a_small_log_comes_in_full() -> None:
    """A small log gives all its lines."""
    content = f"{QUIET}\n{FAILURE}\nKilled".encode()

    assert list(read_lines(io.BytesIO(content))) == list(read_candidates(io.BytesIO(content), NEEDLES))


@settings(max_examples=10)
@given(st.integers(1, 6))
def test_boots_of_a_large_log(restarts: int) -> None:
    """The boots of a large log are found, though no needle of the caller names their beginnings."""
    boot = [
        "(APIServer pid=1) INFO 06-13 08:00:46 [api_server.py:121] vLLM API server version 0.11.0",
        *[QUIET] * (READ_IN_FULL_BYTES // len(QUIET) // restarts + 1),
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    lines = read_candidates(io.BytesIO("\n".join(boot * restarts).encode()), NEEDLES)

    assert restarts == len(split_boots(lines))


def test_memory_does_not_grow_with_the_log() -> None:
    """A log of 200 MB from a pipe is searched in less than 150 MB."""
    code = (
        "import sys, re, pathlib; from fitserve.facts.scan import read_candidates\n"
        "n = sum(1 for _ in read_candidates(sys.stdin.buffer, [b'out of memory', b'HTTP/1.1']))\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "print(n, int(re.search(r'VmHWM:\\s*(\\d+)', status)[1]) // 1024)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdin
        assert run.stdout
        part = (QUIET + "\n").encode() * 20_000
        for _ in range(200_000_000 // len(part)):
            run.stdin.write(part)
        run.stdin.close()
        candidates, peak_mib = map(int, run.stdout.read().split())

    assert 1000 < candidates < 10_000
    assert peak_mib < 150
