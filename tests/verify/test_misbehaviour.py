"""Each misbehaviour of a server is found by its check, under its name, and the other checks go on."""

import runpy
from pathlib import Path

import pytest

from fitserve.verify.options import Options
from fitserve.verify.run import exit_code, verify_server
from fitserve.verify.verification import Check

GENERATION = ("chat", "chat-stream", "completion", "completion-stream")
STREAMS = ("chat-stream", "completion-stream", "boundary-half", "boundary-exact", "load-1")
ACCEPTED = ("boundary-half", "boundary-exact")
EDGES = (*ACCEPTED, "boundary-over", "boundary-output-over")
LOAD = ("load-1", "load-2", "load-4")
FIRST = ("reach", "health", "version", "models", "model-name")
ALL = (*FIRST, *GENERATION, *EDGES, *LOAD, "health-after")


def failed(*names: str, kind: str) -> dict[str, str]:
    """So many checks that fail with one error type."""
    return dict.fromkeys(names, kind)


# mode: what fails and with which error type, what cannot be asked, the exit code
CASES: dict[str, tuple[dict[str, str], tuple[str, ...], int]] = {
    "good": ({}, (), 0),
    "no-metrics": ({}, (), 0),
    "busy": ({}, (), 0),
    "cuts-output": ({}, (), 0),
    "texts-only": ({}, (), 0),
    "length-by-tokenizer": ({}, (), 0),
    "preempting": ({}, (), 0),
    "no-template": ({}, ("chat", "chat-stream"), 0),
    "embedding": ({}, (*GENERATION, "boundary-output-over"), 0),
    "cached": ({}, (), 0),
    "ends-early": ({}, (), 0),
    "same-token": ({}, (), 0),
    "negative-length": ({}, (), 0),
    "absurd-length": ({}, EDGES, 0),
    "no-endpoint": (
        failed("endpoints", kind="not-openai-compatible"),
        (*GENERATION, *EDGES, *LOAD),
        1,
    ),
    "refuses-streams": (
        failed("chat-stream", "completion-stream", kind="http-404"),
        (*EDGES, *LOAD),
        1,
    ),
    "says-yes": (failed("models", kind="not-json"), ("version", "model-name", *GENERATION, *EDGES, *LOAD), 3),
    "leaks": ({}, (), 0),
    "leaves-requests": ({}, (), 0),
    "one-at-a-time": ({}, (), 0),
    "fails-later": ({}, (), 0),
    "pooling": ({}, (*GENERATION, *EDGES, *LOAD), 0),
    "sglang": ({}, ("version",), 0),
    "llamacpp": ({}, ("version", *EDGES), 0),
    "ollama": ({}, ("health", "version", *EDGES, *LOAD, "health-after"), 0),
    "http-500": (failed(*GENERATION, *EDGES, "load-1", kind="http-500"), (), 1),
    "http-502": (failed(*GENERATION, *EDGES, "load-1", kind="http-502"), (), 1),
    "gzip-bomb": (failed(*GENERATION, *ACCEPTED, *EDGES[2:], "load-1", kind="endless-answer"), (), 1),
    "nulls": (
        failed("chat", "completion", kind="not-openai-compatible") | failed(*STREAMS, kind="stream-cut"),
        (),
        1,
    ),
    "endless-models": (
        failed("models", kind="endless-answer"),
        ("model-name", *GENERATION, *EDGES, *LOAD),
        1,
    ),
    "cut-connection": (failed(*GENERATION, *ACCEPTED, "load-1", kind="connection-lost"), (), 1),
    "half-json": (failed(*GENERATION, *ACCEPTED, "load-1", kind="not-json"), (), 1),
    "wrong-content-type": (
        failed("chat", "completion", kind="not-json") | failed(*STREAMS, kind="wrong-content-type"),
        (),
        1,
    ),
    "empty": (failed("chat", "completion", kind="empty-answer") | failed(*STREAMS, kind="stream-cut"), (), 1),
    "endless-tokens": (failed(*STREAMS, kind="endless-answer"), (), 1),
    "stream-error": (failed(*STREAMS, kind="error-in-stream"), (), 1),
    "hang-mid-stream": (failed(*GENERATION, *ACCEPTED, "load-1", kind="timeout"), (), 1),
    "slow": (failed(*GENERATION, *ACCEPTED, "load-1", kind="timeout"), (), 1),
    "never-scheduled": (
        failed(*GENERATION, *ACCEPTED, "load-1", kind="request-never-scheduled"),
        (),
        1,
    ),
    "never-scheduled-long": (
        failed(*ACCEPTED, kind="request-never-scheduled") | failed("load-1", kind="timeout"),
        (),
        1,
    ),
    "never-scheduled-silent": (
        failed("chat", "completion", "load-1", kind="timeout")
        | failed("chat-stream", "completion-stream", *ACCEPTED, kind="request-never-scheduled"),
        (),
        1,
    ),
    "over-accepted": (
        failed("boundary-over", "boundary-output-over", kind="over-length-accepted"),
        (),
        1,
    ),
    "count-wrong": (
        failed("boundary-half", "load-1", kind="wrong-count")
        | failed("boundary-exact", kind="request-too-long"),
        (),
        1,
    ),
    "cuts-prompts-under-load": (failed("load-2", kind="wrong-count"), (), 1),
    "caps-output": (failed("load-1", kind="wrong-count"), (), 1),
    "counts-too-few": (failed(*GENERATION, *ACCEPTED, "load-1", kind="wrong-count"), (), 1),
    "ignores-max-tokens": (failed(*GENERATION, kind="wrong-count"), (*EDGES, *LOAD), 1),
    "aborts": (failed(*GENERATION, *ACCEPTED, "load-1", kind="given-up"), (), 1),
    "embedding-fails-later": (
        failed("load-1", kind="not-openai-compatible"),
        (*GENERATION, "boundary-output-over"),
        1,
    ),
    "key": (
        failed("models", kind="http-401"),
        ("model-name", *GENERATION, *EDGES, *LOAD),
        1,
    ),
    "redirect": (
        failed("models", kind="http-307"),
        ("version", "model-name", *GENERATION, *EDGES, *LOAD),
        1,
    ),
    "html": (
        failed("models", kind="not-json"),
        ("version", "model-name", *GENERATION, *EDGES, *LOAD),
        3,
    ),
    "nothing": (
        failed("models", kind="http-404"),
        ("health", "version", "model-name", *GENERATION, *EDGES, *LOAD, "health-after"),
        3,
    ),
}
HANGING = {"hang-mid-stream", "slow", "never-scheduled", "never-scheduled-long", "never-scheduled-silent"}


@pytest.mark.parametrize("mode", CASES)
def test_misbehaviour_is_named_and_the_rest_goes_on(fake_url: str, mode: str) -> None:
    """What is broken fails under its name, what cannot be asked says so, everything else passes."""
    failures, unasked, code = CASES[mode]
    deadline_seconds = 0.5 if mode in HANGING else 20
    shown: list[Check] = []

    verification = verify_server(
        f"{fake_url}/{mode}", Options(profile="quick", deadline_seconds=deadline_seconds), shown.append
    )

    by_name = {check.name: check for check in verification.checks}
    assert failures == {name: check.error_type for name, check in by_name.items() if check.passed is False}
    asked = [name for name in ALL if name not in unasked and name not in failures]
    # A ramp ends at its first failing step, so the later ones are not there.
    assert [] == [name for name in asked if name in by_name and not by_name[name].passed]
    assert [] == [name for name in unasked if name in by_name and by_name[name].passed is not None]
    assert code == exit_code(verification)
    assert verification.checks == shown
    assert len(by_name) == len(shown)
    assert [] == [check.name for check in shown if not (check.expected and check.actual)]


def test_modes_are_all_tried() -> None:
    """A mode of the fake server that no case names would prove nothing."""
    quirks = runpy.run_path(str(Path(__file__).with_name("fake_server.py")))["QUIRKS"]

    assert quirks == CASES.keys()
