"""A launch inside a shell's script: found, read and edited where it stands, everything else byte for byte."""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.container.run import find_container
from fitserve.facts.shell_words import Command, Known, Word, joined, read_commands

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh"})
_TALKERS = frozenset({"echo", "printf", "pkill", "pgrep", "grep", "which", "command", "alias", "kill"})
_GAP = re.compile(rb"(?:[ \t\n]|\\\n)+$")
_OPTIONS_WITH_VALUE = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
_ASKS_ITS_PLACE = re.compile(rb"\$\{?0\b|BASH_SOURCE")


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A script with one launch in it.

    Attributes:
        at: the index of its text or its path in the command.
        path: its file; None for the text behind ``-c``.
        text: as it is now.
        original: as it was given.
        placed: the words of the launch's command, assignments included.
        known: what its words may refer to.
        variables: what it sets, where that is known.
        starts_ray: True where it starts a Ray cluster.
    """

    at: int
    path: str | None
    text: bytes
    original: bytes
    placed: tuple[Word, ...]
    known: Known
    variables: dict[str, str] = {}
    starts_ray: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the launch."""
        return tuple(word.value for word in self.placed)

    @property
    def edited(self) -> bool:
        """True where it is no longer as it was given."""
        return self.text != self.original

    @property
    def asks_its_place(self) -> bool:
        """True where it looks for files beside itself."""
        return _ASKS_ITS_PLACE.search(self.text) is not None

    def can_change(self, at: int, width: int) -> bool:
        """True where none of the words comes out of a variable together with others."""
        return not any(word.fixed for word in self.placed[at : at + width])

    def spliced(self, at: int, width: int, words: Sequence[str]) -> bytes:
        """The text with some words of the launch replaced."""
        edits = [
            edit
            for index, old in enumerate(self.placed[at : at + width])
            if (edit := self._edit(at + index, old, words[index : index + 1])) is not None
        ]
        added = words[width:]
        if added:
            edits.append(self._insertion(at + width, added))
        text = self.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _edit(self, at: int, old: Word, new: Sequence[str]) -> tuple[int, int, bytes] | None:
        if list(new) == [old.value]:
            return None
        if new:
            return old.start, old.end, joined(new)
        before = self.placed[at - 1].end if at else old.start
        return old.start - len(_blank(self.text[before : old.start])), old.end, b""

    def _insertion(self, at: int, words: Sequence[str]) -> tuple[int, int, bytes]:
        if at == 0:
            start = self.placed[0].start
            return start, start, joined(words) + b" "
        end = self.placed[at - 1].end
        return end, end, self._gap_before(at - 1) + joined(words)

    def _gap_before(self, at: int) -> bytes:
        """What stands before the option that a word belongs to: a new line where each option has one."""
        for index in (at, at - 1):
            if index > 0 and self.placed[index].value.startswith("-"):
                gap = self.text[self.placed[index - 1].end : self.placed[index].start]
                blank = _blank(gap)
                return blank if b"\n" in blank else b" "
        return b" "


def _blank(gap: bytes) -> bytes:
    """What parts two words, up to a comment before it, which only an array can have."""
    if _GAP.match(gap):
        return gap
    head, line, tail = gap.rpartition(b"\n")
    return line + tail if head and not tail.strip() else b""


def script_in(words: Sequence[str]) -> tuple[int, bool] | None:
    """Where a shell's script stands in a command: its index, and whether it is the text itself; None without a shell."""
    for at, word in enumerate(words[:-1]):
        entrypoint = word.startswith("--entrypoint=") or words[at - 1 : at] == ["--entrypoint"]
        if PurePath(word.removeprefix("--entrypoint=")).name not in SHELLS:
            continue
        index, inline = at + 1, False
        if entrypoint and (container := find_container(words)) is not None:
            index = container.image + 1
        while index < len(words) and words[index][:1] in ("-", "+"):
            option = words[index]
            if not option.startswith("--") and option[0] == "-" and "c" in option:
                inline = True
            takes_value = option in _OPTIONS_WITH_VALUE or re.fullmatch(r"-[a-z]*o", option)
            index += 2 if takes_value else 1
        return (index, inline) if index < len(words) else None
    return None


def read_script(
    text: bytes,
    *,
    at: int,
    path: str | None,
    original: bytes,
    known: Known,
    is_launch: Callable[[Sequence[str]], bool],
) -> Script:
    """Find the launch in a script.

    Raises:
        UsageError: it has none, several, or one whose output cannot be seen.
    """
    commands, variables = read_commands(text, known)
    found = [command for command in commands if _speaks_to_vllm(command, is_launch)]
    where = path or text.decode("utf-8", "replace").strip()
    if not found:
        raise UsageError(
            "the shell's script starts no vLLM server that can be seen in it",
            where=where,
            hint="give the command itself, as in: fitserve fix -- vllm serve MODEL",
        )
    if len(found) > 1:
        raise UsageError(
            f"the shell's script has {len(found)} vLLM servers in it, and only one can be changed",
            where=where,
            hint="give the one that is meant: fitserve fix -- vllm serve MODEL",
        )
    if found[0].output:
        raise UsageError(
            f"the server's output goes to {found[0].output}, where it cannot be watched",
            where=where,
            hint="leave out the redirection; fitserve keeps the output in --log-dir",
        )
    return Script(
        at=at,
        path=path,
        text=text,
        original=original,
        placed=found[0].words,
        known=known,
        variables=variables,
        starts_ray=any([word.value for word in each.words[:2]] == ["ray", "start"] for each in commands),
    )


def _speaks_to_vllm(command: Command, is_launch: Callable[[Sequence[str]], bool]) -> bool:
    words = [word.value for word in command.words]
    return bool(words) and PurePath(words[0]).name not in _TALKERS and is_launch(words)
