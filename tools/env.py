"""Bring the virtual environment .venv to the state that the lock files and the sources describe.

    python3 tools/env.py dev spark --build

Each named group is installed from requirements/<group>.lock unless that very lock is installed already;
``--build`` compiles the extension modules and installs the project in place, unless nothing they are
made of has changed. A run with nothing to do takes a tenth of a second. Standard library only: this is
what runs before anything is installed.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
SWITCHES = ("CC", "CFLAGS", "LDFLAGS", "YTP_COVERAGE", "YTP_DEBUG", "YTP_SANITIZE")


def missing_prerequisites():
    """What this machine lacks, in words that say how to get it."""
    if sys.version_info < (3, 11):
        found = ".".join(map(str, sys.version_info[:3]))
        yield "Python 3.11 or newer (found %s; choose another with `make PYTHON=python3.13`)" % found
    if importlib.util.find_spec("ensurepip") is None and not find_uv():
        yield "the venv module (Debian: apt install python3-venv)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        yield "Python.h (Debian: apt install python3-dev)"
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        yield "a C compiler, %s (Debian: apt install gcc libc6-dev)" % compiler


def run(*command, check=True, **env):
    """Run a command in the project's root, quiet unless it fails."""
    words = list(map(str, command))
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode and check:
        sys.exit("%s\nfailed (exit %d): %s" % (done.stdout, done.returncode, " ".join(words)))
    return done.returncode == 0


def find_uv():
    """The uv of this machine or of the environment, if it works; None otherwise."""
    for candidate in (shutil.which("uv"), VENV / "bin" / "uv"):
        if candidate and Path(candidate).exists() and run(candidate, "--version", check=False):
            return candidate
    return None


def pip_install(*arguments, **env):
    """Install with uv where it can be had, with pip otherwise."""
    pip = (PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    if not find_uv():
        run(*pip, "--require-hashes", "-r", "requirements/uv.lock", check=False)
    uv = find_uv()
    if uv and run(uv, "pip", "install", "--quiet", "--python", PYTHON, *arguments, check=False, **env):
        return
    run(*pip, *arguments, **env)


def digest(*parts):
    """One key for files, directories and strings, in the order given."""
    sha = hashlib.sha256(sys.version.encode())
    for part in parts:
        if isinstance(part, Path):
            files = sorted(p for p in part.rglob("*") if p.is_file()) if part.is_dir() else [part]
            for file in files:
                if "__pycache__" not in file.parts:
                    sha.update(b"%s\0%s\0" % (str(file.relative_to(ROOT)).encode(), file.read_bytes()))
        else:
            sha.update(str(part).encode() + b"\0")
    return sha.hexdigest()


def step(name, key, action):
    """Do `action` unless the stamp says that it was done for this key."""
    stamp = VENV / (".done-" + name)
    if stamp.exists() and stamp.read_text() == key:
        return
    print("environment: %s" % name, flush=True)
    action()
    stamp.write_text(key)


def create():
    shutil.rmtree(VENV, ignore_errors=True)
    if importlib.util.find_spec("ensurepip"):
        run(sys.executable, "-m", "venv", VENV)
    else:
        run(find_uv(), "venv", "--quiet", "--python", sys.executable, VENV)


def build():
    """Compile both extension modules and install the project in place."""
    for old in (ROOT / "ytp").glob("_c*.so"):
        old.unlink()
    pip_install("--no-build-isolation", "--no-deps", "--editable", ROOT, YTP_CFFI="1")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="group")
    parser.add_argument("--build", action="store_true")
    options = parser.parse_args()

    missing = list(missing_prerequisites())
    if missing:
        sys.exit("This machine lacks:\n" + "\n".join("  - " + item for item in missing))
    with open(ROOT / ".lock-env", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not PYTHON.exists() or not (VENV / ".done-python").exists():
            create()
        step("python", digest(sys.executable), create)
        for group in options.groups:
            lock = ROOT / "requirements" / (group + ".lock")
            step(group, digest(lock), lambda lock=lock: pip_install("--require-hashes", "-r", lock))
        if options.build:
            made_of = [ROOT / "csrc" / "include", ROOT / "csrc" / "src", ROOT / "csrc" / "sources.txt"]
            made_of += [ROOT / "bindings", ROOT / "setup.py", ROOT / "pyproject.toml"]
            step("build", digest(*made_of, *(os.environ.get(name, "") for name in SWITCHES)), build)


if __name__ == "__main__":
    main()
