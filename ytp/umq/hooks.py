"""Hooks of the application, sync or async, which must not harm the connection that calls them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable

__all__ = ["run_hook"]

log = logging.getLogger("ytp.umq")

# The event loop keeps only weak references to tasks.
_tasks: set[asyncio.Task[object]] = set()


def run_hook(hook: Callable[[], object]) -> None:
    """Call ``hook``; what it raises is logged, what it returns is run if it is a coroutine."""
    try:
        result = hook()
    except Exception:
        log.exception("hook %r failed", hook)
        return
    if inspect.iscoroutine(result):
        task = asyncio.get_running_loop().create_task(result)
        _tasks.add(task)
        task.add_done_callback(_done)


def _done(task: asyncio.Task[object]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.error("hook failed", exc_info=task.exception())
