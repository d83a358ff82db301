"""The binding in use. ``YTP_BACKEND`` names one; the default is Cython, and cffi on PyPy."""

from __future__ import annotations

import os
import platform

name = os.environ.get("YTP_BACKEND", "cffi" if platform.python_implementation() == "PyPy" else "cython")

if name == "cython":
    from ytp import _core as core
elif name == "cffi":
    try:
        from ytp import _cffi as core
    except ModuleNotFoundError as error:
        if error.name not in ("ytp._cffi_core", "_cffi_backend"):
            raise
        raise ImportError(
            f"YTP_BACKEND='cffi' needs {error.name}: install cffi and build ytp with YTP_CFFI=1",
            name=error.name,
        ) from error
else:
    raise ImportError(f"YTP_BACKEND={name!r} is not known; this version has: cython, cffi")

__all__ = ["core", "name"]
