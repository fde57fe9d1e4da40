"""How layers are put into groups that share one block table.

Source: ``get_kv_cache_groups`` and what it calls in ``v1/core/kv_cache_utils.py``, vLLM 0.9.1 to 0.32
(``v1/core/kv_cache_planning.py`` in 0.33).
"""

from collections.abc import Sequence

import msgspec

from fitserve.memory.kv.pages import ceil_div
from fitserve.memory.kv.rules import Rules
from fitserve.memory.kv.values import LayerSpec


class Group(msgspec.Struct, frozen=True):
    """Layers that share a block table.

    Attributes:
        parts: the specs and, of each, how many layers every pipeline stage holds; one part where all pages are equal.
    """

    parts: tuple[tuple[LayerSpec, tuple[int, ...]], ...]

    @property
    def spec(self) -> LayerSpec:
        """The first layer's spec."""
        return self.parts[0][0]

    @property
    def layers(self) -> int:
        """Layers over all stages."""
        return sum(sum(counts) for _, counts in self.parts)

    def stage_layers(self, stage: int) -> int:
        """Layers of one stage."""
        return sum(counts[stage] for _, counts in self.parts)

    def stage_bytes(self, stage: int) -> int:
        """Bytes of one block of all the layers of one stage."""
        return sum(spec.page_bytes * counts[stage] for spec, counts in self.parts)


def build_groups(
    specs: Sequence[LayerSpec], stages: int, rules: Rules, *, hybrid: bool
) -> list[Group] | None:
    """The groups, or None where this release cannot give these layers one pool.

    Args:
        specs: the layers.
        stages: pipeline stages.
        rules: the release's rules.
        hybrid: windows and chunks may have groups of their own.
    """
    merged = merge(specs if hybrid else promote(specs))
    if not hybrid and len(merged) > 1 and not _uniform(merged, rules):
        return None
    if len(merged) <= 1 or (_uniform(merged, rules) and (rules.mixed_pages or _equal_pages(merged))):
        return [Group(tuple((spec, _counts(spec, stages)) for spec in merged))] if merged else []
    equal = _equal_pages_of(merged, rules)
    if equal is None:
        return None
    merged = merge(equal)
    size = _group_size([len(spec.layers) for spec in merged], rules)
    groups = []
    for spec in merged:
        number = ceil_div(len(spec.layers), size)
        for index in range(number):
            groups.append(Group(((spec, _counts(spec, stages, index, number)),)))
    return groups


def promote(specs: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Windows and chunks beside full attention, as full attention."""
    if not any(spec.kind in ("full", "mla") for spec in specs):
        return list(specs)
    return [
        msgspec.structs.replace(spec, kind="full", window=None)
        if spec.kind in ("sliding", "chunked")
        else spec
        for spec in specs
    ]


def merge(specs: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Specs of the same page as one, with their layers in the model's order."""
    by_key: dict[tuple[object, ...], LayerSpec] = {}
    for spec in specs:
        known = by_key.get(spec.key)
        by_key[spec.key] = spec if known is None else _joined(known, spec)
    return list(by_key.values())


def _joined(first: LayerSpec, second: LayerSpec) -> LayerSpec:
    layers = first.layers + second.layers
    stages = first.stages + second.stages if first.stages or second.stages else ()
    order = sorted(range(len(layers)), key=layers.__getitem__)
    return msgspec.structs.replace(
        first,
        layers=tuple(layers[index] for index in order),
        stages=tuple(stages[index] for index in order) if stages else (),
    )


def _uniform(specs: Sequence[LayerSpec], rules: Rules) -> bool:
    """All layers are of one kind with one block size, so one block table serves them."""
    first = specs[0]
    if any(spec.block_size != first.block_size for spec in specs):
        return False
    if first.kind in ("full", "mla"):
        return all(spec.kind in ("full", "mla") for spec in specs)
    if first.kind == "state":
        return all(
            spec.kind == "state"
            and spec.state_pages == first.state_pages
            and (spec.page_bytes == first.page_bytes or not rules.pads_groups)
            for spec in specs
        )
    return all(spec.kind == first.kind and spec.window == first.window for spec in specs)


def _equal_pages(specs: Sequence[LayerSpec]) -> bool:
    return len({spec.page_bytes for spec in specs}) == 1


def _equal_pages_of(specs: Sequence[LayerSpec], rules: Rules) -> list[LayerSpec] | None:
    """The specs with pages of one size: larger blocks where they divide it, padding where that is allowed."""
    largest = max(spec.page_bytes for spec in specs)
    equal = []
    for spec in specs:
        if spec.page_bytes == largest:
            equal.append(spec)
        elif spec.kind == "state":
            if not rules.pads_states:
                return None
            equal.append(msgspec.structs.replace(spec, page_bytes=largest, padded=True))
        elif rules.scales_blocks and largest % spec.page_bytes == 0 and not spec.padded:
            scale = largest // spec.page_bytes
            equal.append(
                msgspec.structs.replace(spec, page_bytes=largest, block_size=spec.block_size * scale)
            )
        elif rules.pads_pages and spec.kind != "mla":
            equal.append(msgspec.structs.replace(spec, page_bytes=largest, padded=True))
        else:
            return None
    return equal


def _group_size(layers: Sequence[int], rules: Rules) -> int:
    """Layers a group: those of the rarest kind, or of the commonest where padding it is cheap."""
    smallest, largest = min(layers), max(layers)
    return largest if largest < smallest * rules.group_ratio else smallest


def _counts(spec: LayerSpec, stages: int, index: int = 0, number: int = 1) -> tuple[int, ...]:
    """Layers of every stage in the ``index``-th of ``number`` groups: every ``number``-th layer belongs to it."""
    if stages == 1:
        return (len(range(index, len(spec.layers), number)),)
    chosen = spec.stages[index::number]
    return tuple(chosen.count(stage) for stage in range(stages))
