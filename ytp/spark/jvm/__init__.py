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
from typing import TYPE_CHECKING, Any

from ytp.errors import ConfigError, CorruptError
from ytp.spark.columns import CORRUPT, check_fields, default_fields
from ytp.spark.filters import Conditions, from_options
from ytp.spark.index import FileIndex, fits, open_file
from ytp.spark.java import jar
from ytp.spark.options import Options
from ytp.spark.paths import File, find_files, partition_columns
from ytp.spark.plan import Survey, survey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FORMAT", "UnsuitedError", "plan_text"]

FORMAT = "yamal_jvm"
VERSION = 1
LONG_MAX = 2**63 - 1
MOST_NAMES = 64 << 20

#: YAMAL001: the head of the list of announcements, the end of all heads, and where the payload of a node begins and
#: the names of an announcement.
ANNOUNCEMENTS = 48
FIRST_NODE = 536
HEADER = 32
NAMES = HEADER + 24


class UnsuitedError(ConfigError):
    """This engine can not do a read that the one in Python can."""


def check_session(spark: SparkSession) -> None:
    """Raises UnsuitedError, in words that say what to do, for a session without the jar."""
    java: Any = getattr(spark, "_jvm", None)
    if java is None:
        raise UnsuitedError("a Spark Connect session has no Java of its own: use engine='python'")
    try:
        java.java.lang.Thread.currentThread().getContextClassLoader().loadClass("ytp.spark.YamalSource")
    except Exception as error:  # ClassNotFoundException, as Py4J wraps it
        if jar() is None:
            raise UnsuitedError("this ytp has no yamal.jar: it was built without javac") from error
        raise UnsuitedError(
            f"yamal.jar is not on the class path: start the session with --jars {jar()}"
        ) from error


def check_paths(spark: SparkSession, files: Sequence[File]) -> None:
    """In a locale without UTF-8 Java opens files with ASCII names only; it never opens names that are not text."""
    java: Any = spark._jvm
    encoding = str(java.java.lang.System.getProperty("sun.jnu.encoding"))
    for file in files:
        try:
            file.path.encode(encoding if encoding.upper() == "UTF-8" else "ascii")
        except UnicodeEncodeError as error:
            raise UnsuitedError(
                f"{file.path!r}: this Java runs in a locale ({encoding}) that can not name the file"
            ) from error


def plan_text(spark: SparkSession, options: Options) -> str:
    """Plans a read and writes it down for Java: JSON, compressed, in base64."""
    check_session(spark)
    files = find_files(options)
    check_paths(spark, files)
    folders = partition_columns(files)
    fields = default_fields(options, folders)
    check_fields(fields, folders)
    conditions = from_options(options)
    longs = frozenset(column.name for column in folders if column.is_long)
    surveys = survey(files, options, conditions, longs=longs)
    if sum(len(name) for one in surveys if one.index for name in (*one.index.peers, *one.index.channels)) > MOST_NAMES:
        raise UnsuitedError("the names of the channels are too many to send to every executor: use engine='python'")
    plan = {
        "fields": [(field.name, field.form, field.nullable) for field in fields],
        "rules": {
            "allKinds": options.include == "all",
            "tolerant": options.tolerant,
            "ignoreMissing": options.ignore_missing_files,
            "tellsDamage": options.mode == "PERMISSIVE" and any(field.name == CORRUPT for field in fields),
        },
        "limits": {
            "timeMin": conditions.time_min,
            "timeMax": conditions.time_max,
            "seqnoMin": min(conditions.seqno_min, LONG_MAX),
            "seqnoMax": min(conditions.seqno_max, LONG_MAX),
        },
        "sharing": {
            "partitions": options.num_partitions or 0,
            "maxBytes": options.max_partition_bytes,
            "cores": os.cpu_count() or 1,
        },
        "files": [
            {
                "source": source(one, conditions, longs, options.name_type == "binary"),
                "stretches": [
                    (*place, nodes, rows, size, low, high, signed(channels), signed(peers))
                    for place, nodes, rows, _, size, low, high, channels, peers in one.stretches
                ],
                "error": one.error,
            }
            for one in surveys
        ],
    }
    text = json.dumps({"version": VERSION, "plan": plan})
    return base64.b64encode(zlib.compress(text.encode(), 1)).decode()


def source(one: Survey, conditions: Conditions, longs: frozenset[str], binary: bool) -> dict[str, Any]:
    """What tasks must know of a file."""
    index = one.index
    return {
        "path": one.file.path,
        "inode": index.identity.inode if index else 0,
        "digest": index.identity.digest if index else "",
        "yamal8": index is not None and index.format == "yamal8",
        "values": {
            key: int(value) if value is not None and key in longs else value for key, value in one.file.values
        },
        "peers": names_of(index.peers if index else {}, conditions.peers, binary),
        "channels": names_of(index.channels if index else {}, conditions.channels, binary),
        "streams": streams_of(index) if index and index.format == "yamal8" and one.stretches else {},
    }


def names_of(
    table: dict[bytes, int], conditions: tuple[tuple[tuple[int, bytes], ...], ...], binary: bool
) -> dict[str, Any]:
    """Names in the order of their numbers, as the columns show them, and which of them the options ask for."""
    texts = [name if binary else name.decode("utf-8", "replace").encode() for name in table]
    passes = [all(any(fits(match, text) for match in any_of) for any_of in conditions) for text in texts]
    return {
        "texts": [base64.b64encode(text).decode() for text in texts],
        "passes": passes if conditions else None,
    }


def streams_of(index: FileIndex) -> dict[int, tuple[int, int]]:
    """(peer, channel) by the id of each announcement, repeated ones included: a message may carry any of them."""
    found: dict[int, tuple[int, int]] = {}
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
            found[at] = peer, channel
            at = following


def signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits
