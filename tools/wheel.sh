#!/usr/bin/env bash
# Builds wheelhouse/*.whl for this Python and any Linux with glibc 2.17 or newer (zig's C compiler knows the
# old symbol versions), lets auditwheel judge it, and runs tests/smoke in an empty environment without a compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
machine=$(uname -m)

rm -rf build/wheel dist wheelhouse
mkdir -p build
# Debian keeps pyconfig.h among the headers of its C library, where zig, which brings older ones, must not look.
read -r headers multiarch < <("$python" -c 'import sysconfig as s; print(s.get_path("include"), s.get_config_var("MULTIARCH"))')
version=${headers##*/}
mkdir -p "build/include/$multiarch"
ln -sfn "/usr/include/$multiarch/$version" "build/include/$multiarch/$version"
# Without --wheel: the source distribution first, then the wheel from that, so both are proved.
cc="$python -m ziglang cc -target $machine-linux-gnu.2.17"
# LDSHARED of our own: Debian's names options that zig's linker does not know.
CC="$cc -isystem $PWD/build/include" LDSHARED="$cc -shared" "$python" -m build --no-isolation --outdir dist >build/wheel.log 2>&1 ||
    { tail -n 40 build/wheel.log; exit 1; }
"$python" -m auditwheel repair --plat "manylinux_2_17_$machine" --wheel-dir wheelhouse dist/*.whl
"$python" -m auditwheel show wheelhouse/*.whl

"$python" -m venv build/wheel
build/wheel/bin/pip --disable-pip-version-check install --quiet wheelhouse/*.whl
smoke=$PWD/tests/smoke/test_smoke.py
cd build/wheel
env -i PATH="$PWD/bin" CC=/nonexistent HOME="$PWD" "$PWD/bin/python" -P "$smoke"
ls -l ../../wheelhouse
