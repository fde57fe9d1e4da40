"""Nemotron-NAS (DeciLM): a search left each layer its own heads and width, or nothing.

Source: vLLM 0.32 ``models/nemotron_nas.py``.
"""

from typing import Any

from fitserve.memory.weights.families.dense import tied
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.rotary import add_rotary
from fitserve.memory.weights.shapes import NotModelledError, round_up


def _parts(block: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    attention = block.get("attention") if isinstance(block, dict) else None
    network = block.get("ffn") if isinstance(block, dict) else None
    if not isinstance(attention, dict) or not isinstance(network, dict):
        raise NotModelledError("Nemotron-NAS without attention and ffn in block_configs")
    if attention.get("replace_with_linear") or network.get("replace_with_linear"):
        raise NotModelledError("Nemotron-NAS with layers replaced by linear ones")
    return attention, network


def _heads_in_group(group: Any) -> int:
    """Query heads that share a key and value head; 1 where nothing is said."""
    if not group:
        return 1
    if isinstance(group, bool) or not isinstance(group, int) or group < 0:
        raise NotModelledError("Nemotron-NAS without a usable n_heads_in_group")
    return group


def decilm(build: Build) -> None:
    """Count the model."""
    inventory, hidden, heads = build.inventory, build.hidden, build.heads
    blocks = build.text.get("block_configs")
    if not isinstance(blocks, list):
        raise NotModelledError("Nemotron-NAS without block_configs")
    parts = [_parts(block) for block in blocks]
    bias, size = build.flag("attention_bias", "bias"), build.head_dim

    def widths(index: int) -> tuple[int, int]:
        """Key and value heads, and the network's width; 0 where there is none."""
        attention, network = parts[index]
        group, factor = attention.get("n_heads_in_group"), network.get("ffn_mult")
        kv_heads = 0 if attention.get("no_op") else heads // _heads_in_group(group)
        if network.get("no_op"):
            return kv_heads, 0
        if not isinstance(factor, int | float) or not 0 < factor < 1 << 16:
            raise NotModelledError("Nemotron-NAS without a usable ffn_mult")
        return kv_heads, round_up(int(2 * factor * hidden / 3), 256)

    def add(index: int) -> None:
        name = f"model.layers.{index}"
        kv_heads, width = widths(index)
        if kv_heads:
            inventory.qkv(f"{name}.self_attn.qkv_proj", hidden, heads, kv_heads, size, bias=bias)
            inventory.row(f"{name}.self_attn.o_proj", heads * size, hidden, bias=bias)
            inventory.numbers(hidden)
            inventory.attention()
            add_rotary(inventory, build.text, size, source=build.config.source)
        if width:
            inventory.gated_mlp(f"{name}.mlp", hidden, width, bias=build.flag("mlp_bias"))
            inventory.numbers(hidden)

    build.stack(len(parts), add, widths)
    build.ends(tied=tied(build, default=False))
