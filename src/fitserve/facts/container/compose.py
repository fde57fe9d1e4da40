"""``docker compose up`` in a command: its files, its project's options, its services."""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from fitserve.errors import UsageError

_ENGINES = frozenset({"docker", "podman", "nerdctl"})
_ALONE = frozenset({"docker-compose", "podman-compose"})
_WITH_VALUE = frozenset(
    {
        "-f",
        "--file",
        "-p",
        "--project-name",
        "--project-directory",
        "--profile",
        "--env-file",
        "--parallel",
        "--ansi",
        "--progress",
    }
)
"""Options before the subcommand that take a value. Source: the reference of ``docker compose``."""

_UP_WITH_VALUE = frozenset(
    {"--attach", "--no-attach", "--exit-code-from", "--pull", "--scale", "-t", "--timeout", "--wait-timeout"}
)
_DETACHED = frozenset({"-d", "--detach", "--wait", "--detach=true"})

FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
"""The file without ``-f``, the first that is there; beside it ``*.override.yaml`` or ``.yml``."""


class Compose(msgspec.Struct, frozen=True, kw_only=True):
    """The compose command.

    Attributes:
        program: the index of its program.
        up: the index of the word ``up``.
        files: the files that it names, in order.
        environment_files: its ``--env-file``.
        directory: its ``--project-directory``; None where the first file's counts.
        services: the services that it names; empty for every one.
    """

    program: int
    up: int
    files: tuple[str, ...]
    environment_files: tuple[str, ...]
    directory: str | None
    services: tuple[str, ...]

    def with_files(self, argv: Sequence[str], files: Sequence[str]) -> list[str]:
        """The command with these files instead of the ones that it names or finds."""
        words: list[str] = []
        at = self.program + 1
        while at < self.up:
            option, equals, _ = argv[at].partition("=")
            width = 2 if option in _WITH_VALUE and not equals else 1
            if option not in ("-f", "--file"):
                words += argv[at : at + width]
            at += width
        named = [word for file in files for word in ("-f", file)]
        return [*argv[: self.program + 1], *words, *named, *argv[self.up :]]

    def ending(self, argv: Sequence[str], services: Sequence[str]) -> list[str]:
        """The command that stops and removes what it has started, and nothing else."""
        return [*argv[self._engine(argv) : self.up], "rm", "--stop", "--force", *services]

    def asking(self, argv: Sequence[str], services: Sequence[str]) -> list[str]:
        """The command that names the containers that run already."""
        return [*argv[self._engine(argv) : self.up], "ps", "--quiet", *services]

    def _engine(self, argv: Sequence[str]) -> int:
        """The index of the program to run: ``docker`` before ``compose``, or ``docker-compose`` itself."""
        return self.program - (argv[self.program] == "compose")


def find_compose(words: Sequence[str]) -> Compose | None:
    """The ``compose up`` in a command; None without one.

    Raises:
        UsageError: it does something else than to start services in the foreground.
    """
    for at, word in enumerate(words):
        name = PurePath(word).name
        following = words[at + 1] if at + 1 < len(words) else ""
        if name in _ALONE:
            return _read(words, at)
        if name in _ENGINES and following == "compose":
            return _read(words, at + 1)
    return None


def _read(words: Sequence[str], program: int) -> Compose:
    given: dict[str, list[str]] = {}
    at = program + 1
    while at < len(words) and words[at].startswith("-"):
        option, equals, text = words[at].partition("=")
        takes = option in _WITH_VALUE and not equals
        given.setdefault(option, []).append(words[at + 1] if takes and at + 1 < len(words) else text)
        at += 2 if takes else 1
    if at >= len(words) or words[at] != "up":
        raise UsageError(
            f"compose {words[at] if at < len(words) else ''}".strip()
            + " starts no services in the foreground",
            where=" ".join(words),
            hint="give it as: fitserve fix -- docker compose up SERVICE",
        )
    return Compose(
        program=program,
        up=at,
        files=(*given.get("-f", []), *given.get("--file", [])),
        environment_files=tuple(given.get("--env-file", [])),
        directory=next(iter(given.get("--project-directory", [])), None),
        services=tuple(_services(words, at + 1)),
    )


def _services(words: Sequence[str], at: int) -> list[str]:
    services = []
    while at < len(words):
        option, equals, _ = words[at].partition("=")
        if words[at] in _DETACHED:
            raise UsageError(
                "a detached service cannot be watched", where=words[at], hint=f"leave out {words[at]}"
            )
        if not option.startswith("-"):
            services.append(words[at])
        at += 2 if option in _UP_WITH_VALUE and not equals else 1
    return services
