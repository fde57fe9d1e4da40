"""The quantization method is not supported by this device, version or checkpoint.

Source: vLLM 0.2.0 to 0.33.0, ``_verify_quantization``, ``model_executor/layers/quantization``.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change, drop

CAUSE = "quantization-unsupported"
STAGE = "config"


def judge(situation: Situation) -> Finding:
    """Tell the device, the option and the checkpoint apart."""
    event = situation.event
    least, has = situation.number("min_capability"), situation.number("current_capability")
    if least is not None:
        message = (
            f"the quantization needs capability {least}, the device has {has if has is not None else 'less'}"
        )
    elif event.id == "quant-mismatch":
        message = (
            f"quantization {event.numbers['argument_quantization']} is asked for, "
            f"the checkpoint is {event.numbers['config_quantization']}"
        )
    else:
        method = str(situation.number("quantization") or situation.case.value("quantization") or "")
        method = method.partition(" [")[0].strip("`'\". ")[:60]
        message = (
            f"quantization {method} is not supported here"
            if method
            else "the quantization is not supported here"
        )
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=event,
        advice=_advice(situation, least),
        not_advised=[
            avoid("gpu_memory_utilization", None, "the method is not supported, whatever the memory")
        ],
    )


def _advice(situation: Situation, least: object) -> list[Advice]:
    name = situation.event.id
    without = drop(
        "drop-quantization-flag",
        "quantization",
        "vLLM reads the method from the checkpoint's own config",
        option="without --quantization",
    )
    other = act("other-quantization-or-gpu", "a checkpoint in a method that this device supports", "output")
    upgrade = act("upgrade-vllm", "later versions know more methods")
    if name in ("quant-mismatch", "quant-no-config", "quant-bnb-model", "quant-fp8-online-removed"):
        return [without, other]
    if least is not None or name in ("quant-platform", "quant-nvfp4-platform"):
        return [other]
    if name == "quant-dtype":
        return [
            *change(situation, "dtype", "half", "set", "output", "the method computes in float16 only"),
            other,
        ]
    if name == "kv-fp8-e5m2-checkpoint":
        return change(
            situation, "kv_cache_dtype", "fp8_e4m3", "set", "output", "the checkpoint is fp8 already"
        )
    return [without, other, upgrade] if situation.case.value("quantization") else [other, without, upgrade]
