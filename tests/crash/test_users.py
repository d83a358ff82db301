"""Two users: the mode of a file decides who may read and write it, and readers of others are woken."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ytp

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may use."""
    place = Path(tempfile.mkdtemp(prefix="ytp-users-"))
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


def as_nobody(code: str, path: Path) -> str:
    """Runs code in a process that became somebody else after its imports."""
    full = f"import os, sys, numpy, ytp\nytp.open\nos.setgid({NOBODY}); os.setuid({NOBODY})\npath = sys.argv[1]\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", full, str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


REFUSED = """
for mode in ("r", "r+", "a"):
    try:
        ytp.open(path, mode)
    except PermissionError as error:
        assert path in str(error), error
    else:
        raise SystemExit(f"mode {mode} was allowed")
"""


def test_a_file_is_private_unless_told_otherwise(folder: Path) -> None:
    path = folder / "private.ytp"
    with ytp.open(path) as bus:
        bus.peer("p").channel("c").write(b"secret")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        as_nobody(REFUSED, path)


def test_others_may_read_what_the_mode_lets_them_read(folder: Path) -> None:
    path = folder / "readable.ytp"
    with ytp.open(path, permissions=0o644) as bus:
        bus.peer("p").channel("c").write(b"news")
        before = path.read_bytes()
        answer = as_nobody(
            """
with ytp.open(path, "r") as bus:
    print([m.data for m in bus.subscribe("/", follow=False)])
try:
    ytp.open(path)
except PermissionError:
    print("refused")
""",
            path,
        )
        assert answer == "[b'news']\nrefused\n"
        assert path.read_bytes() == before


def test_others_may_write_what_the_mode_lets_them_write(folder: Path) -> None:
    path = folder / "shared.ytp"
    with ytp.open(path, permissions=0o666) as bus:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        bus.peer("root").channel("c").write(b"hello")
        as_nobody(
            """
with ytp.open(path) as bus:
    assert [m.data for m in bus.subscribe("/", follow=False)] == [b"hello"]
    bus.peer("nobody").channel("c").write(b"hello yourself")
""",
            path,
        )
        assert [(m.peer, m.data) for m in bus.subscribe("/", follow=False)] == [
            ("root", b"hello"),
            ("nobody", b"hello yourself"),
        ]


@pytest.mark.parametrize("permissions", [0o644, 0o666])
def test_a_reader_of_another_user_is_woken(folder: Path, permissions: int) -> None:
    """With write permission by the wait word, without it by its own looking now and then."""
    path = folder / "wake.ytp"
    mode = "a" if permissions == 0o666 else "r"
    code = f"""
with ytp.open(path, {mode!r}) as bus:
    subscription = bus.subscribe("/", wait="park")
    print("ready", flush=True)
    for _ in range(20):
        message = subscription.poll(30)
        assert message is not None
    print(message.data)
"""
    full = f"import os, sys, numpy, ytp\nytp.open\nos.setgid({NOBODY}); os.setuid({NOBODY})\npath = sys.argv[1]\n{code}"
    with ytp.open(path, permissions=permissions) as bus:
        channel = bus.peer("p").channel("c")
        with subprocess.Popen(
            [sys.executable, "-c", full, str(path)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            for number in range(20):
                channel.write(b"%d" % number)
            out, _ = reader.communicate(timeout=60)
            assert out == "b'19'\n"
            assert reader.returncode == 0
