"""Plans: what starts, what does not and why, and what would."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.devices import find_device
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.plan.values import Goal, KvPlan, Plan
from fitserve.report.plan_text import render_plan
from fitserve.units import GIB, Quantity

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def device(name: str, free_gib: float | None = None) -> Device:
    """A device of the catalogue."""
    facts = find_device(name)
    assert facts is not None
    return Device(
        name=facts.name,
        total_bytes=facts.total_bytes,
        free_bytes=None if free_gib is None else round(free_gib * GIB),
        compute_capability=facts.compute_capability,
        multiprocessors=facts.multiprocessors,
    )


def plan(
    gpu: str = "H100",
    *,
    version: str = "0.19.0",
    gpus: int | None = None,
    free_gib: float | None = None,
    goal: Goal | None = None,
    with_frontier: bool = False,
    **given_settings: Any,
) -> Plan:
    """The plan of the 8B model on a device."""
    checkpoint = Checkpoint(config=parse_config(json.dumps(LLAMA_8B).encode()))
    request = Request(
        checkpoint=checkpoint,
        model="model",
        device=device(gpu, free_gib),
        given=given_settings,
        version=version,
        gpus=gpus,
        goal=goal or Goal(),
        with_frontier=with_frontier,
    )
    return make_plan(request)


def cache(found: Plan) -> KvPlan:
    """The cache of a plan that has one."""
    assert isinstance(found.kv_cache, KvPlan)
    return found.kv_cache


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("weights-do-not-fit", {"gpu": "RTX 3060"}),
    ("no-kv-cache-blocks", {"gpu": "RTX 4090", "gpu_memory_utilization": 0.6}),
    ("kv-cache-smaller-than-context", {"gpu": "RTX 4090"}),
    ("kv-cache-pinned-too-small", {"kv_cache_memory_bytes": GIB, "version": "0.30.0"}),
    ("gpu-memory-taken", {"free_gib": 40.0}),
    ("context-beyond-model-limit", {"max_model_len": 200000}),
    ("heads-not-divisible", {"tensor_parallel_size": 3}),
    ("not-enough-gpus", {"tensor_parallel_size": 4, "gpus": 2}),
    ("batched-tokens-below-context", {"max_num_batched_tokens": 128, "max_num_seqs": 256}),
    ("dtype-unsupported", {"gpu": "T4", "dtype": "bfloat16", "max_model_len": 2048}),
    ("unknown-flag", {"swap_space": 4, "version": "0.18.0"}),
    ("unknown-flag", {"max_model_len": -1, "version": "0.13.0"}),
    ("kv-allocation-oom", {"kv_cache_memory_bytes": 70 * GIB, "version": "0.30.0"}),
]


@pytest.mark.parametrize(("cause", "asked"), REFUSED)
def test_what_does_not_start(cause: str, asked: dict[str, Any]) -> None:
    """A start that vLLM refuses gets the id of its cause."""
    found = plan(**asked)

    assert ("does-not-start", cause) == (found.verdict, found.cause)


def test_what_starts() -> None:
    """A measured start is foretold to within 0.1 % of its tokens."""
    found = plan(max_model_len=8192, gpu_memory_utilization=0.95)
    tokens = cache(found).tokens
    assert isinstance(tokens, Quantity)

    assert found.verdict == "starts"
    assert tokens.expected == pytest.approx(476016, rel=0.001)
    assert tokens.low <= 476016 <= tokens.high


def test_what_is_between() -> None:
    """A start that the ends of the interval disagree about is not foretold."""
    longest = plan("RTX 4090", max_model_len=4096).max_model_len_that_fits
    assert isinstance(longest, Quantity)
    found = plan("RTX 4090", max_model_len=longest.expected)

    assert (found.verdict, found.cause) == ("cannot-tell", "kv-cache-smaller-than-context")


def test_a_pinned_cache_is_exact() -> None:
    """With a size given by hand the cache is computed from it alone, even where the weights do not fit."""
    found = plan("RTX 3060", kv_cache_memory_bytes=8 * GIB, version="0.30.0", max_model_len=4096)

    assert cache(found).num_blocks == Quantity.exact(4096, "computed", "KV cache memory")
    assert cache(found).bytes_per_token == 131072


def test_auto_fit_takes_what_fits() -> None:
    """``max_model_len`` -1 becomes the longest context that fits."""
    found = plan("RTX 4090", max_model_len=-1, version="0.20.0")
    longest = found.max_model_len_that_fits
    assert isinstance(longest, Quantity)

    assert found.settings["max_model_len"].value == longest.expected
    assert 1000 < longest.expected < 131072


def test_the_goal_is_kept() -> None:
    """Choices keep the goal's context and concurrency, start, and come cheapest first."""
    goal = Goal(context=32768, concurrency=20)
    found = plan("L40S", gpus=4, goal=goal)
    costs = [
        ("free", "capacity", "speed", "hardware", "output").index(choice.cost) for choice in found.choices
    ]

    assert found.meets_goal is False
    assert found.choices
    assert costs == sorted(costs)
    for choice in found.choices:
        assert choice.verdict == "starts"
        assert choice.max_model_len == 32768
        assert choice.max_concurrency >= 20
        assert "--max-model-len 32768" in choice.command


def test_a_refused_start_gets_a_command_that_starts() -> None:
    """The command of the first choice is the plan's, and its settings start."""
    found = plan("RTX 4090")
    again = plan("RTX 4090", **found.choices[0].changes)

    assert found.command == found.choices[0].command
    assert again.verdict == "starts"


def test_the_frontier_falls_with_length() -> None:
    """Longer requests are fewer, and more devices hold more."""
    points = plan(gpus=2, with_frontier=True).frontier

    assert {1, 2} == {point.tensor_parallel_size for point in points}
    for point in points:
        counts = list(point.concurrency.values())
        assert counts == sorted(counts, reverse=True)


@settings(max_examples=40)
@given(st.integers(256, 100000), st.integers(256, 31072))
def test_a_longer_context_never_starts_where_a_shorter_does_not(length: int, more: int) -> None:
    """What starts with a length starts with a shorter one."""
    short, long = plan("RTX 4090", max_model_len=length), plan("RTX 4090", max_model_len=length + more)

    assert (long.verdict == "starts") <= (short.verdict == "starts")


def test_json_has_every_key() -> None:
    """The JSON of any plan has the keys of the contract."""
    import msgspec

    for found in (plan(), plan("RTX 3060"), plan(kv_cache_memory_bytes=GIB, version="0.30.0")):
        data = msgspec.json.decode(msgspec.json.encode(found))

        assert (1, "plan") == (data["schema"], data["kind"])
        assert {"verdict", "cause", "vllm_version", "settings", "budget", "kv_cache"} <= data.keys()
        assert {"max_model_len_that_fits", "advice", "command"} <= data.keys()
        assert {"rank", "total_bytes", "requested_bytes", "weights_bytes", "activation_bytes"} <= data[
            "budget"
        ][0].keys()
        assert {"non_torch_bytes", "cuda_graph_bytes", "kv_cache_bytes"} <= data["budget"][0].keys()


def cpu_plan(version: str, **given_settings: Any) -> Plan:
    """The plan of a small model on the CPU backend with 12 GiB."""
    small = {
        **LLAMA_8B,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "vocab_size": 512,
    }
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    request = Request(
        checkpoint=Checkpoint(config=parse_config(json.dumps(small).encode())),
        model="model",
        device=Device(name="CPU", total_bytes=12 * GIB),
        given={"max_model_len": 2048, **given_settings},
        version=version,
    )
    return make_plan(request)


@pytest.mark.parametrize(("version", "size"), [("0.12.0", 4 * GIB), ("0.15.0", 6 * GIB)])
def test_the_cpu_s_cache_is_fixed_to_0_19(version: str, size: int) -> None:
    """The CPU backend takes 4 GiB to 0.12 and half of the memory to 0.19."""
    cache_bytes = cpu_plan(version).budget[0].kv_cache_bytes
    assert isinstance(cache_bytes, Quantity)

    assert (size, size) == (cache_bytes.low, cache_bytes.high)


def test_the_cpu_s_cache_is_what_its_process_leaves() -> None:
    """From 0.20 on the share of the memory less the worker's process; 0.14 GiB of 0.96 were measured on 0.32."""
    cache_bytes = cpu_plan("0.32.0", gpu_memory_utilization=0.08).budget[0].kv_cache_bytes
    assert isinstance(cache_bytes, Quantity)

    assert cache_bytes.low <= round(0.14 * GIB) <= cache_bytes.high


def test_weights_that_are_not_modelled_leave_it_open() -> None:
    """With unknown weights a pinned cache is computed, and the verdict stays open."""
    config = parse_config(json.dumps({**LLAMA_8B, "architectures": ["NobodyKnowsForCausalLM"]}).encode())
    request = Request(
        checkpoint=Checkpoint(config=config), model="model", device=device("H100"), given={}, version="0.32.0"
    )

    assert make_plan(request).verdict == "cannot-tell"


def test_memory_that_others_hold_is_named() -> None:
    """Where others hold the memory, freeing it comes first, then a smaller share that starts."""
    found = plan(free_gib=60.0, max_model_len=8192)

    assert found.advice[0].action == "free-other-process"
    assert found.choices[0].changes["gpu_memory_utilization"] < 60 / 79.19


def test_ranks_that_need_room_before_the_start_get_a_smaller_share() -> None:
    """On small devices several ranks are advised with the share that is left beside their communication buffers."""
    found = plan("L4", version="0.33.0", gpus=4, goal=Goal(context=32_000, concurrency=8))
    parallel = [choice for choice in found.choices if "tensor_parallel_size" in choice.changes]

    assert parallel
    assert all(choice.changes["gpu_memory_utilization"] < 0.92 for choice in parallel)
    assert all((choice.verdict, choice.max_concurrency >= 8) == ("starts", True) for choice in parallel)


def test_a_lack_is_told_with_its_own_figures() -> None:
    """Where free memory lacks only at the far end of what is likely, the figures shown are those of that end."""
    found = plan("L4", version="0.33.0", gpus=2, tensor_parallel_size=2, max_model_len=32_000)
    message = found.message
    sizes = [float(size) for size in re.findall(r"(\d+\.\d+) GiB", message)]

    assert "free memory is below" in message
    assert sizes[0] > sizes[1]


def test_a_length_that_vllm_fits_itself_is_never_too_long() -> None:
    """With max_model_len -1 vLLM takes what fits: it starts, with the least memory that is likely too."""
    found = plan("L4", version="0.33.0", max_model_len=-1)

    assert ("starts", None) == (found.verdict, found.cause)


def test_a_release_that_is_not_known_yet_is_said() -> None:
    """A release newer than the table is planned by the newest rules, and the plan says so."""
    found = plan("H100", version="9.9")

    assert any("9.9 is newer than what is known here" in note for note in found.notes)
    assert not any("newer than" in note for note in plan("H100", version="0.33.0").notes)


def test_the_old_engine_takes_no_prompt_longer_than_a_batch() -> None:
    """Before V1 a batch must hold the longest prompt, unless prompts are cut up, as they are by themselves above 32 K."""
    short = plan(version="0.6.6", max_model_len=4096, max_num_batched_tokens=256, max_num_seqs=64)
    cut = plan(
        version="0.6.6",
        max_model_len=4096,
        max_num_batched_tokens=256,
        max_num_seqs=64,
        enable_chunked_prefill=True,
    )
    long = plan(version="0.6.6", max_model_len=40960, max_num_batched_tokens=256, max_num_seqs=64)

    assert (short.verdict, short.cause) == ("does-not-start", "batched-tokens-below-context")
    assert (cut.verdict, long.verdict) == ("starts", "starts")


@pytest.mark.parametrize(
    ("name", "full"), [("tp", "--tensor-parallel-size"), ("pp", "--pipeline-parallel-size")]
)
def test_a_short_option_with_a_dash_too_many(name: str, full: str) -> None:
    """``--tp 8`` is none of vLLM's options, ``-tp 8`` is."""
    found = plan("H100", version="0.33.0", **{name: 8})

    assert (found.cause, [advice.why for advice in found.advice]) == (
        "unknown-flag",
        [f"did you mean -{name}, which is {full}?"],
    )


def test_an_offload_is_told_with_its_price() -> None:
    """Where weights wait in the host's memory the text says what each step reads and how long that takes."""
    found = plan("RTX 4090", version="0.19.0", tensor_parallel_size=1, max_model_len=8192, dtype="float32")
    offloads = [
        choice.changes["cpu_offload_gb"] for choice in found.choices if "cpu_offload_gb" in choice.changes
    ]
    text = render_plan(found)

    assert offloads
    for offload in offloads:
        seconds = float(str(offload)) * GIB / 25e9
        assert (
            f"each step reads up to {offload} GiB from the host: about {seconds:.1f} s over PCIe 4.0 x16"
            in text
        )


def test_no_engine_is_named_where_a_setting_is_refused() -> None:
    """An engine has nothing to add to a start that is refused for certain, whatever else is not known."""
    found = plan("H100", version="0.33.0", tensor_parallel_size=3)

    assert (found.verdict, found.confidence) == ("does-not-start", "certain")
    assert not any("--ask-engine" in note for note in found.notes)


def test_a_quantised_checkpoint_without_its_section() -> None:
    """``--quantization awq`` needs what a quantiser has written; the plan names the files that vLLM looks for."""
    found = plan("H100", version="0.33.0", quantization="awq")

    assert found.verdict == "cannot-tell"
    assert "quant_config.json" in found.message


def test_what_others_hold_is_counted_once() -> None:
    """A release that counts all used memory as its own has its cache beside what others hold, not below it twice."""
    found = plan("RTX 4090", version="0.8.5", free_gib=20, max_model_len=4096)
    alone = plan("RTX 4090", version="0.8.5", max_model_len=4096)

    assert (found.verdict, alone.verdict) == ("starts", "starts")
    assert isinstance(found.kv_cache, KvPlan)
    assert isinstance(alone.kv_cache, KvPlan)
    lost = alone.kv_cache.tokens.expected - found.kv_cache.tokens.expected  # type: ignore[union-attr]
    assert lost * 131072 == pytest.approx((device("RTX 4090").total_bytes - 20 * GIB), rel=0.15)
