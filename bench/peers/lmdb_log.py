"""lmdb as a log: one transaction per message, the reader looks for the next key."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import lmdb

from bench.peer import Link, now

KEY = struct.Struct(">Q")


def open_log(link: Link) -> lmdb.Environment:
    return lmdb.open(link.address, map_size=8 << 30, sync=False, writemap=True, map_async=True)


def source(link: Link) -> dict[str, float]:
    log = open_log(link)
    data = link.payload
    link.ready()
    start = now()
    for number in range(link.count):
        with log.begin(write=True) as transaction:
            transaction.put(KEY.pack(number), data, append=True)
    return {"start": start, "end": now()}


def sink(link: Link) -> dict[str, float]:
    log = open_log(link)
    link.ready(listens=True)
    number, total = 0, 0
    while number < link.count:
        with log.begin(buffers=True) as transaction:
            for _, data in transaction.cursor().iternext() if number == 0 else after(transaction, number):
                total += len(data)
                number += 1
    return {"end": now(), "total": total}


def after(transaction: lmdb.Transaction, number: int) -> Iterator[Any]:
    cursor = transaction.cursor()
    return cursor.iternext() if cursor.set_range(KEY.pack(number)) else iter(())
