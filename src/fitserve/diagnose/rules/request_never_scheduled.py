"""An accepted request waits for ever while the engine is idle or stalled.

Source: the statistics lines of vLLM 0.2.0 to 0.33.0: nothing runs, something waits, no token comes, window after window.
"""

from fitserve.diagnose.boot import Boot
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.facts.messages.event import Event

CAUSE = "request-never-scheduled"
STAGE = "serving"
_WINDOWS = 3


def find(boot: Boot) -> Event | None:
    """The first of the windows in which requests wait and nothing runs, where there are three in a row to the end."""
    stalled: list[Event] = []
    for event in boot.stats:
        numbers = event.numbers
        idle = (
            numbers["running_reqs"] == 0
            or numbers["generation_throughput"] == 0 == numbers["prompt_throughput"]
        )
        if numbers["waiting_reqs"] > 0 and idle and numbers["generation_throughput"] == 0:
            stalled.append(event)
        elif len(stalled) < _WINDOWS or numbers["running_reqs"] > 0:
            stalled = []
    return stalled[0] if len(stalled) >= _WINDOWS else None


def judge(situation: Situation, event: Event) -> Finding:
    """Name how many wait, and for how long."""
    waiting, running = event.numbers["waiting_reqs"], event.numbers["running_reqs"]
    windows = sum(
        1 for one in situation.boot.stats if one.numbers["waiting_reqs"] > 0 == one.numbers["running_reqs"]
    )
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{waiting} requests wait while {running} run, in {max(windows, _WINDOWS)} windows of the statistics",
        event=event,
        severity="warning",
        confidence="likely",
        numbers={"waiting_reqs": waiting, "running_reqs": running},
        advice=_advice(situation),
        not_advised=[avoid("max_num_seqs", "down", "nothing runs; fewer at once changes nothing")],
    )


def _advice(situation: Situation) -> list[Advice]:
    found: list[Advice] = []
    shown = situation.boot.last("kv-tokens-concurrency", "kv-tokens")
    length = situation.case.whole("max_model_len")
    if length and shown:
        tokens = shown.numbers["kv_tokens"]
        to = min(length, tokens) * 9 // 10 // 16 * 16
        why = f"a request near {length:,} tokens needs all of the {tokens:,} that the cache holds, and room beside"
        found += change(situation, "max_model_len", max(to, 16), "down", "capacity", why)
    elif length:
        found += change(
            situation, "max_model_len", length // 2, "down", "capacity", "the longest request must fit"
        )
    return [
        *found,
        act("restart", "the scheduler does not recover by itself; running requests are lost"),
        act("upgrade-vllm", "later versions refuse what can never be scheduled"),
    ]
