#!/usr/bin/env bash
# tools/fuzz.sh RUNS [TARGET...]: the libFuzzer targets, RUNS executions each (or FUZZ_SECONDS=n seconds each).
# Starts from the vectors, from inputs made for the purpose and from the kept corpus (tests/fuzz/corpus.tar.xz). Inputs that
# reach new code stay in build/fuzz/corpus and are the start of the next run; `make fuzz-corpus` keeps them for good. An input
# that breaks something is left in build/fuzz as TARGET-crash-*. Figures of all runs are added up in build/results/fuzz.json.
# Fuzzing has files that are memory; before it, all inputs are tried once on files of the operating system (TARGET_fuzz_real).
# An input may take ten seconds of the processor (fuzz.h); on the wall a run may be stopped and continued.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=$1
shift
command -v clang >/dev/null || { echo "fuzzing needs clang (Debian: apt install clang libclang-rt-dev)" >&2; exit 1; }
results=${FUZZ_RESULTS:-build/results/fuzz.json}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
[ $# -gt 0 ] || set -- $(cd csrc/fuzz && ls ./*_fuzz.c | sed 's|./||; s|_fuzz.c||')

seeds=build/fuzz/seeds kept=build/fuzz/kept
rm -rf "$kept"
mkdir -p "$seeds" "$kept" "$(dirname "$results")"
[ -e "$results" ] || echo '{"machine": "", "executions": {}, "runs": []}' >"$results"
build/fuzz/make_seeds "$seeds"
python3 - "$seeds" "$kept" <<'PYTHON'
# The vectors, cut to what an input of small pages can hold; each once to read and once to write. And the kept corpus.
import gzip, pathlib, sys, tarfile
seeds, kept = map(pathlib.Path, sys.argv[1:])
for vector in sorted(pathlib.Path("tests/data/yamal").glob("*.ytp.gz")):
    content = gzip.decompress(vector.read_bytes())[:3300].rstrip(b"\0")
    for name, choices in (("r", b"\0\0"), ("w", b"\0\x0f")):
        (seeds / f"{vector.name.split('.')[0]}-{name}").write_bytes(choices + content)
with tarfile.open("tests/fuzz/corpus.tar.xz") as corpus:
    corpus.extractall(kept, filter="data") if hasattr(tarfile, "data_filter") else corpus.extractall(kept)
PYTHON

# Long enough for an index where one is looked at: the time goes with the number of messages.
longest() {
    case $1 in salvage | open) echo 2560 ;; scdp) echo 1024 ;; *) echo 3328 ;; esac
}

for target in "$@"; do
    corpus=build/fuzz/corpus/$target log=build/fuzz/$target.log
    mkdir -p "$corpus" "$kept/$target"
    limit=(-runs="$runs")
    [ -z "${FUZZ_SECONDS:-}" ] || limit=(-max_total_time="$FUZZ_SECONDS")
    seed=$((${FUZZ_SEED:-2026} + $(grep -c '"seed"' "$results" || true)))
    options=(-timeout=3600 -rss_limit_mb=2048 -max_len="$(longest "$target")"
        -artifact_prefix="build/fuzz/$target-" "$corpus" "$kept/$target" "$seeds")
    echo "== $target"
    "build/fuzz/${target}_fuzz_real" -runs=0 "${options[@]}" >"$log" 2>&1 &&
        "build/fuzz/${target}_fuzz" "${limit[@]}" -seed="$seed" -entropic=0 -reduce_inputs=0 -reload=0 -print_final_stats=1 "${options[@]}" \
            >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "   $executed executions, $(ls "$corpus" | wc -l) inputs in the corpus"
    python3 - "$results" "$target" "$executed" "$seed" <<'PYTHON'
import datetime, json, os, pathlib, platform, sys
path, target, executed, seed = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
results = json.loads(path.read_text())
now = datetime.datetime.now(datetime.timezone.utc)
results["machine"] = f"{platform.machine()} {platform.system()} {platform.release()}, {os.cpu_count()} cores"
results["executions"][target] = results["executions"].get(target, 0) + executed
results["runs"].append({"date": f"{now:%Y-%m-%dT%H:%M:%SZ}", "target": target, "seed": seed, "executions": executed})
path.write_text(json.dumps(results, indent=1) + "\n")
PYTHON
done
