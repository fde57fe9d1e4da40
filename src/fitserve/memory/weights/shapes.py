"""The shapes that one rank holds, and the arithmetic of dividing them.

Source: vLLM 0.32 ``distributed/utils.py`` (``divide``, ``get_pp_indices``), ``model_executor/layers/linear.py``,
``layers/vocab_parallel_embedding.py``, ``layers/fused_moe/layer.py``.
"""

from itertools import pairwise
from typing import NamedTuple

VOCABULARY_PADDING = 64


class NotModelledError(Exception):
    """The weights cannot be counted exactly; its text says what stands in the way, for an ``Unknown``."""


class LinearShape(NamedTuple):
    """One rank's part of a linear layer.

    Attributes:
        outputs: rows of each fused part (q, k, v) on this rank.
        inputs: columns on this rank.
        all_inputs: columns over all ranks.
        element_bytes: bytes of one number of the model's dtype.
    """

    outputs: tuple[int, ...]
    inputs: int
    all_inputs: int
    element_bytes: int

    @property
    def rows(self) -> int:
        """Rows of all fused parts on this rank."""
        return sum(self.outputs)


class ExpertsShape(NamedTuple):
    """One rank's part of a layer of routed experts.

    Attributes:
        experts: experts on this rank.
        hidden: width that an expert reads and writes.
        intermediate: width inside one expert on this rank.
        all_intermediate: that width over all ranks.
        projections: parts of the first product: 2 where it is gated, 1 where not.
        biased: both products add a bias.
        element_bytes: bytes of one number of the model's dtype.
    """

    experts: int
    hidden: int
    intermediate: int
    all_intermediate: int
    projections: int
    biased: bool
    element_bytes: int


def divided(total: int, ranks: int, what: str) -> int:
    """An equal share.

    Raises:
        NotModelledError: the ranks do not divide it; vLLM refuses such a start.
    """
    share, rest = divmod(total, ranks)
    if rest:
        raise NotModelledError(f"{what} {total} is not divisible by tensor_parallel_size {ranks}")
    return share


def ceil_div(total: int, part: int) -> int:
    """The number of parts that cover a total."""
    return -(-total // part)


def round_up(total: int, multiple: int) -> int:
    """The next multiple."""
    return -(-total // multiple) * multiple


def kv_heads_on_rank(kv_heads: int, ranks: int) -> int:
    """Key and value heads on one rank: shared out, or repeated where there are fewer than ranks."""
    if kv_heads < 1:
        raise NotModelledError("num_key_value_heads 0")
    if kv_heads >= ranks:
        return divided(kv_heads, ranks, "num_key_value_heads")
    if ranks % kv_heads:
        raise NotModelledError(
            f"tensor_parallel_size {ranks} is not a multiple of num_key_value_heads {kv_heads}"
        )
    return 1


def stage_layers(layers: int, stages: int) -> tuple[range, ...]:
    """The layers of each pipeline stage: equal, and what is left over goes to the stages before the last.

    Source: vLLM 0.32 ``distributed/utils.py`` (``get_pp_indices``).
    """
    counts = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        counts[-back] += 1
    bounds = [sum(counts[:index]) for index in range(stages + 1)]
    return tuple(range(first, last) for first, last in pairwise(bounds))


def experts_on_rank(experts: int, ranks: int, rank: int) -> int:
    """Experts on one rank under expert parallelism: equal, and the first ranks take one more.

    Source: vLLM 0.32 ``layers/fused_moe/expert_map_manager.py``.
    """
    share, rest = divmod(experts, ranks)
    return share + (rank < rest)
