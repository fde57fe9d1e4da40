"""The command of a plan: as it was pasted or as it would be typed, with changes."""

from collections.abc import Mapping
from typing import Any

from fitserve.facts.command import Launch, is_variable, read_command, shown
from fitserve.facts.command_edit import with_option, with_variable
from fitserve.plan.request import Request


def launch_of(request: Request) -> Launch:
    """The pasted command, or ``vllm serve MODEL`` with the settings that were given."""
    if request.argv:
        return read_command(request.argv)
    launch = read_command(["vllm", "serve", request.model])
    for name, value in request.given.items():
        launch = with_option(launch, name, "auto" if name == "max_model_len" and value == -1 else value)
    return launch


def command_with(request: Request, changes: Mapping[str, Any]) -> str:
    """The command with some settings changed, ready to paste."""
    launch = launch_of(request)
    for name, value in changes.items():
        launch = (
            with_variable(launch, name, str(value)) if is_variable(name) else with_option(launch, name, value)
        )
    return shown(launch.argv, launch.env)
