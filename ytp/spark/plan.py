"""Which part of which file goes into which Spark partition. Knows nothing of Spark."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import ytp
from ytp._backend import core
from ytp.spark.filters import Conditions
from ytp.spark.index import DAMAGE, SMALLEST_NODE, FileIndex, Identity, Stretch, matching
from ytp.spark.options import Options
from ytp.spark.paths import File

__all__ = ["Piece", "Share", "Survey", "kept_stretches", "pieces_of", "plan", "share_out", "survey"]

NODE_COST = 64  # bytes of payload that cost as much as the node around them
SMALLEST_SHARE = 4 << 20
MOST_NAMES = 64 << 10  # bytes of names that travel with a partition; more are read from the log


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive ranges of one file, or the damage that ended it."""

    file: File
    identity: Identity | None
    ranges: tuple[tuple[int, int, int, int], ...] = ()
    names: tuple[tuple[bytes, ...], tuple[bytes, ...]] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one task reads."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """What one file has: the stretches that can hold wanted rows, and the damage that ended the look at it."""

    file: File
    index: FileIndex | None
    stretches: tuple[Stretch, ...] = ()
    error: str | None = None


def plan(
    files: Sequence[File],
    options: Options,
    conditions: Conditions,
    *,
    longs: frozenset[str],
    report_damage: bool,
) -> list[Share]:
    """Walks the files up to their present ends and shares them out.

    ``longs`` names the folder columns that are numbers. With ``report_damage`` a damaged file adds a piece that says
    so (mode PERMISSIVE with a column for it).
    """
    surveys = survey(files, options, conditions, longs=longs)
    wanted = [pair for one in surveys if one.index for pair in pieces_of(one.file, one.index, one.stretches)]
    damaged = [Piece(one.file, None, error=one.error) for one in surveys if one.error and report_damage]
    return share_out(wanted, options) + [Share((piece,)) for piece in damaged]


def survey(
    files: Sequence[File], options: Options, conditions: Conditions, *, longs: frozenset[str]
) -> list[Survey]:
    """Walks the files that the conditions leave; both engines plan from this."""
    if conditions.impossible:
        return []
    chosen = [file for file in files if conditions.keeps_file(file, longs)]
    max_count, max_bytes = grain(chosen, options)
    found: list[Survey] = []
    for file in chosen:
        index: FileIndex | None = None
        try:
            index = FileIndex.begin(file.path)
            index.walk(max_count=max_count, max_bytes=max_bytes, kinds=kinds_of(options))
            error = index.error
        except FileNotFoundError:
            if not options.ignore_missing_files:
                raise
            continue
        except DAMAGE as damage:
            index, error = None, damage
        if error is not None and not options.tolerant:
            raise error
        kept = kept_stretches(index, index.stretches, conditions, kinds_of(options)) if index else []
        found.append(Survey(file, index, tuple(kept), str(error) if error is not None else None))
    return found


def kinds_of(options: Options) -> int:
    return int(core.ALL_KINDS) if options.include == "all" else int(core.KIND_DATA)


def grain(files: Iterable[File], options: Options) -> tuple[int, int]:
    """How fine to cut, so that a small file still gives as many partitions as were asked for."""
    if options.num_partitions is None:
        return 0, min(8 << 20, max(1, options.max_partition_bytes // 4))
    reserved = 0
    for file in files:
        try:
            with ytp.open(file.path, "r") as bus:
                reserved += min(bus._handle.info()["reserved_size"], bus._handle.info()["file_size"])
        except (*DAMAGE, OSError):
            continue  # reported by the walk
    pieces = 4 * options.num_partitions
    return (
        min(65_536, max(1, reserved // (SMALLEST_NODE * pieces))),
        min(8 << 20, max(1, reserved // pieces)),
    )


def kept_stretches(
    index: FileIndex, stretches: Sequence[Stretch], conditions: Conditions, kinds: int
) -> list[Stretch]:
    """The stretches that can hold a row that is wanted."""
    if kinds != core.KIND_DATA:
        # A stretch knows the times and names of its messages only, not those of announcements.
        conditions = Conditions(seqno_min=conditions.seqno_min, seqno_max=conditions.seqno_max)
    masks = matching(index.peers, conditions.peers), matching(index.channels, conditions.channels)
    return [stretch for stretch in stretches if conditions.keeps_stretch(stretch, masks)]


def pieces_of(file: File, index: FileIndex, stretches: Iterable[Stretch]) -> list[tuple[Piece, Stretch]]:
    """Each stretch with the piece that it becomes a part of."""
    names = (tuple(index.peers), tuple(index.channels))
    small = sum(len(name) for table in names for name in table) <= MOST_NAMES
    piece = Piece(file, index.identity, names=names if small else None)
    return [(piece, stretch) for stretch in stretches]


def share_out(wanted: Sequence[tuple[Piece, Stretch]], options: Options) -> list[Share]:
    """Groups consecutive stretches into partitions of about equal weight."""
    weights = [stretch[1] * NODE_COST + stretch[4] for _, stretch in wanted]
    total = sum(weights)
    if not total:
        return []
    parts = options.num_partitions or max(
        math.ceil(total / options.max_partition_bytes),
        min(os.cpu_count() or 1, math.ceil(total / SMALLEST_SHARE)),
    )
    groups: list[list[tuple[Piece, Stretch]]] = [[] for _ in range(parts)]
    passed = 0
    for item, weight in zip(wanted, weights, strict=True):
        groups[passed * parts // total].append(item)
        passed += weight
    return [Share(join(group)) for group in groups if group]


def join(group: Sequence[tuple[Piece, Stretch]]) -> tuple[Piece, ...]:
    """One piece per run of stretches of the same file."""
    pieces: list[Piece] = []
    ranges: list[tuple[int, int, int, int]] = []
    for i, (piece, stretch) in enumerate(group):
        ranges.append(stretch[0])
        if i + 1 == len(group) or group[i + 1][0] is not piece:
            pieces.append(Piece(piece.file, piece.identity, tuple(ranges), piece.names))
            ranges = []
    return tuple(pieces)
