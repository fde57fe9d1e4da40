"""What holds for every record."""

import tempfile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitserve.report.json_v1 import FixJson, fix_json
from fitserve.report.record import Record, record_from_json, record_to_json
from fitserve.report.record_markdown import render_record_markdown
from fitserve.report.record_text import render_record
from fitserve.store.journal import open_journal


@settings(deadline=None)
@given(data=st.data())
def test_a_record_comes_back_from_its_json(records: st.SearchStrategy[Record], data: st.DataObject) -> None:
    """Reading the JSON of a record gives the record."""
    record = data.draw(records)

    assert record == record_from_json(record_to_json(record))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_record_comes_back_from_the_journal(
    records: st.SearchStrategy[Record], data: st.DataObject
) -> None:
    """Loading a saved run gives the record, by its id and as the last one."""
    record = data.draw(records)
    complaints: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        journal = open_journal({"FITSERVE_DATA_DIR": folder}, say=complaints.append)
        journal.save(record)

        assert [] == complaints
        assert record == journal.load(record.run or "last")
        assert record == journal.load("last")


@settings(deadline=None)
@given(data=st.data())
def test_every_record_can_be_read(records: st.SearchStrategy[Record], data: st.DataObject) -> None:
    """Any record has a text without control characters, a Markdown, and a JSON that comes back."""
    record = data.draw(records)
    text, fix = render_record(record), fix_json(record)

    assert text.startswith("run ")
    assert {character for character in text if not character.isprintable()} <= {"\n", "\t"}
    assert render_record_markdown(record).startswith(f"### fitserve {record.kind}: ")
    assert fix == msgspec.json.decode(msgspec.json.encode(fix), type=FixJson)


@given(text=st.text())
def test_bytes_that_are_no_utf8_do_not_stop_a_save(text: str) -> None:
    """A command with a byte that is no UTF-8 is kept with a question mark in its place."""
    record = Record(
        run="r",
        kind="fix",
        started_utc="",
        fitserve_version="",
        command=[text, "\udcff"],
        environment={"\udc80": 1},
    )

    kept = record_from_json(record_to_json(record))

    assert [text, "?"] == kept.command
    assert {"?": 1} == kept.environment


def test_a_younger_record_is_not_read() -> None:
    """Its fields may mean something else: it says so, instead of half of it."""
    with pytest.raises(msgspec.ValidationError, match=r"schema is 2, .*upgrade fitserve"):
        record_from_json(
            b'{"schema":2,"kind":"record","run":"r","made_by":"fix","started_utc":"","fitserve_version":"9","command":[]}'
        )
