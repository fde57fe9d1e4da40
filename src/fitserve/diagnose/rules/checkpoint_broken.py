"""Missing, truncated or mismatching weight files.

Source: safetensors, PyTorch and huggingface_hub print these; vLLM ``model_loader/weight_utils.py``.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "checkpoint-broken"
STAGE = "weights"
_NAMES = (
    "checkpoint-shape",
    "checkpoint-size",
    "checkpoint-no-module",
    "checkpoint-not-init",
    "checkpoint-key",
)
_ABSENT = ("model-weights-none", "model-weights-none-safetensors", "model-weights-not-found")


def judge(situation: Situation) -> Finding:
    """Tell damaged files from weights that do not fit the model's code."""
    event = situation.event
    rank = f" on rank {event.line.rank}" if event.line.rank else ""
    reason = situation.number("reason")
    if event.id in _ABSENT:
        message = "the folder holds no weights that vLLM reads"
    elif event.id.startswith(_NAMES):
        message = "the weights do not fit the model's parameters"
    else:
        message = f"a weight file cannot be read{rank}" + (f": {str(reason)[:100]}" if reason else "")
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=event,
        advice=_advice(event.id),
        not_advised=[avoid("gpu_memory_utilization", None, "the files are at fault, whatever the memory")],
    )


def _advice(message_id: str) -> list[Advice]:
    again = act(
        "re-download-weights", "the files are incomplete or damaged; compare sizes and hashes with the hub"
    )
    path = act("check-model-path", "the folder must hold safetensors or bin files beside the config")
    if message_id in _ABSENT:
        return [path, again]
    if message_id.startswith(_NAMES):
        return [
            again,
            act("upgrade-vllm", "later versions know more names of parameters"),
            act("drop-quantization-flag", "a wrong method looks for other names"),
        ]
    return [again, path]
