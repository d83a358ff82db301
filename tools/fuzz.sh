#!/usr/bin/env bash
# tools/fuzz.sh RUNS: every libFuzzer target for that many executions. New inputs stay in build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=$1
command -v clang >/dev/null || { echo "fuzzing needs clang (Debian: apt install clang libclang-rt-dev)" >&2; exit 1; }
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
for target in build/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=${target##*/fuzz_}
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=()
    [ -d "csrc/fuzz/corpus/$name" ] && seeds+=("csrc/fuzz/corpus/$name")
    echo "== $name: $runs executions"
    "$target" -runs="$runs" -timeout=10 -rss_limit_mb=2048 -max_len=1048576 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$name-" "$corpus" "${seeds[@]}" 2>&1 | tee "build/fuzz/$name.log" | tail -n 12
done
