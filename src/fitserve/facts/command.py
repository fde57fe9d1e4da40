"""A vLLM launch inside a command: finds it, reads its options in any spelling.

The words that start vLLM may be the command's own, or stand in something that the command names: a shell's script, a
service of a compose file. What a launch says of ``words`` holds for all of them.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.config_file import ConfigFile
from fitserve.facts.container import Container, Service, find_container
from fitserve.facts.serve_options import SHORT, arity, full_name, is_negation, names_of, read_value
from fitserve.facts.shell_script import Script, read_script, script_in
from fitserve.facts.shell_words import Known

DEFAULT_PORT = 8000
"""Where vLLM listens without ``--port``, in every release."""

_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main")
_SCRIPTS = ("vllm/entrypoints/openai/api_server.py", "vllm/entrypoints/api_server.py")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*$")
_SHELL_SYNTAX = re.compile(r"[;&|<>()$`*?~#!\n]")
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
            is_off = bool(self.texts) and self.texts[0].lower() == "false"
            return is_negation(self.spelled) == is_off
        return read_value(self.name, self.texts[0])


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A command that starts vLLM's server.

    Attributes:
        argv: the whole command, wrappers included.
        env: environment variables that the command sets for itself, beyond the user's.
        program: the index, in ``words``, of the program that is vLLM's: ``vllm``, its Python, or the container's image.
        first: the index, in ``words``, of the first argument that vLLM's own parser reads.
        takes_model: True where the first positional argument is the model (``vllm serve``).
        container: the container it runs in; None without one.
        around: True where the container is around the script that holds the words, not inside of it.
        host: what holds the words where they are not the command's own.
        config: its ``--config`` file, where that was read.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    program: int
    first: int
    takes_model: bool
    container: Container | None = None
    around: bool = False
    host: Script | Service | None = None
    config: ConfigFile | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words that start vLLM, wrappers included."""
        return self.argv if self.host is None else self.host.words

    @property
    def options(self) -> list[Option]:
        """The options of vLLM, in the order in which they stand."""
        return _read_options(self.words, self.first)

    def option(self, name: str) -> Option | None:
        """The occurrence of an option that counts, under any of its names: the last one, as for argparse."""
        names = names_of(name)
        found = [option for option in self.options if option.name in names]
        return found[-1] if found else None

    def value(self, name: str) -> Any:
        """An option's value as vLLM takes it, inside a JSON value too; None where it is not given."""
        if option := self.option(name):
            return option.value
        head, *path = name.split(".")
        whole = self.option(head) if path else None
        inner = whole.value if whole else self.configured(head)
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        return inner

    def configured(self, name: str) -> Any:
        """An option's value in the config file; None where it does not stand there."""
        for known in names_of(name) if self.config else ():
            if self.config is not None and known in self.config.entries:
                value = self.config.entries[known].value
                return read_value(known, value) if isinstance(value, str) else value
        return None

    @property
    def model(self) -> str | None:
        """The model's path or id; None where vLLM would choose its own default."""
        configured = self.config.values.get("model") if self.config else None
        if option := self.option("model"):
            return option.texts[0] if option.texts else None
        if self.takes_model:
            words = self.words
            taken = {at for option in self.options for at in range(option.at, option.at + option.width)}
            rest = [i for i in range(self.first, len(words)) if i not in taken and words[i] != "--"]
            if rest:
                return words[rest[0]]
        return None if configured is None else str(configured)


def read_command(argv: Sequence[str]) -> Launch:
    """Find the vLLM launch in a command; no file is read.

    Args:
        argv: the command as a shell would run it; it may begin with assignments (``A=b vllm serve ...``), be one line in
            one word, or hold the script of a shell (``bash -c``).

    Raises:
        UsageError: there is none, or one that cannot be supervised.
    """
    words, env = split_environment(argv)
    if not words:
        raise UsageError("there is no command", hint=_HINT)
    found = read_words(words)
    if found is not None:
        return msgspec.structs.replace(found, env=env)
    script = script_in(words)
    if script is None or not script[1]:
        raise _not_a_launch(words)
    at = script[0]
    text = words[at].encode("utf-8", "surrogateescape")
    known = Known(None, tuple(words[at + 2 :]))
    return in_script(
        Launch(argv=tuple(words), env=env, program=0, first=0, takes_model=False), text, at, None, known
    )


def split_environment(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """A command's words, and the variables that are set in front of them."""
    words = list(argv)
    if len(words) == 1 and "vllm" in words[0]:
        words = _split(words[0]) or words
    env: dict[str, str] = {}
    while words and ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    return words, env


def in_script(outer: Launch, text: bytes, at: int, path: str | None, known: Known) -> Launch:
    """The launch in a script that a command holds or names.

    Args:
        outer: the command around it, or the launch before an edit.
        text: the script.
        at: the index of the script or its path in the command.
        path: its file; None for the text behind ``-c``.
        known: what its words may refer to.

    Raises:
        UsageError: there is none in it that can be supervised.
    """
    before = outer.host if isinstance(outer.host, Script) else None
    script = read_script(
        text,
        at=at,
        path=path,
        original=before.original if before else text,
        known=known,
        is_launch=_may_launch,
    )
    inner = read_words(script.words)
    if inner is None:
        raise _not_a_launch(script.words)
    argv = (
        outer.argv
        if path
        else (*outer.argv[:at], text.decode("utf-8", "surrogateescape"), *outer.argv[at + 1 :])
    )
    around = find_container(argv[:at])
    return msgspec.structs.replace(
        inner,
        argv=argv,
        env=outer.env,
        host=script,
        config=outer.config,
        container=around or inner.container,
        around=around is not None,
    )


def read_words(words: Sequence[str]) -> Launch | None:
    """The launch that some words are; None where they start no vLLM.

    Raises:
        UsageError: it cannot be supervised.
    """
    container = find_container(words)
    found = _find_entry(words, container.image + 1 if container else 0)
    if found is None and container is not None and container.is_vllm and not _has_shell(words, container):
        found = container.image, container.image + 1, True
    if found is None:
        return None
    program, first, takes_model = found
    return Launch(
        argv=tuple(words), program=program, first=first, takes_model=takes_model, container=container
    )


def _has_shell(words: Sequence[str], container: Container) -> bool:
    """True where a shell takes the place of the image's own program."""
    return script_in(words[container.image :]) is not None or script_in(words) is not None


def _may_launch(words: Sequence[str]) -> bool:
    try:
        return read_words(words) is not None
    except UsageError:
        return any("vllm" in word for word in words)


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
    before = (*launch.words[: launch.program], *(launch.argv if launch.around else ()))
    for word in before:
        for text in (word, word.removeprefix("--env="), word.removeprefix("-e")):
            if text.startswith(f"{name}="):
                return text.partition("=")[2]
    if isinstance(launch.host, Service):
        return launch.host.environment.get(name)
    if launch.host is not None and name in launch.host.variables:
        return launch.host.variables[name]
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
