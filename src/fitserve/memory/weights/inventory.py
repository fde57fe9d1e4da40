"""What one rank holds, counted layer by layer as vLLM builds the model.

A family of architectures names its layers to an ``Inventory``; the inventory divides them over the ranks, asks the
checkpoint's quantisation how each is stored, and adds up. Equal layers are counted once.

Source: vLLM 0.32 ``layers/linear.py``, ``layers/vocab_parallel_embedding.py``, ``layers/attention/attention.py``.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from fitserve.memory.weights.quantiser import Quantiser
from fitserve.memory.weights.shapes import (
    VOCABULARY_PADDING,
    ExpertsShape,
    LinearShape,
    divided,
    experts_on_rank,
    kv_heads_on_rank,
    round_up,
)

if TYPE_CHECKING:
    from fitserve.memory.weights.lora import Adapters, Placement

_QKV = ("q_proj", "k_proj", "v_proj")
_GATE_UP = ("gate_proj", "up_proj")


class Inventory:
    """Parameters and buffers of one rank, growing while a family names its layers.

    Attributes:
        params: bytes of parameters so far.
        buffers: bytes of buffers so far, without the rotary caches that layers share.
        tp: ranks that share the layers.
        stacked: bytes of the parameters in stacks of layers, which are what can be offloaded.
        stack_layers: how many layers those are.
        element: bytes of one number of the model's dtype.
        adapters: the slots for LoRA adapters; None without them.
    """

    def __init__(
        self,
        quantiser: Quantiser,
        *,
        tp: int,
        element: int,
        expert_ranks: int,
        expert_rank: int,
        expert_shares: int | None = None,
        redundant_experts: int = 0,
        adapters: "Adapters | None" = None,
    ) -> None:
        self.params = 0
        self.buffers = 0
        self.tp = tp
        self.element = element
        self.expert_ranks = expert_ranks
        self.expert_rank = expert_rank
        self.expert_shares = tp if expert_shares is None else expert_shares
        self.redundant_experts = redundant_experts
        self.stacked = self.stack_layers = 0
        self.quantiser = quantiser
        self.adapters = adapters
        self._rotary: dict[Hashable, int] = {}

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all buffers."""
        return self.buffers + sum(self._rotary.values())

    def numbers(self, count: int, element: int | None = None) -> None:
        """Unquantised numbers that every rank holds: norms, gates, biases."""
        self.params += count * (self.element if element is None else element)

    def column(
        self,
        name: str,
        inputs: int,
        outputs: int | tuple[int, ...],
        *,
        bias: bool = False,
        shards: tuple[str, ...] = (),
        whole: bool = False,
    ) -> None:
        """A linear layer whose outputs are shared out; every rank holds it ``whole`` where vLLM replicates it."""
        parts = (outputs,) if isinstance(outputs, int) else outputs
        if not whole and self.tp > 1:
            parts = tuple(divided(part, self.tp, f"the width of {name},") for part in parts)
        placement: Placement = "whole" if whole else "column"
        self._linear(name, placement, LinearShape(parts, inputs, inputs, self.element), bias, shards)

    def row(self, name: str, inputs: int, outputs: int, *, bias: bool = False, whole: bool = False) -> None:
        """A linear layer whose inputs are shared out; each rank holds the bias."""
        share = inputs if whole else divided(inputs, self.tp, f"the width of {name},")
        placement: Placement = "whole" if whole else "row"
        self._linear(name, placement, LinearShape((outputs,), share, inputs, self.element), bias, ())

    def qkv(
        self,
        name: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        value_dim: int | None = None,
        bias: bool = False,
        shards: tuple[str, ...] = _QKV,
        whole: bool = False,
    ) -> None:
        """Query, key and value in one layer; key and value heads repeat where there are fewer than ranks."""
        tp = 1 if whole else self.tp
        own_heads = divided(heads, tp, "num_attention_heads")
        own_kv_heads = kv_heads_on_rank(kv_heads, tp)
        values = own_kv_heads * (head_dim if value_dim is None else value_dim)
        parts = (own_heads * head_dim, own_kv_heads * head_dim, values)
        self._linear(name, "qkv", LinearShape(parts, hidden, hidden, self.element), bias, shards)

    def gate(self, name: str, inputs: int, outputs: int, element: int | None = None) -> None:
        """What routes tokens to experts: never quantised, whole on every rank."""
        self.numbers(inputs * outputs, element)
        if self.adapters is not None:
            self.adapters.linear(name, "whole", LinearShape((outputs,), inputs, inputs, self.element))

    def convolution(self, name: str, kernel: int, parts: tuple[int, ...]) -> None:
        """A causal convolution, which vLLM keeps as a column layer: what adapters of it take; its weights are counted apart."""
        if self.adapters is not None:
            own = tuple(divided(part, self.tp, "the convolution") for part in parts)
            self.adapters.linear(name, "column", LinearShape(own, kernel, kernel, self.element))

    def _linear(
        self, name: str, placement: "Placement", shape: LinearShape, bias: bool, shards: tuple[str, ...]
    ) -> None:
        self.params += self.quantiser.linear(name, shards).linear(shape)
        if self.adapters is not None:
            self.adapters.linear(name, placement, shape)
        if bias:
            self.params += shape.rows * self.element

    def gated_mlp(
        self, name: str, hidden: int, intermediate: int, *, bias: bool = False, whole: bool = False
    ) -> None:
        """The gated feed-forward network of most models: gate and up in one layer, then down."""
        both = (intermediate, intermediate)
        self.column(f"{name}.gate_up_proj", hidden, both, bias=bias, shards=_GATE_UP, whole=whole)
        self.row(f"{name}.down_proj", intermediate, hidden, bias=bias, whole=whole)

    def experts(
        self,
        name: str,
        count: int,
        hidden: int,
        intermediate: int,
        *,
        projections: int = 2,
        biased: bool = False,
    ) -> None:
        """Routed experts: each shared out over the ranks, or whole experts dealt out under expert parallelism."""
        own, share = count, intermediate
        if self.expert_ranks > 1:
            held = count + self.redundant_experts
            own = experts_on_rank(held, self.expert_ranks, self.expert_rank)
            self.buffers += held * 4
        else:
            share = divided(intermediate, self.expert_shares, "the experts' intermediate size")
        shape = ExpertsShape(own, hidden, share, intermediate, projections, biased, self.element)
        self.params += self.quantiser.experts(name).experts(shape)
        if self.adapters is not None:
            self.adapters.experts(name, shape)

    def embedding(self, rows: int, width: int, *, padding: int = VOCABULARY_PADDING) -> None:
        """Token embeddings: the vocabulary padded, then shared out."""
        added = self.adapters.rows if self.adapters is not None else 0
        share = divided(round_up(rows + added, padding), self.tp, "the padded vocabulary")
        self.params += share * width * self.element
        if self.adapters is not None:
            self.adapters.embedding(rows, width)

    def head(
        self, name: str, rows: int, width: int, *, bias: bool = False, padding: int = VOCABULARY_PADDING
    ) -> None:
        """The output layer: the vocabulary padded, then shared out."""
        added = self.adapters.rows if self.adapters is not None else 0
        padded = round_up(rows + added, padding)
        share = divided(padded, self.tp, "the padded vocabulary")
        shape = LinearShape((share,), width, width, self.element)
        if self.adapters is not None:
            self.adapters.head(name, rows, width, padded)
        self.params += self.quantiser.head(name).linear(shape) + (share * self.element if bias else 0)

    def tied_head(self, name: str, rows: int, width: int, *, padding: int = VOCABULARY_PADDING) -> None:
        """An output layer that is the embeddings: only its adapters are its own."""
        if self.adapters is not None:
            self.adapters.head(name, rows, width, round_up(rows + self.adapters.rows, padding))

    def attention(self, *, latent: bool = False) -> None:
        """The four float32 scales that an attention layer keeps, and those of a quantised checkpoint.

        Args:
            latent: it is MLA, for which fewer methods have scales.
        """
        self.buffers += 16
        numbers, others = self.quantiser.latent_scales if latent else self.quantiser.kv_scales
        self.params += numbers * self.element + others

    def rotary(self, key: Hashable, size_bytes: int) -> None:
        """A cache of cosines and sines; layers with equal settings share one."""
        self._rotary[key] = size_bytes

    def layers(
        self, indices: Iterable[int], add: Callable[[int], None], kind: Callable[[int], Hashable]
    ) -> None:
        """Name the layers of a stack; layers of one kind that the quantisation treats alike are counted once."""
        first = self.params
        counted: dict[Hashable, tuple[int, int, int]] = {}
        for index in indices:
            self.stack_layers += 1
            key = (kind(index), self.quantiser.group(index))
            found = counted.get(key)
            if found is None:
                before = self._totals()
                add(index)
                after = self._totals()
                counted[key] = (after[0] - before[0], after[1] - before[1], after[2] - before[2])
            else:
                self.params += found[0]
                self.buffers += found[1]
                if self.adapters is not None:
                    self.adapters.bytes += found[2]
        self.stacked += self.params - first

    def _totals(self) -> tuple[int, int, int]:
        return self.params, self.buffers, self.adapters.bytes if self.adapters is not None else 0
