"""Server-sent events, taken apart as their bytes arrive.

Source: the HTML standard, "Server-sent events", 9.2.6 (lines, fields, dispatch at an empty line).
"""

MAX_EVENT_BYTES = 8 << 20
"""An event beyond this is no token of a model: reading it would only fill our memory."""


class OversizedEventError(ValueError):
    """An event grew beyond ``MAX_EVENT_BYTES`` without ending."""


class EventReader:
    """Collects bytes and hands out the data of each finished event; comments and other fields are skipped."""

    def __init__(self) -> None:
        self._tail = b""
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes, cut anywhere.

        Returns:
            The data of every event that these bytes completed, in order.

        Raises:
            OversizedEventError: an unfinished event is larger than any answer.
        """
        events: list[bytes] = []
        lines = (self._tail + chunk).splitlines(keepends=True)
        self._tail = b""
        # A carriage return at the very end may be half of a line end: it waits for its second byte.
        if lines and not lines[-1].endswith(b"\n"):
            self._tail = lines.pop()
        for line in lines:
            text = line.rstrip(b"\r\n")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
                self._held_bytes += len(line)
            elif not text and self._data:
                events.append(b"\n".join(self._data))
                self._data, self._held_bytes = [], 0
        if len(self._tail) + self._held_bytes > MAX_EVENT_BYTES:
            raise OversizedEventError(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        return events
