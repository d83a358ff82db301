"""Messages larger than a data channel takes, cut in pieces and put together again. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .codec import MISSING, Message, decode
from .jsontext import dumps
from .timers import Timer, Timers

__all__ = ["CHUNK_METHOD", "ChunkAssembler", "payload_limit", "split"]

CHUNK_METHOD = "WebRTC/Chunk"
GROUP_TIMEOUT = 15.0
MAX_GROUPS = 16
MAX_GROUP_CHARACTERS = 100 * 1024 * 1024
_RESERVE = 32 * 1024
_SMALLEST = 1024


def payload_limit(max_message: int) -> int:
    """How many bytes of one message to use, given the largest that the other side announced."""
    return max(max_message - _RESERVE, min(max_message, _SMALLEST))


def split(source: str, target: str, text: str, limit: int, trace_id: str) -> Iterator[str]:
    """The texts that carry ``text``, none of them above ``limit`` bytes, and the end marker.

    Escaping inside a piece counts: what is measured is the encoded text.
    """
    common = {
        "trace_id": trace_id,
        "method": CHUNK_METHOD,
        "source_terminal_id": source,
        "target_terminal_id": target,
    }
    at = seq = 0
    step = limit
    while at < len(text):
        while True:
            encoded = dumps({**common, "frame": {"seq": seq, "body": text[at : at + step]}})
            if len(encoded) <= limit or step == 1:
                break
            step = max(1, step * limit // len(encoded) - 1)
        yield encoded.decode()
        at += step
        seq += 1
    yield dumps({**common, "res": {"code": 200, "message": "OK"}}).decode()


class _Group:
    __slots__ = ("characters", "pieces", "timer")

    def __init__(self, timer: Timer) -> None:
        self.pieces: dict[int, str] = {}
        self.characters = 0
        self.timer = timer


class ChunkAssembler:
    """Collects the pieces that one peer sends. A group that stalls, grows too large or has a hole is dropped."""

    def __init__(
        self, timers: Timers, deliver: Callable[[Message], None], drop: Callable[[str], None]
    ) -> None:
        self._timers = timers
        self._deliver = deliver
        self._drop = drop
        self._groups: dict[str, _Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def take(self, message: Message) -> None:
        """One piece, or the end of a group."""
        if message.res is not MISSING:
            self._finish(message.trace_id)
            return
        seq, body = _piece(message.frame)
        group = self._groups.get(message.trace_id)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                self._drop("too many chunk groups")
                return
            trace_id = message.trace_id
            group = _Group(self._timers.after(GROUP_TIMEOUT, lambda: self._expire(trace_id)))
            self._groups[trace_id] = group
        group.timer.move(self._timers.now + GROUP_TIMEOUT)
        if seq is None or body is None or group.characters + len(body) > MAX_GROUP_CHARACTERS:
            self._forget(message.trace_id)
            self._drop("bad chunk")
            return
        group.characters += len(body)
        group.pieces[seq] = body

    def close(self) -> None:
        """The link is gone, and with it what was under way."""
        for trace_id in list(self._groups):
            self._forget(trace_id)

    def _finish(self, trace_id: str) -> None:
        group = self._forget(trace_id)
        if group is None:
            return
        if sorted(group.pieces) != list(range(len(group.pieces))):
            self._drop("chunk missing")
            return
        try:
            message = decode("".join(group.pieces[seq] for seq in range(len(group.pieces))))
        except ValueError:
            self._drop("malformed")
            return
        self._deliver(message)

    def _expire(self, trace_id: str) -> None:
        if self._forget(trace_id) is not None:
            self._drop("chunk missing")

    def _forget(self, trace_id: str) -> _Group | None:
        group = self._groups.pop(trace_id, None)
        if group is not None:
            group.timer.cancel()
        return group


def _piece(frame: Any) -> tuple[int | None, str | None]:
    if not isinstance(frame, dict):
        return None, None
    seq, body = frame.get("seq"), frame.get("body")
    return (
        seq if isinstance(seq, int) and not isinstance(seq, bool) else None,
        body if isinstance(body, str) else None,
    )
