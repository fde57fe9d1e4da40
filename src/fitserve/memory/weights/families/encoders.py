"""Encoders, and Whisper with its decoder.

Source: vLLM 0.32 ``models/bert.py``, ``roberta.py``, ``whisper.py``.
"""

from fitserve.memory.weights.families.dense import class_count
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_rotary

_FLOAT32 = 4


def bert(build: Build, *, classes: bool = False) -> None:
    """BERT and RoBERTa: embeddings of words, positions and token types, all padded like a vocabulary.

    Args:
        build: the model.
        classes: RoBERTa's classifier stands behind it, in float32.
    """
    inventory, hidden = build.inventory, build.hidden
    inner, positions = build.integer("intermediate_size"), build.integer("max_position_embeddings")
    inventory.embedding(build.vocabulary, hidden)
    inventory.embedding(build.integer("type_vocab_size"), hidden)
    inventory.embedding(positions, hidden)
    inventory.numbers(2 * hidden)
    inventory.buffers += 8 * positions

    def add(index: int) -> None:
        name = f"model.encoder.layer.{index}"
        inventory.qkv(
            f"{name}.attention.self.qkv_proj", hidden, build.heads, build.heads, build.head_dim, bias=True
        )
        inventory.row(f"{name}.attention.output.dense", hidden, hidden, bias=True)
        inventory.column(f"{name}.intermediate.dense", hidden, inner, bias=True)
        inventory.row(f"{name}.output.dense", inner, hidden, bias=True)
        inventory.numbers(4 * hidden)
        inventory.attention()

    build.stack(build.integer("num_hidden_layers"), add)
    if classes:
        inventory.numbers((hidden + 1) * (hidden + class_count(build)), _FLOAT32)


def modernbert(build: Build) -> None:
    """ModernBERT: gated networks, windowed and full attention that turn differently.

    Source: vLLM 0.32 ``models/modernbert.py``.
    """
    inventory, hidden, size = build.inventory, build.hidden, build.head_dim
    every = max(1, build.integer("global_attn_every_n_layers", default=3))
    inner = build.integer("intermediate_size")

    def kind(index: int) -> tuple[bool, bool]:
        return index == 0, index % every == 0

    def add(index: int) -> None:
        first, full = kind(index)
        name = f"encoder_layer.layers.{index}"
        inventory.qkv(f"{name}.attn.Wqkv", hidden, build.heads, build.heads, size, shards=())
        inventory.row(f"{name}.attn.Wo", hidden, hidden)
        inventory.column(f"{name}.mlp.Wi", hidden, (inner, inner))
        inventory.row(f"{name}.mlp.Wo", inner, hidden)
        inventory.numbers(hidden if first else 2 * hidden)
        inventory.attention()
        add_rotary(inventory, build.text, size, source=build.config.source, key=full)

    inventory.embedding(build.vocabulary, hidden)
    inventory.numbers(2 * hidden)
    build.stack(build.integer("num_hidden_layers"), add, kind)


def whisper(build: Build) -> None:
    """Whisper."""
    inventory, hidden = build.inventory, build.integer("d_model")

    def attend(name: str, heads: int, *, cross: bool = False) -> None:
        size = hidden // heads
        if cross:
            inventory.column(f"{name}.q_proj", hidden, hidden, bias=True)
            inventory.column(f"{name}.kv_proj", hidden, (hidden, hidden), bias=True)
        else:
            inventory.qkv(f"{name}.qkv_proj", hidden, heads, heads, size, bias=True)
        inventory.row(f"{name}.out_proj", hidden, hidden, bias=True)
        inventory.numbers(2 * hidden)

    def network(name: str, inner: int) -> None:
        inventory.column(f"{name}.fc1", hidden, inner, bias=True)
        inventory.row(f"{name}.fc2", inner, hidden, bias=True)
        inventory.numbers(2 * hidden)

    def encode(index: int) -> None:
        attend(f"model.encoder.layers.{index}.self_attn", build.integer("encoder_attention_heads"))
        network(f"model.encoder.layers.{index}.mlp", build.integer("encoder_ffn_dim"))

    def decode(index: int) -> None:
        heads = build.integer("decoder_attention_heads")
        attend(f"model.decoder.layers.{index}.self_attn", heads)
        attend(f"model.decoder.layers.{index}.encoder_attn", heads, cross=True)
        network(f"model.decoder.layers.{index}.mlp", build.integer("decoder_ffn_dim"))
        inventory.attention()
        inventory.attention()

    inventory.numbers(hidden * (3 * build.integer("num_mel_bins") + 3 * hidden + 2))
    rows = build.integer("max_source_positions") + build.integer("max_target_positions")
    inventory.numbers(hidden * (rows + 4))
    inventory.numbers(build.vocabulary * hidden)
    inventory.layers(range(build.integer("encoder_layers")), encode, lambda _index: None)
    inventory.layers(range(build.integer("decoder_layers")), decode, lambda _index: None)
