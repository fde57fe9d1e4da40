"""A vLLM launch inside a command: finds it, reads its options in any spelling."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.container import Container, find_container
from fitserve.facts.serve_options import SHORT, arity, full_name, is_negation, read_value

DEFAULT_PORT = 8000
"""Where vLLM listens without ``--port``, in every release."""

_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main")
_SCRIPTS = ("vllm/entrypoints/openai/api_server.py", "vllm/entrypoints/api_server.py")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*$")
_SHELL_SYNTAX = re.compile(r"[;&|<>()$`*?~#!\n]")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash"})
_HINT = "give it as: fitserve fix -- vllm serve MODEL --max-model-len 8192"


class Option(NamedTuple):
    """One option as it stands in the command.

    Attributes:
        name: vLLM's name with underscores.
        at: the index of its first argument.
        width: how many arguments it takes up, itself included.
        spelled: the option as typed, without its value.
        joiner: what stands between it and its value: ``=``, nothing (``-O3``), or a blank for an argument of its own.
        texts: its values as typed.
    """

    name: str
    at: int
    width: int
    spelled: str
    joiner: str
    texts: tuple[str, ...]

    @property
    def value(self) -> Any:
        """What vLLM takes it for: True or False for a switch, a list of texts for an option of several values."""
        kind = arity(self.name)
        if kind == "several":
            return list(self.texts)
        if kind == "none" or not self.texts:
            return not is_negation(self.spelled)
        return read_value(self.name, self.texts[0])


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command that starts vLLM's server.

    Attributes:
        argv: the whole command, wrappers included.
        env: environment variables that the command sets for itself, beyond the user's.
        program: the index of the program that is vLLM's: ``vllm``, its Python, or the container's image.
        first: the index of the first argument that vLLM's own parser reads.
        takes_model: True where the first positional argument is the model (``vllm serve``).
        container: the container it runs in; None without one.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    program: int
    first: int
    takes_model: bool
    container: Container | None = None

    @property
    def options(self) -> list[Option]:
        """The options of vLLM, in the order in which they stand."""
        return _read_options(self.argv, self.first)

    def option(self, name: str) -> Option | None:
        """The occurrence of an option that counts: the last one, as for argparse."""
        found = [option for option in self.options if option.name == name]
        return found[-1] if found else None

    def value(self, name: str) -> Any:
        """An option's value as vLLM takes it, inside a JSON value too; None where it is not given."""
        if option := self.option(name):
            return option.value
        head, *path = name.split(".")
        whole = self.option(head) if path else None
        inner = whole.value if whole else None
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        return inner

    @property
    def model(self) -> str | None:
        """The model's path or id; None where vLLM would choose its own default or read a config file."""
        if option := self.option("model"):
            return option.texts[0] if option.texts else None
        if not self.takes_model:
            return None
        taken = {index for option in self.options for index in range(option.at, option.at + option.width)}
        rest = [i for i in range(self.first, len(self.argv)) if i not in taken and self.argv[i] != "--"]
        return self.argv[rest[0]] if rest else None


def read_command(argv: Sequence[str]) -> Launch:
    """Find the vLLM launch in a command.

    Args:
        argv: the command as a shell would run it; it may begin with assignments (``A=b vllm serve ...``), be one line in
            one word, or the script of a ``bash -c`` that is no more than one plain command.

    Raises:
        UsageError: there is none, or one that cannot be supervised.
    """
    words = _plain(argv)
    env: dict[str, str] = {}
    while words and ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    if not words:
        raise UsageError("there is no command", hint=_HINT)
    container = find_container(words)
    found = _find_entry(words, container.image + 1 if container else 0)
    if found is None and container is not None and container.is_vllm:
        found = container.image, container.image + 1, True
    if found is None:
        raise _not_a_launch(words)
    program, first, takes_model = found
    return Launch(
        argv=tuple(words),
        env=env,
        program=program,
        first=first,
        takes_model=takes_model,
        container=container,
    )


def _plain(argv: Sequence[str]) -> list[str]:
    """The words of the command itself, where a quoted line or a shell's script is nothing else."""
    words = list(argv)
    for at, word in enumerate(words[:-2]):
        if PurePath(word).name in _SHELLS and words[at + 1] == "-c" and at + 3 == len(words):
            inner = _split(words[-1])
            return words if inner is None else [*words[:at], *inner[inner[:1] == ["exec"] :]]
    if len(words) == 1 and "vllm" in words[0]:
        return _split(words[0]) or words
    return words


def _split(line: str) -> list[str] | None:
    """The words of a shell line; None where it asks the shell for more than to start a program."""
    if _SHELL_SYNTAX.search(line):
        return None
    try:
        return shlex.split(line)
    except ValueError:
        return None


def is_variable(name: str) -> bool:
    """True for the name of an environment variable, False for a flag."""
    return _VARIABLE.match(name) is not None


def variable(launch: Launch, name: str, environ: Mapping[str, str]) -> str | None:
    """An environment variable as vLLM will see it; None where it is not set.

    A container sees what ``-e`` gives it: a value, or by its bare name the user's own.
    """
    before = launch.argv[: launch.program]
    for word in before:
        for text in (word, word.removeprefix("--env="), word.removeprefix("-e")):
            if text.startswith(f"{name}="):
                return text.partition("=")[2]
    if launch.container is not None and name not in before:
        return None
    return launch.env.get(name, environ.get(name))


def shown(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """A shell line that can be pasted."""
    return " ".join(
        [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()] + [shlex.join(argv)]
    )


def _find_entry(words: Sequence[str], start: int) -> tuple[int, int, bool] | None:
    """The program's index, the first option's index, and whether the model is positional."""
    for at in range(start, len(words)):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
        if PurePath(word).name == "vllm" and following == "serve":
            return at, at + 2, True
        if word.endswith(_SCRIPTS):
            return _interpreter(words, at), at + 1, False
        module, width = (following, 2) if word == "-m" else (word[2:] if word.startswith("-m") else "", 1)
        if module not in _MODULES:
            continue
        first = at + width
        if not module.endswith("cli.main"):
            return _interpreter(words, at), first, False
        if words[first : first + 1] == ["serve"]:
            return _interpreter(words, at), first + 1, True
    return None


def _interpreter(words: Sequence[str], before: int) -> int:
    for at in range(before - 1, -1, -1):
        if PurePath(words[at]).name.startswith(("python", "pypy")):
            return at
    return before


def _not_a_launch(words: Sequence[str]) -> UsageError:
    line = shlex.join(words)
    for at, word in enumerate(words[:-1]):
        if PurePath(word).name in _SHELLS and re.fullmatch(r"-[a-z]*c", words[at + 1]):
            return UsageError(
                "the launch is inside a shell's script, where no option can be changed",
                where=line,
                hint="give the command itself, without the shell around it",
            )
        if PurePath(word).name == "vllm":
            return UsageError(f"vllm {words[at + 1]} starts no server", where=line, hint=_HINT)
    return UsageError("the command starts no vLLM server", where=line, hint=_HINT)


def _read_options(argv: Sequence[str], first: int) -> list[Option]:
    options: list[Option] = []
    at = first
    while at < len(argv) and argv[at] != "--":
        if not _is_option(argv[at]):
            at += 1
            continue
        option = _read_option(argv, at)
        options.append(option)
        at += option.width
    return options


def _read_option(argv: Sequence[str], at: int) -> Option:
    spelled, equals, text = argv[at].partition("=")
    if not spelled.startswith("--") and spelled not in SHORT and spelled[:2] in SHORT:
        return Option(full_name(spelled[:2]), at, 1, spelled[:2], "", (argv[at][2:].removeprefix("="),))
    name = full_name(spelled)
    if equals:
        return Option(name, at, 1, spelled, "=", (text,))
    following = []
    for word in argv[at + 1 :]:
        if _is_option(word) or word == "--":
            break
        following.append(word)
    count = {"none": 0, "one": 1, "several": len(following), None: 1}[arity(name)]
    texts = tuple(following[:count])
    return Option(name, at, 1 + len(texts), spelled, " ", texts)


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and word != "--" and not _NUMBER.match(word)
