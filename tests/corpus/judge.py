"""Judges a diagnosis against the expected answer of a log, and sums up a folder."""

import json
from pathlib import Path
from typing import Any

import msgspec

from fitserve.diagnose.engine import diagnose_path
from fitserve.diagnose.finding import Diagnosis

QUIET = {"healthy", "not-a-vllm-log"}
HARMLESS = QUIET | {"wrapper-only"}


class Verdict(msgspec.Struct, frozen=True):
    """One log: what is right. `line`, `advised` and `harmed` are None where the log asks no such thing."""

    id: str
    title: str
    expected: str
    got: str
    cause: bool
    stage: bool
    line: bool | None
    advised: bool | None
    harmed: bool | None
    accused: bool | None

    @property
    def faults(self) -> list[str]:
        """The names of what is wrong."""
        wrong = {
            "cause": not self.cause,
            "stage": not self.stage,
            "line": self.line is False,
            "advice": self.advised is False,
            "harmful": self.harmed is True,
            "false cause": self.accused is True,
        }
        return [name for name, is_wrong in wrong.items() if is_wrong]


def gives(diagnosis: Diagnosis, wanted: dict[str, Any]) -> bool:
    """True where one piece of advice is what `wanted` describes: an action, or a flag with a direction or bound."""
    for advice in diagnosis.advice:
        if "action" in wanted:
            found = advice.action == wanted["action"]
        else:
            found = _is_flag(advice.flag, wanted["flag"]) and _agrees(advice.direction, advice.to, wanted)
        if found:
            return True
    return False


def _is_flag(flag: str | None, wanted: str) -> bool:
    return flag is not None and flag.lstrip("-").replace("-", "_").lower() == wanted.lower()


def _agrees(direction: str | None, to: Any, wanted: dict[str, Any]) -> bool:
    size = to if isinstance(to, int | float) and not isinstance(to, bool) else None
    return (
        ("direction" not in wanted or direction == wanted["direction"])
        and ("at_most" not in wanted or (size is not None and size <= wanted["at_most"]))
        and ("at_least" not in wanted or (size is not None and size >= wanted["at_least"]))
        and ("value" not in wanted or str(to).lower() == str(wanted["value"]).lower())
    )


def judge(diagnosis: Diagnosis, expected: dict[str, Any]) -> Verdict:
    """Compare one diagnosis with its expected answer."""
    wanted = expected["cause"]
    cause_is_right = diagnosis.cause in {wanted, *expected["acceptable_causes"]}
    stage_is_right = diagnosis.stage == expected["stage"]
    if wanted in QUIET:
        stage_is_right = stage_is_right or diagnosis.stage in ("-", "unknown")
    if cause_is_right and diagnosis.cause != wanted:
        stage_is_right = True
    first = expected["first_cause_line"]
    line = None if first is None or diagnosis.line is None else abs(diagnosis.line - first) <= 1
    right, harmful = expected["must_suggest"], expected["must_not_suggest"]
    return Verdict(
        id=expected["id"],
        title=expected["title"],
        expected=f"{expected['stage']}/{wanted} at {first}",
        got=f"{diagnosis.stage}/{diagnosis.cause} at {diagnosis.line}",
        cause=cause_is_right,
        stage=stage_is_right,
        line=line,
        advised=any(gives(diagnosis, one) for one in right) if right else None,
        harmed=any(gives(diagnosis, one) for one in harmful) if harmful else None,
        accused=(not cause_is_right and diagnosis.cause not in HARMLESS) if wanted in QUIET else None,
    )


def judge_folder(folder: Path) -> list[Verdict]:
    """Diagnose every log of a folder that has an expected answer."""
    verdicts = []
    for path in sorted(folder.glob("*.expected.json")):
        expected = json.loads(path.read_text(encoding="utf-8"))
        stem = path.name.removesuffix(".expected.json")
        log = next(p for p in (folder / f"{stem}.log", folder / f"{stem}.log.gz") if p.exists())
        verdicts.append(judge(diagnose_path(log), expected))
    return verdicts


def rate(verdicts: list[Verdict], name: str) -> float:
    """The share of right answers among the logs that ask for `name`; 1.0 where none does."""
    asked = [getattr(verdict, name) for verdict in verdicts if getattr(verdict, name) is not None]
    return sum(asked) / len(asked) if asked else 1.0


def misses(verdicts: list[Verdict]) -> str:
    """One readable line for each log with a fault."""
    wrong = [v for v in verdicts if v.faults]
    return "\n".join(
        f"{v.id}: {', '.join(v.faults)}; expected {v.expected}, got {v.got} ({v.title})" for v in wrong
    )
