"""Layer kinds whose cache pages cannot share one pool.

Source: vLLM 0.9.1 to 0.33.0, ``v1/core/kv_cache_utils.py``, ``unify_kv_cache_spec_page_size``.
"""

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "kv-pages-not-unifiable"
STAGE = "kv_cache"


def judge(situation: Situation) -> Finding:
    """Name the conflict; it is one of shapes, not of sizes."""
    draft = situation.case.value("speculative_config") is not None
    of_whom = "the layers of the model and of its draft" if draft else "the layers of the model"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{of_whom} need KV cache pages that cannot share one pool",
        event=situation.event,
        advice=[
            act(
                "change-block-size-or-draft",
                "another block size, or a draft with the same head sizes, makes pages alike",
            ),
            act(
                "upgrade-vllm",
                "later versions pad pages of different kinds or pack them by groups (0.24.0, 0.27.0, 0.29.0)",
            ),
        ],
        not_advised=[
            avoid("gpu_memory_utilization", "up", "the sizes of pages conflict, not their number"),
            avoid("max_model_len", "down", "the sizes of pages conflict, not their number"),
        ],
    )
