"""Out of memory in the encoder's dummy pass over images, video or audio.

Source: vLLM 0.6.0 to 0.33.0, ``profile_run``: the largest item of each modality that a prompt may hold goes through the
encoder; ``--skip-mm-profiling`` is 0.10.1 and later.
"""

import json

from fitserve.diagnose.finding import Advice, Scalar
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change
from fitserve.diagnose.usage import sentence
from fitserve.memory.history import at_least

CAUSE = "multimodal-profile-oom"
STAGE = "profiling"
_PIXELS = 1_003_520


def judge(situation: Situation) -> Finding:
    """Name the modality, and give the encoder less."""
    shown = situation.boot.last("encoder-budget")
    modality = str(shown.numbers["modality"]) if shown else "multimodal"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=sentence(situation.event, f"the encoder profiles the largest {modality} item"),
        event=situation.event,
        support=[shown] if shown else [],
        advice=_less_for_the_encoder(situation, modality),
        not_advised=[
            avoid("max_model_len", "down", "the encoder's item has its own size; the context plays no part"),
            avoid("max_model_len", "up", "the warning before it is about prompts, not about this pass"),
            avoid("enforce_eager", "set", "no CUDA graph exists yet"),
            avoid("gpu_memory_utilization", "up", "the pass already has the whole device"),
        ],
    )


def _less_for_the_encoder(situation: Situation, modality: str) -> list[Advice]:
    """Smaller items first where images are meant; a modality that nobody sends can be left out."""
    pixels = f"an item of at most {_PIXELS:,} pixels instead of the largest that the processor allows"
    kwargs = json.dumps({"max_pixels": _PIXELS})
    smaller = change(situation, "mm_processor_kwargs", kwargs, "set", "capacity", pixels)
    none = change(
        situation,
        "limit_mm_per_prompt",
        _limit(situation, modality),
        "set",
        "capacity",
        f"where prompts hold no {modality}, its pass is left out",
    )
    skip = change(
        situation,
        "skip_mm_profiling",
        True,
        "set",
        "capacity",
        "the pass is left out; the encoder's memory must then fit beside the cache",
    )
    return [*none, *smaller, *skip] if modality in ("video", "audio") else [*smaller, *none, *skip]


def _limit(situation: Situation, modality: str) -> Scalar:
    """The option's value: JSON from 0.8.5 on, ``image=0`` before."""
    name = modality if modality in ("image", "video", "audio") else "image"
    return json.dumps({name: 0}) if at_least(situation.version, "0.8.5") else f"{name}=0"
