"""``fitserve demo``: the whole loop on a real vLLM on this machine's CPU."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

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
@click.option("--keep", is_flag=True, help="Keep the trials' logs in a folder, too.")
@output_options
def command(output: Output, engine_spec: str | None, index_urls: tuple[str, ...], keep: bool) -> int:
    """Run the whole loop on a real vLLM: no GPU, no download of weights.

    A launch that really fails is started, its log is read, one thing is changed, it is started again, and what it can do is
    proven at its API. The first call installs vLLM's CPU build into an environment of its own (see fitserve engine).
    """
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


def _answer(record: "Record", output: Output) -> None:
    from fitserve.report.json_v1 import fix_json
    from fitserve.report.record_text import render_record

    output.emit(fix_json(record), lambda: f"{render_record(record)}\n{_see_again(record)}")


def _see_again(record: "Record") -> str:
    lines = ["see it again:", "    fitserve runs", f"    fitserve report {record.run}"]
    kept = [Path(trial.log_path).parent for trial in record.trials if trial.log_path]
    return "\n".join([*lines, *(["logs:", f"    {kept[0]}"] if kept else [])])
