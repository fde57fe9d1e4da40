"""``fitserve verify``: prove what a running server can do."""

import shutil
import sys
import time
from typing import Any

import click

from fitserve.cli.launch_options import goal_option
from fitserve.cli.options import Output, output_options
from fitserve.verify.verification import Check


@click.command("verify")
@click.argument("url")
@click.option("--deadline", type=float, default=120.0, show_default=True, help="Seconds for each request.")
@goal_option("--goal-context", "Tokens of one request, prompt and output.")
@goal_option("--goal-concurrency", "Requests at once.")
@click.option("--model", metavar="NAME", help="The name that your requests carry.")
@click.option("--api-key-env", metavar="VAR", help="The environment variable that holds the API key.")
@click.option(
    "--ca-file", type=click.Path(exists=True, dir_okay=False), help="The authority to trust, as PEM."
)
@click.option(
    "--input-tokens", type=int, default=128, show_default=True, help="Prompt of a request under load."
)
@click.option(
    "--output-tokens", type=int, default=32, show_default=True, help="Output of a request under load."
)
@click.option(
    "--random-range-ratio",
    type=float,
    default=0.0,
    show_default=True,
    help="Spread both from (1 - RATIO) to (1 + RATIO) times.",
)
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False),
    help="Take the sizes, and times if they are there, from recorded requests: a JSON object a line.",
)
@click.option(
    "--request-rate", type=float, metavar="R", help="Also send R requests a second, answered or not."
)
@click.option(
    "--minutes", type=float, metavar="M", help="Also keep the load up for M minutes, and look for leaks."
)
@click.option("--max-num-seqs", type=int, metavar="N", help="The server's own limit; the ramp ends there.")
@click.option("--quick", is_flag=True, help="Ask less of each kind.")
@click.option(
    "--yes", is_flag=True, help="Put a server outside this machine and its private network under load."
)
@click.option(
    "--save/--no-save", "save", default=True, show_default=True, help="Keep the result: fitserve report last."
)
@output_options
def command(
    url: str, output: Output, *, deadline: float, quick: bool, yes: bool, save: bool, **sizes: Any
) -> int:
    """Prove at its API what the server at URL can do.

    It is reached; its names and context length are read; every endpoint answers; requests of exactly max_model_len
    tokens are served and longer ones refused; a ramp of concurrent requests shows where it stops taking more. Exit 0:
    all passed; 1: a check failed, or the goal was not proven; 3: it is no OpenAI-compatible server; 4: it cannot be reached.
    """
    from fitserve.report.verification_text import render_verification
    from fitserve.verify.options import Options
    from fitserve.verify.run import exit_code, verify_server

    options = Options(
        deadline_seconds=deadline, profile="quick" if quick else "full", allow_public=yes, **sizes
    )
    shown = sys.stderr.isatty() and not output.quiet
    began = time.monotonic()
    verification = verify_server(url, options, _show if shown else None, _tell if shown else None)
    seconds = time.monotonic() - began
    width = shutil.get_terminal_size((120, 24)).columns
    output.emit(verification, lambda: render_verification(verification, colored=output.colored, width=width))
    if save:
        from fitserve.cli.keep import keep_verification

        keep_verification(verification, seconds, quiet=not shown)
    return exit_code(verification, options)


def _show(check: Check) -> None:
    """Progress: a line on a terminal for each check as it is answered."""
    from fitserve.report.verification_text import result_word

    click.echo(f"{result_word(check):<10}{check.name}", err=True)


def _tell(words: str) -> None:
    """Progress of what lasts."""
    click.echo(f"{'':<10}{words}", err=True)
