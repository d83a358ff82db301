"""Every way in which a file or an argument can be wrong: a clear error, and nothing else happens."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ytp
from tests.oracle import yamal
from tests.oracle.writer import Writer0, Writer1

PAGE = yamal.PAGE


def small_file(path: Path, count: int = 5) -> list[int]:
    """A sound YAMAL000 file; returns the offsets of its data messages."""
    writer = Writer0()
    peer = writer.peer(b"p")
    channel = writer.channel(peer, b"c")
    offsets = [writer.data(peer, channel, n, b"message %d" % n) for n in range(count)]
    path.write_bytes(writer.to_bytes())
    return offsets


def poke(path: Path, offset: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(8, "little"))


def read_into(got: list[bytes], path: Path) -> None:
    with ytp.open(path, "r") as bus:
        for message in bus.subscribe("/", follow=False):
            got.append(message.data)


def read_all(path: Path) -> list[bytes]:
    got: list[bytes] = []
    read_into(got, path)
    return got


def append(path: Path) -> None:
    with ytp.open(path) as bus:
        bus.peer("p").channel("c").write(b"x")


# --- opening ------------------------------------------------------------------------------------------------


def test_a_missing_file_is_file_not_found(tmp_path: Path) -> None:
    path = tmp_path / "none.ytp"
    with pytest.raises(FileNotFoundError, match=r"none\.ytp") as caught:
        ytp.open(path, "r")
    assert caught.value.errno == errno.ENOENT
    assert not path.exists()


def test_a_missing_folder_is_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ytp.open(tmp_path / "nowhere" / "a.ytp")


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_directory_is_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises((IsADirectoryError, ytp.FormatError), match=tmp_path.name):
        ytp.open(tmp_path, mode)


FOREIGN = {
    "short": b"hello",
    "short zeros": bytes(100),
    "text": b"x" * PAGE,
    "misplaced magic": b"YAMAL000" * 8,
    "unknown magic": bytes(24) + b"YAMAL999" + bytes(PAGE),
    "something behind zeros": bytes(4096) + b"precious" + bytes(PAGE - 4104),
    "something behind a page of zeros": bytes(PAGE) + b"precious" + bytes(PAGE - 8),
}


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, mode: str, content: bytes) -> None:
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)
    with pytest.raises((ytp.FormatError, ytp.TruncatedError), match=r"foreign\.bin"):
        ytp.open(path, mode)
    assert path.read_bytes() == content


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("length", [0, 1, 31, 32, 100, 4096, PAGE - 1])
def test_a_short_file_is_refused_and_left_alone(tmp_path: Path, mode: str, length: int) -> None:
    path = tmp_path / "short.ytp"
    small_file(path)
    os.truncate(path, length)
    content = path.read_bytes()
    if length == 0 and mode == "a":
        with ytp.open(path, mode) as bus:  # an empty file is a file that nobody has filled yet
            bus.peer("p").channel("c").write(b"x")
        assert read_all(path) == [b"x"]
        return
    with pytest.raises((ytp.FormatError, ytp.TruncatedError), match=r"short\.ytp"):
        ytp.open(path, mode)
    assert path.read_bytes() == content


UNFINISHED = {
    "nothing written": (bytes(PAGE), "ytp"),
    "counter but no magic": ((32).to_bytes(8, "little") + bytes(PAGE - 8), "ytp"),
    "magic but no counter": (b"YAMAL001" + bytes(PAGE - 8), "yamal8"),
    "no heads": (b"YAMAL001" + (536).to_bytes(8, "little") + bytes(PAGE - 16), "yamal8"),
}


@pytest.mark.parametrize(("content", "form"), UNFINISHED.values(), ids=UNFINISHED.keys())
def test_a_file_whose_creator_died_is_completed(tmp_path: Path, content: bytes, form: str) -> None:
    """The foreign library creates files step by step in place; whoever comes next goes on."""
    path = tmp_path / "half.ytp"
    path.write_bytes(content)
    with ytp.open(path, format=form) as bus:
        bus.peer("p").channel("c").write(b"x")
    assert [m.data for m in yamal.read_file(path).check().messages] == [b"x"]


def test_the_wrong_dialect_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.ytp"
    path.write_bytes(Writer1().to_bytes())
    with pytest.raises(ytp.FormatError, match=r"one\.ytp"):
        ytp.open(path, format="ytp")
    small_file(path)
    with pytest.raises(ytp.FormatError, match=r"one\.ytp"):
        ytp.open(path, format="yamal8")


def test_an_unknown_mode_or_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mode"):
        ytp.open(tmp_path / "a.ytp", "q")
    with pytest.raises(ValueError, match="format"):
        ytp.open(tmp_path / "a.ytp", format="csv")
    with pytest.raises(ValueError, match="durability"):
        ytp.open(tmp_path / "a.ytp", durability="hope")
    assert list(tmp_path.iterdir()) == []


def test_x_refuses_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "there.ytp"
    small_file(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"there\.ytp"):
        ytp.open(path, "x")
    assert path.read_bytes() == before


def test_a_path_with_nul_is_refused() -> None:
    with pytest.raises(ValueError, match=r"NUL|null"):
        ytp.open("a\0b")


def test_a_dangling_symbolic_link_creates_nothing_elsewhere(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.ytp"
    link = tmp_path / "link.ytp"
    link.symlink_to(target)
    with pytest.raises(OSError, match=r"link\.ytp"):
        ytp.open(link, "x")
    assert not target.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
def test_a_file_without_write_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locked.ytp"
    small_file(path)
    path.chmod(0o400)
    with pytest.raises(PermissionError, match=r"locked\.ytp"):
        ytp.open(path)
    assert len(read_all(path)) == 5


def test_a_new_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new.ytp"
    with ytp.open(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["new.ytp"]


# --- damaged files ------------------------------------------------------------------------------------------

BAD_LINKS = {
    "unaligned": 129,
    "into the header": 8,
    "itself": None,
    "past the end of the file": 100 << 20,
    "far away": 1 << 50,
    "largest number": 2**64 - 8,
    "into a page that is not there": PAGE,
    "into free space": 1 << 20,
}


@pytest.mark.parametrize("target", BAD_LINKS.values(), ids=BAD_LINKS.keys())
def test_a_bad_link_is_an_error_after_what_is_good(tmp_path: Path, target: int | None) -> None:
    path = tmp_path / "bad.ytp"
    offsets = small_file(path)
    poke(path, offsets[2] + 8, offsets[2] if target is None else target)
    before = path.read_bytes()
    got: list[bytes] = []
    with pytest.raises(ytp.CorruptError, match=r"bad\.ytp") as caught:
        read_into(got, path)
    assert got == [b"message 0", b"message 1", b"message 2"]
    assert caught.value.path == str(path)
    assert caught.value.offset is not None
    assert str(caught.value.offset) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("target", BAD_LINKS.values(), ids=BAD_LINKS.keys())
def test_writing_behind_a_bad_link_is_an_error(tmp_path: Path, target: int | None) -> None:
    path = tmp_path / "bad.ytp"
    offsets = small_file(path)
    poke(path, offsets[-1] + 8, offsets[-1] if target is None else target)
    before = path.read_bytes()
    with pytest.raises(ytp.CorruptError, match=r"bad\.ytp"):
        append(path)
    after = path.read_bytes()
    assert len(after) == len(before)
    assert after[offsets[-1] : offsets[-1] + 24] == before[offsets[-1] : offsets[-1] + 24]


def test_a_cycle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cycle.ytp"
    offsets = small_file(path)
    poke(path, offsets[3] + 8, offsets[1])
    with pytest.raises(ytp.CorruptError, match=r"cycle\.ytp"):
        read_all(path)


def test_a_cycle_that_forges_the_back_links_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cycle.ytp"
    offsets = small_file(path)
    poke(path, offsets[3] + 8, offsets[1])
    poke(path, offsets[1] + 16, offsets[3])
    with pytest.raises(ytp.CorruptError, match=r"cycle\.ytp"):
        read_all(path)


@pytest.mark.parametrize("size", [0, 1, 7, 23, PAGE, 1 << 40, 2**64 - 1, 2**63])
def test_a_bad_size_is_an_error(tmp_path: Path, size: int) -> None:
    path = tmp_path / "size.ytp"
    offsets = small_file(path)
    poke(path, offsets[2], size)
    got: list[bytes] = []
    with pytest.raises(ytp.CorruptError, match=r"size\.ytp") as caught:
        read_into(got, path)
    assert got == [b"message 0", b"message 1"]
    assert caught.value.offset == offsets[2]


def test_a_node_above_the_counter_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "counter.ytp"
    offsets = small_file(path)
    poke(path, 0, offsets[3])
    with pytest.raises(ytp.CorruptError, match=r"counter\.ytp"):
        read_all(path)
    with pytest.raises(ytp.CorruptError, match=r"counter\.ytp"):
        append(path)


@pytest.mark.parametrize("counter", [0, 8, 33, 1 << 45, 2**64 - 8])
def test_a_bad_counter_is_an_error_for_writers(tmp_path: Path, counter: int) -> None:
    path = tmp_path / "counter.ytp"
    small_file(path)
    poke(path, 0, counter)
    with pytest.raises((ytp.CorruptError, ytp.TooLargeError), match=r"counter\.ytp"):
        append(path)
    assert path.stat().st_size == PAGE


@pytest.mark.parametrize("hint", [1, 8, PAGE, 1 << 50, 2**64 - 8, 1 << 20])
def test_a_bad_hint_never_leads_astray(tmp_path: Path, hint: int) -> None:
    path = tmp_path / "hint.ytp"
    small_file(path)
    poke(path, 16, hint)
    append(path)
    assert read_all(path) == [*(b"message %d" % n for n in range(5)), b"x"]
    yamal.read_file(path).check()


@pytest.mark.parametrize("field", [8, 16, 24])
def test_a_damaged_node_of_a_yamal8_file_is_an_error(tmp_path: Path, field: int) -> None:
    writer = Writer1()
    stream = writer.announce(b"p", b"c")
    offsets = [writer.data(stream, n, b"message %d" % n) for n in range(4)]
    writer.put(offsets[2] + field, 0x1230)
    path = tmp_path / "eight.ytp"
    path.write_bytes(writer.to_bytes())
    with pytest.raises(ytp.CorruptError, match=r"eight\.ytp") as caught:
        read_all(path)
    assert caught.value.offset is not None


def test_announcement_lengths_that_exceed_the_node_are_an_error(tmp_path: Path) -> None:
    writer = Writer1()
    stream = writer.announce(b"peer", b"channel")
    writer.data(stream, 1, b"x")
    writer.image[536 + 32 + 16 : 536 + 32 + 20] = (2**31 - 1).to_bytes(4, "little")
    path = tmp_path / "eight.ytp"
    path.write_bytes(writer.to_bytes())
    with pytest.raises(ytp.CorruptError, match=r"eight\.ytp"):
        read_all(path)


def test_messages_with_ids_that_nobody_announced_are_read(tmp_path: Path) -> None:
    writer = Writer0()
    peer = writer.peer(b"p")
    channel = writer.channel(peer, b"c")
    writer.data(peer + 7, channel + 9, 1, b"stranger")
    writer.data(peer, channel, 2, b"known")
    path = tmp_path / "ids.ytp"
    path.write_bytes(writer.to_bytes())
    with ytp.open(path, "r") as bus:
        assert [m.data for m in bus.subscribe("/", follow=False)][-1] == b"known"
        assert [m.data for m in bus.subscribe("c", follow=False)] == [b"known"]


def test_names_that_are_not_utf8_are_read_with_replacement(tmp_path: Path) -> None:
    writer = Writer0()
    peer = writer.peer(b"p\xff")
    channel = writer.channel(peer, b"c\xfe/x")
    writer.data(peer, channel, 1, b"x")
    path = tmp_path / "names.ytp"
    path.write_bytes(writer.to_bytes())
    with ytp.open(path, "r") as bus:
        assert list(bus.peers) == ["p\ufffd"]
        assert list(bus.channels) == ["c\ufffd/x"]
        assert [(m.peer, m.channel) for m in bus.subscribe("/", follow=False)] == [("p\ufffd", "c\ufffd/x")]


# --- arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\0b", "\udcff"])
def test_a_name_that_can_not_be_written_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "names.ytp"
    with ytp.open(path) as bus:
        with pytest.raises(ytp.InvalidNameError):
            bus.peer(name)
        peer = bus.peer("p")
        with pytest.raises(ytp.InvalidNameError):
            peer.channel(name)
    file = yamal.read_file(path).check()
    assert [p.name for p in file.peers] == [b"p"]
    assert file.channels == []


@pytest.mark.parametrize("form", ["ytp", "yamal8"])
def test_the_largest_message_fits_and_one_more_byte_does_not(tmp_path: Path, form: str) -> None:
    path = tmp_path / "large.ytp"
    largest = 8_388_560
    with ytp.open(path, format=form) as bus:
        channel = bus.peer("p").channel("c")
        channel.write(b"before")
        before = path.stat().st_size
        with pytest.raises(ytp.TooLargeError, match="8388560"):
            channel.write(bytes(largest + 1))
        with pytest.raises(ytp.TooLargeError):
            channel.reserve(largest + 1)
        with pytest.raises(ytp.TooLargeError):
            channel.write_many([b"x", bytes(largest + 1)])
        assert path.stat().st_size == before
        channel.write(b"\1" * largest)
        channel.write(b"after")
    file = yamal.read_file(path).check()
    assert [len(m.data) for m in file.messages if m.data != b"x"] == [6, largest, 5]


def test_a_read_only_bus_refuses_to_write(tmp_path: Path) -> None:
    path = tmp_path / "ro.ytp"
    small_file(path)
    before = path.read_bytes()
    with ytp.open(path, "r") as bus:
        with pytest.raises(ytp.ReadOnlyError, match=r"ro\.ytp"):
            bus.peer("new")
        with pytest.raises(ytp.ReadOnlyError):
            bus.peer("p").channel("new")
        channel = bus.peer("p").channel("c")
        with pytest.raises(ytp.ReadOnlyError):
            channel.write(b"x")
        with pytest.raises(ytp.ReadOnlyError):
            channel.reserve(3)
        with pytest.raises(ytp.ReadOnlyError):
            channel.write_many([b"x"])
        with pytest.raises(ytp.ReadOnlyError):
            with bus.transaction() as transaction:
                transaction.write(channel, b"x")
    assert path.read_bytes() == before


@pytest.mark.parametrize("time", [-(2**63) - 1, 2**64])
def test_a_time_that_no_field_can_hold_is_refused(tmp_path: Path, time: int) -> None:
    with ytp.open(tmp_path / "t.ytp") as bus:
        channel = bus.peer("p").channel("c")
        with pytest.raises((OverflowError, ValueError)):
            channel.write(b"x", time=time)
        assert list(bus.subscribe("/", follow=False)) == []


@pytest.mark.parametrize("data", ["text", 5, None, 1.5, object()])
def test_data_that_is_no_buffer_is_refused(tmp_path: Path, data: object) -> None:
    with ytp.open(tmp_path / "t.ytp") as bus:
        channel = bus.peer("p").channel("c")
        with pytest.raises(TypeError):
            channel.write(data)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            channel.write_many([b"good", data])  # type: ignore[list-item]
        with bus.transaction() as transaction, pytest.raises(TypeError):
            transaction.write(channel, data)  # type: ignore[arg-type]


def test_a_negative_reservation_is_refused(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "t.ytp") as bus:
        channel = bus.peer("p").channel("c")
        with pytest.raises((ValueError, OverflowError)):
            channel.reserve(-1)


def test_positions_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "seek.ytp"
    offsets = small_file(path)
    with ytp.open(path, "r") as bus:
        for wild in (1, 7, offsets[0] + 8, PAGE, 1 << 50, 2**64 - 8):
            with pytest.raises((ytp.CorruptError, ytp.NotFoundError, ValueError)):
                list(bus.subscribe("/", start=wild, follow=False))
        with pytest.raises((ValueError, OverflowError)):
            bus.subscribe("/", start=-1, follow=False)
        with pytest.raises((ValueError, TypeError)):
            bus.subscribe("/", start="middle", follow=False)


# --- files that change underneath --------------------------------------------------------------------------


def test_a_removed_file_goes_on_working(tmp_path: Path) -> None:
    path = tmp_path / "gone.ytp"
    with ytp.open(path) as bus, ytp.open(path, "r") as reader:
        channel = bus.peer("p").channel("c")
        channel.write(b"before")
        path.unlink()
        channel.write(b"after")
        assert [m.data for m in reader.subscribe("/", follow=False)] == [b"before", b"after"]
        assert bus.stat()["unlinked"]
    assert not path.exists()


@pytest.mark.parametrize("length", [0, 100, 4096])
def test_a_file_truncated_while_open_raises_and_views_read_zeros(tmp_path: Path, length: int) -> None:
    import numpy

    path = tmp_path / "cut.ytp"
    with ytp.open(path) as bus:
        channel = bus.peer("p").channel("c")
        channel.write(b"\1" * 100_000)
        (message,) = bus.subscribe("/", follow=False)
        view = numpy.frombuffer(message, dtype=numpy.uint8)
        assert view[-1] == 1
        os.truncate(path, length)
        assert not view[8192:].any()
        with pytest.raises(ytp.TruncatedError, match=r"cut\.ytp"):
            channel.write(b"x")
        with pytest.raises(ytp.TruncatedError, match=r"cut\.ytp"):
            list(bus.subscribe("/", follow=False))


# --- limits of the system ----------------------------------------------------------------------------------


def test_the_file_size_limit_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "limit.ytp"
    code = f"""
import errno, resource, ytp
resource.setrlimit(resource.RLIMIT_FSIZE, ({2 * PAGE}, {2 * PAGE}))
with ytp.open({str(path)!r}) as bus:
    channel = bus.peer("p").channel("c")
    written = 0
    try:
        while written < 100:
            channel.write(bytes(1_000_000)); written += 1
    except ytp.NoSpaceError as error:
        assert error.errno in (errno.EFBIG, errno.ENOSPC), error
        assert "limit.ytp" in str(error), error
    else:
        raise SystemExit("no error")
    channel.write(b"small ones still fit")
    print(written)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    file = yamal.read_file(path).check()
    assert len(file.messages) == int(done.stdout) + 1


def test_creating_beyond_the_file_size_limit_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
import resource, ytp
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    ytp.open({str(tmp_path / "limit.ytp")!r})
except ytp.NoSpaceError as error:
    assert "limit.ytp" in str(error), error
else:
    raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def exhaust_descriptors(kept: list[int]) -> None:
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))


def test_too_few_descriptors_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "fd.ytp"
    small_file(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with pytest.raises(OSError) as exhausted:
            exhaust_descriptors(kept)
        assert exhausted.value.errno == errno.EMFILE
        with pytest.raises(OSError) as caught:
            ytp.open(path, "r")
        assert caught.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in kept:
            os.close(descriptor)
    assert len(read_all(path)) == 5


def test_little_address_space_is_enough_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "space.ytp"
    small_file(path)
    code = f"""
import resource, ytp
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
handles = []
try:
    for _ in range(1000):
        handles.append(ytp.open({str(path)!r}, "r"))
except (MemoryError, OSError, ytp.YtpError) as error:
    assert "space.ytp" in str(error) or isinstance(error, MemoryError), error
assert handles
assert len(list(handles[0].subscribe("/", follow=False))) == 5
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.returncode != -signal.SIGSEGV


# --- closed handles ----------------------------------------------------------------------------------------


def refuses(use: Callable[[], object]) -> bool:
    try:
        use()
    except ytp.ClosedError:
        return True
    return False


def test_closing_twice_is_allowed_and_using_a_closed_bus_is_not(tmp_path: Path) -> None:
    bus = ytp.open(tmp_path / "c.ytp")
    channel = bus.peer("p").channel("c")
    subscription = bus.subscribe("/")
    channel.write(b"x")
    bus.close()
    bus.close()
    uses: dict[str, Callable[[], object]] = {
        "write": lambda: channel.write(b"y"),
        "reserve": lambda: channel.reserve(3),
        "write_many": lambda: channel.write_many([b"y"]),
        "peer": lambda: bus.peer("q"),
        "known peer": lambda: bus.peer("p"),
        "channel": lambda: bus.peer("p").channel("d"),
        "peers": lambda: bus.peers,
        "channels": lambda: bus.channels,
        "subscribe": lambda: bus.subscribe("/"),
        "sync": bus.sync,
        "stat": bus.stat,
        "transaction": lambda: bus.transaction().write(channel, b"y"),
        "next": lambda: next(iter(subscription)),
        "poll": lambda: subscription.poll(0),
        "read": lambda: subscription.read(1),
    }
    allowed = [name for name, use in uses.items() if not refuses(use)]
    assert allowed == []
    subscription.close()
