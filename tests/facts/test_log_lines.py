"""Single lines, files and hostile bytes."""

import gzip
import io
import json
import random
import subprocess
import sys
import textwrap
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import InputError
from fitserve.facts.line import Line
from fitserve.facts.log import open_log, read_lines

CASES = [
    json.loads(row)
    for row in (Path(__file__).parent / "line_cases.jsonl").read_text(encoding="utf-8").splitlines()
]
CORPUS = Path(__file__).parents[2] / "../shared/corpus"


def read(content: bytes) -> list[Line]:
    """The lines of a log."""
    return list(read_lines(io.BytesIO(content)))


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_one_line(case: dict[str, dict[str, object]]) -> None:
    """A line of each known shape gives what the case file says."""
    lines = read(str(case["text"]).encode())

    assert [case["line"]] == [{key: getattr(line, key) for key in case["line"]} for line in lines]


def test_two_records_on_one_line() -> None:
    """Records of two processes that ran into each other become two lines under one number."""
    lines = read(
        b"(Worker_TP0 pid=3) INFO 06-13 08:00:46 [a.py:1] one(Worker_TP1 pid=4) INFO 06-13 08:00:46 [a.py:1] two\n"
    )

    assert [("one", 1, "TP0"), ("two", 1, "TP1")] == [(line.text, line.number, line.rank) for line in lines]


def test_interleaved_ranks_are_told_apart() -> None:
    """Lines of ranks that fail at once keep who wrote them."""
    ranks = [random.Random(place).randrange(8) for place in range(100)]
    text = "\n".join(
        f"(Worker_TP{rank} pid={300 + rank}) Traceback (most recent call last):" for rank in ranks
    )

    assert [f"TP{rank}" for rank in ranks] == [line.rank for line in read(text.encode())]


@pytest.mark.parametrize("length", [16_384, 20_000, 40_000, 100_000])
def test_lines_split_by_a_runtime(length: int) -> None:
    """What docker or CRI has split because of its length is joined, under the number of its first part."""
    text = "(EngineCore pid=4) INFO 06-13 08:00:46 [a.py:1] " + "x" * length
    parts = [text[start : start + 16_384] for start in range(0, len(text), 16_384)]
    cri = [
        f"2026-06-12T16:39:25.1Z stdout {'PF'[place == len(parts) - 1]} {part}"
        for place, part in enumerate(parts)
    ]
    docker = [
        json.dumps({"log": part + "\n" * (place == len(parts) - 1)}) for place, part in enumerate(parts)
    ]

    for lines in (cri, docker):
        first, last = read("\n".join([*lines, lines[-1]]).encode())
        assert (1, "x" * length, "EngineCore") == (first.number, first.text, first.process)
        assert len(parts) + 1 == last.number


def test_trailing_spaces_lost_by_a_terminal_come_back() -> None:
    """Where a copied terminal has lost the space at its right edge, the words stay apart."""
    words = " ".join(f"word{place:05}a" for place in range(300))
    pieces = [
        "INFO 06-13 08:00:46 [a.py:1] " + words[:51],
        *(words[start : start + 80] for start in range(51, len(words), 80)),
    ]
    pieces = [piece.rstrip(" ") for piece in pieces]

    assert [words] == [line.text for line in read("\n".join(pieces).encode())]


@pytest.mark.parametrize("seed", range(30))
def test_lines_that_a_mail_program_has_broken(seed: int) -> None:
    """Where a program has broken lines between words, the pieces come together again."""
    dice = random.Random(seed)
    words = [f"{place}={'x' * dice.randrange(19)}," for place in range(400)]
    texts = [" ".join(dice.sample(words, length)) for length in (90, *(dice.randrange(50) for _ in range(9)))]
    pieces = [
        textwrap.wrap(
            f"INFO 06-13 08:00:46 [a.py:1] {text}", 76, break_long_words=False, break_on_hyphens=False
        )
        for text in texts
    ]

    assert texts == [line.text for line in read("\n".join(chain(*pieces)).encode())]


def test_a_long_line_is_cut_in_the_middle() -> None:
    """Of a line of many megabytes both ends stay, and later lines keep their number."""
    content = b"INFO 06-13 08:00:46 [a.py:1] begin" + b"x" * (5 << 20) + b"end\nKilled\n"
    long, killed = read(content)

    assert long.text.startswith("begin")
    assert long.text.endswith("end")
    assert len(long.text) < 2 << 20
    assert (2, "Killed") == (killed.number, killed.text)


@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([case["text"].encode() for case in CASES])))
)
def test_any_bytes(parts: list[bytes]) -> None:
    """Any bytes are read without an error, in the order and under the numbers of their physical lines."""
    content = b"".join(parts)
    numbers = [line.number for line in read(content)]

    assert numbers in (sorted(numbers), sorted(numbers, reverse=True))
    assert set(numbers) <= set(range(1, content.count(b"\n") + 2))


@given(st.text(), st.sampled_from(["utf-8", "utf-16"]))
def test_any_text(text: str, encoding: str) -> None:
    """Any text is read without an error, and can be written again."""
    for line in read(text.encode(encoding, errors="replace")):
        line.text.encode()


@pytest.mark.parametrize(
    "hostile",
    [
        b"a", b"(", b"[", b"{", b"<", b">", b"> ", b"|", b"a |", b"\x1b", b"\x1b[", b"\x1b[1m", b"&", b"&lt;", b"<br>",
        b"\r", b"a\r", b" ", b"\t", b"#", b"(a(", b"(a pid=", b"(a pid=1) ", b"[1] ", b"[a] [", b"INFO ",
        b"INFO 06-13 08:00:46 [", b"INFO 06-13 08:00:46 [a.py:1] x", b"2026-06-12T16:39:25Z ", b'{"log":"', b"E   ",
        b"\xff", b"\x00", b"0", b"12:34:56 ", b"[repeated 1x across cluster]", b"`", b"~", b"\xe2\x96\x88", b"word ",
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_hostile_lines_end(hostile: bytes) -> None:
    """A megabyte of one sign, on one line and on many, is read in the end."""
    one_line = hostile * ((1 << 20) // len(hostile))
    lines = one_line[: 1 << 16].replace(hostile, hostile + b"\n")

    assert {line.number for line in read(one_line)} <= {1}
    assert len({line.number for line in read(lines)}) <= lines.count(b"\n") + 1


def test_a_gzipped_log(tmp_path: Path) -> None:
    """A gzipped log is unpacked, whatever its name; several members are one log."""
    path = tmp_path / "serve.log"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))

    with open_log(path) as stream:
        assert ["one", "two"] == [line.text for line in read_lines(stream)]


def test_a_damaged_gzipped_log(tmp_path: Path) -> None:
    """A gzip file of which nothing can be unpacked is no empty log: it says that it is damaged."""
    path = tmp_path / "serve.log.gz"
    path.write_bytes(b"\x1f\x8bgarbage")

    with pytest.raises(InputError, match="damaged"):
        open_log(path)


@pytest.mark.parametrize("kept", [20, 3000, 30_000, 60_000])
def test_a_truncated_gzipped_log(tmp_path: Path, kept: int) -> None:
    """What a truncated gzip file holds is read; what it lacks is no error."""
    content = b"".join(b"%d %d\n" % (place, random.Random(place).getrandbits(64)) for place in range(10_000))
    path = tmp_path / "serve.log.gz"
    path.write_bytes(gzip.compress(content)[:kept])

    with open_log(path) as stream:
        lines = [line.text for line in read_lines(stream)]

    assert lines == content.decode()[: len("\n".join(lines))].split("\n")[: len(lines)]
    assert (len(lines) > 100) == (kept > 20)


@pytest.mark.parametrize(("name", "reason"), [("absent", "no such file"), (".", "directory")])
def test_what_cannot_be_read(tmp_path: Path, name: str, reason: str) -> None:
    """A missing file and a directory are errors that say so."""
    with pytest.raises(InputError, match=reason):
        open_log(tmp_path / name)


def test_the_standard_input() -> None:
    """Without a path the standard input is read, also a gzipped one."""
    code = "from fitserve.facts.log import *; print([line.text for line in read_lines(open_log(None))])"
    run = subprocess.run(
        [sys.executable, "-c", code], input=gzip.compress(b"one\ntwo"), stdout=subprocess.PIPE, check=True
    )

    assert b"['one', 'two']\n" == run.stdout


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """A log of 60 MB, newest line first, is read in less than 150 MB."""
    code = (
        "import re, sys, pathlib; from fitserve.facts.log import *\n"
        "last = 0\n"
        "for line in read_lines(open_log(pathlib.Path(sys.argv[1]))): last = line.number\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "print(last, int(re.search(r'VmHWM:\\s*(\\d+)', status)[1]) // 1024)"
    )
    path = tmp_path / "serve.log"
    with path.open("w") as out:
        for second in range(86_399, 0, -1):
            out.write(
                f"2026-01-02T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z {'x' * 680}\n"
            )
    run = subprocess.run([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, check=True)
    first_number, peak_mib = map(int, run.stdout.split())

    assert first_number == 1
    assert peak_mib < 150


def test_little_is_imported() -> None:
    """Reading a log's first lines loads nothing that only rare logs need."""
    code = "import sys, fitserve.facts.log; print({'hyperscan', 'html', 'tempfile', 'json', 'gzip'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)

    assert run.stdout == b"set()\n"


@pytest.mark.shared
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the reference folder is not beside the checkout")
def test_reference_logs() -> None:
    """In every reference log the line of the cause is there under its number, and no prefix is left on any line."""
    for answer in sorted(CORPUS.glob("*.expected.json")):
        expected = json.loads(answer.read_text())
        path = answer.with_name(answer.name.replace(".expected.json", ".log"))
        with open_log(path if path.exists() else path.with_name(path.name + ".gz")) as stream:
            lines = {line.number: line.text for line in read_lines(stream)}

        assert not [
            text for text in lines.values() if text.startswith(("(EngineCore", "(APIServer", "\x1b", "INFO "))
        ]
        assert expected["first_cause_line"] is None or lines[expected["first_cause_line"]].strip(), (
            answer.name
        )
