"""Builds and loads floors.c: what the machine and CPython allow."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("floors.c")
FLAGS = ("-O2", "-std=c11", "-shared", "-fPIC")
FOLDER = Path(__file__).resolve().parents[1] / "build" / "bench"


def build() -> Path:
    """Compiles the extension unless a newer one is there."""
    target = FOLDER / f"bench_floors{sysconfig.get_config_var('EXT_SUFFIX')}"
    if target.exists() and target.stat().st_mtime > SOURCE.stat().st_mtime:
        return target
    FOLDER.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    partial = target.with_suffix(f".{os.getpid()}.tmp")
    subprocess.run(
        [*compiler, *FLAGS, f"-I{sysconfig.get_path('include')}", str(SOURCE), "-o", str(partial)],
        check=True,
    )
    partial.replace(target)
    return target


def load() -> Any:
    path = str(build())
    loader = importlib.machinery.ExtensionFileLoader("bench_floors", path)
    spec = importlib.util.spec_from_file_location("bench_floors", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
