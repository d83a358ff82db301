"""The cffi binding says and does what the Cython binding does."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ytp
from ytp import errors

cffi_core: Any = pytest.importorskip("ytp._cffi", reason="needs ytp._cffi_core")
cython_core: Any = pytest.importorskip("ytp._core", reason="needs ytp._core")

CREATE = 2


def filled(core: Any, path: Path, rows: list[bytes]) -> Any:
    handle = core.Handle(path, mode=CREATE)
    peer = handle.peer("feed")
    writer = core.Writer(handle, peer, handle.channel(peer, "md/IBM", 1))
    for i, row in enumerate(rows):
        writer.write(row, i)
    return handle


def test_both_bindings_have_the_same_names() -> None:
    for name in cffi_core.__all__:
        ours, theirs = getattr(cffi_core, name), getattr(cython_core, name)
        if isinstance(theirs, type):
            wanted = {key for key in vars(theirs) if not key.startswith("_")}
            assert wanted <= set(dir(ours)), name
        elif not callable(theirs):
            assert ours == theirs, name


@pytest.mark.parametrize(("writes", "reads"), [(cffi_core, cython_core), (cython_core, cffi_core)])
def test_each_reads_what_the_other_wrote(tmp_path: Path, writes: Any, reads: Any) -> None:
    rows = [b"", b"one", bytes(range(256)) * 40]
    written = filled(writes, tmp_path / "a.ytp", rows)
    cursor = reads.Cursor(reads.Handle(tmp_path / "a.ytp", mode=0))
    found = [(m.time, m.peer, m.channel, m.data, m.offset, m.seqno, m.kind) for m in cursor]
    same = writes.Cursor(written)
    assert found == [(m.time, m.peer, m.channel, m.data, m.offset, m.seqno, m.kind) for m in same]
    assert [row[3] for row in found] == rows


def test_a_message_is_a_read_only_buffer_over_the_mapping(tmp_path: Path) -> None:
    handle = filled(cffi_core, tmp_path / "a.ytp", [b"payload"])
    message = next(cffi_core.Cursor(handle))
    view = memoryview(message)
    assert (view.readonly, view.format, view.ndim, view.nbytes) == (True, "B", 1, 7)
    address = np.frombuffer(message, np.uint8).ctypes.data
    assert address == np.frombuffer(next(cffi_core.Cursor(handle)), np.uint8).ctypes.data
    with pytest.raises(ValueError):
        message.flags.writeable = True
    del message, handle
    gc.collect()
    assert bytes(view) == b"payload"


def test_a_message_is_no_array_of_numbers(tmp_path: Path) -> None:
    handle = filled(cffi_core, tmp_path / "a.ytp", [b"ab", b""])
    message, empty = cffi_core.Cursor(handle)
    assert message == message
    assert message != empty
    assert (bool(message), bool(empty), len({message, empty})) == (True, False, 2)
    assert str(message) == repr(message)
    for misuse in (iter, copy.copy, copy.deepcopy, pickle.dumps, lambda m: m[0], lambda m: m + 1):
        with pytest.raises(TypeError):
            misuse(message)


def test_a_reservation_is_writable_until_it_is_committed(tmp_path: Path) -> None:
    handle = filled(cffi_core, tmp_path / "a.ytp", [])
    writer = cffi_core.Writer(handle, 256, 256)
    reservation = writer.reserve(3, 7)
    memoryview(reservation)[:] = b"abc"
    offset = reservation.commit()
    assert memoryview(reservation).readonly
    with pytest.raises(errors.ClosedError):
        reservation.commit()
    with pytest.raises(errors.ClosedError):
        reservation.__enter__()
    assert [(m.offset, m.time, m.data) for m in cffi_core.Cursor(handle)] == [(offset, 7, b"abc")]


@pytest.mark.parametrize("core", [cffi_core, cython_core], ids=["cffi", "cython"])
def test_wrong_arguments_raise_alike(tmp_path: Path, core: Any) -> None:
    handle = filled(core, tmp_path / "a.ytp", [b"x"])
    writer = core.Writer(handle, 256, 256)
    cases: list[tuple[type[Exception], Any]] = [
        (TypeError, lambda: core.Writer("handle", 256, 256)),
        (TypeError, lambda: core.Cursor("handle")),
        (TypeError, lambda: writer.write("text")),
        (TypeError, lambda: writer.write_rows((b"x",))),
        (ValueError, lambda: writer.write_rows([b"x"], np.zeros(2, np.uint64))),
        (ValueError, lambda: writer.write_rows([b"x"], np.zeros(1, np.uint32))),
        (ValueError, lambda: writer.reserve(-1)),
        (OverflowError, lambda: core.Cursor(handle).seek(-1)),
        (errors.InvalidNameError, lambda: handle.peer("a\0b")),
        (TypeError, lambda: handle.peer(b"bytes")),
        (ValueError, lambda: handle.view(1 << 50, 8)),
        (FileNotFoundError, lambda: core.Handle(tmp_path / "absent", mode=0)),
    ]
    for kind, act in cases:
        with pytest.raises(kind):
            act()


def test_the_bus_runs_on_cffi_when_told_so(tmp_path: Path) -> None:
    code = "import ytp.bus, ytp._backend as b; print(b.name, ytp.Channel.__mro__[1].__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[3],
        env=os.environ | {"YTP_BACKEND": "cffi"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["cffi", "ytp._cffi"], done.stderr


@pytest.mark.parametrize("core", [cffi_core, cython_core], ids=["cffi", "cython"])
def test_arrow_arrays_are_written_alike(tmp_path: Path, core: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    handle = filled(core, tmp_path / "a.ytp", [])
    peer = handle.peer("feed")
    writer = core.Writer(handle, peer, handle.channel(peer, "md/IBM", 1))
    rows = pyarrow.array([b"one", b"two"], pyarrow.large_binary())
    assert writer.write_arrow(rows, np.array([5, 6], np.uint64)) == 2
    assert writer.write_arrow(pyarrow.chunked_array([rows, rows]), time=7) == 4
    with pytest.raises(ValueError, match="2 rows but 0 times"):
        writer.write_arrow(rows, np.array([], np.uint64))
    found = [(m.time, m.data) for m in core.Cursor(handle)]
    assert found == [(5, b"one"), (6, b"two"), *[(7, b"one"), (7, b"two")] * 2]


def test_streams_are_described_alike(tmp_path: Path) -> None:
    path = tmp_path / "streams.ytp"
    with ytp.open(path, format="yamal8") as bus:
        for number in range(3):
            bus.peer(f"p{number}").channel("c", encoding=b"Content-Type %d" % number).write(b"x")
        bus.peer("p0").subscribe("c", follow=False)
    described = [core.Handle(path, mode=0).streams() for core in (cffi_core, cython_core)]
    assert described[0] == described[1]
    assert [row[2] for row in described[0]] == ["p0", "p1", "p2"]


@pytest.mark.parametrize("core", [cffi_core, cython_core], ids=["cffi", "cython"])
def test_a_cursor_at_the_end_waits_for_more(core: Any, tmp_path: Path) -> None:
    handle = filled(core, tmp_path / "wait.ytp", [b"one"])
    cursor = core.Cursor(handle)
    assert cursor.ready
    assert cursor.wait(0)
    assert bytes(next(cursor)) == b"one"
    assert not cursor.ready
    assert not cursor.wait(0.01)
    filled(core, tmp_path / "wait.ytp", [b"two"])
    assert cursor.wait(10)
