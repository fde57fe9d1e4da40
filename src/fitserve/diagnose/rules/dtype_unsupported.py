"""bfloat16 or fp8 on a device that cannot do it.

Source: vLLM 0.2.0 to 0.33.0, ``check_if_supports_dtype``; Triton for fp8 kernels.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "dtype-unsupported"
STAGE = "config"


def judge(situation: Situation) -> Finding:
    """Name the device's capability and the one needed."""
    has, needs = _clean(situation.number("compute_capability")), _clean(situation.number("needed"))
    gpu = situation.number("gpu")
    if situation.event.id.startswith("bf16"):
        on_what = f" {gpu}" if gpu else ""
        message = (
            f"bfloat16 needs compute capability {needs or '8.0'}, the{on_what} device has {has or 'less'}"
        )
    elif situation.event.id == "dtype-of-model":
        message = (
            f"{situation.number('model_type')} cannot be computed in {_clean(situation.number('dtype'))}"
        )
    else:
        message = "the device or this version cannot compute in that dtype"
    numbers = {name: value for name, value in (("compute_capability", has), ("needed", needs)) if value}
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        numbers=numbers,
        advice=_advice(situation),
        not_advised=[
            avoid(
                "gpu_memory_utilization", None, "the device cannot compute in that dtype, whatever the memory"
            )
        ],
    )


def _clean(value: object) -> str:
    return str(value).rstrip(".,") if value is not None else ""


def _advice(situation: Situation) -> list[Advice]:
    if "fp8" in situation.event.id or "kv" in situation.event.id:
        return [
            *change(
                situation, "kv_cache_dtype", "auto", "set", "capacity", "the cache then has the model's dtype"
            ),
            act("other-quantization-or-gpu", "fp8 kernels need compute capability 8.9", "hardware"),
        ]
    if situation.event.id == "dtype-of-model":
        return change(situation, "dtype", "bfloat16", "set", "output", "the model's numbers need its range")
    return change(situation, "dtype", "half", "set", "output", "float16 is computed by every device")
