"""Integers packed into 32 bit words with a scale for each group of columns: GPTQ, AWQ and compressed-tensors.

Source: vLLM 0.32 ``layers/quantization/auto_gptq.py``, ``auto_awq.py``,
``compressed_tensors/schemes/compressed_tensors_wNa16.py``, ``compressed_tensors_moe/compressed_tensors_moe_wna16.py``.
"""

import msgspec

from fitserve.memory.weights.schemes import expert_biases
from fitserve.memory.weights.shapes import ExpertsShape, LinearShape

_WORD = 4


class Gptq(msgspec.Struct, frozen=True):
    """GPTQ: packed along the columns, zero points always, and the order of the columns."""

    bits: int
    group: int
    desc_act: bool = False

    def _groups(self, inputs: int, all_inputs: int) -> int:
        if self.group == -1:
            return 1
        return (all_inputs if self.desc_act else inputs) // self.group

    def linear(self, shape: LinearShape) -> int:
        """Words, order, zero points, scales."""
        groups = self._groups(shape.inputs, shape.all_inputs)
        weight = shape.inputs * self.bits // 32 * shape.rows * _WORD
        zeros = groups * (shape.rows * self.bits // 32) * _WORD
        return weight + shape.inputs * _WORD + zeros + groups * shape.rows * shape.element_bytes

    def experts(self, shape: ExpertsShape) -> int:
        """Words, zero points and scales of both products of each expert."""
        total = 0
        for rows, inputs in (
            (shape.projections * shape.intermediate, shape.hidden),
            (shape.hidden, shape.intermediate),
        ):
            groups = 1 if self.group == -1 else inputs // self.group
            total += inputs * self.bits // 32 * rows * _WORD
            total += groups * (rows * shape.element_bytes + rows * self.bits // 32 * _WORD)
        return shape.count * total + expert_biases(shape)


class Awq(msgspec.Struct, frozen=True):
    """AWQ: packed along the rows, with zero points."""

    bits: int
    group: int

    def linear(self, shape: LinearShape) -> int:
        """Words, zero points, scales."""
        groups = 1 if self.group == -1 else shape.inputs // self.group
        packed_rows = shape.rows * self.bits // 32 * _WORD
        return packed_rows * (shape.inputs + groups) + groups * shape.rows * shape.element_bytes

    def experts(self, shape: ExpertsShape) -> int:
        """The same for both products of each expert."""
        first_rows = shape.projections * shape.intermediate
        first = LinearShape((first_rows,), shape.hidden, shape.hidden, shape.element_bytes)
        second = LinearShape((shape.hidden,), shape.intermediate, shape.intermediate, shape.element_bytes)
        return shape.count * (self.linear(first) + self.linear(second)) + expert_biases(shape)


class PackedGroups(msgspec.Struct, frozen=True):
    """compressed-tensors' ``pack-quantized``: words, a scale a group or a row, the unpacked shape.

    Attributes:
        bits: of one number.
        group: columns that share a scale; -1: the whole row.
        symmetric: there are no zero points.
    """

    bits: int
    group: int
    symmetric: bool = True

    def _groups(self, inputs: int) -> int:
        return 1 if self.group == -1 else inputs // self.group

    def linear(self, shape: LinearShape) -> int:
        """Words, scales, zero points, and two 64 bit numbers for the shape."""
        groups = self._groups(shape.inputs)
        weight = shape.rows * (shape.inputs * self.bits // 32) * _WORD
        zeros = 0 if self.symmetric else (shape.rows * self.bits // 32) * groups * _WORD
        return weight + groups * shape.rows * shape.element_bytes + zeros + 16

    def experts(self, shape: ExpertsShape) -> int:
        """Both products of each expert, and their shapes in the model's dtype."""
        first_rows = shape.projections * shape.intermediate
        total = 0
        for rows, inputs in ((first_rows, shape.hidden), (shape.hidden, shape.intermediate)):
            groups = self._groups(inputs)
            total += rows * (inputs * self.bits // 32) * _WORD + groups * rows * shape.element_bytes
            total += 0 if self.symmetric else (rows * self.bits // 32) * groups * _WORD
            total += 2 * shape.element_bytes
        return shape.count * total + expert_biases(shape)


class Bitsandbytes(msgspec.Struct, frozen=True):
    """bitsandbytes in 4 bit: two numbers a byte, and a float32 maximum for each 64 numbers.

    Source: vLLM 0.32 ``model_loader/bitsandbytes_loader.py`` (nested statistics are unpacked while loading).
    """

    def linear(self, shape: LinearShape) -> int:
        """Packed numbers and their maxima."""
        numbers = shape.rows * shape.inputs
        return numbers // 2 + numbers // 64 * _WORD

    def experts(self, shape: ExpertsShape) -> int:
        """The same for each expert."""
        numbers = shape.count * (shape.projections + 1) * shape.intermediate * shape.hidden
        return numbers // 2 + numbers // 64 * _WORD + expert_biases(shape)
