"""How a layer's numbers are stored: bytes of one rank's weights and scales in every format that vLLM loads.

Every scheme counts what vLLM registers for the layer before the first token: the weight, its scales and zero points.
Source: vLLM 0.32 ``layers/quantization``: ``fp8.py``, ``modelopt.py``, ``compressed_tensors``, ``auto_gptq.py``,
``auto_awq.py``, ``mxfp4.py``; ``layers/linear.py`` and ``layers/fused_moe/unquantized_fused_moe_method.py``.
"""

from math import gcd
from typing import Protocol

import msgspec

from fitserve.memory.weights.shapes import ExpertsShape, LinearShape, ceil_div, round_up

_SCALE = 4
"""Scales of tensors, channels and 8 bit blocks are float32."""


class Scheme(Protocol):
    """A way to store the weights of linear layers and of routed experts."""

    def linear(self, shape: LinearShape) -> int:
        """Bytes of one rank's part of a linear layer, without its bias."""

    def experts(self, shape: ExpertsShape) -> int:
        """Bytes of one rank's routed experts, with their biases."""


def _first(shape: ExpertsShape) -> int:
    """Rows of an expert's first product."""
    return shape.projections * shape.intermediate


def _expert_numbers(shape: ExpertsShape) -> int:
    """Weights of one expert on this rank."""
    return (shape.projections + 1) * shape.intermediate * shape.hidden


def expert_biases(shape: ExpertsShape) -> int:
    """Bytes of the biases of a rank's experts."""
    if not shape.biased:
        return 0
    return shape.experts * (_first(shape) + shape.hidden) * shape.element_bytes


class Plain(msgspec.Struct, frozen=True):
    """Unquantised: every number in the model's dtype."""

    def linear(self, shape: LinearShape) -> int:
        """One number each."""
        return shape.rows * shape.inputs * shape.element_bytes

    def experts(self, shape: ExpertsShape) -> int:
        """One number each."""
        return shape.experts * _expert_numbers(shape) * shape.element_bytes + expert_biases(shape)


class PerTensor(msgspec.Struct, frozen=True):
    """8 bit with one scale a tensor (FP8, or INT8); static activations add one scale more."""

    static_activation: bool = False

    def linear(self, shape: LinearShape) -> int:
        """A byte a number, and a scale for each fused part."""
        return shape.rows * shape.inputs + _SCALE * len(shape.outputs) * (1 + self.static_activation)

    def experts(self, shape: ExpertsShape) -> int:
        """A byte a number, and a scale for each projection of each expert."""
        scales = shape.projections + 1 + (2 if self.static_activation else 0)
        return shape.experts * (_expert_numbers(shape) + _SCALE * scales) + expert_biases(shape)


class PerChannel(msgspec.Struct, frozen=True):
    """8 bit with one float32 scale a row (FP8 or INT8); ``bounded``: a bound of the inputs' scale besides (FBGEMM)."""

    static_activation: bool = False
    bounded: bool = False

    def linear(self, shape: LinearShape) -> int:
        """A byte a number, and a scale for each row."""
        inputs = _SCALE * len(shape.outputs) if self.static_activation else 0
        return shape.rows * (shape.inputs + _SCALE) + inputs + _SCALE * self.bounded

    def experts(self, shape: ExpertsShape) -> int:
        """A byte a number, and a scale for each row of each expert."""
        rows = _first(shape) + shape.hidden
        inputs = 2 * _SCALE if self.static_activation else 0
        return shape.experts * (_expert_numbers(shape) + _SCALE * rows + inputs) + expert_biases(shape)


class PerBlock(msgspec.Struct, frozen=True):
    """8 bit with one scale a block of rows and columns (128 x 128)."""

    rows: int = 128
    columns: int = 128
    scale_bytes: int = _SCALE

    def linear(self, shape: LinearShape) -> int:
        """A byte a number, and a scale for each block that is begun."""
        blocks = ceil_div(shape.rows, self.rows) * ceil_div(shape.inputs, self.columns)
        return shape.rows * shape.inputs + self.scale_bytes * blocks

    def experts(self, shape: ExpertsShape) -> int:
        """The same, for each expert and projection; smaller blocks where the ranks cut through them."""
        rows, columns = self._expert_block(shape)
        first = shape.projections * ceil_div(shape.intermediate, rows) * ceil_div(shape.hidden, columns)
        second = ceil_div(shape.hidden, rows) * ceil_div(shape.intermediate, columns)
        each = _expert_numbers(shape) + self.scale_bytes * (first + second)
        return shape.experts * each + expert_biases(shape)

    def _expert_block(self, shape: ExpertsShape) -> tuple[int, int]:
        """Source: vLLM 0.32 ``layers/fused_moe/oracle/fp8.py`` (``refine_fp8_moe_block_shape``)."""
        divided = shape.intermediate != shape.all_intermediate
        if shape.intermediate % self.rows == 0 and not (divided and shape.intermediate % self.columns):
            return self.rows, self.columns
        refined = gcd(self.rows, self.columns, shape.intermediate, shape.hidden)
        return (refined, refined) if refined >= 32 else (self.rows, self.columns)


class MicroBlock(msgspec.Struct, frozen=True):
    """4 or 8 bit floats with a one-byte scale for each few columns (NVFP4: 16; MXFP8 and MXFP4: 32).

    Attributes:
        bits: of one number.
        group: columns that share a scale.
        tensor_scale: NVFP4 has a float32 scale a tensor besides.
        activation_scale: and one for its inputs.
        weight_only: the inputs' scale of linear layers is kept in the model's dtype, and not used.
    """

    bits: int
    group: int
    tensor_scale: bool = False
    activation_scale: bool = False
    weight_only: bool = False

    def linear(self, shape: LinearShape) -> int:
        """Packed numbers, block scales, tensor scales."""
        each = shape.inputs * self.bits // 8 + shape.inputs // self.group
        scales = _SCALE * self.tensor_scale
        if self.activation_scale:
            scales += shape.element_bytes if self.weight_only else _SCALE
        return shape.rows * each + scales * len(shape.outputs)

    def experts(self, shape: ExpertsShape) -> int:
        """The same, for each expert and projection."""
        first = _first(shape) * (shape.hidden * self.bits // 8 + shape.hidden // self.group)
        second = shape.hidden * (shape.intermediate * self.bits // 8 + shape.intermediate // self.group)
        scales = _SCALE * (shape.projections + 1) * (self.tensor_scale + self.activation_scale)
        return shape.experts * (first + second + scales) + expert_biases(shape)


class PaddedMxfp4(msgspec.Struct, frozen=True):
    """gpt-oss' experts: 4 bit floats, a one-byte scale for each 32 columns, both widths padded for the kernel.

    Attributes:
        hidden_multiple: the kernel's step of the hidden width.
        intermediate_multiple: and of the width inside an expert.
    """

    hidden_multiple: int
    intermediate_multiple: int

    def linear(self, shape: LinearShape) -> int:
        """Linear layers stay in the model's dtype."""
        return Plain().linear(shape)

    def experts(self, shape: ExpertsShape) -> int:
        """Padded widths, packed by two, with biases in the model's dtype."""
        padded = shape._replace(
            hidden=round_up(shape.hidden, self.hidden_multiple),
            intermediate=round_up(shape.intermediate, self.intermediate_multiple),
        )
        return MicroBlock(bits=4, group=32).experts(padded)
