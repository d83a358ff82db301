"""Builds ``ytp._cffi_core``: the public headers of libytp, as they are, for ytp/_cffi.py.

cffi reads declarations only, so what a preprocessor would do is done here: follow the includes, drop
comments, directives and the C++ guards. The C compiler then checks each declaration against the headers.
"""

import os
import re
from pathlib import Path

from cffi import FFI

# cffi runs this file with its name in __file__, whatever the working folder is.
INCLUDE = Path(__file__).resolve().parents[2] / "csrc" / "include"

# Macros have no type, so those that the binding uses are named; their values come from the compiler.
CONSTANTS = [
    "YTP_OK",
    "YTP_END",
    "YTP_END_CLOSED",
    "YTP_ERR_SYS",
    "YTP_ERR_FORMAT",
    "YTP_ERR_CORRUPT",
    "YTP_ERR_TRUNCATED",
    "YTP_ERR_READONLY",
    "YTP_ERR_NOSPACE",
    "YTP_ERR_TOOLARGE",
    "YTP_ERR_CLOSED",
    "YTP_ERR_NOTFOUND",
    "YTP_ERR_INVALID",
    "YTP_ERR_NOMEM",
    "YTP_ERR_MISMATCH",
    "YTP_ERR_HANDLE",
    "YTP_NO_OFFSET",
    "YTP_ID_FIRST",
    "YTP_PARK_NS",
    "YTP_LIST_DATA",
    "YTP_LIST_SUBSCRIBE",
    "YTP_KIND_DATA",
    "YTP_KIND_PEER",
    "YTP_KIND_CHANNEL",
    "YTP_KIND_SUBSCRIBE",
    "YTP_KIND_DIRECTORY",
    "YTP_KIND_RESERVED",
]


def declarations(header, seen):
    """The declarations of a header after those of the headers it includes, each once."""
    if header in seen:
        return ""
    seen.add(header)
    text = (INCLUDE / header).read_text(encoding="utf-8")
    below = "".join(declarations(name, seen) for name in re.findall(r'#include "(.+?)"', text))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#(.*\\\n)*.*\n", "", text, flags=re.MULTILINE)
    return below + re.sub(r"\bYTP_API\b", "", text)


flags = []
if os.environ.get("YTP_COVERAGE", "0") not in ("", "0"):
    flags.append("--coverage")
if os.environ.get("YTP_SANITIZE", "0") not in ("", "0"):
    flags.append("-fsanitize=" + os.environ["YTP_SANITIZE"])

ffibuilder = FFI()
ffibuilder.cdef(declarations("ytp/ytp.h", set()) + "".join(f"#define {name} ...\n" for name in CONSTANTS))
# setup.py links every extension module with the C core.
ffibuilder.set_source(
    "ytp._cffi_core",
    '#include "ytp/ytp.h"',
    include_dirs=[str(INCLUDE)],
    define_macros=[("YTP_STATIC", "1"), ("_GNU_SOURCE", "1")],
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-pthread", *flags],
    extra_link_args=["-pthread", *flags],
)
