"""The binding in use. ``YTP_BACKEND`` names one; the default is Cython."""

from __future__ import annotations

import os

name = os.environ.get("YTP_BACKEND", "cython")

if name == "cython":
    from ytp import _core as core
else:
    raise ImportError(f"YTP_BACKEND={name!r} is not known; this version has: cython")

__all__ = ["core", "name"]
