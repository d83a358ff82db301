#!/usr/bin/env bash
# Line and branch coverage of the Python packages (pytest-cov) and of the C core (its unit tests, gcovr).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p htmlcov
.venv/bin/python -m pytest -m "not slow" --cov --cov-report=term --cov-report=html:htmlcov/python "$@"
YTP_BACKEND=cffi .venv/bin/python -m pytest -q tests/unit/core tests/conformance/test_yamal_product.py --cov --cov-append --cov-report=
.venv/bin/python -m coverage report --include 'ytp/*.py' --fail-under 95
YTP_INJECT_ALL=1 cmake --workflow --preset coverage
gcovr --root . --filter 'csrc/src/' --fail-under-line 95 --fail-under-branch 90 --print-summary --txt --html-nested htmlcov/c.html build/coverage
