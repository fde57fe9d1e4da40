"""What of the weights waits in the host's memory.

    --cpu-offload-gb        so many bytes of the layers' parameters, at most all of them
    --offload-group-size g  the last n layers of each g, less the layers that are fetched ahead into buffers that stay

Source: ``model_executor/offloader/uva.py`` and ``prefetch.py`` of vLLM 0.20 to 0.32. Layers count as equally large.
"""

from fitserve.memory.options import EngineOptions
from fitserve.memory.weights.ranks import RankWeights


def offloaded_bytes(weights: RankWeights, options: EngineOptions) -> int:
    """Bytes of a rank's parameters that are not on the device.

    Args:
        weights: the rank's weights.
        options: vLLM's settings; groups of layers count before ``cpu_offload_bytes``, as in vLLM.
    """
    stack = weights.param_bytes.expected if weights.stack_bytes is None else weights.stack_bytes
    group, layers = options.offload_group_size, weights.stack_layers
    if group < 1 or not layers:
        return min(options.cpu_offload_bytes, stack)
    kept = group - min(options.offload_num_in_group, group)
    away = sum(index % group >= kept for index in range(layers))
    buffered = min(max(0, options.offload_prefetch_step), away)
    return (away - buffered) * stack // layers
