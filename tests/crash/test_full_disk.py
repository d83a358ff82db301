"""A full disk is an error and no signal; nothing is damaged, and writing goes on when there is space again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need_program
from tests.oracle import yamal

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount file systems"),
]

WRITER = """
import errno, os, sys, time
import ytp

path, form, ballast, how = sys.argv[1:]
row = bytes(100_000)
with ytp.open(path, format=form) as bus, ytp.open(path, "r") as reader:
    channel = bus.peer("p").channel("c")

    def write():
        if how == "write":
            channel.write(row)
            return 1
        if how == "many":
            return channel.write_many([row] * 5)
        with bus.transaction() as transaction:
            for _ in range(5):
                transaction.write(channel, row)
        return 5

    written = 0
    try:
        while True:
            written += write()
    except ytp.NoSpaceError as error:
        assert error.errno == errno.ENOSPC, error
        assert path in str(error), error
    found = sum(len(m) == len(row) for m in reader.subscribe("/", follow=False))
    assert written <= found < written + 5, (written, found)  # a batch that did not fit may be in in part
    for _ in range(3):  # still full: still an error, still alive
        try:
            channel.write(bytes(8_000_000))
        except ytp.NoSpaceError:
            pass
        else:
            raise SystemExit("there should be no space")
    os.unlink(ballast)
    for _ in range(20):
        channel.write(row)
    print(found + 20)
"""

CREATOR = """
import errno, os, sys
import ytp
try:
    ytp.open(sys.argv[1])
except ytp.NoSpaceError as error:
    assert error.errno == errno.ENOSPC and sys.argv[1] in str(error), error
else:
    raise SystemExit("there should be no space")
"""


def run(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"
    return done.stdout


def mount(*command: str) -> None:
    done = subprocess.run(["mount", *command], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"needs loop devices and mounts: {done.stderr.strip()}")


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MB, mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    if request.param == "tmpfs":
        mount("-t", "tmpfs", "-o", "size=40m", "ytp-test", str(place))
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(48 << 20)
        subprocess.run([need_program("mkfs.ext4"), "-q", "-F", str(image)], check=True, timeout=60)
        mount("-o", "loop", str(image), str(place))
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=60)


@pytest.mark.parametrize("form", ["ytp", "yamal8"])
@pytest.mark.parametrize("how", ["write", "many", "transaction"])
def test_a_full_disk_is_an_error_and_writing_resumes(disk: Path, form: str, how: str) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * (18 << 20))
    count = int(run(WRITER, disk / "full.ytp", form, ballast, how))
    file = yamal.read_file(disk / "full.ytp").check()
    assert sum(len(m.data) == 100_000 for m in file.messages) == count


def test_creating_a_file_on_a_full_disk_leaves_nothing(disk: Path) -> None:
    (disk / "ballast").write_bytes(b"x" * (34 << 20))
    before = sorted(disk.iterdir())
    run(CREATOR, disk / "new.ytp")
    assert sorted(disk.iterdir()) == before
