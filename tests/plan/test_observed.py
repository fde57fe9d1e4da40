"""What an earlier start has shown corrects the plan of the next one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.plan.judge import Judged
from fitserve.plan.observed import Observed
from fitserve.plan.request import Request, judge_request
from fitserve.plan.search import Level, level
from fitserve.units import GIB, Quantity
from tests.plan.test_make import LLAMA_8B, device

START = {"max_model_len": 4096, "max_num_batched_tokens": 16384}


def request(observed: Observed | None = None, gpu: str = "H100") -> Request:
    """The 8B model on one device."""
    return Request(
        checkpoint=Checkpoint(config=parse_config(msgspec.json.encode(LLAMA_8B))),
        model="llama",
        device=device(gpu),
        given=START,
        version="0.19.0",
        observed=() if observed is None else (observed,),
    )


def judged(observed: Observed | None, gpu: str = "H100", **changes: Any) -> Judged:
    """A start of it, with changed settings."""
    return judge_request(request(observed, gpu), changes)


def cache_gib(start: Judged) -> tuple[float, float, float]:
    """The KV cache memory of the first rank: least, expected, most."""
    size = start.ranks[0].kv_cache_bytes
    assert isinstance(size, Quantity)
    return size.low / GIB, size.expected / GIB, size.high / GIB


def shown(cache: str, **terms: str) -> Observed:
    """A start that printed its cache memory and some terms."""
    return Observed(
        source="serve.log",
        given=START,
        terms={f"{name}_bytes": Quantity.printed_gib(text, "line 7") for name, text in terms.items()},
        kv_cache_bytes=Quantity.printed_gib(cache, "line 9"),
    )


@given(st.floats(30, 56.2))
def test_the_same_settings_give_the_printed_cache(cache: float) -> None:
    """Whatever the model thinks, while weights and cache are within the share: a second start of the same settings has what the first one printed, to the rounding."""
    low, expected, high = cache_gib(judged(shown(f"{cache:.2f}", weights="14.99")))

    assert expected == pytest.approx(cache, abs=0.006)
    assert high - low < 0.05


def test_an_estimate_that_a_release_does_not_take_is_not_taken() -> None:
    """0.19 prints what it thinks that graphs need, and takes nothing from the cache for it."""
    requested = 0.9 * device("H100").total_bytes / GIB
    cache = requested - 14.99 - 0.3

    found = cache_gib(judged(shown(f"{cache:.2f}", weights="14.99", cuda_graph="0.75")))[1]
    assert found == pytest.approx(cache, abs=0.006)


def test_a_larger_share_adds_exactly_its_bytes() -> None:
    """The share is arithmetic: nothing of it is in doubt."""
    observed = shown("51.33", weights="14.99")
    more = cache_gib(judged(observed, gpu_memory_utilization=0.95))[1]
    total = device("H100").total_bytes / GIB

    assert more == pytest.approx(51.33 + 0.05 * total, abs=0.006)


def test_a_larger_batch_leaves_doubt_in_the_change_alone() -> None:
    """Activation grows with the batch; the doubt is smaller than that of a plan without the log."""
    observed = shown("51.33", weights="14.99")
    low, expected, high = cache_gib(judged(observed, max_num_batched_tokens=32768))
    blind_low, _, blind_high = cache_gib(judged(None, max_num_batched_tokens=32768))

    assert expected < 51.33
    assert 0 < high - low < blind_high - blind_low


def test_captured_graphs_are_not_taken_from_the_cache() -> None:
    """Graphs that a release does not reserve lie beside the cache, whatever a log says that they took."""
    observed = msgspec.structs.replace(
        shown("51.33", weights="14.99"),
        terms={
            "weights_bytes": Quantity.printed_gib("14.99", "line 7"),
            "captured_bytes": Quantity.printed_gib("1.50", "line 12"),
        },
    )

    assert cache_gib(judged(observed))[1] == pytest.approx(51.33, abs=0.006)


@pytest.mark.parametrize(
    ("cause", "setting", "to"),
    [
        ("profile-run-oom", "max_num_batched_tokens", 2048),
        ("graph-capture-oom", "gpu_memory_utilization", 0.8),
        ("sampler-warmup-oom", "gpu_memory_utilization", 0.8),
        ("serving-oom", "gpu_memory_utilization", 0.8),
    ],
)
def test_a_start_that_ran_out_of_memory_is_not_called_a_start_again(
    cause: str, setting: str, to: Any
) -> None:
    """The same settings are expected to fail; a change in the right direction may start."""
    gpu = "RTX 4090"
    blind = judged(None, gpu)
    observed = Observed(source="serve.log", given=START, failed=cause)

    assert (blind.verdict, level(blind, request(None, gpu))) == ("starts", Level.CONFIDENT)
    again = judged(observed, gpu)
    assert again.verdict != "starts"
    assert level(again, request(observed, gpu)) > Level.EXPECTED
    changed = judged(observed, gpu, **{setting: to})
    assert changed.verdict != "does-not-start"
    assert level(changed, request(observed, gpu)) < Level.NO


def test_room_that_the_sampler_lacked_is_not_that_of_the_graphs() -> None:
    """The graphs were captured and printed; a smaller share gives the sampler what it lacked, fewer sequences do not."""
    observed = Observed(
        source="serve.log",
        given=START | {"max_num_seqs": 1024, "gpu_memory_utilization": 0.98},
        terms={
            "weights_bytes": Quantity.printed_gib("14.99", "line 7"),
            "captured_bytes": Quantity.printed_gib("1.50", "line 12"),
        },
        kv_cache_bytes=Quantity.printed_gib("56.00", "line 9"),
        failed="sampler-warmup-oom",
        missing_bytes=GIB // 4,
    )
    as_it_was = {"max_num_seqs": 1024, "gpu_memory_utilization": 0.98}

    def level_with(**changes: Any) -> Level:
        return level(judged(observed, **{**as_it_was, **changes}), request(observed))

    assert level_with(gpu_memory_utilization=0.94) == Level.CONFIDENT
    assert level_with() > Level.EXPECTED
    assert level_with(max_num_seqs=512) > Level.EXPECTED


def test_a_share_that_was_free_once_is_taken_to_be_free() -> None:
    """A start that got as far as its weights had found its share free; a larger one may be taken."""
    before = {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.95}
    observed = Observed(
        source="serve.log",
        given=START | before,
        terms={"weights_bytes": Quantity.printed_gib("7.51", "line 7")},
        failed="graph-capture-oom",
    )
    blind, again = (judged(one, "T4", **before).ranks[0] for one in (None, observed))
    free = again.total_bytes - again.requested_bytes

    assert isinstance(blind.used_before_bytes, Quantity)
    assert isinstance(again.used_before_bytes, Quantity)
    assert blind.used_before_bytes.high > free == again.used_before_bytes.high


def test_weights_that_did_not_fit_do_not_fit_again() -> None:
    """Only fewer weights on each device help."""
    observed = Observed(source="serve.log", given=START, failed="weights-do-not-fit")

    assert judged(observed, max_model_len=1024).verdict == "does-not-start"
