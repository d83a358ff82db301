"""Does the installed package work at all? Runs under pytest, and by itself where only the wheel is."""

import subprocess
import sys
import tempfile
from pathlib import Path

import yamz
import ytp

WRITER = """
import sys, ytp
with ytp.open(sys.argv[1]) as bus:
    bus.peer("child").channel("smoke/child").write(b"from another process")
"""


def test_versions_agree() -> None:
    assert yamz.__version__ == ytp.__version__


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "smoke.ytp")
    with ytp.open(path) as bus:
        channel = bus.peer("parent").channel("smoke/parent")
        channel.write(b"one", time=1)
        with channel.reserve(3) as buffer:
            buffer[:] = b"two"
        subprocess.run([sys.executable, "-c", WRITER, path], check=True, timeout=60)
        messages = [(m.peer, m.channel, m.data) for m in bus.subscribe("smoke/", follow=False)]
    assert messages == [
        ("parent", "smoke/parent", b"one"),
        ("parent", "smoke/parent", b"two"),
        ("child", "smoke/child", b"from another process"),
    ]


if __name__ == "__main__":
    test_versions_agree()
    with tempfile.TemporaryDirectory() as directory:
        test_two_processes_share_a_file(Path(directory))
    print(f"ytp {ytp.__version__} works with Python {sys.version.split()[0]}: {ytp.__file__}")
