"""What drafting adds to the profile run: its buffers, and the logits of tokens that are drafted and of those that follow.

    buffers = 2 T H e                  inputs and hidden states of what drafts; part of what stays from 0.27 on
    logits  = 2 S V e                  a row for the drafted token and one for the next, held while both are sampled
              at most 8 S V more       probabilities in float32 beside them
    states  = 3 T H e at most          the hidden states of three layers that EAGLE 3 reads

Source: ``_dummy_sampler_run`` in ``v1/worker/gpu_model_runner.py`` and ``v1/spec_decode/llm_base_proposer.py``, vLLM 0.9.2 to 0.32. No
measured start checks it, so the interval begins at nothing.
"""

from fitserve.memory.history import at_least
from fitserve.memory.options import EngineOptions
from fitserve.memory.overhead.shape import Shape
from fitserve.units import Quantity

_FROM_TEXT = ("ngram", "ngram_gpu", "suffix")
_FLOAT32_COPIES = 8
_LAYERS_READ = 3


def with_drafting(active: Quantity, shape: Shape, options: EngineOptions, *, is_last_stage: bool) -> Quantity:
    """The activations with what drafting adds on the last stage; as they are where nothing is drafted.

    Args:
        active: the activations without it.
        shape: the model's sizes.
        options: vLLM's settings.
        is_last_stage: the rank samples and drafts.
    """
    drafting = options.drafting
    if drafting is None or not is_last_stage:
        return active
    tokens, seqs = options.max_num_batched_tokens, min(options.max_num_seqs, options.max_num_batched_tokens)
    states = tokens * shape.hidden * shape.element_bytes
    by_model = drafting.method not in _FROM_TEXT
    buffers = 2 * states if by_model and at_least(options.vllm_version, "0.27.0") else 0
    logits = 2 * seqs * shape.vocabulary * shape.element_bytes
    most = _FLOAT32_COPIES * seqs * shape.vocabulary + (2 + _LAYERS_READ) * states * by_model
    return Quantity(
        low=active.low,
        expected=active.expected + logits + buffers,
        high=active.high + logits + buffers + most,
        basis="estimated",
        source=f"{active.source}, drafting by {drafting.method}",
    )
