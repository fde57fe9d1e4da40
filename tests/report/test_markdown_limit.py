"""Markdown fits an issue, whatever a run was."""

import msgspec
import pytest

from fitserve.report.record import Record
from fitserve.report.record_markdown import MOST_CHARACTERS, render_record_markdown
from tests.report.html.whole import whole_record


def long_run(trials: int, words: str = "") -> Record:
    """A run of many trials, with words in every place where a log or a user puts some."""
    record = whole_record(words)
    made = [msgspec.structs.replace(record.trials[n % 2], n=n + 1) for n in range(trials)]
    return msgspec.structs.replace(record, trials=made)


def test_a_short_run_is_whole() -> None:
    """Two trials have all their details."""
    text = render_record_markdown(long_run(2))

    assert 2 == text.count("<details>")
    assert "left out" not in text


def test_a_long_run_loses_its_oldest_details() -> None:
    """The newest trials keep theirs, the table still has every trial, and what is left out is said."""
    text = render_record_markdown(long_run(100))
    kept = text.count("<details>")

    assert MOST_CHARACTERS * 0.9 < len(text) <= MOST_CHARACTERS
    assert f"the details of the first {100 - kept} trials are left out" in text
    assert "<details><summary>trial 100: " in text
    assert all(f"\n| {n} | " in text for n in range(1, 101))
    assert kept == text.count("</details>")


@pytest.mark.parametrize("words", ["x" * 50_000, "`" * 9_000, "|" * 30_000, "<" * 30_000])
def test_no_text_is_too_long(words: str) -> None:
    """However long a command or a message is, the limit holds, and outcome and run are still named."""
    text = render_record_markdown(long_run(3, words))

    assert len(text) <= MOST_CHARACTERS
    assert "served and proven" in text
    assert "20261201-152233-7f3a9c" in text
