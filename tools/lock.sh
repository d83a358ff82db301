#!/usr/bin/env bash
# Writes requirements/*.lock: names, versions and hashes, for every supported Python, without addresses.
set -euo pipefail
cd "$(dirname "$0")/../requirements"

compile() {
    local output=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --upgrade --output-file "$output" "$@"
}

compile dev.lock ../pyproject.toml dev.in --extra dev --extra interop --extra browser
compile spark.lock ../pyproject.toml --extra spark --constraint dev.lock
compile bench.lock ../pyproject.toml --extra bench --constraint dev.lock
compile docs.lock ../pyproject.toml --extra docs --constraint dev.lock
compile wheel.lock wheel.in --constraint dev.lock
compile uv.lock uv.in
