"""``docker run`` around a launch: its image, its variables, its ports."""

import re
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from fitserve.errors import UsageError

_ENGINES = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES = frozenset(
    {
        "--disable-content-trust",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--privileged",
        "--publish-all",
        "--quiet",
        "--read-only",
        "--replace",
        "--rm",
        "--sig-proxy",
        "--tty",
    }
)
"""Options of ``run`` without a value; every other one takes one. Source: the reference of ``docker run``."""

_SHORT_SWITCHES = re.compile(r"-[ditPq]+$")
_DETACHED = re.compile(r"-[itPq]*d[itPq]*$|--detach(=true)?$")
_TERMINAL = re.compile(r"-[dPq]*(i[dPq]*t|t[dPq]*i)[dPq]*$")
_PUBLISHED = re.compile(r"(?:(?P<address>[\d.]+|\[[^\]]+\]):)?(?P<outer>\d+):(?P<inner>\d+)(?:/tcp)?$")


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """The container that a launch runs in.

    Attributes:
        program: the container program's index in the command.
        image: the image's index.
        name: the image.
        host_network: True where the container shares the host's network.
        ports: the published ports: the container's port, and the host's address and port for it.
        keeps_its_name: True where it stays behind under a name of its own, so that it can be started only once.
    """

    program: int
    image: int
    name: str
    host_network: bool
    ports: dict[int, tuple[str, int]]
    keeps_its_name: bool = False

    @property
    def is_vllm(self) -> bool:
        """True for an image whose entrypoint starts vLLM's server, by its name."""
        return "vllm" in self.name.lower()

    def setting(self, argv: Sequence[str], name: str, value: str) -> tuple[int, int, list[str]]:
        """Where a variable is set in the command, how many words that takes up, and the new words."""
        for at, option, text in _options(argv, self.program + 2, self.image):
            if option in ("-e", "--env") and (text == name or text.startswith(f"{name}=")):
                if argv[at] == option:
                    return at, 2, [option, f"{name}={value}"]
                return at, 1, [argv[at].removesuffix(text) + f"{name}={value}"]
        return self.image, 0, ["-e", f"{name}={value}"]

    def cid_file(self, argv: Sequence[str]) -> str | None:
        """The file that the command has the container's id written to; None where it does not ask for that."""
        options = _options(argv, self.program + 2, self.image)
        return next((text for _, option, text in options if option == "--cidfile"), None)


def find_container(words: Sequence[str]) -> Container | None:
    """The ``docker run`` in a command; None without one.

    Raises:
        UsageError: it is detached, so that nothing could be seen of it, or it wants a terminal.
    """
    for at, word in enumerate(words[:-1]):
        if PurePath(word).name in _ENGINES and words[at + 1] == "run":
            return _read_container(words, at)
    return None


def _read_container(words: Sequence[str], program: int) -> Container | None:
    end = program + 2
    options = []
    for at, option, text in _options(words, program + 2, len(words)):
        if _DETACHED.match(words[at]):
            raise UsageError(
                "a detached container cannot be watched",
                where=words[at],
                hint=f"leave out {option}",
            )
        if _TERMINAL.match(words[at]):
            raise UsageError(
                "a container that wants a terminal cannot be watched",
                where=words[at],
                hint=f"leave out {words[at]}",
            )
        options.append((option, text))
        end = at + (2 if words[at] == option and text else 1)
    if end >= len(words):
        return None
    given = {option for option, _ in options}
    ports = {}
    for option, text in options:
        if option in ("-p", "--publish") and (match := _PUBLISHED.match(text)):
            ports[int(match["inner"])] = (match["address"] or "127.0.0.1", int(match["outer"]))
    return Container(
        program=program,
        image=end,
        name=words[end],
        host_network=any(option in ("--network", "--net") and text == "host" for option, text in options),
        ports=ports,
        keeps_its_name="--name" in given and "--rm" not in given,
    )


def _options(words: Sequence[str], start: int, end: int) -> list[tuple[int, str, str]]:
    """The options of ``run`` up to the image: index, option, value."""
    found = []
    at = start
    while at < end and words[at].startswith("-"):
        word = words[at]
        option, equals, text = word.partition("=")
        if not word.startswith("--") and not _SHORT_SWITCHES.match(word) and len(word) > 2:
            option, equals, text = word[:2], "=", word[2:].removeprefix("=")
        if equals or option in _SWITCHES or _SHORT_SWITCHES.match(option) or option == "--detach":
            found.append((at, option, text))
            at += 1
        else:
            found.append((at, option, words[at + 1] if at + 1 < end else ""))
            at += 2
    return found
