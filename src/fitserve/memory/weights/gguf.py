"""Weights of a GGUF file on each rank: every tensor keeps its own type.

Source: vLLM 0.10 to 0.31 ``layers/quantization/gguf.py``: matrices are divided over the ranks, vectors stand on each in the
model's dtype, embeddings and output layer stay quantised.
"""

from math import prod

from fitserve.errors import InputError
from fitserve.facts.checkpoint import Checkpoint, Tensor
from fitserve.facts.model_config import ModelConfig
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights.ranks import RankWeights, config_weights, element_bytes
from fitserve.memory.weights.shapes import stage_layers
from fitserve.units import Quantity, Unknown

_UNSUPPORTED = "(GGUF)"
_MOST_DIGITS = 6


def gguf_weights(checkpoint: Checkpoint, options: EngineOptions) -> tuple[RankWeights, ...] | Unknown:
    """Every rank's weights from the file's own tensors.

    Buffers are those of the same model unquantised.
    """
    config = checkpoint.config
    if config.architecture.endswith(_UNSUPPORTED):
        return Unknown(f"the weights of {config.architecture} are not modelled")
    plain = config_weights(_unquantised(checkpoint), options)
    if isinstance(plain, Unknown):
        return plain
    stages = stage_layers(config.integer("num_hidden_layers"), options.pipeline_parallel_size)
    found = []
    for rank in plain:
        stage = rank.rank // options.tensor_parallel_size
        size = _stage_bytes(checkpoint, options, stages, stage)
        held = Quantity.exact(size, "read", f"{checkpoint.source}: header")
        found.append(RankWeights(rank=rank.rank, param_bytes=held, buffer_bytes=rank.buffer_bytes))
    return tuple(found)


def _unquantised(checkpoint: Checkpoint) -> ModelConfig:
    data = {key: value for key, value in checkpoint.config.data.items() if key != "quantization_config"}
    return ModelConfig(data=data, text=data, source=checkpoint.config.source)


def _layer(name: str, source: str) -> int:
    """The layer of a tensor's name.

    Raises:
        InputError: there is no number in it.
    """
    number = name.split(".")[1]
    if not number.isdecimal() or not number.isascii() or len(number) > _MOST_DIGITS:
        raise InputError("the tensor's name has no layer", where=f"{source}: {name}")
    return int(number)


def _stage_bytes(
    checkpoint: Checkpoint, options: EngineOptions, stages: tuple[range, ...], stage: int
) -> int:
    last = stage == len(stages) - 1
    tied = "output.weight" not in checkpoint.tensors
    total = 0
    for name, tensor in checkpoint.tensors.items():
        share = _share(tensor, options)
        if name.startswith("blk."):
            here = _layer(name, checkpoint.source) in stages[stage]
        elif name.startswith("token_embd"):
            here = stage == 0 or (tied and last)
        else:
            here = last
        total += share if here else 0
    return total


def _share(tensor: Tensor, options: EngineOptions) -> int:
    """One rank's bytes of a tensor."""
    if len(tensor.shape) < 2:
        return prod(tensor.shape) * element_bytes(options)
    return -(-tensor.size_bytes // options.tensor_parallel_size)
