"""``fitserve demo``: the whole loop on a real vLLM on this machine's CPU."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fitserve.cli.fix import EXIT_CODES
from fitserve.cli.options import Output, output_options

if TYPE_CHECKING:
    from fitserve.facts.engine.find import Engine
    from fitserve.report.record import Record


@click.command("demo")
@click.option(
    "--engine", "engine_spec", metavar="VENV|PYTHON|VLLM", help="Another vLLM than the private CPU build."
)
@click.option(
    "--extra-index-url",
    "index_urls",
    multiple=True,
    envvar="FITSERVE_ENGINE_INDEX",
    help="A further package index for the installation (or FITSERVE_ENGINE_INDEX).",
)
@click.option(
    "--simulate",
    "device",
    metavar="GPU",
    help="On a simulated machine with that GPU instead, such as 'RTX 4090': no vLLM, in seconds.",
)
@click.option(
    "--simulate-vllm",
    "release",
    metavar="VERSION",
    help="The release that is simulated. [default: the newest known]",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Of what differs between machines of a kind.",
)
@click.option("--keep", is_flag=True, help="Keep the trials' logs in a folder, too.")
@output_options
def command(
    *,
    output: Output,
    engine_spec: str | None,
    index_urls: tuple[str, ...],
    device: str | None,
    release: str | None,
    seed: int,
    keep: bool,
) -> int:
    """Run the whole loop on a real vLLM: no GPU, no download of weights.

    A launch that really fails is started, its log is read, one thing is changed, it is started again, and what it can do is
    proven at its API. The first call installs vLLM's CPU build into an environment of its own (see fitserve engine).

    With --simulate nothing is installed: the loop works on a program that behaves like vLLM on that GPU.
    """
    if device is not None:
        return _simulated(output, device, release, seed, keep=keep)
    if release is not None:
        raise click.UsageError("--simulate-vllm goes with --simulate.")
    return _real(output, engine_spec, index_urls, keep=keep)


def _real(output: Output, engine_spec: str | None, index_urls: tuple[str, ...], *, keep: bool) -> int:
    from fitserve.demo import run_demo
    from fitserve.facts.engine.recipe import cache_root
    from fitserve.facts.tiny_model import build_tiny_model
    from fitserve.store.journal import open_journal
    from fitserve.store.run_id import new_run_id
    from fitserve.trial.progress import progress, style_for

    journal = open_journal()
    engine = _engine(engine_spec, index_urls, output)
    model = build_tiny_model(cache_root() / "tiny-model")
    with progress(style_for(quiet=output.quiet)) as shown:
        record = run_demo(
            engine,
            model,
            journal=journal,
            run=new_run_id(),
            progress=shown,
            environ=os.environ,
            keep_logs=keep,
        )
    _answer(record, output)
    return EXIT_CODES[record.outcome or "not-reached"]


def _simulated(output: Output, device: str, release: str | None, seed: int, *, keep: bool) -> int:
    import tempfile

    import msgspec

    from fitserve.demo import free_port, tell_the_loop
    from fitserve.fix.options import Options
    from fitserve.simulator.show import prepare_show
    from fitserve.store.journal import open_journal
    from fitserve.store.run_id import new_run_id
    from fitserve.trial.choice import Bounds
    from fitserve.trial.progress import progress, style_for

    with tempfile.TemporaryDirectory(prefix="fitserve-simulated-") as folder:
        show = prepare_show(Path(folder), device=device, version=release, seed=seed, port=free_port())
        click.echo(show.headline, err=True)
        journal = open_journal()
        with progress(style_for(quiet=output.quiet)) as shown:
            record = tell_the_loop(
                show.command,
                options=Options(bounds=Bounds(goal_context=show.goal_context)),
                journal=journal,
                run=new_run_id(),
                progress=shown,
                environ=_environment(show.programs),
                keep_logs=keep,
            )
    told = {"SIMULATED": f"{show.machine.device.name}, vLLM {show.machine.vllm_version}"}
    record = msgspec.structs.replace(record, environment={**told, **record.environment})
    journal.save(record)
    _answer(record, output, headline=show.headline)
    return EXIT_CODES[record.outcome or "not-reached"]


def _environment(programs: Path) -> dict[str, str]:
    """The user's environment, with the simulated machine's programs first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "VLLM_"))}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}


def _engine(spec: str | None, index_urls: tuple[str, ...], output: Output) -> "Engine":
    from fitserve.facts.engine.find import find_engine

    if spec is not None:
        return find_engine(spec)
    from fitserve.cli.engine import shown_progress
    from fitserve.facts.engine.install import ensure_engine
    from fitserve.facts.engine.recipe import CPU_ENGINE, cache_root

    with shown_progress(output) as report:
        python = ensure_engine(CPU_ENGINE, cache_root(), report, index_urls)
    return find_engine(str(python))


def _answer(record: "Record", output: Output, headline: str = "") -> None:
    from fitserve.report.json_v1 import fix_json
    from fitserve.report.record_text import render_record

    above = f"{headline}\n\n" if headline else ""
    below = f"\n\n{headline}" if headline else ""
    answer: Any = fix_json(record)
    if headline:
        import msgspec

        answer = {**msgspec.to_builtins(answer), "simulated": True}
    output.emit(answer, lambda: f"{above}{render_record(record)}\n{_see_again(record)}{below}")


def _see_again(record: "Record") -> str:
    lines = ["see it again:", "    fitserve runs", f"    fitserve report {record.run}"]
    kept = [Path(trial.log_path).parent for trial in record.trials if trial.log_path]
    return "\n".join([*lines, *(["logs:", f"    {kept[0]}"] if kept else [])])
