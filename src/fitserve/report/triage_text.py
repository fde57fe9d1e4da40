"""A triage as text: a table of causes with counts, and one example each."""

from fitserve.diagnose.triage import Failure, Triage
from fitserve.report.text import clean

_SHOWN_FAILURES = 10


def render_triage(triage: Triage, *, width: int = 100) -> str:
    """The table: count, cause and stage, the example's place, what it says."""
    if not triage.groups and not triage.failed:
        return "no logs found\n"
    digits = max((len(f"{group.count:,}") for group in triage.groups), default=1)
    causes = max((len(group.cause) for group in triage.groups), default=0)
    lines = [_heading(triage), ""]
    for group in triage.groups:
        example = group.example
        place = clean(example.file) + (f":{example.line}" if example.line is not None else "")
        lines += [
            f"{group.count:>{digits},}  {group.cause:<{causes}}  {group.stage}",
            f"{'':>{digits}}  {_cut(clean(example.message), width - digits - 2)}",
            f"{'':>{digits}}  --> {place}",
            "",
        ]
    lines += _failures(triage.failed)
    return "\n".join(lines).rstrip("\n") + "\n"


def _heading(triage: Triage) -> str:
    logs = f"{triage.count:,} {'log' if triage.count == 1 else 'logs'}"
    causes = f"{len(triage.groups):,} {'kind' if len(triage.groups) == 1 else 'kinds'}"
    failed = f"; {len(triage.failed):,} not readable" if triage.failed else ""
    return f"{logs}, {causes} of answer{failed}"


def _failures(failed: list[Failure]) -> list[str]:
    lines = [f"not read: {clean(item.file)} ({clean(item.reason)})" for item in failed[:_SHOWN_FAILURES]]
    left = len(failed) - len(lines)
    return [*lines, f"and {left:,} more"] if left else lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."
