"""The commands of a shell script as words, each with its place in the text.

A shell's grammar is too large to be read by regular expressions, and the standard library's ``shlex`` knows neither
where a word stands nor what an operator is. Source: the grammar of tree-sitter-bash; quoting and expansion as in POSIX XCU 2.2 and 2.6, as far as they can be known
without running anything: assignments of literals, defaults, arrays and arguments. What is not known stays as it is typed.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node

_PARAMETER = re.compile(r"\$(?:(\w+|[@*])|\{(\w+|[@*])(?:(:?-)(.*))?\})$", re.DOTALL)
_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}$")
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\([$`"\\\n])')
_SILENT = frozenset({"/dev/stdout", "/dev/stderr", "/dev/tty"})


class Word(msgspec.Struct, frozen=True):
    """One word of a command.

    Attributes:
        value: what the program would get.
        start: where it begins in the text, in bytes.
        end: where it ends.
        fixed: True where it is a part of what stands there, so that it cannot be changed alone.
    """

    value: str
    start: int
    end: int
    fixed: bool = False


class Command(msgspec.Struct, frozen=True):
    """A command with its assignments, and the file that swallows its output; empty without one."""

    words: tuple[Word, ...]
    output: str = ""


class Known(msgspec.Struct, frozen=True):
    """What a script's words may refer to.

    Attributes:
        environ: the environment; None where it is not known.
        arguments: the script's own arguments.
    """

    environ: Mapping[str, str] | None = None
    arguments: tuple[str, ...] = ()


_PLAIN = bytes(byte if byte < 0x80 else ord("%") for byte in range(0x100))
"""What the grammar is shown: a sign that is a part of words and of no name in the place of what is not ASCII.

Source: measured. A process that gives tree-sitter-bash 0.25.1 ``{04`` with a character of a high plane behind it ends in a
segmentation fault, about every second time.
"""


def read_commands(text: bytes, known: Known) -> tuple[list[Command], dict[str, str]]:
    """Every command of a script, in order, those inside of conditions and loops included; and its variables."""
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    tree = parser.parse(text.translate(_PLAIN))
    scope = _Scope(known, text)
    commands = []
    for node in _walk(tree.root_node):
        if node.type == "variable_assignment" and node.parent and node.parent.type != "command":
            scope.assign(node)
        elif node.type == "command":
            words = tuple(word for child in node.children for word in scope.words(child))
            commands.append(Command(words, scope.output(node)))
    return commands, {name: value for name, value in scope.values.items() if value is not None}


class _Scope:
    """The variables that have one known value."""

    def __init__(self, known: Known, source: bytes) -> None:
        self.source = source
        self.environ = known.environ
        self.arguments = known.arguments
        self.values: dict[str, str | None] = {}
        self.arrays: dict[str, list[Word]] = {}

    def assign(self, node: "Node") -> None:
        """Note an assignment; a second one leaves the value unknown."""
        name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = self._text(name_node) if name_node else ""
        if value is not None and value.type == "array":
            appended = self.arrays.get(name, []) if b"+=" in self._bytes(node)[: len(name) + 2] else []
            self.arrays[name] = appended + [
                word for child in value.named_children for word in self.words(child)
            ]
            return
        known = "" if value is None else self.value(value)
        self.values[name] = None if name in self.values else known

    def words(self, node: "Node") -> list[Word]:
        """The words that a part of a command stands for."""
        if node.type in ("comment", "file_redirect", "herestring_redirect", "heredoc_redirect"):
            return []
        if node.type == "command_name":
            return self.words(node.children[0])
        listed = self._listed(node)
        if listed is not None:
            return listed
        value = self.value(node)
        return [Word(self._text(node) if value is None else value, node.start_byte, node.end_byte)]

    def _listed(self, node: "Node") -> list[Word] | None:
        """The words of an array, of the arguments, or of an unquoted variable; None for what is one word."""
        text = self._text(node)
        bare = text.strip('"')
        if array := _ARRAY.match(bare):
            return self.arrays.get(array[1])
        parameter = _PARAMETER.match(bare)
        if parameter is None:
            return None
        name = parameter[1] or parameter[2]
        if name in ("@", "*"):
            return [Word(text, node.start_byte, node.end_byte, fixed=True) for text in self.arguments]
        if text.startswith('"'):
            return None
        value = self._parameter(parameter)
        words = None if value is None else value.split()
        if words is None or len(words) == 1:
            return None
        return [Word(word, node.start_byte, node.end_byte, fixed=True) for word in words]

    def value(self, node: "Node") -> str | None:
        """The text that a node stands for; None where that is not known."""
        text = self._text(node)
        match node.type:
            case "word" | "number" | "variable_name":
                return _ESCAPED.sub(lambda m: "" if m[1] == "\n" else m[1], text)
            case "raw_string":
                return text[1:-1]
            case "string" | "concatenation" | "variable_assignment" | "command_name":
                return self._joined(node)
            case "simple_expansion" | "expansion":
                parameter = _PARAMETER.match(text)
                return self._parameter(parameter) if parameter else None
            case "string_content":
                return _QUOTED_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], text)
            case _:
                return text if node.child_count == 0 else None

    def _joined(self, node: "Node") -> str | None:
        """A node's parts one after the other, with what stands between them; the quotes of a string left out."""
        parts: list[str] = []
        children = node.children[1:-1] if node.type == "string" else node.children
        at = node.start_byte + (1 if node.type == "string" else 0)
        content = self._bytes(node)
        for child in children:
            parts.append(_decoded(content[at - node.start_byte : child.start_byte - node.start_byte]))
            value = self.value(child)
            if value is None:
                return None
            parts.append(value)
            at = child.end_byte
        end = node.end_byte - (1 if node.type == "string" else 0)
        parts.append(_decoded(content[at - node.start_byte : end - node.start_byte]))
        return "".join(parts)

    def _parameter(self, match: re.Match[str]) -> str | None:
        name, default = match[1] or match[2], match[4]
        if name.isdigit():
            at = int(name) - 1
            given = self.arguments[at] if 0 <= at < len(self.arguments) else ""
            return given or _unquoted(default or "")
        if name in self.values and self.values[name] is None:
            return None
        value = self.values.get(name, None if self.environ is None else self.environ.get(name, ""))
        if value is None:
            return None
        return value or _unquoted(default or "")

    def output(self, node: "Node") -> str:
        """The file that a command's output goes to; empty where it can be seen."""
        around: Node | None = node
        while around is not None and around.type in (
            "command",
            "list",
            "redirected_statement",
            "negated_command",
        ):
            for redirect in around.children:
                if redirect.type == "file_redirect" and (found := self._file_of(redirect)):
                    return found
            around = around.parent
        return ""

    def _file_of(self, redirect: "Node") -> str:
        descriptor = redirect.child_by_field_name("descriptor")
        target = redirect.child_by_field_name("destination")
        operators = {child.type for child in redirect.children}
        if target is None or not operators & {">", ">>", "&>", "&>>", ">|"}:
            return ""
        if target.type == "process_substitution" or (
            descriptor is not None and self._text(descriptor) != "1"
        ):
            return ""
        return "" if self._text(target) in _SILENT else self._text(target)

    def _bytes(self, node: "Node") -> bytes:
        return self.source[node.start_byte : node.end_byte]

    def _text(self, node: "Node") -> str:
        return _decoded(self._bytes(node))


def quoted(word: str) -> str:
    """A word as a shell reads it; an assignment stays one."""
    name, equals, value = word.partition("=")
    if equals and name.isidentifier():
        return f"{name}={shlex.quote(value) if value else ''}"
    return shlex.quote(word)


def _unquoted(text: str) -> str:
    try:
        return " ".join(shlex.split(text))
    except ValueError:
        return text


def _walk(node: "Node") -> Iterator["Node"]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(current.children)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def joined(words: Sequence[str]) -> bytes:
    """Words as they are typed, blanks between."""
    return " ".join(map(quoted, words)).encode("utf-8", "surrogateescape")
