"""Fewer Mamba or linear-attention state blocks than ``max_num_seqs``.

Source: vLLM 0.20.0 to 0.33.0, ``config/compilation.py``: each decoding sequence needs one state block.
"""

from fitserve.diagnose.arithmetic import raise_utilization
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import avoid, change
from fitserve.memory.history import at_least
from fitserve.units import Quantity

CAUSE = "state-cache-too-small"
STAGE = "kv_cache"


def judge(situation: Situation) -> Finding:
    """Name the blocks and the sequences."""
    blocks, sequences = situation.number("mamba_blocks"), situation.number("max_num_seqs")
    kept = 1 if at_least(situation.version, "0.29.0") else 0
    to = max(blocks - kept, 1)
    why = f"one state block a sequence: {blocks:,} blocks" + (", one kept back" if kept else "")
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"max_num_seqs {sequences:,} is more than the {blocks:,} state blocks",
        event=situation.event,
        advice=[
            *change(situation, "max_num_seqs", to, "down", "capacity", why),
            *_larger_cache(situation, blocks, sequences),
        ],
        not_advised=[avoid("max_model_len", "down", "a state block is of one size whatever the context")],
    )


def _larger_cache(situation: Situation, blocks: int, sequences: int) -> list[Advice]:
    kept = situation.ledger.kv_cache_bytes
    if not isinstance(kept, Quantity) or blocks <= 0:
        return []
    missing = Quantity(
        low=kept.low * (sequences - blocks) // blocks,
        expected=kept.expected * (sequences - blocks) // blocks,
        high=kept.high * (sequences - blocks) // blocks,
        basis="computed",
        source=kept.source,
    )
    return raise_utilization(situation, missing)[0]
