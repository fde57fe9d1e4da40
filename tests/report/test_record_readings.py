"""Each folder of ``records`` is a run's ``record.json`` and its readings, whole. A case is added by a folder.

A reading is written anew by deleting its file and running the test once: it fails, and the file is there to look at.
"""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fitserve.report.html.page import render_record_html
from fitserve.report.json_v1 import fix_json
from fitserve.report.record import Record, record_from_json
from fitserve.report.record_markdown import render_record_markdown
from fitserve.report.record_text import render_record
from fitserve.report.record_words import comparisons
from tests.report.html.whole import whole_record

CASES = sorted((Path(__file__).parent / "records").iterdir())


def fix_text(record: Record) -> str:
    """``fix --json``, indented for the eye."""
    return msgspec.json.format(msgspec.json.encode(fix_json(record)), indent=1).decode() + "\n"


def page_text(record: Record) -> str:
    """The page without the inside of its drawings, which another version of the drawing library may move, and without its style."""
    text = re.sub(
        r"(<desc [^>]*>[^<]*</desc>).*?</svg>", r"\1</svg>", render_record_html(record), flags=re.DOTALL
    )
    return re.sub(r"<style>.*?</style>", "<style></style>", text, flags=re.DOTALL) + "\n"


READINGS: dict[str, Callable[[Record], str]] = {
    "text.txt": render_record,
    "markdown.md": render_record_markdown,
    "fix.json": fix_text,
    "page.html": page_text,
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_record_reads_as_it_is_kept(case: Path, reading: str) -> None:
    """A run's text, Markdown and JSON are the files beside its record."""
    actual = READINGS[reading](record_from_json((case / "record.json").read_bytes()))
    kept = case / reading
    if not kept.exists():
        kept.write_text(actual, encoding="utf-8")
        pytest.fail(f"{kept} was not there; look at what is written there now")

    assert kept.read_text(encoding="utf-8") == actual


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_markdown_holds_no_secret(case: Path) -> None:
    """What an issue gets has none of the keys and tokens that the command and its variables hold."""
    text = render_record_markdown(record_from_json((case / "record.json").read_bytes()))

    assert "secret" not in text


def test_a_fence_outlasts_the_text_in_it() -> None:
    """A log line with a Markdown fence in it does not end the block that it stands in."""
    record = record_from_json((CASES[0] / "record.json").read_bytes())
    fenced = msgspec.structs.replace(record, command=["vllm", "serve", "````"])

    assert "`````sh\nvllm serve '````'\n`````" in render_record_markdown(fenced)


def test_text_does_not_obey_a_log() -> None:
    """What would clear a screen or move a cursor is shown as a replacement character; a quoted line feed stays."""
    record = record_from_json((CASES[0] / "record.json").read_bytes())
    hostile = msgspec.structs.replace(record, command=["vllm", "serve", "\x1b[2J\r\x07", "{\n}"])

    assert "'\ufffd[2J\ufffd\ufffd' '{\n}'" in render_record(hostile)


@pytest.mark.parametrize(
    ("predicted", "printed", "rows"),
    [
        ({"kv_cache_tokens": 76304}, {"kv_tokens": 76320}, [("kv_cache_tokens", "76,304", "76,320")]),
        ({"kv_cache_bytes": 1 << 30}, {"available_gib": 1.02}, [("kv_cache_bytes", "1.00 GiB", "1.02 GiB")]),
        (
            {"kv_cache_bytes": 1 << 30},
            {"kv_cache_memory_bytes": 1 << 30, "available_gib": 1.02},
            [("kv_cache_bytes", "1.00 GiB", "1.00 GiB"), ("available_gib", "", "1.02")],
        ),
        ({"max_model_len": 512}, {}, [("max_model_len", "512", "")]),
    ],
)
def test_a_prediction_stands_beside_what_vllm_calls_it(
    predicted: dict[str, int], printed: dict[str, float], rows: list[tuple[str, str, str]]
) -> None:
    """A figure that was predicted is compared with the line that says it, whatever name it has there."""
    record = whole_record()
    first, second = record.trials
    assert second.change is not None
    trial = msgspec.structs.replace(
        second,
        change=msgspec.structs.replace(second.change, predicted=predicted),
        memory=msgspec.structs.replace(second.memory, printed=printed),
    )

    assert rows == [(row.name, row.predicted, row.measured) for row in comparisons(trial, first)]
