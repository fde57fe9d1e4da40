"""vLLM's own config file, for ``vllm serve --config FILE``.

Source: vLLM 0.32.0 ``utils/argparse_utils.py``, ``load_config_file``: the keys are the options without their hyphens in
front; true is a switch, lists are several values, mappings JSON. A false is passed over, so the twin of a switch is set.
"""

from typing import Any

from fitserve.report.emit.deployment import Deployment
from fitserve.report.emit.document import document, heading


def vllm_config(server: Deployment) -> str:
    """The file."""
    settings = dict(_setting(name, value) for name, value in server.options.items())
    variables = [*(f"{name}={value}" for name, value in server.environment.items())]
    notes = [f"set {line}" for line in variables] + [
        f"set {name}: a key is never written here" for name in server.secrets
    ]
    return heading(server, "start it with: vllm serve --config FILE", *notes) + document(
        {"model": server.model, **settings}
    )


def _setting(name: str, value: Any) -> tuple[str, Any]:
    key = name.replace("_", "-")
    return (f"no-{key}", True) if value is False else (key, value)
