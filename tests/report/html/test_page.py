"""The page says everything that the record says, and nothing that a log could make it do."""

import re
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitserve.report.html.extras import Extras
from fitserve.report.html.page import render_record_html
from fitserve.report.record import Record, record_from_json
from fitserve.report.record_markdown import render_record_markdown
from fitserve.report.record_text import render_record
from tests.report.html.whole import HOSTILE, whole_extras, whole_record

RECORDS = sorted((Path(__file__).parents[1] / "records").glob("*/record.json"))
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Every element with its attributes, every text, and whether each end has its beginning."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without an end."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        """A text."""
        self.texts.append(data)


def elements(text: str) -> list[str]:
    """The names of a page's elements, in order."""
    return [tag for tag, _ in Reader(text).elements]


def test_hostile_words_change_no_element() -> None:
    """The page of a hostile log, command, model and device has the elements of a harmless one, and no more.

    Charts are left aside: a longer name moves their marks.
    """
    pictures = re.compile(r"<svg.*?</svg>", re.DOTALL)
    harmless, hostile = (
        Reader(pictures.sub("", render_record_html(whole_record(words), whole_extras(words))))
        for words in ("x", HOSTILE)
    )

    assert [tag for tag, _ in harmless.elements] == [tag for tag, _ in hostile.elements]
    assert [] == hostile.wrong
    assert any(HOSTILE.split("\u202e")[0] in text for text in hostile.texts)


@pytest.mark.parametrize("words", ["", HOSTILE])
def test_nothing_runs_and_nothing_is_fetched(words: str) -> None:
    """There is no script, no handler and no address in the page, in its pictures neither."""
    text = render_record_html(whole_record(words), whole_extras(words))
    page = Reader(text)
    names = {tag for tag, _ in page.elements}
    attributes = [(tag, name, value or "") for tag, found in page.elements for name, value in found.items()]

    assert not names & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "image",
        "use",
        "foreignobject",
        "base",
    }
    assert [] == [name for _, name, _ in attributes if name.startswith("on")]
    assert {"data:,"} == {
        value for _, name, value in attributes if name in ("href", "src") and value[:1] != "#"
    }
    assert not re.search(r"url\s*\(|@import", text)
    assert any(value.startswith("default-src 'none'") for _, _, value in attributes)


@pytest.mark.parametrize("read", [render_record_html, render_record_markdown, render_record])
def test_nothing_is_obeyed_instead_of_shown(read: Callable[[Record], str]) -> None:
    """No character of a log or a command turns the reading direction, hides, or moves a cursor, in any reading."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    obeyed = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in kinds} - {
        "\n",
        "\t",
    }
    text = read(whole_record(f"<{''.join(sorted(obeyed))}>"))

    assert len(obeyed) > 2_000
    assert not obeyed & set(text)


@given(st.text(max_size=40))
@settings(max_examples=30, deadline=None)
def test_any_words_leave_the_page_whole(words: str) -> None:
    """Whatever stands in a command, a cause or a reason, every element that is opened is closed, and the words are there."""
    record = record_from_json(RECORDS[0].read_bytes())
    trial = msgspec.structs.replace(record.trials[0], cause=words, notes=[words])
    page = Reader(
        render_record_html(
            msgspec.structs.replace(record, trials=[trial], reason=words, command=["vllm", words])
        )
    )

    assert ([], []) == (page.wrong, page.open)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_every_record_has_a_page(path: Path) -> None:
    """A run that served, one that did not, and one without a single trial: each has its page, whole."""
    record = record_from_json(path.read_bytes())
    page = Reader(render_record_html(record))
    said = " ".join(page.texts)

    assert ([], []) == (page.wrong, page.open)
    assert record.run in said
    assert all(trial.cause in said for trial in record.trials if trial.cause)


def test_the_page_tells_the_story() -> None:
    """Command, change and why, cause, evidence, arithmetic, prediction, frontier, checks, environment, files: each is there."""
    said = " ".join(" ".join(Reader(render_record_html(whole_record(), whole_extras())).texts).split())

    for words in (
        "vllm serve org/model-8b --max-model-len 131072 --tensor-parallel-size 2",
        "vllm serve org/model-8b --max-model-len 76304 --tensor-parallel-size 2",
        "--max-model-len 131072 -> 76304",
        "76,304 tokens fit in 9.32 GiB at 128 KiB each",
        "kv-cache-smaller-than-context",
        "ValueError: To serve at least one request",
        "- weights 7.51 GiB line 214",
        "kv_cache_tokens 76,304 76,320",
        "trial 1, rank 1 7.51 1.42 0.61 0.98 9.32 1.78 0.43 19.84 22.05",
        "The ring is what the run ended with: 1.00 requests of 76,304 tokens at once.",
        "boundary-exact passed",
        "packages.torch 2.10.0",
        "devices.gpus.1.total_bytes 22.49 GiB",
        "host unknown: no answer within 2 s",
        "max-model-len: 76304",
        "process other took 1.20 GiB of device 0",
    ):
        assert words in said


def test_a_missing_frontier_has_its_reason() -> None:
    """Where the model is not there, the frontier is left out, and the page says why."""
    said = " ".join(Reader(render_record_html(whole_record(), Extras())).texts)

    assert "Left out: it was not asked for." in said


def test_without_the_extra_every_figure_has_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can draw, the words and figures of each chart stand in its place, and the page says what to install."""
    drawn = Reader(render_record_html(whole_record(), whole_extras()))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    bare = Reader(render_record_html(whole_record(), whole_extras()))
    figures = [found["id"] for tag, found in drawn.elements if tag == "figure"]

    assert figures == [found["id"] for tag, found in bare.elements if tag == "figure"]
    assert "svg" not in [tag for tag, _ in bare.elements]
    assert any("pip install 'fitserve[charts]'" in text for text in bare.texts)
    assert any("trial 1, rank 0: weights 7.51 GiB" in text for text in bare.texts)


def test_ids_are_unique_and_every_reference_has_its_target() -> None:
    """No id is there twice, in two pictures neither; each label and link leads to one."""
    found = [
        attributes for _, attributes in Reader(render_record_html(whole_record(), whole_extras())).elements
    ]
    ids = [attributes["id"] for attributes in found if "id" in attributes]
    wanted = {
        name
        for attributes in found
        for key in ("aria-labelledby", "href")
        for name in (attributes.get(key) or "").split()
        if key != "href" or name.startswith("#")
    }

    assert len(set(ids)) == len(ids)
    assert {name.removeprefix("#") for name in wanted} <= set(ids)


def test_the_page_of_a_run_on_a_cpu() -> None:
    """Without a device and without a memory line there is no ledger and no device, and resident memory is drawn."""
    record = whole_record()
    first = record.trials[0]
    assert first.samples is not None
    assert first.diagnosis is not None
    bare = msgspec.structs.replace(
        first,
        samples=msgspec.structs.replace(first.samples, devices=[], source="proc"),
        diagnosis=msgspec.structs.replace(first.diagnosis, budget=[]),
    )
    text = render_record_html(_with([bare], record))

    assert "resident memory" in text
    assert 'id="memory"' not in text


def _with(trials: list[object], record: Record) -> Record:
    return msgspec.structs.replace(record, trials=trials, verification=None)
