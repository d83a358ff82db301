"""Builds the extension modules; everything else about the package is in pyproject.toml.

Switches, all environment variables:
    YTP_CFFI=1                     build the cffi back end too (always on PyPy)
    YTP_NO_EXT=1                   build no extension module at all
    YTP_DEBUG=1                    no optimisation, assertions on
    YTP_COVERAGE=1                 record which lines run (gcov)
    YTP_SANITIZE=address,undefined (or thread) compile with sanitizers
"""

import os
import platform
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
PYPY = platform.python_implementation() == "PyPy"


def switch(name):
    return os.environ.get(name, "0") not in ("", "0")


cflags = ["-std=c11", "-fvisibility=hidden", "-pthread"]
ldflags = ["-pthread"]
if switch("YTP_DEBUG"):
    cflags += ["-O0", "-g3", "-UNDEBUG"]
else:
    cflags += ["-O3", "-g1"]
if switch("YTP_COVERAGE"):
    cflags.append("--coverage")
    ldflags.append("--coverage")
if switch("YTP_SANITIZE"):
    sanitize = "-fsanitize=" + os.environ["YTP_SANITIZE"]
    cflags += [sanitize, "-fno-omit-frame-pointer"]
    ldflags.append(sanitize)

include_dirs = ["csrc/include", "csrc/src"]
c_sources = (ROOT / "csrc" / "sources.txt").read_text().split()
headers = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "csrc").rglob("*.h"))]
macros = [("YTP_STATIC", "1"), ("_GNU_SOURCE", "1")]

# The C core is compiled once and linked into each back end.
core = {"sources": c_sources, "include_dirs": include_dirs, "macros": macros, "cflags": cflags}
core["obj_deps"] = {"": headers}

options = {}
if not switch("YTP_NO_EXT"):
    options["libraries"] = [("ytp", core)]
    if PYPY or switch("YTP_CFFI"):
        options["cffi_modules"] = ["bindings/cffi/build_ytp.py:ffibuilder"]
    if not PYPY:
        from Cython.Build import cythonize

        extension = Extension(
            "ytp._core",
            ["bindings/cython/_core.pyx"],
            include_dirs=include_dirs,
            define_macros=macros,
            extra_compile_args=cflags,
            extra_link_args=ldflags,
            depends=c_sources + headers,
        )
        directives = {"language_level": 3, "freethreading_compatible": True, "embedsignature": True}
        options["ext_modules"] = cythonize(
            [extension], compiler_directives=directives, build_dir="build/cython"
        )

setup(**options)
