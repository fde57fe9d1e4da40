"""``fitserve diagnose [FILE|DIR|-]``: why did this start-up, or this server, fail."""

import shutil
import sys
from pathlib import Path

import click
import msgspec

from fitserve.cli.options import Output, output_options
from fitserve.diagnose.finding import Diagnosis
from fitserve.errors import EXIT_NO, EXIT_OK, InputError, UsageError

_STDIN = "-"
_NOT_A_LOG = "not-a-vllm-log"


@click.command()
@click.argument("places", nargs=-1, metavar="[FILE|DIR|-]...")
@click.option("--follow", is_flag=True, help="Read a growing log, and speak as soon as the cause is certain.")
@click.option(
    "--redact/--no-redact",
    "redact",
    default=None,
    help="Hide names, addresses and keys in the answer; on where -o writes it to a file.",
)
@click.option(
    "--save/--no-save",
    "save",
    default=None,
    help="Keep the log too, however large or piped it is, or keep nothing; else fitserve report last has the diagnosis.",
)
@output_options
def command(
    places: tuple[str, ...], follow: bool, redact: bool | None, save: bool | None, output: Output
) -> int:
    """Why did this start-up (or this server) fail.

    FILE may be gzipped; - is the standard input. A DIR, or several files, give a table of causes.
    """
    names = places or _piped()
    output = msgspec.structs.replace(output, redacted=output.path is not None if redact is None else redact)
    is_one = len(names) == 1 and not Path(names[0]).is_dir()
    if save and (follow or not is_one):
        raise UsageError("--save keeps one whole log", hint="fitserve diagnose --save FILE")
    if follow:
        return _follow(names, output)
    if is_one:
        return _saved(names[0], output) if save else _one(names[0], output, keeps=save is None)
    return _many(names, output)


def _piped() -> tuple[str, ...]:
    if sys.stdin.isatty():
        raise UsageError(
            "no log was given",
            hint="fitserve diagnose FILE, or docker logs NAME 2>&1 | fitserve diagnose",
        )
    return (_STDIN,)


def _one(name: str, output: Output, *, keeps: bool) -> int:
    """Diagnose one log; what it is, and the log if it is a small file, is left for the journal."""
    from fitserve.diagnose.engine import diagnose_path

    path = None if name == _STDIN else Path(name)
    diagnosis = diagnose_path(path)
    code = _answer(diagnosis, name, output)
    if keeps:
        from fitserve.cli.keep import leave_diagnosis

        leave_diagnosis(diagnosis, path, name)
    return code


def _saved(name: str, output: Output) -> int:
    """Diagnose one log, and keep both."""
    from fitserve.cli.keep import keep_diagnosis, plain_file
    from fitserve.diagnose.engine import diagnose_path

    with plain_file(None if name == _STDIN else Path(name)) as log:
        diagnosis = diagnose_path(log)
        code = _answer(diagnosis, name, output)
        keep_diagnosis(diagnosis, log, name, quiet=output.quiet)
    return code


def _answer(diagnosis: Diagnosis, name: str, output: Output) -> int:
    """Print the diagnosis and return the exit code that belongs to it."""
    diagnosis, name = output.leaving((diagnosis, name))
    if diagnosis.cause == _NOT_A_LOG:
        if output.as_json:
            output.emit(diagnosis, str)
            return InputError.exit_code
        raise InputError(
            diagnosis.message or "no line of it is vLLM's",
            where="standard input" if name == _STDIN else name,
            hint="give what the vLLM process itself printed, both streams: vllm serve ... > serve.log 2>&1",
        )
    output.emit(diagnosis, lambda: _text(diagnosis, name, output))
    return EXIT_NO if diagnosis.failed else EXIT_OK


def _text(diagnosis: Diagnosis, name: str, output: Output) -> str:
    from fitserve.report.text import render_diagnosis

    source = "stdin" if name == _STDIN else name
    return render_diagnosis(diagnosis, source, width=_width(output), colored=output.colored)


def _width(output: Output) -> int:
    is_terminal = output.path is None and sys.stdout.isatty()
    return min(shutil.get_terminal_size().columns, 120) if is_terminal else 100


def _many(names: tuple[str, ...], output: Output) -> int:
    from fitserve.diagnose.triage import find_logs, triage
    from fitserve.report.triage_text import render_triage

    if _STDIN in names:
        raise UsageError("the standard input cannot be read beside files", hint="give it alone")
    shows_progress = sys.stderr.isatty() and not output.quiet
    found = triage(find_logs(Path(name) for name in names), progress=_progress if shows_progress else None)
    if shows_progress:
        click.echo("\r\x1b[K", nl=False, err=True)
    if not found.count and not found.failed:
        raise InputError(
            "no log is there",
            where=", ".join(names),
            hint="logs are *.log, *.txt, *.gz and text without a suffix",
        )
    shown = output.leaving(found)
    output.emit(shown, lambda: render_triage(shown, width=_width(output)))
    causes = {group.cause for group in found.groups}
    if not causes - {_NOT_A_LOG}:
        return InputError.exit_code
    return EXIT_NO if causes - {_NOT_A_LOG, "healthy"} else EXIT_OK


def _progress(count: int) -> None:
    click.echo(f"\r{count:,} logs read", nl=False, err=True)


def _follow(names: tuple[str, ...], output: Output) -> int:
    from fitserve.diagnose.follow import StoppedFollowing

    if len(names) != 1 or Path(names[0]).is_dir():
        raise UsageError("--follow reads one log", hint="fitserve diagnose --follow FILE, or a pipe")
    try:
        return _followed(names[0], output)
    except StoppedFollowing as stopped:
        if stopped.diagnosis.failed:
            _answer(stopped.diagnosis, names[0], output)
        raise


def _followed(name: str, output: Output) -> int:
    from fitserve.diagnose.follow import follow_file, follow_stream

    if name != _STDIN:
        return _answer(follow_file(Path(name)), name, output)
    said: tuple[str, int] | None = None
    for diagnosis in follow_stream(sys.stdin.buffer):
        if said is None or (diagnosis.cause != said[0] and not output.as_json):
            said = diagnosis.cause, _answer(diagnosis, _STDIN, output)
            sys.stdout.flush()
    return said[1] if said else EXIT_NO
