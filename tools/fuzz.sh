#!/usr/bin/env bash
# tools/fuzz.sh RUNS [TARGET...]: the libFuzzer targets, RUNS executions each (or FUZZ_SECONDS=n seconds each).
# Inputs that reach new code stay in build/fuzz/corpus and are the start of the next run; an input that breaks something
# is left in build/fuzz as TARGET-crash-*. Figures go to build/results/fuzz.json.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=$1
shift
command -v clang >/dev/null || { echo "fuzzing needs clang (Debian: apt install clang libclang-rt-dev)" >&2; exit 1; }
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
[ $# -gt 0 ] || set -- $(cd csrc/fuzz && ls ./*_fuzz.c | sed 's|./||; s|_fuzz.c||')

seeds=build/fuzz/seeds
mkdir -p "$seeds" build/results
build/fuzz/make_seeds "$seeds"
python3 - "$seeds" <<'PYTHON'
# The vectors, cut to what an input of small pages can hold; each once to read and once to write.
import gzip, pathlib, sys
for vector in sorted(pathlib.Path("tests/data/yamal").glob("*.ytp.gz")):
    content = gzip.decompress(vector.read_bytes())[:65536].rstrip(b"\0")
    for name, choices in (("r", b"\0\0"), ("w", b"\0\x0f")):
        pathlib.Path(sys.argv[1], f"{vector.name.split('.')[0]}-{name}").write_bytes(choices + content)
PYTHON

figures=()
for target in "$@"; do
    corpus=build/fuzz/corpus/$target
    mkdir -p "$corpus"
    limit=(-runs="$runs")
    [ -z "${FUZZ_SECONDS:-}" ] || limit=(-max_total_time="$FUZZ_SECONDS")
    echo "== $target"
    "build/fuzz/${target}_fuzz" "${limit[@]}" -timeout=10 -rss_limit_mb=2048 -max_len=131072 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$target-" "$corpus" "$seeds" >"build/fuzz/$target.log" 2>&1 ||
        { tail -n 60 "build/fuzz/$target.log"; exit 1; }
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log")
    echo "   $executed executions, $(ls "$corpus" | wc -l) inputs in the corpus"
    figures+=("\"$target\": $executed")
done
(IFS=,; echo "{\"date\": \"$(date -u +%FT%TZ)\", \"machine\": \"$(uname -sr), $(nproc) cores\", \"executions\": {${figures[*]}}}") \
    >build/results/fuzz.json
