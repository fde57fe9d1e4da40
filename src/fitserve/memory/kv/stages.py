"""Which pipeline stage holds which layer.

Source: ``get_pp_indices`` in ``distributed/utils.py``, vLLM 0.6 to 0.33.
"""

from fitserve.memory.history import at_least


def stage_sizes(layers: int, stages: int, version: str | None) -> list[int]:
    """Layers of every stage: equal parts; what is left over goes to the middle, before 0.7 to the last.

    From 0.7 on the first of the later stages and the last one carry the embeddings, so the others take more, counted
    from the last but one.
    """
    sizes = [layers // stages] * stages
    left = layers % stages
    if not at_least(version, "0.7.0"):
        sizes[-1] += left
        return sizes
    for index in range(2, left + 2):
        sizes[-index] += 1
    return sizes


def stage_of_layers(layers: int, stages: int, version: str | None) -> list[int]:
    """The stage of every layer."""
    return [stage for stage, size in enumerate(stage_sizes(layers, stages, version)) for _ in range(size)]
