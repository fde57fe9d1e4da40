"""Out of memory while the model is built or its weights are loaded or repacked.

Source: vLLM 0.2.0 to 0.33.0, ``load_model``; the sentence "Failed to load model - not enough GPU memory" is 0.13.0 and
later. Its advice to lower the utilization is wrong: weights are loaded before any share is computed.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.diagnose.usage import foreign_bytes, sentence
from fitserve.units import gib

CAUSE = "weights-do-not-fit"
STAGE = "weights"


def judge(situation: Situation) -> Finding:
    """Name what was asked for, and spread or shrink the weights."""
    oom = next(
        (
            hit
            for hit in situation.boot.hits
            if hit.event.id in ("torch-oom", "torch-oom-capacty", "torch-oom-old")
        ),
        None,
    )
    shown = situation if oom is None else Situation(boot=situation.boot, case=situation.case, hit=oom)
    numbers = {name: value for name, value in shown.event.numbers.items() if name.endswith("_gib")}
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=sentence(shown.event, "the weights are loaded"),
        event=situation.event,
        support=[shown.event] if shown is not situation else [],
        numbers=numbers,
        advice=[*_foreign(shown), *_spread(situation)],
        not_advised=[
            avoid(
                "gpu_memory_utilization",
                "down",
                "weights are loaded before the share is computed; it frees nothing",
            ),
            avoid(
                "gpu_memory_utilization",
                "up",
                "weights are loaded before the share is computed; it adds nothing",
            ),
            avoid("max_model_len", "down", "the KV cache does not exist yet"),
            avoid("enforce_eager", "set", "no CUDA graph exists yet"),
        ],
    )


def _foreign(situation: Situation) -> list[Advice]:
    held = foreign_bytes(situation.event)
    return [act("free-other-process", f"other processes hold {gib(held)} of this device")] if held else []


def _spread(situation: Situation) -> list[Advice]:
    ranks = situation.case.whole("tensor_parallel_size") or 1
    why = f"each of {ranks * 2} devices holds half of what it holds now"
    return [
        *change(situation, "tensor_parallel_size", ranks * 2, "up", "hardware", why),
        act("smaller-or-quantized-model", "the weights alone are more than the device", "output"),
    ]
