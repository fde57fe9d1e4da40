"""How the tool ends: one place turns errors into exit codes.

Codes: 0 yes, 1 the answer is no, 2 usage, 3 input, 4 machine, 70 a defect of the tool, 130 interrupted.
"""

import io
import os
import sys

import click

from fitserve import __version__
from fitserve.errors import EXIT_DEFECT, EXIT_INTERRUPTED, FitserveError, UsageError


def run_guarded(root: click.Group) -> int:
    """Call the command line and return the exit code."""
    _write_any_letter()
    try:
        result = root.main(standalone_mode=False)
    except FitserveError as error:
        return _refused(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the one catch-all
        return _failed(error)
    return result if isinstance(result, int) else 0


def _refused(error: FitserveError) -> int:
    _say(str(error))
    _answer_in_json(error)
    return error.exit_code


def _failed(error: Exception) -> int:
    """An argument that is no text where one is needed, else a defect; Python keeps raw bytes as lone surrogates."""
    raw = [word for word in sys.argv[1:] if any("\udc80" <= letter <= "\udcff" for letter in word)]
    if isinstance(error, UnicodeError) and raw:
        return _refused(
            UsageError(
                "an argument is no text in UTF-8",
                where=ascii(raw[0]),
                hint="give it as the text that it stands for",
            )
        )
    _say(f"error: a defect in fitserve; the report is in {_write_defect_report()}")
    return EXIT_DEFECT


def _write_any_letter() -> None:
    """A letter that the terminal's encoding lacks is written as its escape: an answer is worth more than one letter."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _answer_in_json(error: FitserveError) -> None:
    """Whoever asked for JSON gets an object for the error too."""
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if "--json" in own and error.where != "standard output":
        import json

        answer = {"schema": 1, "kind": "error", "exit_code": error.exit_code}
        click.echo(json.dumps({**answer, "message": error.what, "where": error.where, "hint": error.hint}))


def _say(text: str) -> None:
    click.echo(text, err=True)


def _write_defect_report() -> str:
    """Write what a bug report needs, without the user's arguments, and return its path."""
    import datetime as dt
    import platform
    import tempfile
    import traceback

    text = "\n".join(
        [
            f"fitserve {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: {sys.argv[1] if len(sys.argv) > 1 else '(none)'}",
            f"time: {dt.datetime.now(dt.UTC).isoformat(timespec='seconds')}",
            "",
            traceback.format_exc(),
        ]
    )
    descriptor, path = tempfile.mkstemp(prefix="fitserve-defect-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    return path
