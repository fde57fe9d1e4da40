"""A journal in a folder of its own, and records of every shape."""

import datetime as dt
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from fitserve.report.record import SCHEMA, Record
from fitserve.trial.outcome import Trial
from fitserve.verify.verification import Verification

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=6,
)
PLAIN = {Any: JSON_VALUES, float: st.floats(allow_nan=False, allow_infinity=False)}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that stands in a record; a new field needs no word here."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs_of(kind)
    return st.from_type(kind)


def structs_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Structs with every field drawn."""
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: values_of(field.type) for field in fields})


def numbered(record: Record) -> Record:
    """The record with its trials numbered by their order, as they are in every run."""
    trials = [msgspec.structs.replace(trial, n=n) for n, trial in enumerate(record.trials, 1)]
    return msgspec.structs.replace(record, trials=trials)


@pytest.fixture(scope="session")
def records() -> st.SearchStrategy[Record]:
    """Any record that a run can make."""
    made = {field.name: values_of(field.type) for field in msgspec.structs.fields(Record)}
    return st.builds(Record, **{**made, "schema": st.just(SCHEMA)}).map(numbered)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a folder of their own."""
    return {"FITSERVE_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Record]:
    """Make the record of a run with failed trials."""

    def make(run: str = "20260101-000000-aaaaaa", trials: int = 1, **others: Any) -> Record:
        return Record(
            **{
                "run": run,
                "kind": "fix",
                "started_utc": dt.datetime(2026, 1, 1, tzinfo=dt.UTC).isoformat(timespec="seconds"),
                "fitserve_version": "0.1.0",
                "command": ["vllm", "serve", "some model"],
                "trials": [
                    Trial(n=n, argv=["vllm"], outcome="failed", cause="no-kv-cache-blocks", seconds=1.5)
                    for n in range(1, trials + 1)
                ],
                **others,
            }
        )

    return make


@pytest.fixture(scope="session")
def passed() -> Verification:
    """A verification without a failure."""
    return msgspec.convert(
        {
            "url": "http://127.0.0.1:8000",
            "checks": [{"name": "one", "passed": True, "expected": "a", "actual": "a"}],
        },
        Verification,
    )
