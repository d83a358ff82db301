#!/usr/bin/env bash
# Keeps what fuzzing found: the smallest inputs that reach all the code that build/fuzz/corpus reaches, in one archive.
set -euo pipefail
cd "$(dirname "$0")/.."
small=build/fuzz/small
rm -rf "$small"
for corpus in build/fuzz/corpus/*; do
    target=$(basename "$corpus")
    mkdir -p "$small/$target" "build/fuzz/kept/$target"
    "build/fuzz/${target}_fuzz" -merge=1 "$small/$target" "$corpus" "build/fuzz/kept/$target" build/fuzz/seeds \
        >"build/fuzz/$target-merge.log" 2>&1 || { tail -n 40 "build/fuzz/$target-merge.log"; exit 1; }
    echo "$target: $(ls "$small/$target" | wc -l) inputs"
done
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cJf tests/fuzz/corpus.tar.xz -C "$small" .
