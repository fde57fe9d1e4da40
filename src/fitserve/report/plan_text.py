"""A plan as text: the verdict, the ledger of the fullest rank, the cache, then help; a command stands alone on its line."""

from collections.abc import Iterator

import click

from fitserve.plan.values import Choice, FrontierPoint, KvPlan, Plan
from fitserve.units import Quantity, Size, Unknown, gib

_COLORS = {"starts": "green", "does-not-start": "red", "cannot-tell": "yellow"}
_VERDICTS = {
    "starts": "it starts",
    "does-not-start": "it does not start",
    "cannot-tell": "it cannot be told whether it starts",
}
_COSTS = {
    "free": "costs nothing",
    "capacity": "costs capacity",
    "speed": "costs speed",
    "hardware": "needs more hardware",
    "output": "may change answers",
}
_TERMS = (
    ("- weights", "weights_bytes"),
    ("- allocator", "allocator_bytes"),
    ("- activations", "activation_bytes"),
    ("- non-torch", "non_torch_bytes"),
    ("- graphs", "cuda_graph_bytes"),
    ("KV cache", "kv_cache_bytes"),
)
_SHOWN = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "kv_cache_dtype")


def render_plan(plan: Plan, *, colored: bool = False) -> str:
    """The plan as a person reads it.

    Args:
        plan: any plan.
        colored: with the colours of a terminal.
    """
    return "\n".join(_lines(plan, colored=colored)) + "\n"


def _lines(plan: Plan, *, colored: bool) -> Iterator[str]:
    head = f"plan[{plan.cause or plan.verdict}]"
    if colored:
        head = click.style(head, fg=_COLORS[plan.verdict], bold=True)
    yield f"{head}: {_VERDICTS[plan.verdict]}: {plan.message}"
    yield f"  --> {plan.model} on {plan.device}, vLLM {plan.vllm_version}"
    yield "  |"
    yield from _ledger(plan)
    yield from _cache(plan)
    yield f"  = {plan.confidence}" + (
        f", wrong about {plan.risk:.0%} of the time" if plan.confidence == "likely" else ""
    )
    yield from _settings(plan)
    if plan.meets_goal is not None:
        yield f"  = the goal is {'met' if plan.meets_goal else 'not met'}"
    yield from (f"note: {note}" for note in plan.notes)
    for choice in plan.choices:
        yield ""
        yield from _help(choice)
    if not plan.choices:
        yield from _actions(plan)
    if plan.frontier:
        yield ""
        yield from _frontier(plan.frontier)


def _ledger(plan: Plan) -> Iterator[str]:
    ranks = [rank for rank in plan.budget if isinstance(rank.kv_cache_bytes, Quantity)]
    if not plan.budget:
        return
    rank = min(ranks, key=lambda one: getattr(one.kv_cache_bytes, "expected", 0)) if ranks else plan.budget[0]
    share = plan.settings["gpu_memory_utilization"].value
    yield f"  = {'requested':<14}{gib(rank.requested_bytes):>12}   {gib(rank.total_bytes)} x {share:g}"
    for label, name in _TERMS:
        yield f"  = {label:<14}{_size(getattr(rank, name))}"
    if len(plan.budget) > 1:
        yield f"  = the fullest of {len(plan.budget)} ranks, rank {rank.rank}"


def _size(size: Size) -> str:
    if isinstance(size, Unknown):
        return f"{'unknown':>12}   {size.unknown}"
    spread = "" if size.low == size.high else f"{gib(size.low).removesuffix(' GiB')} to {gib(size.high)}; "
    return f"{gib(size.expected):>12}   {spread}{size.basis}: {size.source}"


def _cache(plan: Plan) -> Iterator[str]:
    cache = plan.kv_cache
    if isinstance(cache, KvPlan):
        yield f"  = {'cache':<14}{_count(cache.tokens)} tokens, {_count(cache.num_blocks)} blocks of {cache.block_size}"
        yield f"  = {'a token':<14}{cache.bytes_per_token:,} bytes"
        length = f"{plan.settings['max_model_len'].value:,} tokens"
        fitting = (
            f"{cache.max_concurrency:.2f} requests of" if cache.max_concurrency else "not one request of"
        )
        yield f"  = {'at once':<14}{fitting} {length}"
    longest = plan.max_model_len_that_fits
    if isinstance(longest, Quantity):
        yield f"  = {'longest':<14}{_count(longest)} tokens"


def _count(size: Size) -> str:
    if isinstance(size, Unknown):
        return size.unknown
    if size.low == size.high:
        return f"{size.expected:,}"
    return f"{size.expected:,} ({size.low:,} to {size.high:,})"


def _settings(plan: Plan) -> Iterator[str]:
    for name in _SHOWN:
        setting = plan.settings[name]
        value = f"{setting.value:,}" if isinstance(setting.value, int) else setting.value
        yield f"  = {name} {value}  ({setting.source})"


def _help(choice: Choice) -> Iterator[str]:
    changes = ", ".join(f"{name} {value}" for name, value in choice.changes.items()) or "as it is"
    yield f"help: {changes}; {_COSTS[choice.cost]}"
    yield f"      {choice.tokens:,} tokens, {choice.max_concurrency:.2f} requests of {choice.max_model_len:,} at once"
    yield f"    {choice.command}"


def _actions(plan: Plan) -> Iterator[str]:
    for advice in plan.advice:
        yield ""
        yield f"help: {advice.action or advice.option}; {advice.why}"


def _frontier(points: list[FrontierPoint]) -> Iterator[str]:
    lengths = list(dict.fromkeys(length for point in points for length in point.concurrency))
    yield "requests at once by context" + (" (- where one does not fit)" if lengths else "")
    yield f"{'cache':<10}{'tp':>3}{'share':>7}{'graphs':>8}" + "".join(
        f"{int(length):>12,}" for length in lengths
    )
    for point in points:
        cells = "".join(f"{point.concurrency.get(length, '-'):>12}" for length in lengths)
        graphs = "no" if point.enforce_eager else "yes"
        yield f"{point.kv_cache_dtype:<10}{point.tensor_parallel_size:>3}{point.gpu_memory_utilization:>7g}{graphs:>8}{cells}"
