"""Where the log names no cause, the end of the program does."""

import pytest

from fitserve.diagnose.finding import Diagnosis
from fitserve.trial.ending import explained
from fitserve.trial.launch import Exit
from fitserve.trial.outcome import State

QUIET = Diagnosis(
    stage="-", cause="healthy", line=None, severity="note", confidence="certain", message="nothing failed"
)


@pytest.mark.parametrize(
    ("state", "ended", "cause", "confidence"),
    [
        ("failed", Exit(None, 9), "host-memory-exhausted", "likely"),
        ("failed", Exit(137, None), "host-memory-exhausted", "likely"),
        ("failed", Exit(None, 15), "interrupted", "certain"),
        ("failed", Exit(143, None), "interrupted", "certain"),
        ("failed", Exit(130, None), "interrupted", "certain"),
        ("failed", Exit(None, 11), "unrecognised-error", "possible"),
        ("failed", Exit(1, None), "unrecognised-error", "possible"),
        ("failed", Exit(0, None), "unrecognised-error", "possible"),
        ("failed", None, "unrecognised-error", "possible"),
        ("silent", Exit(None, 15), "interrupted", "certain"),
        ("timed-out", None, "interrupted", "certain"),
    ],
)
def test_the_end_gives_the_cause(state: State, ended: Exit | None, cause: str, confidence: str) -> None:
    """A signal or a code from outside is named as such; a limit of ours is no crash of the program's."""
    found = explained(QUIET, state=state, ended=ended, phase="weights", last_line="Loading", seconds=600)

    assert (cause, confidence, True) == (
        found.cause,
        found.confidence,
        "in the stage weights" in found.message,
    )
    assert ["Loading"] == [evidence.text for evidence in found.evidence]


def test_a_cause_of_the_log_stays() -> None:
    """What vLLM said itself is better than what its end means."""
    said = Diagnosis(
        stage="kv_cache",
        cause="no-kv-cache-blocks",
        line=3,
        severity="error",
        confidence="certain",
        message="none",
    )

    assert said == explained(
        said, state="failed", ended=Exit(None, 9), phase="kv_cache", last_line="", seconds=1
    )
