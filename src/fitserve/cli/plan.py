"""``fitserve plan MODEL``: will it start, how long a context, how many at once, which settings."""

import gc
import os
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fitserve.cli.emit_options import Emit, emit_options
from fitserve.cli.launch_options import Amount, goal_option, read_release
from fitserve.cli.options import Output, output_options
from fitserve.errors import EXIT_NO, EXIT_OK, InputError, MachineError, UsageError

if TYPE_CHECKING:
    from fitserve.facts.command import Launch
    from fitserve.facts.engine.find import Engine
    from fitserve.memory.options import Device
    from fitserve.plan.from_log import Calibration
    from fitserve.plan.request import Request
    from fitserve.plan.values import Plan
    from fitserve.report.emit.deployment import Deployment
    from fitserve.units import Unknown

_EXIT_CODES = {"starts": EXIT_OK, "does-not-start": EXIT_NO, "cannot-tell": InputError.exit_code}
_LAUNCH = "launch"
_HIDDEN = "\0"
_HINT = "fitserve plan MODEL --gpu H100, or fitserve plan --gpu H100 -- vllm serve MODEL ..."


class _PlanCommand(click.Command):
    """Keeps what stands behind ``--`` apart: the launch that was pasted."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the launch off before the tool's own options are read, and vLLM's short options out of their sight."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_LAUNCH] = args[at + 1 :]
        rest = super().parse_args(ctx, [_hidden(word, after) for word, after in pairwise([*args[:at], ""])])
        ctx.params["words"] = tuple(word.removeprefix(_HIDDEN) for word in ctx.params["words"])
        return rest


def _hidden(word: str, after: str) -> str:
    """One of vLLM's short options under a mark: click would take ``-cc.mode=0`` for ``-o`` and more.

    ``-q`` is vLLM's where a quantisation follows, else the tool's own ``--quiet``.
    """
    from fitserve.facts.serve_options import SHORT
    from fitserve.memory.available import is_quantization

    head = re.split("[.=]", word)[0]
    is_theirs = head.startswith("-O") or (head in SHORT and head not in ("-h", "-q"))
    asks_quantization = head == "-q" and ("=" in word or is_quantization(after))
    return f"{_HIDDEN}{word}" if is_theirs or asks_quantization else word


@click.command(
    cls=_PlanCommand,
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL] [VLLM OPTIONS] [-- LAUNCH]")
@click.option(
    "--gpu", metavar="NAME", help="The device, from the catalogue, or cpu, instead of probing this machine."
)
@click.option(
    "--gpu-total-gib",
    type=Amount(0, 1 << 20, min_open=True),
    help="Its memory, as cudaMemGetInfo reports it.",
)
@click.option("--gpu-free-gib", type=Amount(0, 1 << 20), help="What is free of it before the start.")
@click.option("--gpus", type=click.IntRange(1, 4096), help="How many devices there are.")
@click.option("--vllm-version", metavar="V", help="The release whose rules count.")
@goal_option("--goal-context", "Tokens of one request, prompt and answer together.")
@goal_option("--goal-concurrency", "Requests of that length at once.")
@click.option(
    "--from-log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The log of a start: its settings and measured memory count.",
)
@click.option(
    "--from-run",
    metavar="RUN",
    help="The same from a run of the journal, by its id or ``last``, or from a bundle: its last start that shows its memory.",
)
@click.option(
    "--ask-engine",
    "engine",
    is_flag=False,
    flag_value="",
    metavar="[ENGINE]",
    help="Weights and KV cache as vLLM's own code counts them: a virtual environment, its Python or a vllm; the private engine unless named.",
)
@click.option(
    "--frontier", is_flag=True, help="Context against concurrency, over cache types, devices and shares."
)
@emit_options
@output_options
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    frontier: bool,
    output: Output,
    emit: Emit,
    **asked: Any,
) -> int:
    """Will it start, how long a context, how many at once, which settings.

    MODEL is a directory with config.json, a GGUF file or a Hub id. vLLM's own options keep vLLM's spelling.
    """
    gc.disable()  # A plan ends before its garbage matters, and collecting it takes a tenth of the time.
    from fitserve.plan.make import make_plan

    engine = _engine(asked["engine"])
    request = _request(words, context.meta[_LAUNCH], asked, frontier=frontier, engine=engine)
    if engine is not None:
        request = _asked(request, engine)
    plan = make_plan(request)
    output.emit(plan, lambda: _text(plan, output))
    emit.tell(lambda: _server(plan))
    return EXIT_NO if plan.meets_goal is False and plan.verdict == "starts" else _EXIT_CODES[plan.verdict]


def _server(plan: "Plan") -> "Deployment":
    """The planned command, to be started elsewhere.

    Raises:
        InputError: nothing that starts was found.
    """
    from fitserve.facts.command import read_command
    from fitserve.report.emit.from_launch import deployment_of

    if plan.verdict == "does-not-start" and not plan.choices:
        raise InputError(f"it does not start: {plan.message}")
    version = f"{plan.vllm_version}+cpu" if plan.device.lower() == "cpu" else plan.vllm_version
    note = f"planned for vLLM {plan.vllm_version} on {plan.device}, and not started yet"
    return deployment_of(read_command(shlex.split(plan.command)), version=version, note=note)


def _text(plan: Any, output: Output) -> str:
    from fitserve.report.plan_text import render_plan

    return render_plan(plan, colored=output.colored)


def _request(
    words: Sequence[str],
    pasted: Sequence[str],
    asked: dict[str, Any],
    *,
    frontier: bool,
    engine: "Engine | Unknown | None",
) -> "Request":
    from fitserve.facts.checkpoint import read_checkpoint
    from fitserve.memory.history import NEWEST
    from fitserve.plan.accepted import check_words, refused_numbers
    from fitserve.plan.from_launch import (
        command_words,
        fewest,
        given_settings,
        image_release,
        plan_variables,
        visible_devices,
    )
    from fitserve.plan.overrides import overridden
    from fitserve.plan.request import Request
    from fitserve.plan.values import Goal

    launch, is_pasted = _launch(words, pasted)
    _check_file(launch)
    if launch.model is None:
        raise UsageError("no model is named", hint=_HINT)
    check_words(launch)
    checkpoint = read_checkpoint(launch.model, revision=launch.value("revision"))
    calibration = _calibration(asked)
    version = read_release(
        asked["vllm_version"]
        or (calibration.version if calibration else None)
        or image_release(launch)
        or getattr(engine, "version", None)
    )
    device, probed = _device(asked, calibration)
    given = {**(calibration.settings if calibration else {}), **given_settings(launch)}
    return Request(
        checkpoint=overridden(checkpoint, given),
        model=launch.model,
        device=device,
        given=given,
        version=version or NEWEST,
        gpus=fewest(asked["gpus"] or probed, visible_devices(launch)),
        environment=plan_variables(launch),
        goal=Goal(context=asked["goal_context"], concurrency=asked["goal_concurrency"]),
        argv=command_words(launch) if is_pasted else (),
        observed=(calibration.observed,) if calibration else (),
        refused=refused_numbers(launch, version or NEWEST),
        with_frontier=frontier,
    )


def _engine(spec: str | None) -> "Engine | Unknown | None":
    """The engine to ask: the one named, or the private one where it is installed; None where none is to be asked."""
    if spec is None:
        return None
    from fitserve.facts.engine.find import find_engine
    from fitserve.facts.engine.recipe import CPU_ENGINE, cache_root, engine_folder, engine_python
    from fitserve.units import Unknown

    python = engine_python(engine_folder(CPU_ENGINE, cache_root()))
    if not spec and not python.exists():
        return Unknown("there is no private engine; fitserve engine install makes one")
    try:
        return find_engine(spec or str(python))
    except MachineError as error:
        return Unknown(f"{error.what} ({error.where})")


def _asked(request: "Request", engine: "Engine | Unknown") -> "Request":
    import msgspec

    from fitserve.plan.ask import ask
    from fitserve.units import Unknown

    answer = engine if isinstance(engine, Unknown) else ask(request, engine.python, engine.version)
    return msgspec.structs.replace(request, asked=answer)


def _launch(words: Sequence[str], pasted: Sequence[str]) -> "tuple[Launch, bool]":
    """The launch that was pasted, or one made of the model and vLLM's options; and whether it was pasted."""
    from fitserve.facts.command import read_command
    from fitserve.facts.command_edit import with_words

    has_file = any(word.partition("=")[0] == "--config" for word in words)
    if not pasted and not has_file:
        return read_command(["vllm", "serve", *words]), False
    from fitserve.facts.find_launch import find_launch

    try:
        launch = find_launch(pasted, os.environ, watched=False) if pasted else None
    except UsageError:
        if not pasted[0].startswith("-"):
            raise
        launch, words = None, [*words, *pasted]
    if launch is None:
        return find_launch(["vllm", "serve", *words], os.environ, watched=False), has_file
    return (with_words(launch, words) if words else launch), True


def _check_file(launch: "Launch") -> None:
    """The config file of the launch is there and has options, unless it is a container's own."""
    path = launch.value("config")
    if not isinstance(path, str) or launch.container is not None:
        return
    if not Path(path).expanduser().is_file():
        raise InputError("there is no such file", where=f"--config {path}")
    if launch.config is None:
        raise InputError(
            "it is no YAML with one option a line",
            where=f"--config {path}",
            hint="write it as: max-model-len: 8192",
        )


def _calibration(asked: dict[str, Any]) -> "Calibration | None":
    if asked["from_log"] is None and asked["from_run"] is None:
        return None
    from fitserve.cli.plan_calibration import calibration

    return calibration(asked["from_log"], asked["from_run"])


def _device(asked: dict[str, Any], calibration: "Calibration | None") -> "tuple[Device, int | None]":
    """The device as it is described, as the log shows it, or as this machine has it; and how many there are."""
    import msgspec

    from fitserve.plan.device import described_device, host_device, probed_device
    from fitserve.units import GIB

    total = asked["gpu_total_gib"]
    total_bytes = round(total * GIB) if total else calibration.total_bytes if calibration else None
    if (asked["gpu"] or "").lower() == "cpu":
        device, count = host_device(total_bytes), None
    elif asked["gpu"] or total_bytes:
        device, count = described_device(asked["gpu"], total_bytes), None
    else:
        device, count = probed_device()
    free = asked["gpu_free_gib"]
    if free is None:
        return device, count
    free_bytes = round(free * GIB)
    if free_bytes > device.total_bytes:
        raise UsageError(
            "more is free than the device has", where="--gpu-free-gib", hint="give --gpu-total-gib too"
        )
    return msgspec.structs.replace(device, free_bytes=free_bytes), count
