"""The command line: one thin file a command, imported only when it is called."""

import sys
from importlib import import_module

import click

from fitserve import __version__

COMMANDS = {
    "demo": "the whole loop on a real vLLM on this machine's CPU",
    "diagnose": "why did this start-up (or this server) fail",
    "engine": "the private CPU build of vLLM that the demo runs",
    "env": "what this machine, its GPUs and its vLLM are",
    "explain": "the page of one cause, or the list",
    "fix": "start it, change one thing at a time until it serves, and prove it",
    "plan": "will it start, how long a context, how many at once, which settings",
    "redact": "the text without anything private",
    "report": "one run as text, JSON, Markdown or one HTML file",
    "run": "start it unchanged under supervision",
    "runs": "what was tried",
    "verify": "prove what a running server can do",
}
"""Each command and its line in ``--help``; its module is ``fitserve.cli.<name>``, its function ``command``."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called: ``--help`` pays for none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without an import."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"fitserve.cli.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"fitserve.cli.{cmd_name}.command is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list from the table, without an import."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fitserve")
def root() -> None:
    """Fitserve makes vLLM start, and proves that it serves."""


def main() -> None:
    """The script's entry: every way out of the tool goes through here."""
    from fitserve.cli.exits import run_guarded

    sys.exit(run_guarded(root))
