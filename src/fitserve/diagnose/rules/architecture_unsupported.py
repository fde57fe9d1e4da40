"""This vLLM does not know the model.

Source: vLLM 0.2.0 to 0.33.0, ``model_executor/models/registry.py``; transformers for its own model types.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "architecture-unsupported"
STAGE = "config"


def judge(situation: Situation) -> Finding:
    """Name the architecture and the version."""
    what = situation.number("architectures") or situation.number("model_type") or "the model"
    shown = str(what).strip("[]'\"` ").split(",")[0].strip("'\"` ")
    release = f"vLLM {situation.version}" if situation.version else "this vLLM"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{release} does not know {shown[:80]}",
        event=situation.event,
        advice=_advice(situation),
        not_advised=[avoid("gpu_memory_utilization", None, "the model is not known, whatever the memory")],
    )


def _advice(situation: Situation) -> list[Advice]:
    upgrade = act("upgrade-vllm", "the model is newer than this release")
    transformers = act("upgrade-transformers", "the model type is newer than the installed transformers")
    if situation.event.id == "arch-retired":
        return [act("older-image", "an earlier release still had it")]
    if situation.event.id.startswith(("arch-model-type", "arch-key-error", "arch-gguf")):
        return [transformers, upgrade]
    return [upgrade, transformers]
