"""ytp: zero-copy messages between processes, kept in a memory-mapped log."""

from ytp._version import __version__

__all__ = ["__version__"]
