"""Damaged models: a plan, or an error that names file and key; never a traceback, never an absurd number."""

import copy
import io
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitserve.errors import InputError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.checkpoint.gguf import read_gguf
from fitserve.facts.checkpoint.safetensors_header import header_length, parse_header
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.plan.values import KvPlan, Plan
from fitserve.report.plan_text import render_plan
from fitserve.units import Quantity, Size

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "memory" / "kv" / "vllm_configs.json").read_text(encoding="utf-8")
)
VISION = {
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "model_type": "qwen2_vl",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {
        "depth": 32,
        "embed_dim": 1280,
        "hidden_size": 1536,
        "mlp_ratio": 4,
        "num_heads": 16,
        "in_chans": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
CONFIGS |= {"vision": VISION, "fp8": {**CONFIGS["llamafull"], "quantization_config": FP8}}
DEVICE = Device(name="H100", total_bytes=80 << 30, compute_capability=(9, 0))

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 130),
    st.integers(-(1 << 90), 1 << 90),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["4096", [], {}, [[]], [None], ["x"], {"rope_type": 3}, {"quant_method": "awq"}]),
)


def outcome(work: Callable[[], Any]) -> Any:
    """What comes of it: the value, or the one kind of error that is expected."""
    try:
        return work()
    except InputError as error:
        return error


def paths(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a configuration."""
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from paths(value, (*path, key))


def mutated(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The configuration with one value replaced."""
    found = copy.deepcopy(config)
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return found


def plan_of(config: dict[str, Any], **given: Any) -> Plan:
    """The plan for a configuration on one H100."""
    parsed = parse_config(json.dumps(config).encode(), source="model/config.json")
    return make_plan(request_of(Checkpoint(config=parsed, source="model"), **given))


def request_of(checkpoint: Checkpoint, **given: Any) -> Request:
    """The question about a checkpoint on one H100."""
    return Request(
        checkpoint=checkpoint, model="model", device=DEVICE, given=given, version="0.32.0", with_frontier=True
    )


def gguf_text(text: str) -> bytes:
    """A text with its length."""
    return struct.pack("<Q", len(text)) + text.encode()


def small_gguf() -> bytes:
    """The header of a GGUF file with one layer of a small Llama."""
    numbers = {
        "block_count": 1,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "context_length": 256,
        "vocab_size": 128,
    }
    sides = {
        "token_embd.weight": (64, 128),
        "output.weight": (64, 128),
        "blk.0.attn_q.weight": (64, 64),
        "blk.0.attn_k.weight": (64, 32),
        "blk.0.ffn_up.weight": (64, 128),
        "output_norm.weight": (64,),
    }
    text = b"GGUF" + struct.pack("<IQQ", 3, len(sides), 1 + len(numbers))
    text += gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama")
    for key, number in numbers.items():
        text += gguf_text(f"llama.{key}") + struct.pack("<II", 4, number)
    for name, shape in sides.items():
        text += gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 8, 0)
    return text


GGUF = small_gguf()


def sizes_of(plan: Plan) -> Iterator[Size]:
    """Every size of a plan that counts something; what is left for the cache may be less than nothing."""
    yield plan.max_model_len_that_fits
    for rank in plan.budget:
        yield from (rank.weights_bytes, rank.activation_bytes, rank.non_torch_bytes, rank.cuda_graph_bytes)
    if isinstance(plan.kv_cache, KvPlan):
        yield from (plan.kv_cache.tokens, plan.kv_cache.num_blocks)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(CONFIGS)), st.data(), st.sampled_from([1, 2, 3, 8]))
def test_one_wrong_value(name: str, data: st.DataObject, ranks: int) -> None:
    """A plan without an absurd number and a text of it, or an error that names the file and a key."""
    path = data.draw(st.sampled_from(list(paths(CONFIGS[name]))))
    config = mutated(CONFIGS[name], path, data.draw(VALUES))
    plan = outcome(lambda: plan_of(config, tensor_parallel_size=ranks))

    if not isinstance(plan, Plan):
        assert plan.where.startswith("model/config.json: ")
        return
    known = [size for size in sizes_of(plan) if isinstance(size, Quantity)]
    assert all(0 <= size.low <= size.expected <= size.high <= 1 << 50 for size in known)
    assert render_plan(plan).startswith("plan[")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 1e18}, "num_hidden_layers"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": 31}, "hidden_size"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"head_dim": 0}, "head_dim"),
        ({"vocab_size": 10**18}, "vocab_size"),
        ({"vocab_size": 10**400}, "vocab_size"),
        ({"intermediate_size": float("nan")}, "intermediate_size"),
        ({"max_position_embeddings": float("inf")}, "max_position_embeddings"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"rope_theta": "high"}, "rope_theta"),
        ({"rope_scaling": "x"}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": -4.0}}, "rope_scaling.factor"),
        ({"quantization_config": 3}, "quantization_config"),
        ({"quantization_config": {"quant_method": "awq", "bits": "4"}}, "quantization_config.bits"),
        ({"torch_dtype": "bfloat15"}, "torch_dtype"),
        ({"dtype": 16}, "dtype"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"layer_types": ["full_attention"] * 31}, "layer_types"),
        ({"layer_types": ["full_attention"] * 31 + [3]}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"architectures": None}, "architectures"),
        ({"text_config": {"hidden_size": -1}}, "text_config.hidden_size"),
    ],
)
def test_the_key_is_named(change: dict[str, Any], key: str) -> None:
    """What cannot be is refused with its file and its key."""
    llama = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    with pytest.raises(InputError) as caught:
        plan_of({**llama, **change})

    assert caught.value.where == f"model/config.json: {key}"


@pytest.mark.parametrize("group", [[1], "8", -1, 0.5, {"a": 1}])
def test_heads_in_a_group_that_cannot_be(group: object) -> None:
    """A number inside a list of blocks, which no check of keys reaches, leaves the weights unknown."""
    block = {"attention": {"n_heads_in_group": group}, "ffn": {"ffn_mult": 2.0}}
    found = plan_of(
        {**CONFIGS["llamafull"], "architectures": ["DeciLMForCausalLM"], "block_configs": [block] * 32}
    )

    assert "cannot-tell" == found.verdict


def packed(**changes: Any) -> dict[str, Any]:
    """A Llama in compressed-tensors' 4 bit, with changes of its only group."""
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
    group = {"targets": changes.pop("targets", ["Linear"]), "weights": weights | changes.pop("weights", {})}
    section = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": group},
    }
    return {**CONFIGS["llamafull"], "vocab_size": 128256, "quantization_config": section | changes}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[", "is no regular expression"),
        ("*a", "is no regular expression"),
        ("(?R)", "is no regular expression"),
        ("(" * 3000, "may take for ever"),
        ("(" * 900, "is no regular expression"),
        ("(.+)+!", "may take for ever"),
        (r"(\w|\w)*!", "may take for ever"),
        ("(?:(?:a|b)c)*", "may take for ever"),
        (".*" * 5 + "!", "may take for ever"),
    ],
)
@pytest.mark.parametrize("place", ["ignore", "targets"])
def test_a_pattern_of_a_stranger(place: str, pattern: str, words: str) -> None:
    """A pattern that is none, or that a matcher needs for ever for, leaves the weights unknown."""
    found = plan_of(packed(**{place: [f"re:{pattern}"]}))

    assert "cannot-tell" == found.verdict
    assert words in found.message


@pytest.mark.parametrize(
    "pattern",
    [
        r".*mlp\.(gate|up|gate_up|down)_proj.*",
        r"model\.layers\.(?:[0-9]|1[0-9])\.(?!mlp).*",
        ".*[*+{]",
        r"a(\.\d+)?b",
    ],
)
def test_a_pattern_as_published(pattern: str) -> None:
    """Patterns as quantisers write them are read."""
    assert "starts" == plan_of(packed(ignore=[f"re:{pattern}"])).verdict


@pytest.mark.parametrize("size", [[None], "128", 12.5, True])
def test_a_group_size_that_cannot_be(size: object) -> None:
    """A value inside a list of groups leaves the weights unknown."""
    found = outcome(lambda: plan_of(packed(weights={"group_size": size})))

    assert isinstance(found, InputError) or "cannot-tell" == found.verdict


@pytest.mark.parametrize(
    ("block", "verdict"),
    [("128x128", "starts"), ([128, 128], "starts"), ("128", "cannot-tell"), ([0, 1], "cannot-tell")],
)
def test_the_sides_of_a_block(block: object, verdict: str) -> None:
    """A block is written as a list, or by earlier quantisers as a text."""
    weights = {
        "num_bits": 8,
        "type": "float",
        "strategy": "block",
        "block_structure": block,
        "group_size": None,
    }

    assert verdict == plan_of(packed(weights=weights, format="float-quantized")).verdict


@pytest.mark.parametrize("attention", [7, [], "none", None])
def test_attention_that_is_no_object(attention: object) -> None:
    """A layer of a search that is described by anything else leaves the model unknown."""
    blocks = [{"attention": attention, "ffn": {"ffn_mult": 2.0}}] * 32
    found = plan_of({**CONFIGS["llamafull"], "architectures": ["DeciLMForCausalLM"], "block_configs": blocks})

    assert "cannot-tell" == found.verdict


def test_states_without_a_number() -> None:
    """A model whose states are empty keeps no cache: nothing is told of blocks without bytes."""
    mamba = {
        "architectures": ["MambaForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 128,
    }
    found = plan_of(
        {**mamba, "state_size": 16, "conv_kernel": 4, "intermediate_size": 0, "time_step_rank": 4}
    )

    assert "cannot-tell" == found.verdict


def test_unequal_pages_in_the_engine_before_v1() -> None:
    """V0 reckons all layers as the first: of layers with pages of their own nothing is told."""
    shapes = [{"attention": {"n_heads_in_group": group}, "ffn": {"ffn_mult": 2.0}} for group in (8, 16)]
    changes = {"architectures": ["DeciLMForCausalLM"], "block_configs": shapes * 16, "vocab_size": 128256}
    config = {**CONFIGS["llamafull"], **changes}
    request = request_of(Checkpoint(config=parse_config(json.dumps(config).encode()), source="model"))
    found = make_plan(msgspec.structs.replace(request, version="0.6.6"))

    assert "cannot-tell" == found.verdict
    assert "unequal cache pages" in found.message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "it is no JSON: "),
        (b"{", "it is no JSON: "),
        (b"[]", "it is no JSON object"),
        (b'{"architectures": ["LlamaForCausalLM"], "hidden_si', "it is no JSON: "),
        (b"\xef\xbb\xbf{}", "it begins with the byte order mark of UTF-8"),
        ("{}".encode("utf-16"), "it begins with the byte order mark of UTF-16"),
        (b'{"model_type": "\xff"}', "it is not in UTF-8: "),
        (b'{"a":' * 100_000, "it is nested too deep"),
        (b"[" * 100_000, "it is nested too deep"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "objects are nested deeper than 16 levels"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", ""),
    ],
)
def test_text_that_is_no_configuration(text: bytes, what: str) -> None:
    """Bytes that transformers would not read are told apart, with the file."""
    with pytest.raises(InputError) as caught:
        parse_config(text, source="model/config.json")

    assert caught.value.what.startswith(what)
    assert caught.value.where.startswith("model/config.json")


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    """As for Python's JSON, which transformers reads with."""
    found = parse_config(b'{"hidden_size": 1, "hidden_size": 64}')

    assert found.data == {"hidden_size": 64}


def test_an_infinity_that_nobody_reads_is_left_alone() -> None:
    """Published configurations have ``Infinity`` in limits of time steps."""
    found = parse_config(b'{"time_step_limit": [0.0, Infinity], "hidden_size": 64}')

    assert found.integer("hidden_size") == 64


def test_draft_layers_may_be_listed() -> None:
    """``layer_types`` of a model with draft layers go on behind its own."""
    found = parse_config(
        json.dumps(
            {"num_hidden_layers": 2, "num_nextn_predict_layers": 1, "layer_types": ["full_attention"] * 3}
        ).encode()
    )

    assert found.integer("num_hidden_layers") == 2


HEADER = json.dumps(
    {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]},
        "b.weight": {"dtype": "F8_E4M3", "shape": [16], "data_offsets": [64, 80]},
    }
).encode()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(HEADER)), st.binary(max_size=6), st.integers(0, 8))
def test_bytes_of_a_header(at: int, new: bytes, dropped: int) -> None:
    """Tensors within the file, or an error with the file; whatever bytes are changed."""
    text = HEADER[:at] + new + HEADER[at + dropped :]
    found = outcome(lambda: parse_header(text, "model.safetensors", 80))

    if isinstance(found, InputError):
        assert found.where.startswith("model.safetensors")
        return
    assert all(0 <= tensor.size_bytes <= 80 for tensor in found.values())


@settings(deadline=None)
@given(st.binary(max_size=12), st.integers(0, 1 << 34))
def test_the_length_of_a_header(start: bytes, file_bytes: int) -> None:
    """A length that lies within the file and the format's limit, or an error."""
    found = outcome(lambda: header_length(start, "model.safetensors", file_bytes))

    if isinstance(found, InputError):
        assert found.where == "model.safetensors"
        return
    assert found == struct.unpack("<Q", start[:8])[0] <= min(100_000_000, file_bytes - 8)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_bytes_of_a_gguf_file(data: st.DataObject) -> None:
    """Whatever bytes of its header are changed: a plan with possible sizes, or an error that names the file."""
    text = bytearray(GGUF)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + 1] = data.draw(st.binary(max_size=2))
    found = outcome(lambda: make_plan(request_of(read_gguf(io.BytesIO(bytes(text)), "model.gguf"))))

    if isinstance(found, InputError):
        assert found.where.startswith("model.gguf")
        return
    known = [size for size in sizes_of(found) if isinstance(size, Quantity)]
    assert all(0 <= size.low <= size.expected <= size.high <= 1 << 50 for size in known)
