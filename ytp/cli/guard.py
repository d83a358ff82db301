"""How commands end: exit codes, and errors as one line instead of a traceback."""

from __future__ import annotations

import os
from typing import Any

import click

from ytp.errors import YtpError

__all__ = ["INTERRUPTED", "Failure", "Guard", "GuardedCommand", "GuardedGroup"]

INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C


class Failure(click.ClickException):
    """Something could not be done. Exit code 2 as for wrong usage: 1 means that the answer of a check is no."""

    exit_code = 2


class Guard(click.Command):
    """A command whose foreseen errors are one line, whose Ctrl-C is quiet, and which honours ``NO_COLOR``."""

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe goes away
        except (YtpError, OSError) as error:
            raise Failure(str(error)) from error


class GuardedCommand(Guard):
    """A guarded command that stands alone."""


class GuardedGroup(Guard, click.Group):
    """A guarded group that stands alone."""
