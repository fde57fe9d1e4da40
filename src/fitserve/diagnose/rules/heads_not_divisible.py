"""Attention heads, layers, vocabulary or experts cannot be split over the ranks.

Source: vLLM 0.2.0 to 0.33.0, ``verify_with_parallel_config``, ``distributed/utils.py``, quantized linear layers.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change

CAUSE = "heads-not-divisible"
STAGE = "config"
_WHAT = {
    "attention_heads": "attention heads",
    "hidden_layers": "layers",
    "vocab_size": "vocabulary entries",
    "numerator": "units",
}


def judge(situation: Situation) -> Finding:
    """Name what is to be split, and a number of ranks that splits it."""
    name, count = next(
        ((key, situation.number(key)) for key in _WHAT if situation.number(key) is not None), ("", None)
    )
    flag = "pipeline_parallel_size" if name == "hidden_layers" else "tensor_parallel_size"
    ranks = situation.number(flag) or situation.number("denominator") or situation.case.whole(flag)
    if count is not None and ranks:
        message = f"{count:,} {_WHAT[name]} cannot be split over {ranks} ranks"
    else:
        message = "a dimension of the model cannot be split over the ranks"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=_advice(situation, flag, count, ranks),
        not_advised=[avoid("gpu_memory_utilization", None, "a shape cannot be split, whatever the memory")],
    )


def _advice(situation: Situation, flag: str, count: int | None, ranks: int | None) -> list[Advice]:
    """The largest smaller number that divides, a power of two where one does; else half the ranks."""
    if not ranks or ranks < 2:
        return []
    power = 1 << ((ranks - 1).bit_length() - 1)
    if count is not None:
        smaller = [power >> shift for shift in range(power.bit_length()) if count % (power >> shift) == 0]
        to, why = smaller[0], f"{count:,} = {smaller[0]} x {count // smaller[0]:,}"
    else:
        to, why = power, "each rank then holds a larger and rounder share"
    return change(situation, flag, to, "down", "hardware", why)
