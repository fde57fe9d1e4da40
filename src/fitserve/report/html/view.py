"""A record as the page shows it: every word and figure, ready to be escaped and placed."""

from typing import Any, Literal

import msgspec

from fitserve.diagnose.finding import Advice, Evidence
from fitserve.facts.command import shown
from fitserve.report.charts.draw import EXTRA, Drawing, can_draw
from fitserve.report.charts.ledger import KV_CACHE, NAMES, Bar, bar_name, ledger_bars, unit_of
from fitserve.report.figures import Row, figures
from fitserve.report.html.drawings import (
    chosen_words,
    frontier_drawing,
    ledger_drawing,
    load_drawings,
    over_time_drawing,
)
from fitserve.report.html.extras import Extras
from fitserve.report.html.tables import Table, check_table, frontier_table, load_table
from fitserve.report.record import Record
from fitserve.report.record_environment import MACHINE
from fitserve.report.record_words import (
    PURPOSES,
    Comparison,
    checks_words,
    comparisons,
    ending_words,
    memory_words,
    outcome_words,
    phase_durations,
    seconds_words,
    shell_words,
    title_words,
    value_words,
)
from fitserve.report.text import clean
from fitserve.trial.outcome import Trial
from fitserve.verify.curve import load_curve

Tone = Literal["good", "bad", "open"]
_TONES: dict[str, Tone] = {"served": "good", "failed": "bad", "silent": "bad", "timed-out": "bad"}


class TrialView(msgspec.Struct, frozen=True, kw_only=True):
    """One start on the page.

    Attributes:
        n: its number.
        title: its one change.
        tone: how its outcome is coloured.
        outcome: in a word.
        facts: names and words, in order.
        command: as it is typed.
        cause: the diagnosis' cause; empty where there is none.
        finding: confidence and message.
        evidence: lines of the log.
        arithmetic: the figures behind the finding.
        advice: what else could be changed.
        compared: what was predicted and measured.
        drawing: its memory over time.
    """

    n: int
    title: str
    tone: Tone
    outcome: str
    facts: list[tuple[str, str]]
    command: str
    cause: str
    finding: tuple[str, str]
    evidence: list[Evidence]
    arithmetic: list[Row]
    advice: list[Advice]
    compared: list[Comparison]
    drawing: Drawing | None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The page. Attributes are its parts, from top to bottom."""

    title: str
    outcome: str
    tone: Tone
    made: str
    facts: list[tuple[str, str]]
    parts: list[tuple[str, str]]
    command: str
    error: tuple[str, str] | None
    final_command: str
    reason: str
    trials: list[TrialView]
    ledger: Drawing | None
    ledger_table: Table | None
    ledger_has_ends: bool
    frontier: Drawing | None
    frontier_table: Table | None
    frontier_words: str
    frontier_reason: str
    load: list[Drawing]
    load_table: Table | None
    checks: Table | None
    checks_words: str
    verified: tuple[str, str]
    environment: list[tuple[str, str]]
    machine: list[tuple[str, str]]
    emitted: list[tuple[str, str]]
    not_emitted: str
    redactions: str
    undrawn: str


def view_of(record: Record, extras: Extras) -> View:
    """Everything that the page shows.

    Args:
        record: any run.
        extras: what stands beside it.
    """
    bars = ledger_bars(record)
    verification = record.verification
    curve = None if verification is None else load_curve(verification)
    return View(
        title=f"fitserve {record.kind}: {outcome_words(record)}",
        outcome=outcome_words(record),
        tone=_tone(record),
        made=f"{record.kind} of {record.started_utc}",
        facts=_facts(record),
        parts=_parts(record, extras, has_ledger=bool(bars)),
        command=shell_words(record.command),
        error=_first_error(record),
        final_command="" if record.final_command is None else shell_words(record.final_command),
        reason=record.reason,
        trials=[_trial(record, index) for index in range(len(record.trials))],
        ledger=ledger_drawing(bars),
        ledger_table=_ledger_table(bars),
        ledger_has_ends=any(bar.total_bytes or bar.requested_bytes for bar in bars),
        frontier=frontier_drawing(extras.frontier),
        frontier_table=frontier_table(extras.frontier.points),
        frontier_words=chosen_words(extras.frontier),
        frontier_reason=extras.frontier.reason,
        load=load_drawings(curve),
        load_table=load_table(curve),
        checks=check_table(verification),
        checks_words=checks_words(record),
        verified=("", "") if verification is None else (verification.url, verification.model or ""),
        environment=_environment(record),
        machine=_flat("", record.environment.get(MACHINE)),
        emitted=[(one.name, one.text) for one in extras.emitted],
        not_emitted=extras.not_emitted,
        redactions=extras.redactions,
        undrawn="" if can_draw() else f"Charts are not drawn: {EXTRA}",
    )


def _tone(record: Record) -> Tone:
    if record.verification is not None and not record.verification.passed:
        return "bad"
    if record.kind == "diagnose":
        return "bad" if any(trial.cause for trial in record.trials) else "good"
    tones: dict[str | None, Tone] = {"served": "good", "checked": "good", "not-reached": "bad"}
    return tones.get(record.outcome, "open")


def _facts(record: Record) -> list[tuple[str, str]]:
    starts = len(record.trials)
    facts = [("run", record.run), ("fitserve", record.fitserve_version)]
    if record.kind not in ("verify", "diagnose"):
        facts.append(("starts", f"{starts:,}"))
    if record.verification is not None:
        facts.append(("checks", checks_words(record)))
    if record.seconds:
        facts.append(("took", seconds_words(record.seconds)))
    return facts


def _parts(record: Record, extras: Extras, *, has_ledger: bool) -> list[tuple[str, str]]:
    """The page's sections that are there: id and name."""
    parts = {
        "command": ("Command", True),
        "story": ("Story", bool(record.trials)),
        "memory": ("Memory", has_ledger),
        "frontier": ("Context and concurrency", True),
        "proof": ("Proof", record.verification is not None),
        "files": ("Files", bool(extras.emitted or extras.not_emitted)),
        "environment": ("Environment", True),
    }
    return [(name, words) for name, (words, is_there) in parts.items() if is_there]


def _first_error(record: Record) -> tuple[str, str] | None:
    for trial in record.trials:
        if trial.cause is not None and trial.diagnosis is not None:
            return trial.diagnosis.cause, trial.diagnosis.message
    return None


def _trial(record: Record, index: int) -> TrialView:
    trial = record.trials[index]
    before = record.trials[index - 1] if index else None
    found = trial.diagnosis if trial.cause is not None else None
    return TrialView(
        n=trial.n,
        title=title_words(trial),
        tone=_TONES.get(trial.outcome, "open") if trial.cause is None else "bad",
        outcome=trial.outcome,
        facts=_trial_facts(trial),
        command=shown(trial.argv, trial.env) if trial.argv else "",
        cause=trial.cause or "",
        finding=("", "") if found is None else (found.confidence, clean(found.message)),
        evidence=[] if found is None else [Evidence(one.line, clean(one.text)) for one in found.evidence],
        arithmetic=[] if found is None else figures(found).rows,
        advice=[] if found is None else found.advice,
        compared=comparisons(trial, before),
        drawing=over_time_drawing(trial),
    )


def _trial_facts(trial: Trial) -> list[tuple[str, str]]:
    facts = []
    if trial.change is not None and trial.change.why:
        facts.append(("because", trial.change.why))
    if trial.change is not None:
        facts.append(("costs", trial.change.cost))
        if trial.change.purpose in PURPOSES:
            facts.append(("purpose", PURPOSES[trial.change.purpose]))
    if trial.argv:
        facts.append(("outcome", ending_words(trial)))
    phases = phase_durations(trial.phases, trial.seconds)
    if phases and trial.argv:
        facts.append(("phases", ", ".join(f"{name} {seconds_words(took)}" for name, took in phases)))
    if words := memory_words(trial):
        facts.append(("memory", words))
    return facts + [("note", note) for note in trial.notes]


def _environment(record: Record) -> list[tuple[str, str]]:
    known = {name: value for name, value in record.environment.items() if name != MACHINE}
    return _flat("", known)


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Nested names and numbered items as one list: ``packages.torch``, ``gpus.0.name``; what is not there is left out."""
    if isinstance(value, dict) and value.keys() != {"unknown"}:
        return [row for key, item in value.items() for row in _flat(f"{name}.{key}".lstrip("."), item)]
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return [row for at, item in enumerate(value) for row in _flat(f"{name}.{at}", item)]
    if value is None or value in ([], ""):
        return []
    if isinstance(value, list):
        return [(name, ", ".join(value_words(name, item) for item in value))]
    return [(name, value_words(name, value))]


def _ledger_table(bars: list[Bar]) -> Table | None:
    """The picture's numbers."""
    if not bars:
        return None
    short = any(bar.missing_bytes for bar in bars)
    used = [name for name in NAMES if any(name in bar.parts for bar in bars) or (short and name == KV_CACHE)]
    unit, unit_bytes = unit_of(bars)
    heads = ["", *used, "requested", "device"]
    rows = []
    for bar in bars:
        sizes = {**bar.parts, **({KV_CACHE: -bar.missing_bytes} if bar.missing_bytes else {})}
        cells = [sizes.get(name) for name in used]
        rows.append(
            [
                bar_name(bar, bars),
                *(_cell(size, unit_bytes) for size in (*cells, bar.requested_bytes, bar.total_bytes)),
            ]
        )
    return Table(caption=f"The same in figures, in {unit}", heads=heads, rows=rows, numeric_from=1)


def _cell(size_bytes: int | None, unit_bytes: int) -> str:
    return "-" if size_bytes is None else f"{size_bytes / unit_bytes:,.2f}"
