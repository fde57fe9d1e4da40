"""A plan as text: the verdict, the ledger of the fullest rank, the cache, then help; a command stands alone on its line."""

from collections.abc import Iterator

import click

from fitserve.plan.values import Choice, FrontierPoint, KvPlan, Nearest, Plan
from fitserve.units import GIB, Quantity, Size, Unknown, gib

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
    "hardware": "needs more devices",
    "output": "may change answers",
}
_ACTIONS = {
    "smaller-or-quantized-model": "a smaller or a quantised model",
    "free-other-process": "end what else uses the device",
    "upgrade-vllm": "a newer vLLM",
    "older-image": "an older vLLM",
}
_HOST_BYTES_A_SECOND = 25e9
"""What PCIe 4.0 x16 carries in practice, of 31.5 GB/s."""

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
    yield f"  --> {plan.model} on {_devices(plan)}, vLLM {plan.vllm_version}"
    yield f"  = {_sureness(plan)}"
    yield from _goal(plan)
    yield "  |"
    if isinstance(plan.kv_cache, KvPlan) or plan.confidence != "certain":
        yield from _ledger(plan)
        yield from _cache(plan)
        yield "  |"
    yield from _settings(plan)
    yield from (f"note: {note}" for note in plan.notes)
    for choice in plan.choices:
        yield ""
        yield from _help(choice, "help")
    if not plan.choices:
        yield from _actions(plan)
    if plan.nearest is not None:
        yield from _nearest(plan, plan.nearest)
    if plan.frontier:
        yield ""
        yield from _frontier(plan.frontier)


def _devices(plan: Plan) -> str:
    count = len(plan.budget)
    return plan.device if count < 2 else f"{count} x {plan.device}"


def _sureness(plan: Plan) -> str:
    if plan.confidence == "likely":
        return f"likely: about {plan.risk:.0%} of such answers are wrong"
    if plan.confidence == "certain":
        return "certain: no estimate decides it"
    return "open: what is known leaves both answers possible"


def _goal(plan: Plan) -> Iterator[str]:
    if plan.meets_goal is None:
        return
    context, concurrency = plan.goal.context, plan.goal.concurrency
    what = "1 request" if concurrency in (None, 1) else f"{concurrency:,} requests at once"
    length = "" if context is None else f" of {context:,} tokens"
    yield f"  = the goal, {what}{length}, is {'met' if plan.meets_goal else 'not met'} by these settings"


def _ledger(plan: Plan) -> Iterator[str]:
    ranks = [rank for rank in plan.budget if isinstance(rank.kv_cache_bytes, Quantity)]
    if not plan.budget:
        return
    rank = min(ranks, key=lambda one: getattr(one.kv_cache_bytes, "expected", 0)) if ranks else plan.budget[0]
    share = plan.settings["gpu_memory_utilization"].value
    used = rank.used_before_bytes
    if isinstance(used, Quantity) and used.high:
        free = (
            f"{gib(rank.total_bytes - used.high).removesuffix(' GiB')} to {gib(rank.total_bytes - used.low)}"
        )
        free = "" if used.low == used.high else f"{free}; "
        yield f"  = {'free before':<14}{gib(rank.total_bytes - used.expected):>12}   {free}of {gib(rank.total_bytes)}"
    yield f"  = {'requested':<14}{gib(rank.requested_bytes):>12}   {gib(rank.total_bytes)} x {share:g}"
    for label, name in _TERMS:
        yield f"  = {label:<14}{_size(getattr(rank, name), plan.model)}"
    if len(plan.budget) > 1:
        yield f"  = of each device; the fullest of {len(plan.budget)} ranks, rank {rank.rank}"


def _size(size: Size, model: str) -> str:
    if isinstance(size, Unknown):
        return f"{'unknown':>12}   {size.unknown}"
    spread = "" if size.low == size.high else f"{gib(size.low).removesuffix(' GiB')} to {gib(size.high)}; "
    return f"{gib(size.expected):>12}   {spread}{size.basis}: {_without(model, size.source)}"


def _without(model: str, source: str) -> str:
    """A source without the folder of the model, which stands at the top."""
    return source.replace(f"{model.rstrip('/')}/", "")


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
        yield f"  = {'longest':<14}" + (
            f"{_count(longest)} tokens of one request" if longest.high else "none: no context fits"
        )


def _count(size: Size) -> str:
    if isinstance(size, Unknown):
        return size.unknown
    if size.low == size.high:
        return f"{size.expected:,}"
    return f"{size.expected:,} ({size.low:,} to {size.high:,})"


def _settings(plan: Plan) -> Iterator[str]:
    for name in _SHOWN:
        setting = plan.settings[name]
        yield f"  = {name} {_value(setting.value)}  ({_without(plan.model, setting.source)})"


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _help(choice: Choice, label: str) -> Iterator[str]:
    changes = ", ".join(f"{name} {_value(value)}" for name, value in choice.changes.items())
    yield f"{label}: {changes or 'as it is'}; {_COSTS[choice.cost]}"
    yield f"      {choice.tokens:,} tokens of KV cache, {choice.max_concurrency:.2f} requests of {choice.max_model_len:,} tokens at once"
    offload = choice.changes.get("cpu_offload_gb")
    if isinstance(offload, int | float) and offload > 0:
        yield f"      each step reads up to {offload:g} GiB from the host: about {offload * GIB / _HOST_BYTES_A_SECOND:.1f} s over PCIe 4.0 x16"
    yield f"    {choice.command}"


def _actions(plan: Plan) -> Iterator[str]:
    for advice in plan.advice:
        yield ""
        action = advice.action or ""
        what = _ACTIONS.get(action) or advice.option or action.replace("-", " ")
        yield f"help: {what}; {advice.why}"


def _nearest(plan: Plan, nearest: Nearest) -> Iterator[str]:
    wanted = max(1, plan.goal.concurrency or 1)
    length = plan.goal.context or plan.settings["max_model_len"].value
    at_once = "one request" if wanted == 1 else f"{wanted:,} requests at once"
    yield ""
    if nearest.longest is None and nearest.most is None:
        yield "nearest: nothing starts on what is there"
        return
    if nearest.longest is not None:
        yield from _help(nearest.longest, f"nearest, the longest context of {at_once}")
    if nearest.most is not None and nearest.most.command != getattr(nearest.longest, "command", None):
        yield ""
        yield from _help(nearest.most, f"nearest, the most requests of {length:,} tokens")
    elif nearest.most is None:
        yield f"      not one request of {length:,} tokens fits on what is there"


def _frontier(points: list[FrontierPoint]) -> Iterator[str]:
    lengths = list(dict.fromkeys(length for point in points for length in point.concurrency))
    lengths.sort(key=int)
    yield "requests at once by context" + (" (- where one does not fit)" if lengths else "")
    yield f"{'cache':<10}{'tp':>3}{'share':>7}{'graphs':>8}" + "".join(
        f"{int(length):>12,}" for length in lengths
    )
    for point in points:
        cells = "".join(f"{_cell(point.concurrency.get(length)):>12}" for length in lengths)
        graphs = "no" if point.enforce_eager else "yes"
        cause = f"   {'perhaps ' if point.concurrency else ''}{point.cause}" if point.cause else ""
        yield f"{point.kv_cache_dtype:<10}{point.tensor_parallel_size:>3}{point.gpu_memory_utilization:>7g}{graphs:>8}{cells}{cause}"


def _cell(at_once: float | None) -> str:
    return "-" if not at_once else f"{at_once:,.2f}"
