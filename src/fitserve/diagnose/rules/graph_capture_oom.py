"""Out of memory while CUDA graphs are captured.

Source: vLLM 0.2.6 to 0.33.0, ``capture_model``: graphs come out of what the utilization leaves; only from 0.20.0 on is
an estimate of them kept free.
"""

from fitserve.diagnose.arithmetic import bytes_of, lower_utilization, utilization
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.diagnose.usage import foreign_bytes, sentence
from fitserve.facts.ledger import quantity
from fitserve.memory.history import default_utilization
from fitserve.units import GIB, Quantity, gib

CAUSE = "graph-capture-oom"
STAGE = "graph_capture"


def judge(situation: Situation) -> Finding:
    """Name what was asked for, and leave the graphs more room or make them fewer."""
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=sentence(situation.event, "CUDA graphs are captured"),
        event=situation.event,
        numbers=_cache(situation),
        advice=[*_foreign(situation), *_more_room(situation), *_fewer_graphs(situation)],
        not_advised=[
            avoid("gpu_memory_utilization", "up", "the cache would take still more of what the graphs need")
        ],
    )


def _cache(situation: Situation) -> dict[str, object]:
    found: dict[str, object] = {}
    if shown := situation.boot.last("kv-blocks", "kv-blocks-device"):
        found["gpu_blocks"] = shown.numbers["gpu_blocks"]
    if shown := situation.boot.last("kv-tokens", "kv-tokens-concurrency"):
        found["kv_tokens"] = shown.numbers["kv_tokens"]
    return found


def _foreign(situation: Situation) -> list[Advice]:
    held = foreign_bytes(situation.event)
    return [act("free-other-process", f"other processes hold {gib(held)} of this device")] if held else []


def _more_room(situation: Situation) -> list[Advice]:
    """A lower share: by the estimate that vLLM printed, else by what graphs usually take (1 to 3 GiB by vLLM's own word)."""
    now = utilization(situation)
    usual = default_utilization(situation.version)
    shown = situation.boot.last("graph-estimate")
    estimate = quantity(shown, "graph_estimate_gib") if shown else None
    if now > usual + 0.005:
        why = f"{usual:g} is the default; at {now:g} the graphs find no room beside the cache"
        return change(situation, "gpu_memory_utilization", usual, "down", "capacity", why)
    needed = estimate or Quantity(
        low=GIB, expected=GIB, high=GIB, basis="estimated", source="vLLM's hint: 1~3 GiB"
    )
    why = f"leaves {gib(needed.expected)} more for the graphs, out of the KV cache"
    return lower_utilization(situation, needed, why)


def _fewer_graphs(situation: Situation) -> list[Advice]:
    sequences = situation.case.whole("max_num_seqs") or 256
    largest = situation.case.whole("max_cudagraph_capture_size") or min(2 * sequences, 512)
    smaller = max(largest // 4, 8)
    asked = bytes_of(situation, "tried_to_allocate_gib")
    why = f"fewer and smaller graphs than up to {largest}" + (
        f"; {gib(asked.expected)} was missing" if asked else ""
    )
    return [
        *change(situation, "max_cudagraph_capture_size", smaller, "down", "speed", why),
        *change(
            situation,
            "max_num_seqs",
            max(sequences // 2, 1),
            "down",
            "capacity",
            "graphs are captured up to it",
        ),
        *change(situation, "enforce_eager", True, "set", "speed", "no graphs at all"),
    ]
