"""The build keeps its promises: one source list, one version, only public symbols, clean sanitizers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import yamz
import ytp

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_HEADERS = sorted((ROOT / "csrc" / "include" / "ytp").glob("*.h"))


def run(*command: str | Path, timeout: float = 600) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def declared_functions() -> set[str]:
    """Every function that a public header declares for use from outside."""
    text = "\n".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in PUBLIC_HEADERS)
    return set(re.findall(r"YTP_API\b[^;{]*?\b(ytp_\w+)\s*\(", text))


@pytest.fixture(scope="module")
def cmake(need: Callable[[str], str]) -> str:
    need("ninja")
    return need("cmake")


@pytest.fixture(scope="module")
def installed(cmake: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libytp, built by CMake and installed under a prefix of its own."""
    top = tmp_path_factory.mktemp("libytp")
    configure = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DYTP_BUILD_TESTS=OFF",
        "-DYTP_WERROR=ON",
        "-DCMAKE_INSTALL_LIBDIR=lib",
    ]
    run(cmake, "-G", "Ninja", "-S", ROOT, "-B", top / "build", *configure)
    run(cmake, "--build", top / "build")
    run(cmake, "--install", top / "build", "--prefix", top / "prefix")
    return top / "prefix"


def test_source_list_names_every_c_file() -> None:
    listed = (ROOT / "csrc" / "sources.txt").read_text().split()
    present = [str(path.relative_to(ROOT)) for path in (ROOT / "csrc" / "src").glob("*.c")]
    assert sorted(listed) == sorted(present)
    assert len(listed) == len(set(listed))


def test_both_builds_read_the_source_list() -> None:
    assert "csrc/sources.txt" in (ROOT / "CMakeLists.txt").read_text()
    assert '"sources.txt"' in (ROOT / "setup.py").read_text()
    for build in ("CMakeLists.txt", "setup.py"):
        assert not re.search(r"csrc/src/\w+\.c", (ROOT / build).read_text())


def test_one_version_everywhere() -> None:
    header = (ROOT / "csrc" / "include" / "ytp" / "ytp.h").read_text()
    numbers = [re.search(rf"YTP_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(found[1] for found in numbers if found) == ytp.__version__
    assert f'YTP_VERSION_STRING "{ytp.__version__}"' in header
    assert yamz.__version__ == ytp.__version__
    assert ytp.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_shared_library_exports_exactly_the_public_functions(
    installed: Path, need: Callable[[str], str]
) -> None:
    listing = run(
        need("nm"), "--dynamic", "--defined-only", "--format=posix", installed / "lib" / "libytp.so"
    )
    exported = {line.split()[0] for line in listing.splitlines()}
    assert exported == declared_functions()


@pytest.mark.parametrize("module", ["_core", "_cffi_core"])
def test_extension_modules_export_only_their_entry_point(module: str, need: Callable[[str], str]) -> None:
    found = list((ROOT / "ytp").glob(f"{module}.*.so"))
    if not found:
        pytest.skip(f"needs ytp.{module} built in place")
    listing = run(need("nm"), "--dynamic", "--defined-only", "--format=posix", found[0])
    exported = {line.split()[0] for line in listing.splitlines()}
    assert [name for name in exported if name.startswith(("ytp_", "ytpi_"))] == []
    assert f"PyInit_{module}" in exported


def test_soname_carries_the_major_version(installed: Path) -> None:
    major = ytp.__version__.split(".")[0]
    assert (installed / "lib" / "libytp.so").resolve().name == f"libytp.so.{ytp.__version__}"
    assert (installed / "lib" / f"libytp.so.{major}").exists()


@pytest.mark.parametrize("header", PUBLIC_HEADERS, ids=lambda path: path.name)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_public_headers_compile_alone(
    header: Path, language: str, tmp_path: Path, need: Callable[[str], str]
) -> None:
    compiler = need("cc" if language == "c" else "c++")
    program = tmp_path / "alone.txt"
    program.write_text(f'#include "ytp/{header.name}"\nint main(void) {{ return 0; }}\n')
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    run(compiler, "-x", language, *warnings, "-fsyntax-only", "-I", ROOT / "csrc/include", program)


def build_and_run_example(program: Path, tmp_path: Path) -> None:
    assert ytp.__version__ in run(program, tmp_path / "example.ytp")
    with ytp.open(tmp_path / "example.ytp", "r") as bus:
        assert [message.channel for message in bus.subscribe("/", follow=False)]


def test_example_links_through_pkg_config(
    installed: Path, tmp_path: Path, need: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PKG_CONFIG_PATH", str(installed / "lib" / "pkgconfig"))
    flags = run(need("pkg-config"), "--cflags", "--libs", "ytp").split()
    program = tmp_path / "hello"
    run(need("cc"), ROOT / "examples/c/hello.c", "-o", program, *flags, f"-Wl,-rpath,{installed / 'lib'}")
    build_and_run_example(program, tmp_path)


def test_example_links_through_cmake(installed: Path, tmp_path: Path, cmake: str) -> None:
    run(
        cmake,
        "-G",
        "Ninja",
        "-S",
        ROOT / "examples/c",
        "-B",
        tmp_path / "b",
        f"-DCMAKE_PREFIX_PATH={installed}",
    )
    run(cmake, "--build", tmp_path / "b")
    build_and_run_example(tmp_path / "b" / "hello", tmp_path)


@pytest.mark.timeout(900)
def test_c_tests_under_address_and_undefined_behaviour_sanitizers(cmake: str) -> None:
    out = run(cmake, "--workflow", "--preset", "asan", timeout=900)
    assert "100% tests passed" in out


@pytest.mark.timeout(900)
def test_threaded_c_tests_under_thread_sanitizer(cmake: str, need: Callable[[str], str]) -> None:
    threaded = ["stress_test", "wait_test", "mutex_test"]
    run(cmake, "--preset", "tsan")
    run(cmake, "--build", "--preset", "tsan", "--target", *threaded, timeout=900)
    out = run(need("ctest"), "--preset", "tsan", "-R", "|".join(threaded), timeout=900)
    assert f"out of {len(threaded)}" in out  # how it is put depends on the version of ctest
    assert "100% tests passed" in out


def test_imports_go_down_the_layers_only() -> None:
    out = run(Path(sys.executable).with_name("lint-imports"), "--no-cache")
    assert "0 broken" in out


ONLY_NUMPY = """
import sys

class OnlyNumpy:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("ytp", "numpy"):
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, OnlyNumpy())
import ytp
for name in ytp.__all__:
    getattr(ytp, name)
with ytp.open(sys.argv[2]) as bus:
    bus.peer("p").channel("c").write(b"x")
    assert [m.data for m in bus.subscribe("/", follow=False)] == [b"x"]
    assert bus.subscribe("/", follow=False).read(10).offset.tolist()
"""


def test_the_core_needs_numpy_and_nothing_else(tmp_path: Path) -> None:
    run(sys.executable, "-I", "-c", ONLY_NUMPY, ROOT, tmp_path / "alone.ytp")


def test_wheels_are_built_for_every_python_that_is_promised() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    promised = [
        found[1].replace(".", "")
        for line in settings["project"]["classifiers"]
        if (found := re.search(r"Python :: (3\.\d+)$", line))
    ]
    built = settings["tool"]["cibuildwheel"]["build"].split()
    assert [f"cp{version}-*" for version in promised] == [name for name in built if "t-" not in name]
    assert "cp314t-*" in built


def test_locks_hold_names_versions_and_hashes_only() -> None:
    line_of = re.compile(
        r"[a-z0-9._-]+==[a-z0-9.+!]+( ; [a-zA-Z0-9_ .<>=!'()]+)?( \\)?|    --hash=sha256:[0-9a-f]{64}( \\)?"
    )
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    assert locks
    for lock in locks:
        strange = [line for line in lock.read_text().splitlines() if not line_of.fullmatch(line)]
        assert strange == [], lock.name


def test_locks_cover_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for lock, extras in {
        "dev": ["net", "zmq", "webrtc", "cli", "dev", "interop", "browser"],
        "spark": ["spark"],
    }.items():
        locked = re.findall(
            r"^([a-z0-9._-]+)==", (ROOT / "requirements" / f"{lock}.lock").read_text(), flags=re.M
        )
        wanted = {re.split(r"[\[<>=;! ]", item)[0].lower() for extra in extras for item in project[extra]} - {
            "ytp"
        }
        assert wanted - set(locked) == set(), lock


def test_presets_name_what_the_makefile_uses(cmake: str) -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    names = {preset["name"] for preset in presets["workflowPresets"]}
    used = set(re.findall(r"--workflow --preset (\w+)", (ROOT / "Makefile").read_text()))
    assert used
    assert used <= names
    run(cmake, "--list-presets")


def test_environment_script_names_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "env.py"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "a C compiler, cc (Debian: apt install gcc libc6-dev)" in done.stderr


def test_make_lists_its_commands() -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    listed = run("make", "--no-print-directory", "help")
    for command in ("demo", "test", "bench", "lint", "sanitize", "wheel"):
        assert f"make {command} " in listed
