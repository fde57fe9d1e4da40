"""Bytes of parameters and buffers that each rank of a start holds."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.available import is_foreign
from fitserve.memory.history import release
from fitserve.memory.options import Drafting, EngineOptions
from fitserve.memory.weights.detect import quantiser_for
from fitserve.memory.weights.families.registry import FAMILIES, Family
from fitserve.memory.weights.inventory import Inventory
from fitserve.memory.weights.model import Build
from fitserve.memory.weights.quantiser import Quantiser
from fitserve.memory.weights.shapes import NotModelledError
from fitserve.units import Basis, Quantity, Unknown

if TYPE_CHECKING:
    from fitserve.memory.weights.lora import Adapters

_NOTHING = Quantity.exact(0, "computed", "not asked for")


class RankWeights(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank holds before the first request.

    Attributes:
        rank: its number: pipeline stages one after the other, tensor parallel ranks within each.
        param_bytes: parameters: weights, scales, zero points, norms.
        buffer_bytes: what vLLM keeps besides: the caches of positions, scales of attention layers.
        lora_bytes: what is set aside for LoRA adapters.
        draft_bytes: the modules or the model that draft tokens.
        stack_bytes: parameters in the stack of layers, which can be offloaded; None where that is not known.
        stack_layers: how many layers those are on this rank.
    """

    rank: int
    param_bytes: Quantity
    buffer_bytes: Quantity
    lora_bytes: Quantity = _NOTHING
    draft_bytes: Quantity = _NOTHING
    stack_bytes: int | None = None
    stack_layers: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it, as expected."""
        parts = (self.param_bytes, self.buffer_bytes, self.lora_bytes, self.draft_bytes)
        return sum(part.expected for part in parts)


def element_bytes(options: EngineOptions) -> int:
    """Bytes of one number in the dtype that vLLM computes in.

    ``auto`` takes the checkpoint's dtype, and 16 bit where that is float32.
    Source: vLLM 0.32 ``config/model.py`` (``_resolve_auto_dtype``).
    """
    return 4 if options.dtype in ("float32", "float") else 2


def config_weights(config: ModelConfig, options: EngineOptions) -> tuple[RankWeights, ...] | Unknown:
    """Every rank's weights, computed from the configuration alone.

    Raises:
        InputError: the configuration lacks a number or has an absurd one.
    """
    family = FAMILIES.get(config.architecture)
    if family is None:
        return Unknown(f"the weights of {config.architecture} are not modelled")
    if is_foreign(config.architecture, options.vllm_version):
        return Unknown(
            f"vLLM {release(options.vllm_version)} has no {config.architecture} of its own, and what transformers makes of it is not modelled"
        )
    if options.lora is not None:
        from fitserve.memory.weights.lora_targets import why_no_adapters

        refused = why_no_adapters(config.architecture, options.vllm_version)
        if refused:
            return Unknown(refused)
    try:
        return _with_draft(_ranks(config, options, family), config, options, family)
    except NotModelledError as reason:
        return Unknown(f"the weights are not known: {reason}")
    except ZeroDivisionError:
        return Unknown(
            f"the weights are not known: {config.source} has a 0 where heads or layers are counted"
        )


def _ranks(config: ModelConfig, options: EngineOptions, family: Family) -> tuple[RankWeights, ...]:
    version = str(release(options.vllm_version))
    quantiser = quantiser_for(config, options.quantization, family.renames, version)
    buffer_size = partial(Quantity.exact, basis="computed", source=config.source)
    tp, experts = options.tensor_parallel_size, options.enable_expert_parallel
    found: list[RankWeights] = []
    for rank in range(tp * options.pipeline_parallel_size):
        if rank % tp and not experts:
            found.append(msgspec.structs.replace(found[-1], rank=rank))
            continue
        inventory = _filled(config, options, family, quantiser, rank)
        adapters = inventory.adapters
        others = [inventory.params]
        if quantiser.other is not None:
            others.append(_filled(config, options, family, quantiser.other, rank).params)
        params = Quantity(
            low=min(others),
            expected=inventory.params,
            high=max(others),
            basis="computed",
            source=config.source,
        )
        found.append(
            RankWeights(
                rank=rank,
                param_bytes=params,
                buffer_bytes=buffer_size(inventory.buffer_bytes),
                stack_bytes=inventory.stacked,
                stack_layers=inventory.stack_layers,
                lora_bytes=adapters.size(config.architecture) if adapters else _NOTHING,
            )
        )
    return tuple(found)


def _with_draft(
    ranks: tuple[RankWeights, ...], config: ModelConfig, options: EngineOptions, family: Family
) -> tuple[RankWeights, ...]:
    """The ranks with what drafts, which stands on the last stage."""
    if options.drafting is None:
        return ranks
    tp = options.tensor_parallel_size
    first = len(ranks) - tp
    sizes = [
        _draft_size(config, options, options.drafting, family, rank) for rank in range(first, len(ranks))
    ]
    return ranks[:first] + tuple(
        msgspec.structs.replace(rank, draft_bytes=size)
        for rank, size in zip(ranks[first:], sizes, strict=True)
    )


def _draft_size(
    config: ModelConfig, options: EngineOptions, drafting: Drafting, family: Family, rank: int
) -> Quantity:
    """What drafts on one rank.

    Raises:
        NotModelledError: it is not known.
    """
    from fitserve.memory.weights.drafts import counts_as, draft_bytes, without_draft

    source = f"drafting by {drafting.model or drafting.method}"
    version = str(release(options.vllm_version))
    if drafting.method == "draft_model" and drafting.config is not None:
        found = config_weights(drafting.config, without_draft(options))
        if isinstance(found, Unknown):
            raise NotModelledError(f"the drafting model: {found.unknown}")
        return Quantity.exact(found[rank % options.tensor_parallel_size].total_bytes, "computed", source)
    own = quantiser_for(config, options.quantization, family.renames, version)
    build = Build(config, options, _inventory(own, config, without_draft(options), rank), rank)
    draft = None
    if drafting.config is not None:
        reason = counts_as(drafting.config, drafting.method)
        if reason:
            raise NotModelledError(reason)
        beside = quantiser_for(drafting.config, drafting.quantization, (), version)
        inventory = _inventory(beside, drafting.config, without_draft(options), rank)
        draft = Build(drafting.config, options, inventory, rank)
    size = draft_bytes(build, draft, drafting)
    kind: Basis = "computed" if size.low == size.high else "estimated"
    return Quantity(low=size.low, expected=size.low, high=size.high, basis=kind, source=source)


def _filled(
    config: ModelConfig, options: EngineOptions, family: Family, quantiser: Quantiser, rank: int
) -> Inventory:
    """What one rank holds."""
    inventory = _inventory(quantiser, config, options, rank)
    family.count(Build(config, options, inventory, rank // options.tensor_parallel_size))
    return inventory


def _inventory(quantiser: Quantiser, config: ModelConfig, options: EngineOptions, rank: int) -> Inventory:
    """An empty one for a rank; the ranks of data and prefill context parallelism share the experts too.

    Source: ``FusedMoEParallelConfig.make`` of vLLM 0.9.2 to 0.32.
    """
    tp = options.tensor_parallel_size
    shares = tp * options.data_parallel_size * options.prefill_context_parallel_size
    element = element_bytes(options)
    return Inventory(
        quantiser,
        tp=tp,
        element=element,
        adapters=_adapters(config, options),
        expert_ranks=shares if options.enable_expert_parallel else 1,
        expert_shares=shares,
        redundant_experts=options.num_redundant_experts,
        expert_rank=rank % tp,
    )


def _adapters(config: ModelConfig, options: EngineOptions) -> "Adapters | None":
    """The slots for adapters; a start without them imports nothing for them."""
    if options.lora is None:
        return None
    from fitserve.memory.weights.lora import Adapters

    tp, element = options.tensor_parallel_size, element_bytes(options)
    return Adapters(options.lora, options, config.architecture, element=element, tp=tp)
