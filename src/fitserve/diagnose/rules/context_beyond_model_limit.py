"""``max_model_len`` is above what the checkpoint's config allows.

Source: vLLM 0.2.0 to 0.33.0, ``_get_and_verify_max_len``.
"""

import json
import re

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change
from fitserve.memory.history import has_flag

CAUSE = "context-beyond-model-limit"
STAGE = "config"
_LIMIT = re.compile(r"=(\d{1,12}) (?:or|in)|=(\d{1,12})\b")


def judge(situation: Situation) -> Finding:
    """Name both lengths."""
    asked, allowed = situation.number("max_model_len"), _allowed(situation)
    numbers: dict[str, object] = {}
    if allowed:
        numbers["derived_max_model_len"] = allowed
        message = f"max_model_len {asked:,} is above the {allowed:,} of the checkpoint's config"
    else:
        message = f"max_model_len {asked} is above what the checkpoint's config allows"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        numbers=numbers,
        advice=_advice(situation, asked, allowed),
        not_advised=[
            avoid(
                "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
                "set",
                "positions beyond the trained ones give wrong output or errors",
            ),
            avoid("gpu_memory_utilization", None, "the limit is the model's, not the memory's"),
        ],
    )


def _allowed(situation: Situation) -> int | None:
    text = str(situation.number("derived_max_model_len") or "")
    if text.isdigit():
        return int(text)
    found = _LIMIT.search("=" + text)
    digits = (found[1] or found[2]) if found else None
    return int(digits) if digits else None


def _advice(situation: Situation, asked: object, allowed: int | None) -> list[Advice]:
    found: list[Advice] = []
    if allowed:
        found += change(
            situation, "max_model_len", allowed, "down", "capacity", "the length that the model was made for"
        )
    if allowed and isinstance(asked, int) and asked > allowed:
        factor = float(-(-asked // allowed))
        scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": allowed}
        ratio = f"{asked:,} / {allowed:,} is {asked / allowed:.2f}"
        why = f"only where the model's card documents it: {ratio}; answers may change"
        if has_flag("rope_scaling", situation.version):
            found += change(situation, "rope_scaling", json.dumps(scaling), "set", "output", why)
        else:
            overrides = json.dumps({"rope_scaling": scaling})
            found += change(situation, "hf_overrides", overrides, "set", "output", why)
    return found
