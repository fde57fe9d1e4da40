"""Encoders, and Whisper with its decoder.

Source: vLLM 0.32 ``models/bert.py``, ``roberta.py``, ``whisper.py``.
"""

from fitserve.memory.weights.model import Build


def bert(build: Build) -> None:
    """BERT and RoBERTa: embeddings of words, positions and token types, all padded like a vocabulary."""
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
