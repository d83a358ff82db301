#!/usr/bin/env bash
# clang-tidy over the C core, where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-tidy >/dev/null; then
    echo "clang-tidy is not installed: not checked (Debian: apt install clang-tidy)"
    exit 0
fi
cmake --preset dev >/dev/null
xargs clang-tidy --quiet -p build/dev <csrc/sources.txt
