"""From the paths that a user gives to the files that are read: directories, globs, ``key=value`` folders."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from ytp.errors import ConfigError
from ytp.spark.options import Options

__all__ = ["File", "PartitionColumn", "find_files", "local_path", "partition_columns"]

SUFFIXES = (".ytp", ".yamal")
HIDDEN = ("_", ".")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
MAGIC = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class File:
    """A file to read, with the values that its ``key=value`` folders give."""

    path: str
    values: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    name: str
    is_long: bool


def local_path(path: str) -> str:
    """Strips ``file:``; every other scheme is refused."""
    scheme = SCHEME.match(path)
    if scheme is None:
        return os.path.abspath(path)
    if scheme[1].lower() != "file":
        raise ConfigError(
            f"{path}: the scheme {scheme[1]!r} is not supported; yamal files are mapped into memory and must be local"
        )
    return os.path.abspath(unquote(re.sub("^//(localhost)?(?=/)", "", path[5:])))


def expand_braces(pattern: str) -> Iterator[str]:
    """``a{b,c}d`` gives ``abd`` and ``acd``, as Hadoop's globs do."""
    inner = re.search(r"\{([^{}]*)\}", pattern)
    if inner is None:
        yield pattern
        return
    for choice in inner[1].split(","):
        yield from expand_braces(pattern[: inner.start()] + choice + pattern[inner.end() :])


def find_files(options: Options) -> list[File]:
    """All files that the paths mean, each once, in a fixed order."""
    if not options.paths:
        raise ConfigError(
            'a path is needed: spark.read.format("yamal").load("logs/"). In SQL use CREATE TEMPORARY VIEW v USING '
            "yamal OPTIONS (path 'logs/'): Spark does not tell a source the path of a table"
        )
    found: dict[str, File] = {}
    for given in options.paths:
        for root in expand(local_path(given), given, options):
            for file in files_under(root, options):
                if wanted(file.path, options):
                    found.setdefault(file.path, file)
    return list(found.values())


def expand(path: str, given: str, options: Options) -> list[str]:
    if not MAGIC.search(path) or os.path.exists(path):
        if not os.path.exists(path) and not options.ignore_missing_files:
            raise FileNotFoundError(2, "no such file or directory", given)
        return [path]
    matches = sorted({match for one in expand_braces(path) for match in glob.glob(one)})
    visible = [match for match in matches if not os.path.basename(match).startswith(HIDDEN)]
    if not visible and not options.ignore_missing_files:
        raise FileNotFoundError(2, "nothing matches", given)
    return visible


def files_under(root: str, options: Options) -> Iterator[File]:
    """The file itself, or the yamal files of a directory with the ``key=value`` folders below it."""
    if not os.path.isdir(root):
        if os.path.exists(root):
            yield File(root)
        return
    pending: list[tuple[str, tuple[tuple[str, str | None], ...]]] = [(root, ())]
    while pending:
        folder, values = pending.pop(0)
        for entry in sorted(os.scandir(folder), key=lambda e: e.name):
            if entry.name.startswith(HIDDEN):
                continue
            if entry.is_dir():
                if options.recursive_file_lookup:
                    pending.append((entry.path, ()))
                elif "=" in entry.name:
                    pending.append((entry.path, (*values, key_value(entry.name))))
            elif entry.name.endswith(SUFFIXES):
                yield File(entry.path, values)


def key_value(name: str) -> tuple[str, str | None]:
    key, _, value = name.partition("=")
    return unquote(key), None if value == HIVE_NULL else unquote(value)


def wanted(path: str, options: Options) -> bool:
    name = os.path.basename(path)
    if options.path_glob_filter is not None and not any(
        fnmatch.fnmatchcase(name, pattern) for pattern in expand_braces(options.path_glob_filter)
    ):
        return False
    if options.modified_before is None and options.modified_after is None:
        return True
    try:
        modified = os.stat(path).st_mtime
    except FileNotFoundError:
        return False
    return (options.modified_before is None or modified < options.modified_before) and (
        options.modified_after is None or modified > options.modified_after
    )


def partition_columns(files: list[File]) -> list[PartitionColumn]:
    """The columns that ``key=value`` folders add. Every file must have the same keys."""
    keys = [tuple(key for key, _ in file.values) for file in files]
    if len(set(keys)) > 1:
        first, other = sorted(set(keys), key=keys.index)[:2]
        raise ConfigError(
            f"the folders of {files[keys.index(first)].path} give the columns {list(first)}, "
            f"those of {files[keys.index(other)].path} give {list(other)}"
        )
    columns = []
    for i, key in enumerate(keys[0] if keys else ()):
        values = [file.values[i][1] for file in files]
        columns.append(PartitionColumn(key, all(value is None or is_integer(value) for value in values)))
    return columns


def is_integer(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,18}", text) is not None
