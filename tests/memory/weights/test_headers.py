"""Weights of checkpoints whose headers are at hand, and of GGUF files."""

from math import prod

from fitserve.facts.checkpoint import Checkpoint, Tensor
from fitserve.facts.model_config import ModelConfig
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights import RankWeights, rank_weights
from fitserve.units import Unknown

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
LAYER = {
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (32, 64),
    "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (128, 64),
    "mlp.up_proj": (128, 64),
    "mlp.down_proj": (64, 128),
    "input_layernorm": (64,),
    "post_attention_layernorm": (64,),
}
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def tensors(dtype: str = "BF16", width: int = 2) -> dict[str, Tensor]:
    """Every tensor of the small Llama."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (128, 64), "lm_head.weight": (128, 64)}
    for layer in range(2):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in LAYER.items()}
    shapes["model.norm.weight"] = (64,)
    return {name: Tensor(dtype, shape, width * prod(shape)) for name, shape in shapes.items()}


def checkpoint(found: dict[str, Tensor], **changes: object) -> Checkpoint:
    """A checkpoint with these headers."""
    data = CONFIG | changes
    size = sum(tensor.size_bytes for tensor in found.values())
    return Checkpoint(
        config=ModelConfig(data=data, text=data),
        tensors=found,
        size_bytes=size,
        format="safetensors",
        source="model",
    )


def only(found: tuple[RankWeights, ...] | Unknown) -> RankWeights:
    """The one rank."""
    assert isinstance(found, tuple)
    assert 1 == len(found)
    return found[0]


def test_headers_that_agree_make_it_exact() -> None:
    """Where headers hold what the configuration says, the size is read, and is the sum of the tensors."""
    model = checkpoint(tensors())

    rank = only(rank_weights(model, EngineOptions()))

    assert ("read", model.size_bytes) == (rank.param_bytes.basis, rank.param_bytes.expected)
    assert rank.param_bytes.low == rank.param_bytes.high


def test_float32_files_are_loaded_in_16_bit() -> None:
    """A float32 checkpoint takes half its bytes in 16 bit."""
    rank = only(rank_weights(checkpoint(tensors("F32", 4)), EngineOptions()))

    assert "read" == rank.param_bytes.basis


def test_draft_layers_are_not_loaded() -> None:
    """Layers behind the last one, and those of a draft model, are in the files and not on the ranks."""
    extra = {
        "model.layers.2.eh_proj.weight": Tensor("BF16", (64, 128), 16384),
        "mtp.fc.weight": Tensor("BF16", (64, 128), 16384),
    }

    rank = only(rank_weights(checkpoint(tensors() | extra), EngineOptions()))

    assert "read" == rank.param_bytes.basis


def test_headers_that_disagree_widen_it() -> None:
    """Where headers hold half of what the configuration says, the interval reaches down to it."""
    model = checkpoint(tensors("F8_E4M3", 1))

    size = only(rank_weights(model, EngineOptions())).param_bytes

    assert "estimated" == size.basis
    assert abs(size.low - (model.size_bytes or 0)) <= 1
    assert size.expected == size.high


def test_files_that_lack_most_of_the_model_are_not_it() -> None:
    """Where headers hold less than a quarter of the model, shards are missing or are another model's: nothing is told."""
    some = {name: tensor for name, tensor in tensors().items() if "layers.0.self_attn" in name}
    found = rank_weights(checkpoint(some), EngineOptions())

    assert isinstance(found, Unknown)
    assert "they are another model's, or some are missing" in found.unknown


def test_files_of_a_much_larger_model_are_not_it() -> None:
    """Nor where they hold four times as much."""
    more = {
        f"model.layers.{layer}.mlp.up_proj.extra": Tensor("BF16", (64, 4096), 1 << 19) for layer in range(2)
    }
    found = rank_weights(checkpoint(tensors() | more), EngineOptions())

    assert isinstance(found, Unknown)


def test_embeddings_of_another_width_are_another_models() -> None:
    """A configuration beside the files of a model of about its size is found by the width of the embeddings."""
    found = rank_weights(
        checkpoint(tensors(), hidden_size=80, num_attention_heads=5, num_key_value_heads=5), EngineOptions()
    )

    assert isinstance(found, Unknown)
    assert "model.embed_tokens.weight in model is 64 wide, config.json says 80" in found.unknown


def test_an_unknown_architecture_tells_its_size() -> None:
    """What is not modelled stays unknown, but its files' size is said."""
    found = rank_weights(checkpoint(tensors(), architectures=["NewForCausalLM"]), EngineOptions())

    assert isinstance(found, Unknown)
    assert "NewForCausalLM are not modelled; its files hold 0.00 GiB in all" in found.unknown


def gguf() -> Checkpoint:
    """The small Llama in Q8_0: 34 bytes for 32 numbers, norms in float32."""
    found = {
        "token_embd.weight": Tensor("Q8_0", (128, 64), 128 * 68),
        "output.weight": Tensor("Q8_0", (128, 64), 128 * 68),
    }
    for layer in range(2):
        for name, shape in LAYER.items():
            size = prod(shape) // 32 * 34 if len(shape) > 1 else 4 * prod(shape)
            found[f"blk.{layer}.{GGUF_NAMES[name]}.weight"] = Tensor(
                "Q8_0" if len(shape) > 1 else "F32", shape, size
            )
    found["output_norm.weight"] = Tensor("F32", (64,), 256)
    data = CONFIG | {"quantization_config": {"quant_method": "gguf"}}
    return Checkpoint(
        config=ModelConfig(data=data, text=data), tensors=found, format="gguf", source="tiny.gguf"
    )


def test_gguf_matrices_keep_their_type() -> None:
    """Matrices are counted as they lie in the file, norms in 16 bit."""
    model = gguf()
    matrices = sum(tensor.size_bytes for tensor in model.tensors.values() if len(tensor.shape) > 1)

    rank = only(rank_weights(model, EngineOptions()))

    assert ("read", matrices + 5 * 64 * 2) == (rank.param_bytes.basis, rank.param_bytes.expected)


def test_gguf_is_divided() -> None:
    """Two ranks hold half the matrices each; two stages hold one layer each."""
    model = gguf()
    whole = only(rank_weights(model, EngineOptions())).param_bytes.expected
    ranks = rank_weights(model, EngineOptions(tensor_parallel_size=2))
    stages = rank_weights(model, EngineOptions(pipeline_parallel_size=2))

    assert isinstance(ranks, tuple)
    assert isinstance(stages, tuple)
    assert whole + 5 * 64 * 2 == sum(rank.param_bytes.expected for rank in ranks)
    assert whole == sum(stage.param_bytes.expected for stage in stages)
