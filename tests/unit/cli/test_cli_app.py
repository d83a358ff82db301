"""The command as a whole: list of verbs, errors, exit codes, interruption, colours."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import ytp
from ytp.cli import doctor
from ytp.cli.app import DOORS, VERBS, cli
from ytp.cli.arguments import complete_channels

Start = Callable[..., "subprocess.Popen[str]"]


def names() -> list[str]:
    return cli.list_commands(click.Context(cli))


def test_help_lists_every_verb_that_this_version_has(run) -> None:
    text = run("--help").output
    for name in (*VERBS, *DOORS):
        assert f"\n  {name} " in text


@pytest.mark.parametrize("name", names())
def test_every_verb_explains_itself(run, name: str) -> None:
    assert run(name, "--help").output.startswith(f"Usage: ytp {name}")


def test_help_loads_neither_the_core_nor_numpy() -> None:
    code = (
        "import sys\nfrom ytp.cli import main\n"
        "sys.argv = ['ytp', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'numpy', 'rich', 'textual', 'asyncio', 'aiohttp', 'ytp.bus', 'ytp.cli.tail'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_version(run) -> None:
    assert run("--version").output == f"ytp, version {ytp.__version__}\n"


def test_unknown_verb_is_wrong_usage(run) -> None:
    assert "No such command 'tial'" in run("tial", code=2).stderr


@pytest.mark.parametrize("verb", ["tail", "stat", "verify"])
def test_missing_file_is_named(run, tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path / "absent.ytp", code=2)
    assert "absent.ytp" in result.stderr
    assert "No such file" in result.stderr


def test_directory_instead_of_a_file(run, tmp_path: Path) -> None:
    assert "directory" in run("tail", tmp_path, code=2).stderr.lower()


def test_something_else_than_a_yamal_file(run, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 1000)
    assert "letter.txt" in run("stat", path, code=2).stderr
    assert path.read_text() == "Dear reader, " * 1000


def test_a_missing_package_is_named_with_its_extra(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ytp.cli.tail", None)  # what an import of something missing looks like
    result = run("tail", "x", code=2)
    assert "ytp tail" in result.stderr
    assert "pip install 'ytp[cli]'" in result.stderr


def test_without_click_the_script_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; from ytp.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'ytp[cli]'" in done.stderr


def test_interruption_ends_following_quietly_and_closes_the_json_array(start: Start, market: Path) -> None:
    child = start("tail", "-f", "--format", "json", market)
    assert child.stdout is not None
    text = ""
    while not text.endswith('"data_base64": "/wA="}'):
        assert child.poll() is None
        text += child.stdout.read(1)
    os.kill(child.pid, signal.SIGINT)
    rest, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert len(json.loads(text + rest)) == 10
    assert errors == ""


def test_a_reader_of_the_pipe_that_goes_away_ends_the_command(start: Start, market: Path) -> None:
    child = start("tail", "-f", market)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    with ytp.open(market) as bus:
        bus.peer("feed").channel("md/IBM").write(b"nobody reads this")
    child.stdout = None
    _, errors = child.communicate(timeout=30)
    assert "Traceback" not in errors


def test_no_color(start: Start, tmp_path: Path) -> None:
    import pty

    def on_a_terminal(**environment: str) -> bytes:
        ours, theirs = pty.openpty()
        words = [sys.executable, "-m", "ytp", "doctor", str(tmp_path)]
        child = subprocess.Popen(words, stdout=theirs, env={**os.environ, "TERM": "xterm", **environment})
        os.close(theirs)
        text = b""
        try:
            while block := os.read(ours, 65536):
                text += block
        except OSError:  # how a terminal ends
            pass
        os.close(ours)
        assert child.wait(timeout=60) == 0
        return text

    assert b"\x1b[32mok" in on_a_terminal(NO_COLOR="")
    assert b"\x1b[" not in on_a_terminal(NO_COLOR="1")


def test_module_and_script_are_the_same(start: Start) -> None:
    child = start("--version")
    assert child.communicate(timeout=60)[0] == f"ytp, version {ytp.__version__}\n"


def test_doctor_finds_this_machine_in_order(run, tmp_path: Path) -> None:
    rows = json.loads(run("doctor", "--format", "json", tmp_path).output)
    assert {row["verdict"] for row in rows} <= {"ok", "note"}
    found = {row["check"]: row["detail"] for row in rows}
    assert f"libytp {ytp.__version__}" in found["core"]
    assert "sleeping readers answer" in found["two processes"]
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_what_does_not_work(run, tmp_path: Path) -> None:
    rows = json.loads(run("doctor", "--format", "json", tmp_path / "absent", code=1).output)
    failed = [row for row in rows if row["verdict"] == "fail"]
    assert {row["check"] for row in failed} == {"free space", "two processes"}
    assert all("absent" in row["detail"] for row in failed)


def completions(line: str, place: int, folder: Path) -> list[str]:
    environment = {
        **os.environ,
        "_YTP_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(place),
    }
    command = [sys.executable, "-c", "from ytp.cli import main; main()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [item.partition(",")[2] for item in done.stdout.split()]


def test_completion_of_verbs_options_and_channels(market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert completions("ytp ver", 1, market.parent) == ["verify"]
    assert "--follow" in completions("ytp tail --f", 2, market.parent)
    assert completions(f"ytp tail {market} md/", 3, market.parent) == ["md/IBM", "md/raw"]
    assert completions("ytp tail absent.ytp md/", 3, market.parent) == []


def test_doctor_names_missing_extras_and_a_missing_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert doctor.second_binding()[0] == "note"
    assert doctor.extra(("click", "no-such-package")) == ("note", "not installed: no-such-package")


def test_doctor_warns_of_network_file_systems_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "mounted", lambda path: "nfs4")
    verdict, detail = doctor.file_system("/srv")
    assert verdict == "note"
    assert "nfs4 is a network file system" in detail
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1 << 30, 1 << 30))
    assert doctor.limits() == ("note", "limited: address space 1.0 GiB, file size 1.0 GiB")


def test_doctor_finds_the_innermost_mount(tmp_path: Path) -> None:
    assert doctor.mounted("/proc/self") == "proc"
    assert doctor.mounted(str(tmp_path)) is not None


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("pass", "no answer"),
        ("import sys, ytp; ytp.open(sys.argv[1]).peer('x').channel('echo').write(b'?')", "came back"),
    ],
)
def test_doctor_notices_a_machine_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, complaint: str
) -> None:
    monkeypatch.setattr(doctor, "ECHO", program)
    monkeypatch.setattr(doctor, "PATIENCE", 2.0)
    verdict, detail = doctor.two_processes(str(tmp_path))
    assert verdict == "fail"
    assert complaint in detail


def test_channels_are_completed_in_process(market: Path) -> None:
    context = click.Context(cli.get_command(click.Context(cli), "tail"))  # type: ignore[arg-type]
    context.params["file"] = str(market)
    assert [item.value for item in complete_channels(context, click.Argument(["x"]), "n")] == ["news"]
    context.params["file"] = "absent"
    assert complete_channels(context, click.Argument(["x"]), "") == []


def test_verbs_are_completed_in_process() -> None:
    found = {item.value: item.help for item in cli.shell_complete(click.Context(cli), "s")}
    assert found == {name: VERBS[name].summary for name in ("stat", "salvage", "serve")}
