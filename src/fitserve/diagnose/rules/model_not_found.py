"""A wrong path or id, no network, or a revision that does not exist.

Source: transformers and huggingface_hub print these; vLLM 0.8.0 and later checks the id itself.
"""

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "model-not-found"
STAGE = "config"
_NETWORK = (
    "model-hub-offline",
    "model-hub-offline-cached",
    "model-hub-max-retries",
    "model-hub-resolve",
    "model-name-resolution",
    "model-local-entry",
    "model-local-entry-class",
    "model-offline-mode",
    "model-outgoing-traffic",
    "model-hub-error-status",
)


def judge(situation: Situation) -> Finding:
    """Tell a wrong name from a hub that cannot be reached."""
    model = situation.case.value("model") or situation.number("model") or "the model"
    path = act("check-model-path", "the id or the path must be exact, with a config.json in it")
    network = act(
        "check-network",
        "the hub must be reachable, or the model in the cache",
        option="HF_ENDPOINT, HTTPS_PROXY, HF_HUB_OFFLINE",
    )
    if situation.event.id in _NETWORK:
        message, advice = f"{model} is not in the cache and the hub cannot be reached", [network, path]
    elif "revision" in situation.event.id:
        message, advice = f"{model} has no such revision", [path, network]
    else:
        message = f"{model} is no folder here and no model on the hub"
        advice = [
            path,
            act("set-hf-token", "a private model looks like a missing one without a token"),
            network,
        ]
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=advice,
        not_advised=[avoid("gpu_memory_utilization", None, "nothing is loaded yet")],
    )
