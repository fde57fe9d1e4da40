"""The words and figures that every reading of a record shares. Rounding happens here and not before."""

import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec

from fitserve.diagnose.finding import Scalar
from fitserve.report.record import Record
from fitserve.trial.outcome import Change, PhaseTime, Trial
from fitserve.units import GIB, gib

PRINTED_AS = {
    "kv_cache_tokens": ("kv_tokens",),
    "kv_cache_bytes": ("kv_cache_memory_bytes", "available_gib"),
}
"""What vLLM's lines call the figures that advice predicts."""

_OBEYED = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
    "]"
)
"""Unicode's categories Cc, Cf and Cs, and the separators of lines and paragraphs, but for a line feed and a tab."""

NOT_GIVEN = "not given"
AS_GIVEN = "as given"
READ = "the start that the log shows"
PURPOSES = {"isolation": "to find out what fails; it is not kept", "growth": "to spend what was left"}
"""What a change is for where it is not to make the launch serve."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that was predicted for a trial, and what vLLM printed.

    Attributes:
        name: the figure's name with its unit.
        predicted: in words.
        measured: in words.
    """

    name: str
    predicted: str
    measured: str


def option_of(flag: str) -> str:
    """A setting as it is typed: ``--max-model-len``, or the environment variable's own name."""
    return flag if flag.isupper() else f"--{flag.replace('_', '-')}"


def change_words(change: Change | None) -> str:
    """The one difference to the trial before: ``--max-model-len 131072 -> 76304``."""
    if change is None:
        return AS_GIVEN
    before = NOT_GIVEN if change.value_from is None else _setting_words(change.value_from)
    after = "taken away" if change.to is None else _setting_words(change.to)
    return f"{option_of(change.flag)} {before} -> {after}"


def title_words(trial: Trial) -> str:
    """What a trial is called: its one change; of a log that was read, that it is one."""
    return change_words(trial.change) if trial.argv else READ


def _setting_words(value: Scalar) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def seconds_words(seconds: float) -> str:
    """A duration with one decimal: ``41.2 s``."""
    return f"{seconds:,.1f} s"


def ending_words(trial: Trial) -> str:
    """How a trial ended and when: ``failed after 41.2 s, exit code 1``; no time where only its log was read."""
    if not trial.argv:
        return trial.outcome
    words = f"{trial.outcome} after {seconds_words(trial.seconds)}"
    if trial.exit_code is not None:
        words += f", exit code {trial.exit_code}"
    if trial.signal is not None:
        words += f", killed by signal {trial.signal}"
    return words


def outcome_words(record: Record) -> str:
    """How a run ended, in a few words; the journal's list says the same."""
    if record.outcome is None:
        return "unfinished"
    if record.outcome == "diagnosed":
        return next((trial.cause for trial in record.trials if trial.cause), "healthy")
    if record.outcome == "checked":
        return "proven" if record.verification and record.verification.passed else "a check failed"
    if record.outcome != "served":
        return record.outcome.replace("-", " ")
    return _proof_words(record)


def _proof_words(record: Record) -> str:
    if record.verification is None:
        return "served, not verified"
    if not record.verification.passed:
        return "served, but a check failed"
    return "served, the goal not proven" if goal_is_unproven(record) else "served and proven"


def goal_is_unproven(record: Record) -> bool:
    """True where no check failed, and none says that the run's goal was kept."""
    goal = record.options.get("bounds", {}).get("goal_context")
    return record.verification is not None and record.verification.unproven(goal) is not None


def phase_durations(phases: list[PhaseTime], end_seconds: float) -> list[tuple[str, float]]:
    """Each phase and how long it lasted: until the next began, the last until the start's end.

    Args:
        phases: when each began, in order.
        end_seconds: the whole start.
    """
    marks = [*(phase.start_seconds for phase in phases), end_seconds]
    return [
        (phase.stage, max(0.0, end - start))
        for phase, (start, end) in zip(phases, pairwise(marks), strict=True)
    ]


def memory_words(trial: Trial) -> str:
    """What the trial's processes held at most; empty where nothing was measured."""
    words = []
    if trial.memory.peak_rss_bytes:
        words.append(f"{gib(trial.memory.peak_rss_bytes)} resident")
    if trial.memory.peak_gpu_bytes is not None:
        words.append(f"{gib(trial.memory.peak_gpu_bytes)} on the devices")
    return f"at most {' and '.join(words)}" if words else ""


def comparisons(trial: Trial, before: Trial | None) -> list[Comparison]:
    """The figures that the advice behind a trial predicted, and those that vLLM printed in it.

    What a failed start has printed stands in its diagnosis; here it is shown only beside a prediction.

    Args:
        trial: the trial.
        before: the one before it, whose diagnosis advised the change.
    """
    predicted = _predictions(trial, before)
    printed = trial.memory.printed
    rows = []
    told: set[str] = set()
    for name, value in predicted.items():
        seen = next((other for other in (name, *PRINTED_AS.get(name, ())) if other in printed), None)
        told |= {seen} if seen else set()
        rows.append((name, value_words(name, value), _measured_words(name, seen, printed)))
    if trial.outcome == "served":
        rows += [(name, "", value_words(name, value)) for name, value in printed.items() if name not in told]
    return [Comparison(name=name, predicted=left, measured=right) for name, left, right in rows]


def _measured_words(name: str, seen: str | None, printed: Mapping[str, Any]) -> str:
    """What was printed for a prediction, in the prediction's unit."""
    if seen is None:
        return ""
    value = printed[seen]
    in_gib = seen.endswith("_gib") and name.endswith("_bytes") and isinstance(value, int | float)
    return value_words(name, value * GIB if in_gib else value)


def _predictions(trial: Trial, before: Trial | None) -> Mapping[str, Any]:
    if trial.change is None or before is None or before.diagnosis is None:
        return {}
    if trial.change.predicted:
        return trial.change.predicted
    for advice in before.diagnosis.advice:
        if (advice.flag, advice.to) == (trial.change.flag, trial.change.to):
            return advice.predicted
    return {}


def value_words(name: str, value: Any) -> str:
    """A figure in words: sizes in GiB, whole numbers grouped, an interval with its ends, an unknown with its reason."""
    if isinstance(value, dict) and "unknown" in value:
        return f"unknown: {value['unknown']}"
    if isinstance(value, dict) and {"low", "expected", "high"} <= value.keys():
        low, expected, high = (value_words(name, value[key]) for key in ("low", "expected", "high"))
        return expected if low == high else f"{expected} ({low} to {high})"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if name.endswith("_bytes"):
        return gib(value)
    return f"{value:,}"


def checks_words(record: Record) -> str:
    """How many checks passed, and how many were not asked."""
    if record.verification is None:
        return "no check was made"
    results = [check.passed for check in record.verification.checks]
    words = f"{results.count(True)} of {len(results)} checks passed"
    return f"{words}, {results.count(None)} not asked" if None in results else words


def visible(text: str) -> str:
    """The text without what is obeyed instead of shown: controls, turns of the reading direction, halves of characters.

    Each becomes a replacement character: what stands there and what is copied are then the same. Lines and tabs stay.
    """
    return _OBEYED.sub("\ufffd", text)


def shell_words(argv: list[str], env: Mapping[str, str] | None = None) -> str:
    """A command as it is typed in a shell, its variables first."""
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()), shlex.join(argv)]
    )
