"""``fitserve env``: what this machine, its GPUs and its vLLM are."""

import os

import click
import msgspec

from fitserve.cli.launch_options import Amount
from fitserve.cli.options import Output, output_options
from fitserve.errors import EXIT_NO, EXIT_OK, InputError, MachineError
from fitserve.facts.environment.environment import PROBE_SECONDS, Environment, probe
from fitserve.facts.environment.flags import FlagTable, ask
from fitserve.units import Unknown


@click.command()
@click.argument("model", required=False)
@click.option(
    "--engine",
    metavar="SPEC",
    help="A virtual environment, its python, a vllm script, or an image with a version in its tag.",
)
@click.option(
    "--flags",
    "lists_flags",
    is_flag=True,
    help="The options of the installed vLLM: asked once (seconds), then kept.",
)
@click.option(
    "--flag",
    "names",
    multiple=True,
    metavar="NAME",
    help="Whether the installed vLLM has this option; may be given again.",
)
@click.option(
    "--timeout",
    type=Amount(min=0, max=86_400, min_open=True),
    default=PROBE_SECONDS,
    show_default=True,
    help="Seconds for each question.",
)
@output_options
def command(
    *,
    model: str | None,
    engine: str | None,
    lists_flags: bool,
    names: tuple[str, ...],
    timeout: float,
    output: Output,
) -> int:
    """What this machine, its GPUs and its vLLM are; with MODEL also exactly which model that is.

    Nothing is fetched and vLLM is not imported, except by its own Python for --flags and --flag.
    """
    found = probe(os.environ, engine=engine, model_name=model, seconds=timeout)
    if model is not None and isinstance(found.model, Unknown):
        raise InputError(f"the model cannot be read: {found.model.unknown}", where=model)
    if engine is not None and isinstance(found.engine, Unknown):
        raise InputError(f"the engine cannot be read: {found.engine.unknown}", where=engine)
    if lists_flags or names:
        return _flags(found, names, output)
    output.emit(found, lambda: _text(found))
    return EXIT_OK


def _text(found: Environment) -> str:
    from fitserve.report.environment_text import render_environment

    return render_environment(found)


def _flags(found: Environment, names: tuple[str, ...], output: Output) -> int:
    from fitserve.report.environment_text import render_flags

    if isinstance(found.engine, Unknown):
        raise MachineError(
            f"there is no vLLM to ask: {found.engine.unknown}", hint="fitserve env --engine SPEC"
        )
    if found.flags is None and not output.quiet:
        click.echo(f"asking vLLM {found.engine.version} for its options; it is imported for that", err=True)
    table = ask(found.engine)
    if not isinstance(table, FlagTable):
        raise MachineError(table.unknown, where=found.engine.python)
    known = {name: table.find(name) for name in names}
    shown = tuple(flag for flag in known.values() if flag) if names else table.flags
    missing = [name for name, flag in known.items() if flag is None]
    answer = msgspec.structs.replace(found, flags=msgspec.structs.replace(table, flags=shown))
    output.emit(
        answer,
        lambda: "\n".join(
            [
                render_flags(table, shown),
                *(f"{name}: vLLM {table.version} has no such option" for name in missing),
            ]
        ),
    )
    return EXIT_NO if missing else EXIT_OK
