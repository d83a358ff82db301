"""Both bindings have the names and types of the Cython one."""

from ytp import _core as core

name: str

__all__ = ["core", "name"]
