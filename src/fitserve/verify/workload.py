"""(o) The sizes of the requests under load: one size, sizes spread around it, or those of a recorded trace.

A trace gives sizes and times, never words: a prompt that was recorded may be in the server's prefix cache, and is
nobody's business. Each request gets a fresh prompt of its recorded length.
"""

import codecs
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fitserve.errors import InputError
from fitserve.verify.answer import decode_json, entry
from fitserve.verify.options import Options

INPUT_KEYS = ("input_tokens", "prompt_tokens", "input_length", "prompt_len")
OUTPUT_KEYS = ("output_tokens", "completion_tokens", "output_length", "output_len", "max_tokens")
"""Names of a request's sizes in recorded traces, the first that is there counts.

Source: OpenAI's ``usage``; the Mooncake and the Alibaba traces (``input_length``, ``output_length``, ``timestamp``); vLLM 0.32.0
``benchmarks/datasets/datasets.py`` (``input_length``, ``output_length``, ``output_tokens``).
"""

MAX_TRACE_REQUESTS = 100_000
MAX_TRACE_BYTES = 256 << 20

MAX_TIME = 1e20
"""A larger time is none, in nanoseconds since 1970 neither."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a load.

    Attributes:
        prompt_tokens: tokens in.
        output_tokens: tokens out that are asked for.
        at_seconds: when it was sent, from the beginning of its trace; None where no time was recorded.
    """

    prompt_tokens: int
    output_tokens: int
    at_seconds: float | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The user's load.

    Attributes:
        words: what a request is, for a person.
        prompt_words: likewise where the model has no output.
        trace: recorded requests in the order of their times; empty where sizes are drawn.
        input_tokens: the middle of the drawn prompts.
        output_tokens: the middle of the drawn outputs.
        random_range_ratio: how far they spread.
    """

    words: str
    prompt_words: str = ""
    trace: tuple[Size, ...] = ()
    input_tokens: int = 1
    output_tokens: int = 1
    random_range_ratio: float = 0.0

    @property
    def timed(self) -> bool:
        """True where the trace says when each request came."""
        return bool(self.trace) and all(size.at_seconds is not None for size in self.trace)

    def sizes(self, max_model_len: int | None, *, generates: bool = True) -> Iterator[Size]:
        """Sizes without end, each made smaller where the server's context is.

        Args:
            max_model_len: the server's; None where it is not known.
            generates: the model has an output.
        """
        if self.trace:
            while True:
                for size in self.trace:
                    yield fit_size(size, max_model_len, generates=generates)
        dice = random.Random()  # noqa: S311 - sizes are no secrets
        while True:
            drawn = Size(
                prompt_tokens=self._draw(dice, self.input_tokens),
                output_tokens=self._draw(dice, self.output_tokens),
            )
            yield fit_size(drawn, max_model_len, generates=generates)

    def cut_words(self, max_model_len: int | None, *, generates: bool = True) -> str:
        """That requests are made smaller than the user's, to fit; empty where none is."""
        if max_model_len is None:
            return ""
        if self.trace:
            lengths = [size.prompt_tokens + size.output_tokens * generates for size in self.trace]
            cut = sum(length > max_model_len for length in lengths)
            return f"; {cut:,} of {len(lengths):,} recorded requests do not fit and are cut" if cut else ""
        longest = (self.input_tokens + self.output_tokens * generates) * (1 + self.random_range_ratio)
        return f"; cut: up to {longest:,.0f} tokens do not fit" if longest > max_model_len else ""

    def _draw(self, dice: random.Random, middle: int) -> int:
        spread = int(middle * self.random_range_ratio)
        return max(1, dice.randint(middle - spread, middle + spread))


def fit_size(size: Size, max_model_len: int | None, *, generates: bool = True) -> Size:
    """The request, made smaller where the server's context is; without an output where the model has none."""
    out = size.output_tokens if generates else 0
    prompt = size.prompt_tokens
    if max_model_len is not None:
        out = min(out, max(1, max_model_len // 2))
        prompt = max(1, min(prompt, max_model_len - out))
    return Size(prompt_tokens=prompt, output_tokens=out, at_seconds=size.at_seconds)


def plan_workload(options: Options) -> Workload:
    """The load that the options describe.

    Raises:
        InputError: the trace cannot be read, or a line of it is no request.
    """
    if options.trace_file is not None:
        trace = read_trace(Path(options.trace_file))
        lasted = trace[-1].at_seconds
        words = f"{len(trace):,} recorded requests" + ("" if lasted is None else f" of {lasted:,.1f} s")
        return Workload(words=words, prompt_words=words, trace=trace)
    ratio = options.random_range_ratio
    spread = f", each up to {ratio:.0%} more or less" if ratio else ""
    return Workload(
        words=f"{options.input_tokens:,} + {options.output_tokens:,} tokens{spread}",
        prompt_words=f"{options.input_tokens:,} tokens{spread}",
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
        random_range_ratio=ratio,
    )


def read_trace(path: Path) -> tuple[Size, ...]:
    """Recorded requests, in the order of their times; the first one's time is 0.

    Raises:
        InputError: the file cannot be read, holds no request, or a line of it is none.
    """
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise InputError(f"the trace is larger than {MAX_TRACE_BYTES:,} bytes", where=str(path))
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise InputError(f"the trace cannot be read: {error.strerror}", where=str(path)) from error
    read = [
        _read_line(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()
    ]
    if not read:
        raise InputError("the trace holds no request", where=str(path), hint=_HINT)
    if len(read) > MAX_TRACE_REQUESTS:
        raise InputError(f"the trace holds more than {MAX_TRACE_REQUESTS:,} requests", where=str(path))
    times = [time for _, time in read if time is not None]
    if len(times) < len(read):
        return tuple(size for size, _ in read)
    start, scale = min(times).value, _scale(times)
    moved = [
        msgspec.structs.replace(size, at_seconds=(time.value - start) * scale)
        for (size, _), time in zip(read, times, strict=True)
    ]
    return tuple(sorted(moved, key=lambda size: size.at_seconds or 0.0))


class _Time(msgspec.Struct, frozen=True, order=True):
    """A recorded time, and whether its unit is told by its name."""

    value: float
    in_seconds: bool


def _scale(times: list[_Time]) -> float:
    """Seconds of one unit: ``timestamp`` is whole milliseconds in the Mooncake traces, and seconds with a fraction in Alibaba's."""
    if all(time.in_seconds for time in times) or any(time.value != int(time.value) for time in times):
        return 1.0
    return 0.001


_HINT = 'a line is such as {"input_tokens": 900, "output_tokens": 120, "at_seconds": 0.25}; the time may be missing'


def _read_line(line: bytes, where: str) -> tuple[Size, _Time | None]:
    try:
        value = decode_json(line)
    except ValueError as error:
        raise InputError(f"a line of the trace is no JSON: {error}", where=where, hint=_HINT) from error
    sizes = [_first_number(value, keys) for keys in (INPUT_KEYS, OUTPUT_KEYS)]
    if sizes[0] is None or sizes[1] is None:
        missing = "input" if sizes[0] is None else "output"
        raise InputError(f"a line of the trace has no count of {missing} tokens", where=where, hint=_HINT)
    return Size(prompt_tokens=sizes[0], output_tokens=sizes[1]), _time(value)


def _first_number(value: Any, keys: tuple[str, ...]) -> int | None:
    for key in keys:
        number = entry(value, key)
        if isinstance(number, int | float) and not isinstance(number, bool) and 1 <= number < 1e9:
            return int(number)
    return None


def _time(value: Any) -> _Time | None:
    for key in ("at_seconds", "timestamp"):
        number = entry(value, key)
        if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) <= MAX_TIME:
            return _Time(float(number), in_seconds=key == "at_seconds")
    return None
