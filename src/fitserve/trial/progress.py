"""What a start looks like while it lasts: one live line on a terminal, plain lines elsewhere, or nothing (o: stderr)."""

import sys
from typing import TYPE_CHECKING, Literal, Protocol, Self, TextIO

from fitserve.trial.outcome import Trial

if TYPE_CHECKING:
    from rich.status import Status

Style = Literal["live", "plain", "quiet"]

SPARSE_SECONDS = 30.0
"""How long plain lines say nothing new while a start goes on."""

WIDEST = 160
"""How much of a server's line a plain line repeats, in characters."""


class Progress(Protocol):
    """Whoever wants to know how a run goes on."""

    def trial_started(self, n: int, command: str, change: str) -> None:
        """A trial begins: its command as a shell line, and the one change in words (empty for the first)."""

    def phase(self, stage: str, seconds: float) -> None:
        """The start has reached a stage, so many seconds after the launch."""

    def tick(self, stage: str, seconds: float, line: str) -> None:
        """Time has passed; the last line that the server wrote."""

    def trial_ended(self, trial: Trial) -> None:
        """A trial is over, or its server answers."""

    def note(self, text: str) -> None:
        """Something the user should know, in one line."""


class Quiet:
    """Says nothing."""

    def trial_started(self, n: int, command: str, change: str) -> None:
        """Nothing."""

    def phase(self, stage: str, seconds: float) -> None:
        """Nothing."""

    def tick(self, stage: str, seconds: float, line: str) -> None:
        """Nothing."""

    def trial_ended(self, trial: Trial) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def __enter__(self) -> Self:
        """Nothing is shown before the first trial."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


class Plain(Quiet):
    """A line for each event: for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.n = 0
        self.spoke_at = 0.0

    def trial_started(self, n: int, command: str, change: str) -> None:
        """The command, after the change that makes it new."""
        self.n = n
        self.spoke_at = 0.0
        if change:
            self.note(f"change: {change}")
        self.note(f"trial {n}: {command}")

    def phase(self, stage: str, seconds: float) -> None:
        """The stage and its time."""
        self.spoke_at = seconds
        self.note(f"trial {self.n}: {stage} ({seconds:.0f} s)")

    def tick(self, stage: str, seconds: float, line: str) -> None:
        """How far it is, where nothing else was said for a while."""
        if seconds - self.spoke_at >= SPARSE_SECONDS:
            self.spoke_at = seconds
            self.note(f"trial {self.n}: {stage} ({seconds:.0f} s): {line.strip()[:WIDEST]}")

    def trial_ended(self, trial: Trial) -> None:
        """How it went."""
        cause = f": {trial.cause}" if trial.cause else ""
        self.note(f"trial {trial.n}: {trial.outcome}{cause} ({trial.seconds:.0f} s)")

    def note(self, text: str) -> None:
        """The text as a line."""
        self.stream.write(f"{text}\n")
        self.stream.flush()


class Live(Plain):
    """One line that keeps changing, below the lines that stay."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.status: Status | None = None

    def trial_started(self, n: int, command: str, change: str) -> None:
        """The lines that stay, and a line that changes."""
        from rich.console import Console

        super().trial_started(n, command, change)
        self.status = Console(file=self.stream, highlight=False).status("starting", refresh_per_second=8)
        self.status.start()

    def phase(self, stage: str, seconds: float) -> None:
        """The changing line shows it."""
        self.tick(stage, seconds, "")

    def tick(self, stage: str, seconds: float, line: str) -> None:
        """Stage, seconds, and as much of the last line as fits."""
        from rich.text import Text

        if self.status is not None:
            width = max(20, self.status.console.width - 4)
            self.status.update(Text(f"{stage} {seconds:.0f} s  {line.strip()}"[:width], no_wrap=True))

    def trial_ended(self, trial: Trial) -> None:
        """The changing line goes; the outcome stays."""
        self._stop()
        super().trial_ended(trial)

    def note(self, text: str) -> None:
        """A line that stays, above the changing one."""
        if self.status is None:
            super().note(text)
        else:
            self.status.console.print(text, markup=False, soft_wrap=True)

    def __exit__(self, *_: object) -> None:
        """The terminal is left as it was found."""
        self._stop()

    def _stop(self) -> None:
        if self.status is not None:
            self.status.stop()
            self.status = None


def progress(style: Style, stream: TextIO | None = None) -> Quiet:
    """The progress in a style."""
    makers = {"live": Live, "plain": Plain}
    return makers[style](stream) if style in makers else Quiet()


def style_for(*, quiet: bool, stream: TextIO | None = None) -> Style:
    """Live on a terminal, plain lines elsewhere."""
    if quiet:
        return "quiet"
    return "live" if (stream or sys.stderr).isatty() else "plain"
