"""Out of memory after the server was ready.

Source: vLLM 0.2.0 to 0.33.0, ``execute_model``: what a real batch needs beyond the profile run (penalties, logprobs,
guided decoding, larger items) comes out of what the utilization leaves.
"""

from fitserve.diagnose.arithmetic import bytes_of, lower_utilization, utilization
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.rules.profile_run_oom import batch_tokens
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.diagnose.usage import foreign_bytes, sentence
from fitserve.memory.history import default_utilization
from fitserve.units import gib

CAUSE = "serving-oom"
STAGE = "serving"


def judge(situation: Situation) -> Finding:
    """Name what was asked for, and leave more beside the cache."""
    held = foreign_bytes(situation.event)
    foreign = [act("free-other-process", f"other processes hold {gib(held)} of this device")] if held else []
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=sentence(situation.event, "requests are served"),
        event=situation.event,
        advice=[*foreign, *_more_room(situation), *_smaller_batches(situation)],
        not_advised=[
            avoid("gpu_memory_utilization", "up", "the cache would take still more of what a batch needs"),
            avoid("max_model_len", "down", "the cache keeps its size; a batch is what grew"),
        ],
    )


def _more_room(situation: Situation) -> list[Advice]:
    now, usual = utilization(situation), default_utilization(situation.version)
    asked = bytes_of(situation, "tried_to_allocate_gib")
    if now > usual + 0.005 or asked is None:
        to = usual if now > usual + 0.005 else round(now - 0.05, 2)
        why = f"at {now:g} too little is left beside the KV cache"
        return change(situation, "gpu_memory_utilization", to, "down", "capacity", why)
    return lower_utilization(
        situation, asked, f"leaves the {gib(asked.expected)} that was asked for beside the KV cache"
    )


def _smaller_batches(situation: Situation) -> list[Advice]:
    batch = batch_tokens(situation)
    sequences = situation.case.whole("max_num_seqs") or 256
    found: list[Advice] = []
    if batch > 1024:
        found += change(
            situation,
            "max_num_batched_tokens",
            batch // 2,
            "down",
            "speed",
            "a batch of half the tokens needs half",
        )
    why = "logits and sampling state grow with the sequences of a batch"
    return [*found, *change(situation, "max_num_seqs", max(sequences // 2, 1), "down", "capacity", why)]
