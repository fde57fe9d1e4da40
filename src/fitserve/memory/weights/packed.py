"""Integers packed into 32 bit words with a scale for each group of columns: GPTQ, AWQ and compressed-tensors.

Source: vLLM 0.32 ``layers/quantization/auto_gptq.py``, ``auto_awq.py``,
``compressed_tensors/schemes/compressed_tensors_wNa16.py``, ``compressed_tensors_moe/compressed_tensors_moe_wna16.py``.
"""

import msgspec

from fitserve.memory.weights.schemes import expert_biases
from fitserve.memory.weights.shapes import ExpertsShape, LinearShape, NotModelledError

_WORD = 4


def group_count(inputs: int, group: int) -> int:
    """Groups of columns that share a scale; one where the whole row does.

    Raises:
        NotModelledError: ranks cut through a group, which vLLM refuses or solves in its own way.
    """
    if group == -1:
        return 1
    if inputs % group:
        raise NotModelledError(f"a width of {inputs} on each rank is no multiple of the group size {group}")
    return inputs // group


class Gptq(msgspec.Struct, frozen=True):
    """GPTQ: packed along the columns, zero points always; experts have biases whether they use them or not."""

    bits: int
    group: int

    def _part(self, rows: int, inputs: int, element_bytes: int) -> int:
        groups = group_count(inputs, self.group)
        weight = inputs * self.bits // 32 * rows * _WORD
        return weight + groups * (rows * element_bytes + rows * self.bits // 32 * _WORD)

    def linear(self, shape: LinearShape) -> int:
        """Words, zero points, scales."""
        return self._part(shape.rows, shape.inputs, shape.element_bytes)

    def experts(self, shape: ExpertsShape) -> int:
        """The same for both products of each expert."""
        rows = shape.projections * shape.intermediate
        each = self._part(rows, shape.hidden, shape.element_bytes)
        each += self._part(shape.hidden, shape.intermediate, shape.element_bytes)
        return shape.experts * each + expert_biases(shape._replace(biased=True))


class Awq(msgspec.Struct, frozen=True):
    """AWQ: packed along the rows, with zero points."""

    bits: int
    group: int

    def linear(self, shape: LinearShape) -> int:
        """Words, zero points, scales."""
        groups = group_count(shape.inputs, self.group)
        packed_rows = shape.rows * self.bits // 32 * _WORD
        return packed_rows * (shape.inputs + groups) + groups * shape.rows * shape.element_bytes

    def experts(self, shape: ExpertsShape) -> int:
        """The same for both products of each expert."""
        first_rows = shape.projections * shape.intermediate
        first = LinearShape((first_rows,), shape.hidden, shape.hidden, shape.element_bytes)
        second = LinearShape((shape.hidden,), shape.intermediate, shape.intermediate, shape.element_bytes)
        return shape.experts * (self.linear(first) + self.linear(second)) + expert_biases(shape)


class PackedGroups(msgspec.Struct, frozen=True):
    """compressed-tensors' ``pack-quantized``: words, a scale a group or a row, the unpacked shape.

    Attributes:
        bits: of one number.
        group: columns that share a scale; -1: the whole row.
        symmetric: there are no zero points.
        indices: experts keep the order of their columns, twice, which Marlin's kernel gives up after loading. Releases
            to 0.29 have it (0.9 to 0.29 read).
    """

    bits: int
    group: int
    symmetric: bool = True
    indices: bool = False

    def linear(self, shape: LinearShape) -> int:
        """Words, scales, zero points, and two 64 bit numbers for the shape."""
        groups = group_count(shape.inputs, self.group)
        weight = shape.rows * (shape.inputs * self.bits // 32) * _WORD
        zeros = 0 if self.symmetric else (shape.rows * self.bits // 32) * groups * _WORD
        return weight + groups * shape.rows * shape.element_bytes + zeros + 16

    def experts(self, shape: ExpertsShape) -> int:
        """Both products of each expert, and their shapes in the model's dtype."""
        first_rows = shape.projections * shape.intermediate
        total = 0
        for rows, inputs in ((first_rows, shape.hidden), (shape.hidden, shape.intermediate)):
            groups = group_count(inputs, self.group)
            total += rows * (inputs * self.bits // 32) * _WORD + groups * rows * shape.element_bytes
            total += 0 if self.symmetric else (rows * self.bits // 32) * groups * _WORD
            total += 2 * shape.element_bytes
            total += 2 * inputs * _WORD if self.indices else 0
        return shape.experts * total + expert_biases(shape)


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
        numbers = shape.experts * (shape.projections + 1) * shape.intermediate * shape.hidden
        return numbers // 2 + numbers // 64 * _WORD + expert_biases(shape)
