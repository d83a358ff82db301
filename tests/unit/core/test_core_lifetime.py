"""Views of messages outlive everything that they came from."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import numpy
import pytest

import ytp


def filled(path: Path, count: int = 3) -> ytp.Bus:
    bus = ytp.open(path)
    channel = bus.peer("p").channel("c")
    for number in range(count):
        channel.write(b"%d" % number * 1000)
    return bus


def mappings_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_a_message_is_a_buffer_and_knows_its_length(tmp_path: Path) -> None:
    with filled(tmp_path / "m.ytp") as bus:
        for number, message in enumerate(bus.subscribe("/", follow=False)):
            expected = b"%d" % number * 1000
            assert len(message) == 1000
            assert bytes(message) == message.data == expected
            view = memoryview(message)
            assert view.readonly
            assert view == expected
            assert numpy.frombuffer(message, numpy.uint8).tobytes() == expected


def test_an_empty_message_is_an_empty_buffer(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "e.ytp") as bus:
        bus.peer("p").channel("c").write(b"")
        (message,) = bus.subscribe("/", follow=False)
        assert (len(message), message.data, bytes(message), len(memoryview(message))) == (0, b"", b"", 0)


def test_views_outlive_the_message_the_subscription_and_the_bus(tmp_path: Path) -> None:
    path = tmp_path / "v.ytp"
    bus = filled(path)
    subscription = bus.subscribe("/", follow=False)
    message = next(iter(subscription))
    view = memoryview(message)
    array = numpy.frombuffer(message, numpy.uint8)
    part = view[10:20]
    bus.close()
    assert message.data == b"0" * 1000
    assert (message.peer, message.channel) == ("p", "c")
    del message, subscription, bus
    gc.collect()
    path.unlink()
    assert bytes(view) == b"0" * 1000
    assert array.sum() == 1000 * ord("0")
    assert bytes(part) == b"0" * 10
    assert mappings_of(path) > 0
    del view, array, part
    gc.collect()
    assert mappings_of(path) == 0


def test_the_memory_goes_when_nothing_uses_it(tmp_path: Path) -> None:
    path = tmp_path / "free.ytp"
    bus = filled(path)
    for _ in range(50):
        list(bus.subscribe("/", follow=False))
    assert mappings_of(path) > 0
    bus.close()
    del bus
    gc.collect()
    assert mappings_of(path) == 0


def test_opening_and_closing_leaks_neither_descriptors_nor_mappings(tmp_path: Path) -> None:
    path = tmp_path / "leak.ytp"
    filled(path).close()

    def use() -> None:
        with ytp.open(path) as bus:
            bus.peer("p").channel("c").write(b"x")
            list(bus.subscribe("/", follow=False))
        with pytest.raises(ytp.FormatError):
            ytp.open(foreign)

    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"x" * (8 << 20))
    use()
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), mappings_of(tmp_path)
    for _ in range(100):
        use()
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), mappings_of(tmp_path)) == before


def test_a_bus_and_what_hangs_on_it_are_collected(tmp_path: Path) -> None:
    bus = filled(tmp_path / "gc.ytp")
    watch = weakref.ref(bus)
    channel, subscription = bus.peer("p").channel("c"), bus.subscribe("/")
    del bus, channel, subscription
    gc.collect()
    assert watch() is None


def test_a_view_pins_the_mapping_across_many_other_opens(tmp_path: Path) -> None:
    views = []
    for number in range(20):
        with filled(tmp_path / f"{number}.ytp", 1) as bus:
            views += [memoryview(m) for m in bus.subscribe("/", follow=False)]
    gc.collect()
    assert all(bytes(view) == b"0" * 1000 for view in views)


def test_a_reservation_can_not_be_written_after_its_block(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "r.ytp") as bus:
        channel = bus.peer("p").channel("c")
        with channel.reserve(4) as space:
            assert len(space) == 4
            space[:] = b"good"
        with pytest.raises(ValueError):
            space[0] = 1
        assert [m.data for m in bus.subscribe("/", follow=False)] == [b"good"]


def test_a_reservation_dropped_by_an_exception_is_never_seen(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "r.ytp") as bus:
        channel = bus.peer("p").channel("c")

        def give_up() -> None:
            with channel.reserve(4) as space:
                space[:] = b"evil"
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            give_up()
        channel.write(b"next")
        assert [m.data for m in bus.subscribe("/", follow=False)] == [b"next"]


def test_messages_are_never_copied_before_they_are_asked_for(tmp_path: Path) -> None:
    with filled(tmp_path / "z.ytp") as bus:
        first, again = (next(iter(bus.subscribe("/", follow=False))) for _ in range(2))
        one, two = (numpy.frombuffer(m, numpy.uint8).ctypes.data for m in (first, again))
        assert one == two
        maps = Path("/proc/self/maps").read_text()
        ranges = re.findall(rf"^(\w+)-(\w+) .*{re.escape(str(tmp_path / 'z.ytp'))}$", maps, re.MULTILINE)
        assert any(int(low, 16) <= one < int(high, 16) for low, high in ranges)


def test_ending_the_process_with_everything_open_is_quiet(tmp_path: Path) -> None:
    code = f"""
import ytp
bus = ytp.open({str(tmp_path / "end.ytp")!r})
channel = bus.peer("p").channel("c")
channel.write(b"x")
subscription = bus.subscribe("/")
iterator = iter(subscription)
message = next(iterator)
view = memoryview(message)
reservation = channel.reserve(5)
space = reservation.__enter__()
transaction = bus.transaction().__enter__()
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
