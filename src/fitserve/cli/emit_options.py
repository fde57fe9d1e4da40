"""``--emit`` and ``--emit-dir``: what ``fix``, ``plan`` and ``report`` write beside their answer."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from fitserve.errors import InputError, UsageError

if TYPE_CHECKING:
    from fitserve.report.emit.deployment import Deployment

KINDS = ("yaml", "compose", "k8s", "systemd")


class Emit(msgspec.Struct, frozen=True, kw_only=True):
    """What is written, and where.

    Attributes:
        kinds: the kinds of files, in the order in which they were asked for.
        folder: where they go; None is stdout.
    """

    kinds: tuple[str, ...] = ()
    folder: Path | None = None

    def check(self, *, as_json: bool) -> None:
        """Refuse what would put two kinds of text in one place.

        Raises:
            UsageError: JSON and what is emitted would both go to stdout, or there is nothing for the folder.
        """
        if self.kinds and as_json and self.folder is None:
            raise UsageError(
                "stdout has the JSON already", where="--emit", hint="name a folder with --emit-dir"
            )
        if self.folder is not None and not self.kinds:
            raise UsageError("nothing is to be written there", where="--emit-dir", hint="add --emit k8s")

    def text(self, server: "Deployment") -> str:
        """What goes to stdout; empty where everything has gone into the folder.

        Raises:
            InputError: a file cannot be written.
        """
        from fitserve.report.emit.kinds import file_name, written

        parts = []
        for kind in self.kinds:
            text, name = written(kind, server), file_name(kind, server)
            if self.folder is None:
                parts.append(text if len(self.kinds) == 1 else f"# ---- {name}\n{text}")
            else:
                _write(self.folder / name, text)
        return "\n".join(parts)

    def tell(self, server: Callable[[], "Deployment"]) -> None:
        """Write behind an answer; a command that cannot be written is told about on stderr, and the answer stays.

        Args:
            server: makes what is written; called only where something is.
        """
        if not self.kinds:
            return
        try:
            if text := self.text(server()):
                click.echo(f"\n{text}", nl=False)
        except (InputError, UsageError) as error:
            click.echo(f"nothing is emitted: {error.what}", err=True)


def emit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as one ``emit`` argument."""

    @functools.wraps(command)
    def wrapped(
        *positional: Any, emit: tuple[str, ...], emit_dir: Path | None, as_json: bool, **others: Any
    ) -> Any:
        chosen = Emit(kinds=emit, folder=emit_dir)
        chosen.check(as_json=as_json)
        return command(*positional, emit=chosen, as_json=as_json, **others)

    wrapped = click.option(
        "--emit-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="A folder for what --emit writes; stdout otherwise.",
    )(wrapped)
    return click.option(
        "--emit",
        type=click.Choice(KINDS),
        multiple=True,
        help="Write the command as vLLM's config file, compose, Kubernetes, or a systemd unit; repeatable.",
    )(wrapped)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"it cannot be written: {error.strerror}", where=str(path)) from error
    click.echo(f"written: {path}", err=True)
