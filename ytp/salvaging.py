"""Saving what can be read of a damaged file or rolling log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ytp import bus as _bus

__all__ = ["salvage"]


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    unverified: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]:
    """Copies every message that can be reached in a damaged file into a new one.

    From the beginning up to the first damage, then what hangs together at the far end. After a power loss nobody knows
    whether the data behind the durable mark reached the disk: it is left out unless ``unverified``. ``source`` may be
    the directory of a rolling log; everything goes into one file then.

    Returns ``copied``, ``bytes``, ``behind_break``, ``dropped``, ``break_offset`` and ``error``, the first damage.
    """
    if os.path.isdir(source):
        names = sorted(name for name in os.listdir(source) if name.endswith(".ytp") and not name.startswith("."))
        sources = [os.path.join(os.fspath(source), name) for name in names]
    else:
        sources = [os.fspath(source)]
    total: dict[str, Any] = {"copied": 0, "bytes": 0, "behind_break": 0, "dropped": 0}
    total |= {"break_offset": None, "error": None}
    new = None
    try:
        for path in sources:
            with _bus.open(path, "r") as old:
                if new is None:
                    new = _bus.open(target, "x", format=old.format)
                report = old._handle.salvage(new._handle, unverified, progress)
            for key in ("copied", "bytes", "behind_break", "dropped"):
                total[key] += report[key]
            if total["error"] is None:
                total |= {"break_offset": report["break_offset"], "error": report["error"]}
        if new is not None:
            new.sync()
    finally:
        if new is not None:
            new.close()
    return total
