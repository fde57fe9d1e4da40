"""``fitserve fix``: start it, change one thing at a time until it serves, and prove it."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from fitserve.cli.emit_options import Emit, emit_options
from fitserve.cli.fix_dry_run import show_dry_run
from fitserve.cli.launch_options import (
    LAUNCH_SETTINGS,
    Amount,
    goal_option,
    log_dir_option,
    read_release,
    seconds_option,
    wait_option,
)
from fitserve.cli.options import Output, output_options
from fitserve.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_OK, UsageError

if TYPE_CHECKING:
    from fitserve.fix.grow import Aim
    from fitserve.fix.options import Options
    from fitserve.report.record import Record
    from fitserve.store.journal import Journal
    from fitserve.trial.attempt import Attempt
    from fitserve.trial.outcome import Change

PLACES = {
    "max_trials": "max_trials",
    "budget_minutes": "budget_seconds",
    "goal_context": "bounds.goal_context",
    "goal_concurrency": "bounds.goal_concurrency",
    "first": "bounds.first",
    "allow": "bounds.allow_output",
    "model_name": "model",
    "deadline": "request_deadline_seconds",
    "start_timeout": "limits.start_seconds",
    "silence": "limits.silence_seconds",
    "log_dir": "log_dir",
    "wait": "wait_seconds",
    "gpu": "device",
    "vllm_version": "vllm_version",
    "grow": "grow",
    "grow_starts": "grow_starts",
}
"""Where each option of the command line stands in the options of the loop."""

EXIT_CODES = {"served": EXIT_OK, "not-reached": EXIT_NO, "stopped": EXIT_INTERRUPTED}


@click.command("fix", context_settings=LAUNCH_SETTINGS)
@click.option(
    "--max-trials", type=click.IntRange(1, 100), default=5, show_default=True, help="The most starts."
)
@click.option("--budget-minutes", type=Amount(0, min_open=True), help="The most time for the whole run.")
@goal_option("--goal-context", "Tokens that one request must be able to have.")
@goal_option("--goal-concurrency", "Requests that must run at once.")
@click.option(
    "--first",
    type=click.Choice(["latency", "throughput"]),
    help="What comes first: what is bad for it is changed last.",
)
@click.option("--allow", type=click.Choice(["output"]), multiple=True, help="Take changes of answers too.")
@click.option("--model", "model_name", metavar="NAME", help="The model name that clients will send.")
@seconds_option("--deadline", 120.0, "The longest that one request of the checks may take.")
@seconds_option("--start-timeout", 1800.0, "The longest that one start may take.")
@seconds_option("--silence", 600.0, "The longest that a start may say nothing.")
@log_dir_option
@wait_option
@click.option(
    "--resume",
    metavar="RUN",
    help="Go on with a run that was killed or stopped: its id, the beginning of one, or last.",
)
@click.option("--gpu", metavar="NAME", help="What the devices are, where no driver tells it.")
@click.option("--vllm-version", metavar="V", help="The release, for --dry-run.")
@click.option(
    "--grow",
    type=click.Choice(["context", "concurrency"]),
    help="After the proof, spend what is left on a longer context or on more requests, with a margin.",
)
@click.option(
    "--grow-starts",
    type=click.IntRange(1, 10),
    default=1,
    show_default=True,
    help="The most starts for that.",
)
@click.option("--ask", is_flag=True, help="Ask before each change.")
@click.option("--serve", is_flag=True, help="Leave it serving in the foreground once it is proven.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@emit_options
@output_options
@click.argument("launch", nargs=-1, type=click.UNPROCESSED, metavar="-- LAUNCH...")
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    output: Output,
    emit: Emit,
    launch: tuple[str, ...],
    resume: str | None,
    serve: bool,
    dry_run: bool,
    ask: bool,
    **settings: Any,
) -> int:
    """Start a vLLM launch, change one thing at a time until it serves, and prove it at its API.

    What is changed comes from the diagnosis of the failed start and from the memory model: cheapest first, and never
    below a goal. After the proof the server is stopped, and the command that serves is printed.

    \b
        fitserve fix -- vllm serve MODEL --max-model-len 131072
        fitserve fix --resume last
    """  # noqa: D301 - \b is click's mark for a block that it must not wrap
    _refuse_what_does_nothing(context, emit, resume=resume, dry_run=dry_run)
    _refuse_other_bytes(launch)
    options = _options(**settings)
    if resume is not None:
        given = {name for name in PLACES if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
        return _resume(resume, launch, options, given, output, emit=emit, serve=serve, ask=ask)
    if not launch:
        raise click.UsageError("Missing argument '-- LAUNCH...'.")
    if dry_run:
        return show_dry_run(launch, options, output)
    return _fix(launch, options, output, emit, serve=serve, ask=ask)


def _refuse_what_does_nothing(
    context: click.Context, emit: Emit, *, resume: str | None, dry_run: bool
) -> None:
    """An option that would be passed over in silence is an error."""
    given = {name for name in PLACES if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if dry_run and resume is not None:
        raise click.UsageError("--dry-run shows a new run, and --resume goes on with an old one.")
    if dry_run and emit.kinds:
        raise click.UsageError("--emit writes what has been proven, and --dry-run starts nothing.")
    if "vllm_version" in given and not dry_run:
        raise click.UsageError("--vllm-version is for --dry-run; what is started tells its own.")
    if "grow_starts" in given and "grow" not in given and resume is None:
        raise click.UsageError("--grow-starts needs --grow.")


def _refuse_other_bytes(launch: tuple[str, ...]) -> None:
    """Neither the journal nor JSON can hold a word that is no UTF-8.

    Raises:
        UsageError: there is one.
    """
    for word in launch:
        if not word.isascii() and any("\udc80" <= letter <= "\udcff" for letter in word):
            raise UsageError(
                "a word of the command is no UTF-8",
                where=ascii(word),
                hint="name the file by a link whose name is UTF-8",
            )


def _options(
    *,
    max_trials: int,
    budget_minutes: float | None,
    goal_context: int | None,
    goal_concurrency: int | None,
    first: Literal["latency", "throughput"] | None,
    allow: tuple[str, ...],
    model_name: str | None,
    deadline: float,
    start_timeout: float,
    silence: float,
    log_dir: str | None,
    wait: float,
    gpu: str | None,
    vllm_version: str | None,
    grow: "Aim | None",
    grow_starts: int,
) -> "Options":
    from fitserve.fix.options import Options
    from fitserve.trial.choice import Bounds
    from fitserve.trial.watch import Limits

    return Options(
        max_trials=max_trials,
        budget_seconds=None if budget_minutes is None else budget_minutes * 60,
        limits=Limits(start_seconds=start_timeout, silence_seconds=silence),
        bounds=Bounds(
            goal_context=goal_context,
            goal_concurrency=goal_concurrency,
            first=first,
            allow_output="output" in allow,
        ),
        request_deadline_seconds=deadline,
        model=model_name,
        log_dir=None if log_dir is None else Path(log_dir),
        wait_seconds=wait,
        device=gpu,
        vllm_version=read_release(vllm_version),
        grow=grow,
        grow_starts=grow_starts,
    )


def _fix(
    launch: tuple[str, ...], options: "Options", output: Output, emit: Emit, *, serve: bool, ask: bool
) -> int:
    from fitserve.fix.loop import fix
    from fitserve.store.run_id import new_run_id

    loop = partial(fix, launch, options=options, run=new_run_id(), confirm=_confirm(ask=ask))
    return _told(loop, _open_journal(), output, emit, serve=serve)


def _confirm(*, ask: bool) -> "Callable[[Change], bool] | None":
    """The question before each change; None where none is asked.

    Raises:
        UsageError: nobody can answer.
    """
    if not ask:
        return None
    if not sys.stdin.isatty():
        raise click.UsageError("--ask needs a terminal to ask at.")

    def answer(change: "Change") -> bool:
        before = "" if change.value_from is None else f" from {change.value_from}"
        why = f" ({change.cost}: {change.why})"
        return click.confirm(f"change {change.flag}{before} to {change.to}{why}?", default=True, err=True)

    return answer


def _resume(
    run: str,
    launch: tuple[str, ...],
    options: "Options",
    given: set[str],
    output: Output,
    *,
    emit: Emit,
    serve: bool,
    ask: bool,
) -> int:
    """Go on with a run, by its own options but for those that are given."""
    from fitserve.fix.loop import resume
    from fitserve.fix.options import options_from_json, options_to_json

    journal = _open_journal()
    record = journal.load(run)
    options = options_from_json(
        overlaid(record.options, options_to_json(options), {PLACES[name] for name in given})
    )
    loop = partial(resume, record, launch, options=options, confirm=_confirm(ask=ask))
    return _told(loop, journal, output, emit, serve=serve)


def overlaid(kept: dict[str, Any], new: dict[str, Any], places: set[str]) -> dict[str, Any]:
    """The kept options with the new values at some places: ``bounds.goal_context``."""
    whole = dict(kept)
    for place in places:
        head, _, rest = place.partition(".")
        whole[head] = overlaid(whole.get(head, {}), new[head], {rest}) if rest else new[head]
    return whole


def _open_journal() -> "Journal":
    from fitserve.store.journal import open_journal

    return open_journal()


def _told(
    loop: Callable[..., "Record"], journal: "Journal", output: Output, emit: Emit, *, serve: bool
) -> int:
    """Run the loop with its progress shown, and answer."""
    from fitserve.trial.progress import progress, style_for

    codes: list[int] = []

    def keep_serving(record: "Record", attempt: "Attempt") -> None:
        _answer(record, output, emit)
        codes.append(_serve(attempt))

    with progress(style_for(quiet=output.quiet)) as shown:
        record = loop(progress=shown, journal=journal, on_served=keep_serving if serve else None)
    if codes:
        return codes[0]
    _answer(record, output, emit)
    return _exit_code(record)


def _exit_code(record: "Record") -> int:
    """That of the outcome; a goal that could not be proven is no 0."""
    from fitserve.report.record_words import goal_is_unproven

    if record.outcome == "served" and goal_is_unproven(record):
        return EXIT_NO
    return EXIT_CODES[record.outcome or "not-reached"]


def _answer(record: "Record", output: Output, emit: Emit) -> None:
    from fitserve.report.emit.from_record import deployment_of_record
    from fitserve.report.json_v1 import fix_json
    from fitserve.report.record_text import render_record

    output.emit(fix_json(record), lambda: render_record(record))
    emit.tell(lambda: deployment_of_record(record, os.environ))


def _serve(attempt: "Attempt") -> int:
    """Stay until the server ends; signals are the server's. The exit code is its own."""
    from fitserve.trial.interrupt import relaying

    with relaying() as relay:
        relay.hand_to(attempt.process)
        ended = attempt.process.wait()
    return ended.shell_code if ended else EXIT_NO
