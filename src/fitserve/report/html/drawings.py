"""The page's charts: each drawn for a desk and for a phone, with words for who cannot see it."""

from fitserve.plan.values import FrontierPoint
from fitserve.report.charts.draw import Drawing, draw
from fitserve.report.charts.frontier import frontier_spec
from fitserve.report.charts.ledger import Bar, bar_name, ledger_spec, unit_of
from fitserve.report.charts.load import has_usage, latency_spec, usage_spec
from fitserve.report.charts.over_time import over_time_spec
from fitserve.report.html.extras import Frontier
from fitserve.report.load_text import time_words
from fitserve.trial.outcome import Trial
from fitserve.units import gib
from fitserve.verify.curve import LoadCurve


def ledger_drawing(bars: list[Bar]) -> Drawing | None:
    """The memory of each rank; None where no log shows it."""
    if not bars:
        return None
    words = "; ".join(
        f"{bar_name(bar, bars)}: {', '.join(f'{name} {gib(size)}' for name, size in bar.parts.items())}"
        for bar in bars
    )
    return draw(
        "ledger", f"Memory by rank and trial, in {unit_of(bars)[0]}", words, lambda px: ledger_spec(bars, px)
    )


def over_time_drawing(trial: Trial) -> Drawing | None:
    """A trial's memory over its time; None where it was not watched."""
    samples = trial.samples
    if samples is None or len(samples.seconds) < 2:
        return None
    if samples.devices:
        peaks = ", ".join(
            f"device {n}: at most {gib(max(device.own_bytes, default=0))} of {gib(device.total_bytes)} held by this trial"
            for n, device in enumerate(samples.devices)
        )
    else:
        peaks = f"at most {gib(max(samples.rss_bytes, default=0))} resident"
    phases = ", ".join(f"{phase.stage} from {phase.start_seconds:.0f} s" for phase in trial.phases)
    words = f"Over {samples.seconds[-1]:.0f} s; {peaks}." + (f" Phases: {phases}." if phases else "")
    return draw(
        f"memory-{trial.n}",
        f"Memory of trial {trial.n} over its time",
        words,
        lambda px: over_time_spec(trial, samples, px),
    )


def load_drawings(curve: LoadCurve | None) -> list[Drawing]:
    """Latency and KV cache usage over requests at once."""
    if curve is None or not curve.points:
        return []
    first, last = curve.points[0], curve.points[-1]
    ends = [
        f"at {point.concurrency:,} at once {time_words(point.first_token_p50_seconds)}"
        for point in (first, last)
        if point.first_token_p50_seconds is not None
    ]
    words = f"First token, p50: {', '.join(ends)}." if ends else "No request was answered."
    found = [draw("latency", "Latency over requests at once", words, lambda px: latency_spec(curve, px))]
    if has_usage(curve):
        most = max(point.kv_cache_usage_fraction or 0 for point in curve.points)
        found.append(
            draw(
                "usage",
                "KV cache usage over requests at once",
                f"At most {most:.0%} of the KV cache was in use.",
                lambda px: usage_spec(curve, px),
            )
        )
    return found


def frontier_drawing(frontier: Frontier) -> Drawing | None:
    """Context against concurrency; None where it is not known."""
    points: list[FrontierPoint] = [point for point in frontier.points if any(point.concurrency.values())]
    if not points:
        return None
    words = f"{len(points)} settings. {chosen_words(frontier)}".strip()
    return draw(
        "frontier",
        "Requests at once over the length of one",
        words,
        lambda px: frontier_spec(points, frontier.chosen, px),
    )


def chosen_words(frontier: Frontier) -> str:
    """What the ring on the frontier is; empty where there is none."""
    if frontier.chosen is None:
        return ""
    length, at_once = frontier.chosen
    return f"The ring is what the run ended with: {at_once:,.2f} requests of {length:,} tokens at once."
