"""``max_num_batched_tokens`` is smaller than ``max_model_len``, than ``max_num_seqs`` or than one multimodal item.

Source: vLLM 0.2.0 to 0.33.0, ``SchedulerConfig``; 0.8.4 and later for multimodal items.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change

CAUSE = "batched-tokens-below-context"
STAGE = "config"


def judge(situation: Situation) -> Finding:
    """Name both numbers, and move one of them."""
    batch = situation.number("max_num_batched_tokens") or situation.case.whole("max_num_batched_tokens")
    name, value = _bound(situation)
    if value is None or batch is None:
        message = "max_num_batched_tokens is too small for what a step must hold"
    else:
        message = f"max_num_batched_tokens {batch:,} is below {name} {value:,}"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=_advice(situation, batch, name, value),
        not_advised=[
            avoid("gpu_memory_utilization", None, "the numbers contradict each other, whatever the memory")
        ],
    )


def _bound(situation: Situation) -> tuple[str, int | None]:
    for name in ("max_tokens_per_mm_item", "max_num_seqs", "max_model_len"):
        if (value := situation.number(name)) is not None:
            return name, int(value)
    return "max_model_len", situation.case.whole("max_model_len")


def _advice(situation: Situation, batch: int | None, name: str, value: int | None) -> list[Advice]:
    if value is None or batch is None:
        to = (batch or 2048) * 2
        return change(situation, "max_num_batched_tokens", to, "up", "capacity", "a step must hold more")
    raised = change(
        situation,
        "max_num_batched_tokens",
        value,
        "up",
        "capacity",
        f"as many as {name}; activations grow with it",
    )
    if name == "max_num_seqs":
        return [
            *raised,
            *change(situation, name, batch, "down", "capacity", "no more sequences than tokens in a step"),
        ]
    if name == "max_model_len":
        chunks = change(
            situation, "enable_chunked_prefill", True, "set", "free", "a prompt may then take several steps"
        )
        lowered = change(situation, name, batch, "down", "capacity", "no prompt longer than a step")
        return [*chunks, *raised, *lowered]
    return raised
