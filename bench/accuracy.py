"""How right plans are: against vLLM's own figures and against measured starts; makes ``docs/accuracy.md``.

Reads ``kv-oracle.jsonl``, ``truth.jsonl`` and ``models/`` from the folder given, or from ``../shared`` beside the checkout. Every
figure is one that ``plan --json`` prints. ``--write`` writes the page. Exits with 1 where a target is missed.
"""

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.evidence.models import published_folder  # noqa: E402 - found from the checkout's root
from bench.evidence.oracle import Answer, agreement, ask_plans, read_oracle, weights_error  # noqa: E402
from bench.evidence.pairs import Pair, by_change, pairs_of  # noqa: E402
from bench.evidence.starts import Start, read_starts  # noqa: E402
from bench.evidence.terms import (  # noqa: E402
    TERMS,
    Term,
    is_of_campaign,
    kinds_of,
    model_of,
    share_held,
    share_held_out,
    terms_of,
)
from fitserve.units import GIB  # noqa: E402

PAGE = ROOT / "docs" / "accuracy.md"
NEAR, FAR = 0.002, 0.02
NEXT = 0.005
"""How near the next start is to be, where a log of an earlier one is given."""

FORETOLD = (
    "free_memory_check",
    "config_error",
    "kv_too_small",
    "no_cache_blocks",
    "mamba_blocks_too_few",
    "weights_oom",
)
"""Outcomes that a plan can know."""


class Part(NamedTuple):
    """Some lines of the page, and whether their targets are met."""

    lines: list[str]
    met: bool


def main() -> int:
    """Measure, print, and write the page where that is asked for."""
    words = [word for word in sys.argv[1:] if word != "--write"]
    folder = Path(words[0]) if words else ROOT.parent / "shared"
    for name in ("truth.jsonl", "kv-oracle.jsonl"):
        if not (folder / name).exists():
            print(f"error: there is no evidence: {folder / name}", file=sys.stderr)
            return 2
    if published_folder() is None:
        print("error: aiconfigurator-core is not installed; it has the configurations", file=sys.stderr)
        return 2
    answers = ask_plans(read_oracle(folder / "kv-oracle.jsonl"))
    starts, left_out = read_starts(folder)
    parts = (
        engine_part(answers),
        starts_part(starts, left_out),
        pairs_part(pairs_of(starts)),
        terms_part(starts),
        verdicts_part(starts),
    )
    head = ["# Accuracy", "", "Made by `python -m bench accuracy --write`; not written by hand."]
    text = "\n".join([*head, *(line for part in parts for line in part.lines)]) + "\n"
    print(text, end="")
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    return 0 if all(part.met for part in parts) else 1


def engine_part(answers: Sequence[Answer]) -> Part:
    """Against what vLLM's own code computes: weights and KV cache from ``config.json`` alone."""
    firsts = list({id(answer.row): answer for answer in answers}.values())
    weighed = [
        weigh([weights_error(answer, with_buffers=whole) for answer in firsts]) for whole in (False, True)
    ]
    judged = Counter(agreement(answer) for answer in answers)
    equal = judged["equal"] / len(answers)
    versions = sorted({answer.row["vllm_version"] for answer in firsts})
    models = len({answer.row["model"] for answer in firsts})
    lines = [
        "",
        "## Beside vLLM's own code",
        "",
        f"{len(firsts)} starts of {models} published models on vLLM {versions[0]} to {versions[-1]}: what its own code allocates on the",
        f"first rank, and what it makes of {len(answers)} sizes given with `--kv-cache-memory-bytes`. A plan knows `config.json` alone.",
        "",
        "| what | target | met by | cannot tell | different | largest error |",
        "|---|---|---|---|---|---|",
        engine_line(f"parameters within {NEAR:.1%}", "90%", *weighed[0]),
        engine_line(f"parameters and buffers within {NEAR:.1%}", "90%", *weighed[1]),
        engine_line(
            "blocks, tokens and concurrency, or the refusal and its longest context",
            "95%",
            (equal, judged["cannot tell"], judged["different"]),
        ),
        "",
        by_architecture(answers),
    ]
    light = all(found[0] >= 0.9 and largest <= FAR for found, largest in weighed)
    return Part(lines, light and equal >= 0.95 and not judged["different"])


def weigh(errors: Sequence[float | str]) -> tuple[tuple[float, int, int], float]:
    """The share of near ones, how many are not known, how many are off; and the largest error."""
    known = [error for error in errors if isinstance(error, float)]
    off = sum(error > NEAR for error in known)
    return ((len(known) - off) / len(errors), len(errors) - len(known), off), max(known, default=0.0)


def engine_line(words: str, target: str, found: tuple[float, int, int], largest: float | None = None) -> str:
    """One row: the share that meets it, how many cannot be told, how many differ."""
    share, unknown, different = found
    return f"| {words} | {target} | {share:.1%} | {unknown} | {different} | {'' if largest is None else f'{largest:.4%}'} |"


def by_architecture(answers: Sequence[Answer]) -> str:
    """The architectures, and how often each is missed where it is."""
    found = Counter(answer.row["architecture"][0] for answer in answers)
    missed = Counter(
        answer.row["architecture"][0]
        for answer in answers
        if agreement(answer) != "equal" or not isinstance(weights_error(answer), float)
    )
    words = ", ".join(
        f"{name} {found[name]}" + (f" ({missed[name]} missed)" if missed[name] else "")
        for name in sorted(found)
    )
    return f"Sizes by architecture: {words}."


def starts_part(starts: Sequence[Start], left_out: Counter[str]) -> Part:
    """Against measured starts: what the cache holds, and all memory besides it."""
    full = [start for start in starts if start.is_full]
    devices = len({start.plan.device for start in starts})
    several = sum(len(start.plans) > 1 for start in starts)
    reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    lines = [
        "",
        "## Beside measured starts",
        "",
        f"{len(starts)} starts on {devices} kinds of device are foretold from configuration and flags alone: {len(full)} with a whole log,",
        f"{len(starts) - len(full)} with what their reports show. What a report leaves out counts as vLLM's default, which it may not have",
        f"been. {several} do not name their release: a figure counts where every release that it may be foretells the same.",
        f"Left out: {sum(left_out.values())} starts ({reasons}).",
        "",
        "| what | starts | target | median | 90 % within | met |",
        "|---|---|---|---|---|---|",
    ]
    met = True
    for name, chosen in (("whole logs", full), ("all", starts)):
        for words, errors, median, ninetieth in (
            ("KV cache tokens", token_errors(chosen), 0.015, 0.05),
            ("memory besides the cache", other_errors(chosen), 0.08, None),
        ):
            middle, high = statistics.median(errors), sorted(errors)[int(0.9 * (len(errors) - 1))]
            fine = middle <= median and (ninetieth is None or high <= ninetieth)
            met = met and fine
            target = f"{median:.1%}" + (f", {ninetieth:.0%}" if ninetieth else "")
            lines.append(
                f"| {words}, {name} | {len(errors)} | {target} | {middle:.2%} | {high:.2%} | {yes(fine)} |"
            )
    return Part(lines, met)


def token_errors(starts: Iterable[Start]) -> list[float]:
    """How far the cache's tokens are off, as shares."""
    return [
        abs(term.expected / term.printed - 1) for term in terms_of(starts) if term.name == "KV cache tokens"
    ]


def other_errors(starts: Iterable[Start]) -> list[float]:
    """How far all memory besides the cache is off, as shares."""
    found = []
    for term in terms_of(starts):
        if term.name == "KV cache":
            requested = term.start.plan.budget[0].requested_bytes / GIB
            found.append(abs((requested - term.expected) / (requested - term.printed) - 1))
    return found


def pairs_part(pairs: Sequence[Pair]) -> Part:
    """A second plan from one log: the memory left for the KV cache beside what the next start printed."""
    held = sum(pair.is_held for pair in pairs) / len(pairs)
    near = sum(pair.error <= NEXT for pair in pairs) / len(pairs)
    median = statistics.median(pair.error for pair in pairs)
    models = len({pair.second.row["model_id"] for pair in pairs})
    lines = [
        "",
        "## A second plan from one log",
        "",
        "`plan --from-log`: the weights and the KV cache memory that an INFO log of one start prints, and the next start of the same model,",
        f"device and release with other settings. {len(pairs)} pairs of whole logs of {models} models; what is compared is the next one's KV cache memory.",
        "",
        f"Within {NEXT:.1%}: {near:.0%}; median error {median:.3%}; inside the interval: {held:.0%}.",
        "",
        f"| what was changed | pairs | within {NEXT:.1%} | median | largest | inside |",
        "|---|---|---|---|---|---|",
        *(change_line(changed, found) for changed, found in by_change(pairs).items()),
    ]
    return Part(lines, near >= 0.9 and held >= 0.9)


def change_line(changed: tuple[str, ...], pairs: Sequence[Pair]) -> str:
    """One row: the settings that differ, and how the second plans do."""
    errors = [pair.error for pair in pairs]
    near, held = sum(error <= NEXT for error in errors), sum(pair.is_held for pair in pairs)
    return (
        f"| {', '.join(changed)} | {len(pairs)} | {near} | {statistics.median(errors):.3%} "
        f"| {max(errors):.3%} | {held} |"
    )


def terms_part(starts: Sequence[Start]) -> Part:
    """How many figures their intervals hold: by term, and by kind of start."""
    terms = terms_of(starts)
    lines = [
        "",
        "## Intervals",
        "",
        "An interval is meant to hold 90 % of what starts print. Weights and the layout of the cache are from vLLM's code, nothing",
        "in them is fitted; levels of activation, non-torch and graphs were found on one campaign, vLLM 0.15 to 0.19 on H100. Held",
        "out: each model's levels are moved to where all other models have theirs. Strangers: starts that are not of the campaign.",
        "",
        "| term | figures | mean error, GiB | largest | inside | held out | strangers | inside |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, *_ in TERMS:
        found = [term for term in terms if term.name == name]
        strangers = [term for term in found if not is_of_campaign(term.start)]
        errors = [abs(term.error) for term in found]
        sizes = (
            (f"{statistics.fmean(errors):.3f}", f"{max(errors):.2f}") if "tokens" not in name else ("", "")
        )
        fitted = name in ("activation", "non-torch", "graphs, captured")
        held_out = f"{share_held_out(found, model_of):.0%}" if fitted else "-"
        lines.append(
            f"| {name} | {len(found)} | {sizes[0]} | {sizes[1]} | {share_held(found):.0%} | {held_out} "
            f"| {len(strangers)} | {share_held(strangers):.0%} |"
        )
    lines += ["", "By kind of start, figures inside of all figures:", "", *by_kind(terms)]
    missed = [term for term in terms if not term.holds()]
    lines += ["", *outside(missed)]
    every = all(share_held([term for term in terms if term.name == name]) >= 0.9 for name, *_ in TERMS)
    return Part(lines, every)


def by_kind(terms: Sequence[Term]) -> list[str]:
    """The table of kinds."""
    kinds = dict.fromkeys(kind for term in terms for kind in kinds_of(term.start))
    names = [name for name, *_ in TERMS]
    lines = [f"| kind | {' | '.join(names)} | all |", f"|---|{'---|' * (len(names) + 1)}"]
    for kind in kinds:
        own = [term for term in terms if kind in kinds_of(term.start)]
        cells = []
        for chosen in (*([term for term in own if term.name == name] for name in names), own):
            cells.append(f"{sum(term.holds() for term in chosen)}/{len(chosen)}" if chosen else "")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def outside(missed: Sequence[Term]) -> list[str]:
    """Every figure that no interval holds."""
    lines = [
        "Outside:",
        "",
        "| start | device | vLLM | term | printed | foretold |",
        "|---|---|---|---|---|---|",
    ]
    for term in missed:
        version = term.start.row["vllm_version"] or "?"
        figures = (
            f"{term.printed:,.0f} | {term.low:,.0f} to {term.high:,.0f}"
            if "tokens" in term.name
            else f"{term.printed:.2f} | {term.low:.2f} to {term.high:.2f}"
        )
        lines.append(
            f"| {model_of(term.start)} | {term.start.plan.device} | {version} | {term.name} | {figures} |"
        )
    return lines


def verdicts_part(starts: Sequence[Start]) -> Part:
    """What happened beside the verdicts; no refused start may be called one that starts at more than its risk."""
    told = [start for start in starts if start.verdict]
    counts = Counter((happened(start), start.verdict) for start in told)
    verdicts = ("starts", "cannot-tell", "does-not-start")
    lines = [
        "",
        "## Verdicts",
        "",
        "| what happened | starts | cannot tell | does not start |",
        "|---|---|---|---|",
    ]
    for kind in ("started", "refused", "other"):
        lines.append(f"| {kind} | {' | '.join(str(counts[kind, verdict]) for verdict in verdicts)} |")
    lines += [
        "",
        "Refused: for memory or settings. Other: no access to the model, or a failure after the start-up.",
    ]
    refused = [start for start in told if happened(start) == "refused"]
    risk = sum(start.plan.risk for start in refused if start.verdict == "starts")
    return Part(lines, counts["refused", "starts"] <= risk)


def happened(start: Start) -> str:
    """``started``, ``refused`` where a plan can know, else ``other``."""
    outcome = start.row["outcome"]
    return (
        "started" if outcome in ("started", "serving_oom") else "refused" if outcome in FORETOLD else "other"
    )


def yes(fine: bool) -> str:
    """``yes`` or ``no``."""
    return "yes" if fine else "no"


if __name__ == "__main__":
    sys.exit(main())
