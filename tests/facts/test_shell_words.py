"""The words of a script: those of any alphabet are read as they stand."""

from fitserve.facts.shell_words import Known, Word, read_commands


def words(text: str) -> list[list[str]]:
    """The words of each command."""
    return [[word.value for word in command.words] for command in read_commands(text.encode(), Known())[0]]


def test_what_is_not_ascii_stays_itself() -> None:
    """Letters, signs of a high plane, and a name that ends before them."""
    script = (
        "NAME=größe\necho '🚀 los' schön\nvllm serve $NAMEé --served-model-name \"$NAME-模型\" > größe.log\n"
    )
    (echo, serve), values = read_commands(script.encode(), Known())

    assert ["echo", "🚀 los", "schön"] == [word.value for word in echo.words]
    assert ["vllm", "serve", "größeé", "--served-model-name", "größe-模型"] == [
        word.value for word in serve.words
    ]
    assert ("größe.log", {"NAME": "größe"}) == (serve.output, values)


def test_places_are_those_of_the_bytes() -> None:
    """Where a word stands is counted in bytes of the script."""
    (command,), _ = read_commands("é vllm".encode(), Known())

    assert (Word("é", 0, 2), Word("vllm", 3, 7)) == command.words


def test_a_brace_before_a_sign_of_a_high_plane_is_survived() -> None:
    """The grammar's scanner ends the process at these, where it sees them."""
    signs = [chr(number) for number in range(0x10000, 0x110000, 0x7FF)]

    assert all(["vllm", "serve", "m"] in words(f"{{04{sign}\nvllm serve m\n{{04{sign}") for sign in signs)
