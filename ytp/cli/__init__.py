"""The ``ytp`` command. One file per verb; nothing is imported before it is needed."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``ytp`` script and of ``python -m ytp``."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.exit("ytp: the command line needs click; install it with: pip install 'ytp[cli]'")
    from ytp.cli.app import cli

    cli(prog_name="ytp")
