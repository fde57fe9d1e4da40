"""Out of memory in the dummy forward pass.

Source: vLLM 0.2.0 to 0.33.0, ``profile_run``: ``max_num_batched_tokens`` tokens go through the model at once, so the
activations grow with it; without chunked prefill it is at least ``max_model_len``.
"""

from fitserve.diagnose.arithmetic import bytes_of
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.diagnose.usage import foreign_bytes, sentence
from fitserve.memory.history import at_least, default_batch
from fitserve.units import gib

CAUSE = "profile-run-oom"
STAGE = "profiling"
_SMALLEST = 512


def judge(situation: Situation) -> Finding:
    """Name what was asked for, and make the batch smaller."""
    batch = batch_tokens(situation)
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=sentence(situation.event, f"profiling a batch of {batch:,} tokens"),
        event=situation.event,
        numbers={"max_num_batched_tokens": batch},
        advice=[*_foreign(situation), *_smaller_batch(situation, batch), *_spread(situation)],
        not_advised=[
            avoid(
                "gpu_memory_utilization",
                "up",
                "the pass already has the whole device; the share is computed after it",
            ),
            avoid(
                "gpu_memory_utilization",
                "down",
                "the pass already has the whole device; the share is computed after it",
            ),
            avoid("enforce_eager", "set", "no CUDA graph exists yet"),
        ],
    )


def batch_tokens(situation: Situation) -> int:
    """The tokens of the profile run: as printed or given, else the default of that version."""
    given = situation.case.whole("max_num_batched_tokens")
    if given:
        return given
    length = situation.case.whole("max_model_len") or 0
    if situation.case.engine == "V0" or not at_least(situation.version, "0.8.0"):
        return max(length, 2048)
    total = bytes_of(situation, "gpu_total_gib")
    return default_batch(situation.version, total.expected if total else None).max_num_batched_tokens


def _foreign(situation: Situation) -> list[Advice]:
    held = foreign_bytes(situation.event)
    return [act("free-other-process", f"other processes hold {gib(held)} of this device")] if held else []


def _smaller_batch(situation: Situation, batch: int) -> list[Advice]:
    """Half the batch, or a quarter where what is missing asks for it; in V0 chunked prefill must allow it."""
    asked, free = bytes_of(situation, "tried_to_allocate_gib"), bytes_of(situation, "gpu_free_gib")
    parts = 2
    while asked and free and asked.expected / parts > free.expected and batch // (parts * 2) >= _SMALLEST:
        parts *= 2
    to = max(batch // parts, _SMALLEST)
    why = "the activations of the profile run grow with the batch"
    if asked and free:
        why += f"; {gib(asked.expected)} / {batch // to} asked then, {gib(free.expected)} free"
    found: list[Advice] = []
    length = situation.case.whole("max_model_len")
    if needs_chunks(situation, batch):
        reason = "without it a batch must hold max_model_len tokens"
        found += change(situation, "enable_chunked_prefill", True, "set", "speed", reason)
    if to < batch:
        found += change(situation, "max_num_batched_tokens", to, "down", "speed", why)
    if needs_chunks(situation, batch) and length:
        found += change(situation, "max_model_len", max(length // parts, _SMALLEST), "down", "capacity", why)
    sequences = situation.case.whole("max_num_seqs")
    if sequences and sequences > 8:
        reason = "the sampler's logits grow with the sequences"
        found += change(situation, "max_num_seqs", sequences // 2, "down", "capacity", reason)
    return found


def needs_chunks(situation: Situation, batch: int) -> bool:
    """True for V0 without chunked prefill, where a batch can be no smaller than the context."""
    is_v0 = situation.case.engine == "V0" or not at_least(situation.version, "0.8.0")
    length = situation.case.whole("max_model_len") or 0
    return is_v0 and not situation.boot.seen("chunked-prefill") and batch >= length


def _spread(situation: Situation) -> list[Advice]:
    ranks = situation.case.whole("tensor_parallel_size") or 1
    why = f"each of {ranks * 2} devices holds half of the weights"
    return change(situation, "tensor_parallel_size", ranks * 2, "up", "hardware", why)
