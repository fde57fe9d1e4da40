"""A diagnosis as text: error, place, evidence, arithmetic, then help; a command stands alone on its line."""

import re
import textwrap
from collections.abc import Iterator

import click

from fitserve.diagnose.finding import Advice, Diagnosis, Evidence, NotAdvised, Scalar
from fitserve.report.actions import COMMANDS
from fitserve.report.figures import Row, figures, shown

WIDTH = 100
"""Columns where no terminal says otherwise."""

_EVIDENCE_KINDS = 3
_ROWS_OF_ONE_LINE = 3
_ALIKE_CHARACTERS = 80
_CUT = " ..."
_COSTS = {
    "free": "costs nothing",
    "capacity": "costs capacity",
    "speed": "costs speed",
    "hardware": "needs more hardware",
    "output": "may change answers",
}
_CERTAINTY = {
    "certain": "vLLM says so itself",
    "likely": "the lines fit this and nothing better; vLLM does not say it in words",
    "possible": "one of several readings; more of the log would decide",
}
_COLORS = {"error": "red", "warning": "yellow", "note": "green"}
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\U0010ffff]+")


def render_diagnosis(diagnosis: Diagnosis, source: str, *, width: int = WIDTH, colored: bool = False) -> str:
    """The diagnosis as a person reads it.

    Args:
        diagnosis: any diagnosis.
        source: the log's name, as the reader knows it.
        width: columns; below 40 counts as 40.
        colored: with the colours of a terminal.

    Returns:
        Text that ends in one line feed; without control characters, whatever the log held.
    """
    painter = _Painter(diagnosis, source, max(width, 40), colored=colored)
    return "\n".join(painter.lines()).rstrip("\n") + "\n"


class _Painter:
    """The text of one diagnosis, block by block."""

    def __init__(self, diagnosis: Diagnosis, source: str, width: int, *, colored: bool) -> None:
        self.diagnosis = diagnosis
        self.source = source
        self.width = width
        self.colored = colored

    def lines(self) -> Iterator[str]:
        yield from self._wrapped(self._title(), "", "  ")
        yield f"  --> {self._place()}"
        yield from self._evidence()
        yield from self._arithmetic()
        yield from self._helps()
        yield from self._remarks()

    def _title(self) -> str:
        d = self.diagnosis
        name = (
            clean(d.cause)
            if d.cause == "healthy" and d.severity == "note"
            else f"{d.severity}[{clean(d.cause)}]"
        )
        return f"{self._paint(name, _COLORS[d.severity])}: {clean(d.message)}"

    def _place(self) -> str:
        d = self.diagnosis
        place = clean(self.source) + (f":{d.line}" if d.line is not None else "")
        version = f"vLLM {clean(d.vllm_version)}" if d.vllm_version else ""
        known = ", ".join(part for part in (clean(d.process or ""), version) if part)
        return place + (f"  ({known})" if known else "")

    def _evidence(self) -> Iterator[str]:
        kinds = _by_wording(self.diagnosis.evidence)
        if not kinds:
            return
        shown_kinds = kinds[:_EVIDENCE_KINDS]
        numbered = len(kinds) > 1 or kinds[0][0].line != self.diagnosis.line
        numbered = numbered and any(kind[0].line for kind in shown_kinds)
        gutter = max(len(str(kind[0].line)) for kind in shown_kinds) if numbered else 0
        yield "  |"
        for first, *repeats in shown_kinds:
            lead = f"{first.line or '':>{gutter}}  " if numbered else ""
            quote = self._wrapped(clean(first.text), f"  | {lead}", f"  | {' ' * len(lead)}")
            if len(quote) > _ROWS_OF_ONE_LINE:
                last = quote[_ROWS_OF_ONE_LINE - 1][: self.width - len(_CUT)].rstrip()
                quote = [*quote[: _ROWS_OF_ONE_LINE - 1], last + _CUT]
            yield from quote
            if repeats:
                places = ", ".join(str(item.line) for item in repeats)
                yield f"  | {' ' * len(lead)}(again at line{'s' if len(repeats) > 1 else ''} {places})"
        left = sum(len(kind) for kind in kinds[_EVIDENCE_KINDS:])
        if left:
            yield f"  | and {left} more {'line' if left == 1 else 'lines'}"

    def _arithmetic(self) -> Iterator[str]:
        yield "  |"
        found = figures(self.diagnosis)
        yield from _columns(found.rows)
        if self.diagnosis.stage not in ("-", "unknown"):
            yield f"  = stage: {self.diagnosis.stage}"
        if found.settings:
            listed = ", ".join(clean(setting).replace(" ", "\u00a0") for setting in found.settings)
            yield from (
                row.replace("\u00a0", " ") for row in self._wrapped(f"settings: {listed}", "  = ", "    ")
            )
        certainty = self.diagnosis.confidence
        reason = _CERTAINTY[certainty]
        printed = sum(bool(row.source) for row in found.rows)
        if certainty == "certain" and printed:
            reason = {1: "vLLM printed the number", 2: "vLLM printed both numbers"}.get(
                printed, "vLLM printed the numbers"
            )
        yield f"  = {certainty}: {reason}"

    def _helps(self) -> Iterator[str]:
        typed: set[str] = set()
        for advice in self.diagnosis.advice:
            command = advice.option or COMMANDS.get(advice.action or "", "")
            if command and command in typed:
                continue
            typed.add(command)
            yield ""
            label = self._paint("help", "cyan")
            yield from self._wrapped(f"{label}: {_change(advice)}; {_COSTS[advice.cost]}", "", "      ")
            yield from self._wrapped(clean(advice.why), "      ", "      ")
            if command:
                yield f"    {self._paint(clean(command), 'bold')}"
            then = ", ".join(filter(None, (shown(key, value) for key, value in advice.predicted.items())))
            if then:
                yield from self._wrapped(f"then: {clean(then)}", "      ", "      ")

    def _remarks(self) -> Iterator[str]:
        d = self.diagnosis
        remarks = [f"not this time: {_refusal(item)}" for item in d.not_advised]
        for boot in d.earlier:
            where = f" at line {boot.line}" if boot.line is not None else ""
            remarks.append(f"earlier in this log: boot {boot.boot} ended in {clean(boot.cause)}{where}")
        if d.wrappers:
            names = ", ".join(dict.fromkeys(clean(wrapper.id) for wrapper in d.wrappers))
            first, last = (pick(wrapper.line for wrapper in d.wrappers) for pick in (min, max))
            where = f"line {first}" if first == last else f"lines {first} to {last}"
            remarks.append(f"set aside as echoes ({where}): {names}")
        if d.failed:
            remarks.append(f"more: fitserve explain {clean(d.cause)}")
        if remarks:
            yield ""
        for remark in remarks:
            yield from self._wrapped(remark, "", "  ")

    def _paint(self, text: str, style: str) -> str:
        if not self.colored:
            return text
        return click.style(text, bold=True) if style == "bold" else click.style(text, fg=style, bold=True)

    def _wrapped(self, text: str, first: str, later: str) -> list[str]:
        """Wrapped at the width; paint counts as nothing because it only stands at the beginning."""
        return textwrap.wrap(
            text,
            self.width + (len(text) - len(click.unstyle(text))),
            initial_indent=first,
            subsequent_indent=later,
            break_on_hyphens=False,
        ) or [first.rstrip()]


def _by_wording(evidence: list[Evidence]) -> list[list[Evidence]]:
    """Lines that begin alike but for numbers, or quote each other, are one kind."""
    kinds: list[tuple[str, list[Evidence]]] = []
    for item in evidence:
        wording = re.sub(r"\d+", "#", clean(item.text))
        for known, items in kinds:
            if known[:_ALIKE_CHARACTERS] in wording or wording[:_ALIKE_CHARACTERS] in known:
                items.append(item)
                break
        else:
            kinds.append((wording, [item]))
    return [items for _, items in kinds]


def _columns(rows: list[Row]) -> Iterator[str]:
    """Rows under each other: labels to the left, values to the right."""
    cells = [
        tuple(clean(cell) for cell in (row.label, row.number, row.unit, row.aside, row.source))
        for row in rows
    ]
    widths = [max((len(cell[column]) for cell in cells), default=0) for column in range(4)]
    for label, number, unit, aside, source in cells:
        where = f"({source})" if source else ""
        yield (
            f"  = {label:<{widths[0]}}  {number:>{widths[1]}} {unit:<{widths[2]}}  {aside:<{widths[3]}}  {where}"
        ).rstrip()


def _change(advice: Advice) -> str:
    """What to do, in words."""
    if advice.flag is None:
        return clean((advice.action or "see below").replace("-", " "))
    verb = {"up": "raise", "down": "lower"}.get(advice.direction or "", "set")
    before = f" from {_value(advice.value_from)}" if advice.value_from is not None else ""
    to = f" to {_value(advice.to)}" if advice.to is not None and not isinstance(advice.to, bool) else ""
    return clean(f"{verb} {advice.flag}{before if to else ''}{to}")


def _value(value: Scalar) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,}" if is_number else str(value)


def _refusal(item: NotAdvised) -> str:
    what = clean(item.flag or item.action or "")
    verb = {"up": "raising ", "down": "lowering "}.get(item.direction or "", "")
    return f"{verb}{what} ({clean(item.why)})" if what else clean(item.why)


def clean(text: str) -> str:
    """Text of a log on one line, without anything that a terminal would obey."""
    return _UNPRINTABLE.sub("\ufffd", " ".join(_ESCAPE.sub("", text).split()))
