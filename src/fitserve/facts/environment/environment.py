"""All of it, asked at the same time, each with a limit."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from fitserve.facts.environment import cgroup, devices, flags, host, install, model, variables
from fitserve.facts.environment.bounded import all_within
from fitserve.facts.environment.cgroup import Container
from fitserve.facts.environment.devices import Devices
from fitserve.facts.environment.flags import FlagTable
from fitserve.facts.environment.host import Host
from fitserve.facts.environment.install import Install
from fitserve.facts.environment.model import ModelIdentity
from fitserve.facts.environment.variables import Variable
from fitserve.units import Unknown

PROBE_SECONDS = 5.0
"""A driver that is not kept loaded takes seconds to answer; everything else answers at once."""

_MARGIN_SECONDS = 0.5


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine, its GPUs and its vLLM are.

    Attributes:
        devices: accelerators and their driver.
        host: memory, processors, kernel.
        container: limits around this process.
        engine: the vLLM that would run.
        flags: its options, where they were asked before or are asked for.
        variables: what of the environment matters for a start.
        model: the model that was named.
    """

    schema: int = 1
    kind: Literal["environment"] = "environment"
    devices: Devices | Unknown
    host: Host | Unknown
    container: Container | Unknown
    engine: Install | Unknown
    flags: FlagTable | Unknown | None = None
    variables: tuple[Variable, ...] = ()
    model: ModelIdentity | Unknown | None = None


def probe(
    environ: Mapping[str, str],
    *,
    engine: str | None = None,
    model_name: str | None = None,
    seconds: float = PROBE_SECONDS,
) -> Environment:
    """Ask everything at once.

    Args:
        environ: the variables of this process.
        engine: the vLLM that is meant, as ``install.find`` takes it.
        model_name: a model to identify.
        seconds: the limit of each question.
    """
    probes: dict[str, Callable[[], Any]] = {
        "devices": lambda: devices.probe(environ, seconds),
        "host": host.probe,
        "container": lambda: cgroup.probe(environ),
        "engine": lambda: install.find(engine, seconds),
    }
    if model_name is not None:
        probes["model"] = lambda: model.identify(model_name)
    answers = all_within(probes, seconds + _MARGIN_SECONDS)
    found = answers["engine"]
    return Environment(
        **answers,
        flags=flags.kept(found) if isinstance(found, Install) else None,
        variables=variables.relevant(environ),
    )
