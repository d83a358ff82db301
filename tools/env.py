"""Bring the virtual environment .venv to the state that the lock files and the sources describe.

    python3 tools/env.py dev spark --build

Each named group is installed from requirements/<group>.lock unless that very lock is installed already;
``--build`` compiles the extension modules and installs the project in place (with the group ``spark`` also the
Spark reader in Java, where there is a javac), unless nothing they are made of has changed. A run with nothing
to do takes a tenth of a second. Standard library only: this is what runs before anything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
#: The interpreter below, should this script itself run inside an environment.
BASE = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
MADE_OF = ("csrc/include", "csrc/src", "csrc/sources.txt", "bindings", "setup.py", "pyproject.toml")
JAR = ROOT / "ytp" / "spark" / "jvm" / "yamal.jar"
SWITCHES = ("CC", "CFLAGS", "LDFLAGS", "YTP_COVERAGE", "YTP_DEBUG", "YTP_SANITIZE")


def missing_prerequisites() -> Iterator[str]:
    """What this machine lacks, in words that say how to get it."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this very script tells the owner of an older Python)
        yield f"Python 3.11 or newer (found {sys.version.split()[0]}; try `make PYTHON=python3.13`)"
    if importlib.util.find_spec("ensurepip") is None and not find_uv():
        yield "the venv module (Debian: apt install python3-venv)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        yield "Python.h (Debian: apt install python3-dev)"
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        yield f"a C compiler, {compiler} (Debian: apt install gcc libc6-dev)"


def run(*command: str | Path, check: bool = True) -> bool:
    """Run a command in the project's root, quiet unless it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode and check:
        sys.exit(f"{done.stdout}{done.stderr}\nfailed (exit {done.returncode}): {' '.join(words)}")
    return done.returncode == 0


def find_uv() -> Path | None:
    """The uv of this machine or of the environment, if it works."""
    for candidate in (shutil.which("uv"), VENV / "bin" / "uv"):
        if candidate and Path(candidate).exists() and run(candidate, "--version", check=False):
            return Path(candidate)
    return None


def install(*arguments: str | Path) -> None:
    """Install with uv where it can be had, with pip otherwise."""
    pip = (PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    if not find_uv():
        run(*pip, "--require-hashes", "-r", "requirements/uv.lock", check=False)
    uv = find_uv()
    if uv and run(uv, "pip", "install", "--quiet", "--python", PYTHON, *arguments, check=False):
        return
    run(*pip, *arguments)


def create() -> None:
    """Start with an empty environment."""
    shutil.rmtree(VENV, ignore_errors=True)
    uv = find_uv()
    if importlib.util.find_spec("ensurepip"):
        run(BASE, "-m", "venv", VENV)
    elif uv:
        run(uv, "venv", "--quiet", "--python", BASE, VENV)


def build() -> None:
    """Compile both extension modules from scratch and install the project in place."""
    for old in (ROOT / "ytp").glob("_c*.so"):
        old.unlink()
    for objects in (ROOT / "build").glob("temp.*"):
        shutil.rmtree(objects)
    os.environ["YTP_CFFI"] = "1"
    install("--no-build-isolation", "--no-deps", "--editable", ROOT)


def build_jar() -> None:
    """Compile the Spark reader in Java, where there is a compiler."""
    if subprocess.run([PYTHON, "tools/jar.py"], cwd=ROOT).returncode:
        sys.exit("failed: tools/jar.py")


def key_of(*paths: str, switches: tuple[str, ...] = ()) -> str:
    """One key for this Python, the contents of files and folders, and the values of environment variables."""
    sha = hashlib.sha256(f"{BASE} {sys.version} {ROOT}".encode())
    sha.update(repr([os.environ.get(name) for name in switches]).encode())
    for path in paths:
        top = ROOT / path
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.is_file() and "__pycache__" not in file.parts:
                sha.update(b"%s\0%s\0" % (bytes(file.relative_to(ROOT)), file.read_bytes()))
    return sha.hexdigest()


def once(name: str, key: str, action: Callable[[], None]) -> None:
    """Do `action` unless the environment's stamp says that it was done for this key."""
    stamp = VENV / f".done-{name}"
    if stamp.exists() and stamp.read_text() == key:
        return
    print(f"environment: {name}", flush=True)
    action()
    stamp.write_text(key)


def main() -> None:
    parser = argparse.ArgumentParser(description="Set up .venv; see the top of this file.")
    parser.add_argument("groups", nargs="*", metavar="group")
    parser.add_argument("--build", action="store_true", help="compile and install the project in place")
    options = parser.parse_args()

    missing = list(missing_prerequisites())
    if missing:
        sys.exit("This machine lacks:\n" + "\n".join(f"  - {item}" for item in missing))
    with open(ROOT / ".lock-env", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        once("python", key_of(), create)
        for group in options.groups:
            lock = f"requirements/{group}.lock"
            once(group, key_of(lock), partial(install, "--require-hashes", "-r", lock))
        if options.build:
            once("build", key_of(*MADE_OF, switches=SWITCHES), build)
            if "spark" in options.groups:
                if not JAR.exists() and shutil.which("javac"):
                    (VENV / ".done-jar").unlink(missing_ok=True)
                once("jar", key_of("ytp/spark/jvm/src", "tools/jar.py", "requirements/spark.lock"), build_jar)


if __name__ == "__main__":
    main()
