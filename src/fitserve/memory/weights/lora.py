"""What vLLM sets aside for LoRA adapters while it loads a model: two stacks of slots for every layer that an adapter may change.

    linear layer  slots x rank x (inputs + outputs) for each fused part      A for a part is not shared out, unless fully sharded
    experts       the same for each expert and product
    embeddings    slots x rank x (rows + width), in architectures that name them
    bookkeeping   where a batch's tokens belong: tokens and sequences times a few integers

The stacks are neither parameters nor buffers of the model, but vLLM's log counts them as weights: they are there before the profile run.

Source: vLLM 0.32 ``lora/layers/*.py``, ``lora/model_manager.py``, ``lora/punica_wrapper/*.py``; 0.6.6 to 0.26 where they differ.
"""

from typing import Literal

from fitserve.memory.history import at_least
from fitserve.memory.options import EngineOptions, LoraOptions
from fitserve.memory.weights.lora_targets import VERIFIED, Targets, targets_of
from fitserve.memory.weights.shapes import ExpertsShape, LinearShape, divided, round_up
from fitserve.units import Quantity

Placement = Literal["column", "row", "qkv", "whole"]
"""How a linear layer is divided: by its outputs, by its inputs, by heads, or not at all."""

_EXTRA_ROWS_ENDED = "0.12.0"
_EXTRA_ROWS = 256
_EXPERTS_SINCE = "0.11.1"
_SLICES_OF_A_MERGED_LAYER = 2


class Adapters:
    """The slots for adapters, growing while a family names its layers to an inventory.

    Attributes:
        bytes: what they take so far on this rank.
        rows: rows that each slot adds to the model's embeddings, in releases that let adapters have tokens of their own.
    """

    def __init__(
        self, lora: LoraOptions, options: EngineOptions, architecture: str, *, element: int, tp: int
    ) -> None:
        self._lora = lora
        self._tp = tp
        self._sharded = tp if lora.fully_sharded_loras else 1
        self._element = {"auto": element, "float16": 2, "bfloat16": 2, "float32": 4}.get(
            lora.lora_dtype, element
        )
        self._model_element = element
        self._targets: Targets = targets_of(architecture, options.vllm_version)
        self._experts = at_least(options.vllm_version, _EXPERTS_SINCE)
        extra = _EXTRA_ROWS if lora.lora_extra_vocab_size is None else lora.lora_extra_vocab_size
        old = not at_least(options.vllm_version, _EXTRA_ROWS_ENDED)
        self._extra = extra if old and self._targets.embeddings else 0
        self.rows = self._extra * lora.max_loras
        self.bytes = _bookkeeping(lora, options)

    def linear(self, name: str, placement: Placement, shape: LinearShape) -> None:
        """A linear layer.

        Args:
            name: vLLM's name of it.
            placement: how it is divided.
            shape: this rank's part.
        """
        if not self._is_target(name):
            return
        parts = self._slices(name, placement, shape)
        if placement == "row":
            outputs = divided(shape.rows, self._sharded, "the width of a fully sharded adapter's output")
            self._add(1, self._lora.max_lora_rank, shape.inputs, outputs)
        elif placement == "whole":
            self._add(parts, self._lora.max_lora_rank, shape.inputs, shape.rows if parts else 0)
        else:
            self._add(parts, self._shared_rank(), shape.inputs, shape.rows if parts else 0)

    def _slices(self, name: str, placement: Placement, shape: LinearShape) -> int:
        """How many adapters the fused parts of a layer have: one for all, one each, or none where vLLM cannot replace the layer."""
        fused = self._targets.fused(name)
        count = len(shape.outputs)
        if placement in ("row", "whole"):
            return count if placement == "whole" and fused == count else 1
        if placement == "qkv":
            return fused if fused in (1, 3) else 0
        if count == 1:
            return 1
        if count > _SLICES_OF_A_MERGED_LAYER or fused > _SLICES_OF_A_MERGED_LAYER:
            whole = self._lora.fully_sharded_loras and fused != _SLICES_OF_A_MERGED_LAYER
            return 0 if whole else count
        return {1: 1, 2: count}.get(fused, 0)

    def _shared_rank(self) -> int:
        return divided(self._lora.max_lora_rank, self._sharded, "max_lora_rank")

    def _add(self, slices: int, rank: int, inputs: int, outputs: int) -> None:
        """``slices`` stacks of A, and a stack of B that is as wide as all of them; a number more of B where it has a bias."""
        bias = int(self._lora.enable_lora_bias)
        numbers = slices * rank * inputs + outputs * (self._lora.max_lora_rank + bias)
        self.bytes += self._lora.max_loras * numbers * self._element

    def experts(self, name: str, shape: ExpertsShape) -> None:
        """Routed experts: from 0.11.1 on."""
        if not self._experts or not self._is_target(name):
            return
        lora, rank = self._lora, self._lora.max_lora_rank
        fused = self._targets.fused_experts and not (
            lora.enable_mixed_moe_lora_format or lora.enable_moe_shared_loras
        )
        slices = 1 if fused else shape.projections
        first_a = 1 if lora.enable_moe_shared_loras else shape.experts
        last_b = 1 if lora.enable_moe_shared_loras else shape.experts
        width = divided(shape.hidden, self._sharded, "the width of a fully sharded adapter's output")
        numbers = slices * first_a * self._shared_rank() * shape.hidden
        numbers += shape.experts * rank * shape.intermediate
        numbers += shape.experts * rank * shape.intermediate * shape.projections
        numbers += last_b * rank * width
        self.bytes += lora.max_loras * numbers * self._element + 4 * (lora.max_loras + 1)

    def embedding(self, rows: int, width: int) -> None:
        """Token embeddings, which every rank has whole."""
        wanted = self._lora.lora_target_modules
        if self._targets.embeddings and (wanted is None or "embed_tokens" in wanted):
            self._vocabulary(rows + self._extra, width)

    def head(self, name: str, rows: int, width: int, padded: int) -> None:
        """The output layer: its adapters see the logits of all ranks.

        Args:
            name: vLLM's name of it.
            rows: the vocabulary.
            width: columns.
            padded: the vocabulary as it is divided over the ranks.
        """
        if not self._targets.head or not self._is_target(name):
            return
        self._vocabulary(round_up(rows + self._extra, _EXTRA_ROWS) if self._extra else rows, width)
        if self._tp > 1:
            self.bytes += 8 * padded

    def _vocabulary(self, rows: int, width: int) -> None:
        lora = self._lora
        self.bytes += lora.max_loras * lora.max_lora_rank * (rows + width) * self._element
        self.bytes += lora.max_loras * self._extra * width * self._model_element

    def size(self, architecture: str) -> Quantity:
        """What the slots take; an interval where they were not compared with vLLM's own layers for this architecture."""
        if architecture in VERIFIED:
            return Quantity.exact(self.bytes, "computed", "slots for LoRA adapters")
        return Quantity(
            low=self.bytes // 2,
            expected=self.bytes,
            high=2 * self.bytes,
            basis="estimated",
            source=f"slots for LoRA adapters, as most models have them; {architecture}'s were not compared",
        )

    def _is_target(self, name: str) -> bool:
        if not self._targets.reaches(name):
            return False
        wanted = self._lora.lora_target_modules
        if wanted is None:
            return True
        suffix = name.rpartition(".")[2]
        return suffix in wanted or name in wanted or any(part in wanted for part in self._targets.parts(name))


def _bookkeeping(lora: LoraOptions, options: EngineOptions) -> int:
    """Where the tokens of a batch belong: four lists of a batch's tokens and three of its sequences, and those of the kernels."""
    tokens, seqs, slots = options.max_num_batched_tokens, options.max_num_seqs, lora.max_loras
    kernels = 2 * tokens + 2 * (slots + 1) + slots + 2
    return 8 * (4 * tokens + 3 * seqs) + 2 * 4 * kernels
