"""The engine in Java: the same plan, handed to a columnar reader inside the JVM as one option of text.

``yamal.jar`` is compiled from ``src`` by ``tools/jar.py`` and lies beside this file, if a Java compiler was there.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ytp.errors import CorruptError
from ytp.spark.columns import CORRUPT, Field, check_fields, default_fields
from ytp.spark.filters import Conditions, from_options
from ytp.spark.index import FileIndex, fits, open_file
from ytp.spark.options import Options
from ytp.spark.paths import PartitionColumn, find_files, partition_columns
from ytp.spark.plan import Survey, survey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMAT", "jar", "obstacle", "plan_text"]

FORMAT = "yamal_jvm"
VERSION = 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

#: YAMAL001: the head of the list of announcements, the end of all heads, and where the payload of a node begins and
#: the names of an announcement.
ANNOUNCEMENTS = 48
FIRST_NODE = 536
HEADER = 32
NAMES = HEADER + 24


def jar() -> Path | None:
    """The jar to put on the class path of a session (``--jars``), or None where the package was built without it."""
    path = Path(__file__).with_name("yamal.jar")
    return path if path.exists() else None


def obstacle(spark: SparkSession, paths: Sequence[str]) -> str | None:
    """Why a session can not read with this engine, in words that say what to do; None when it can."""
    java: Any = getattr(spark, "_jvm", None)
    if java is None:
        return "a Spark Connect session has no Java of its own to plan for: use engine='python'"
    try:
        java.java.lang.Thread.currentThread().getContextClassLoader().loadClass("ytp.spark.YamalSource")
    except Exception:  # ClassNotFoundException, as Py4J wraps it
        if jar() is None:
            return "this package was built without yamal.jar: build it with javac 17 or newer, see the manual"
        return f"yamal.jar is not on the class path: start the session with --jars {jar()}"
    # In a locale without UTF-8 Java can open files with ASCII names only.
    spelt = str(java.java.lang.System.getProperty("sun.jnu.encoding")).upper() == "UTF-8"
    for path in paths:
        if not (path.isascii() or (spelt and path.isprintable())):
            return f"{path!r}: this Java runs in a locale that can not name the file: set LC_ALL=C.UTF-8"
    return None


def plan_text(options: Options) -> str:
    """Plans a read and writes it down for Java: JSON, compressed, in base64."""
    files = find_files(options)
    folders = partition_columns(files)
    fields = default_fields(options, folders)
    check_fields(fields, folders)
    conditions = from_options(options)
    longs = frozenset(column.name for column in folders if column.is_long)
    surveys = survey(files, options, conditions, longs=longs)
    plan = {
        "version": VERSION,
        "fields": [[field.name, field.form, field.nullable] for field in fields],
        "rules": rules(options, fields),
        "limits": [
            conditions.time_min,
            conditions.time_max,
            min(conditions.seqno_min, LONG_MAX),
            min(conditions.seqno_max, LONG_MAX),
        ],
        "sharing": [options.num_partitions or 0, options.max_partition_bytes, os.cpu_count() or 1],
        "files": [described(one, conditions, options, folders) for one in surveys],
    }
    return base64.b64encode(zlib.compress(json.dumps(plan).encode(), 1)).decode()


def rules(options: Options, fields: Sequence[Field]) -> dict[str, bool]:
    return {
        "all_kinds": options.include == "all",
        "tolerant": options.tolerant,
        "ignore_missing": options.ignore_missing_files,
        "tells_damage": options.mode == "PERMISSIVE" and any(field.name == CORRUPT for field in fields),
    }


def described(
    one: Survey, conditions: Conditions, options: Options, folders: Sequence[PartitionColumn]
) -> dict[str, Any]:
    longs = {column.name for column in folders if column.is_long}
    index = one.index
    binary = options.name_type == "binary"
    return {
        "path": one.file.path,
        "values": {
            key: int(value) if value is not None and key in longs else value for key, value in one.file.values
        },
        "inode": index.identity.inode if index else 0,
        "digest": index.identity.digest if index else "",
        "yamal8": index is not None and index.format == "yamal8",
        "peers": names_of(index.peers if index else {}, conditions.peers, binary),
        "channels": names_of(index.channels if index else {}, conditions.channels, binary),
        "streams": streams_of(index) if index and index.format == "yamal8" and one.stretches else [],
        "stretches": [
            [*place, nodes, rows, size, low, high, signed(channels), signed(peers)]
            for place, nodes, rows, _, size, low, high, channels, peers in one.stretches
        ],
        "error": one.error,
    }


def names_of(
    table: dict[bytes, int], conditions: tuple[tuple[tuple[int, bytes], ...], ...], binary: bool
) -> dict[str, Any]:
    """Names in the order of their numbers, as the columns show them, and which of them the options ask for."""
    texts = [name if binary else name.decode("utf-8", "replace").encode() for name in table]
    passes = [
        all(any(fits(match, text) for match in any_of) for any_of in conditions) for text in texts
    ]
    return {
        "texts": [base64.b64encode(text).decode() for text in texts],
        "passes": passes if conditions else None,
    }


def streams_of(index: FileIndex) -> list[tuple[int, int, int]]:
    """(id, peer, channel) of each announcement: also of one that repeats another, whose id a message may carry."""
    found: list[tuple[int, int, int]] = []
    with open_file(index.path) as bus:
        handle = bus._handle
        handle.names()  # maps and checks the list up to its end
        at = ANNOUNCEMENTS
        while True:
            try:
                (following,) = struct.unpack("<Q", handle.view(at + 8, 8))
                if following < FIRST_NODE:
                    return found
                size, _, before = struct.unpack("<QQQ", handle.view(following, 24))
                lengths = struct.unpack("<II", handle.view(following + NAMES - 8, 8))
                names = bytes(handle.view(following + NAMES, sum(lengths)))
            except ValueError:
                return found  # not mapped: came just now, as its messages will
            if before != at or NAMES - HEADER + sum(lengths) > size:
                raise CorruptError(f"{index.path}: offset {following}: a damaged announcement", index.path)
            peer, channel = index.peers.get(names[: lengths[0]]), index.channels.get(names[lengths[0] :])
            if peer is None or channel is None:
                return found  # the same
            found.append((at, peer, channel))
            at = following


def signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits
