# make demo   install the workspace into .venv and train a network on every device, eager and compiled
# make test   the fast tier: style, types, contracts, and the tests that guard a change; ten minutes on two cores
# make test-full
#             every test; SHARD=3/12 takes the third of twelve parts, SEED=... draws what another run drew
# make soak   random faults for MINUTES=10: kills, interrupts, broken plugins and files, random programs; SEED=... again
# make conformance
#             every op in every dtype on every device; the reports lie in conformance/
# make metal  the same, in a few dtypes, on the metal device: on the GPU of a Mac; elsewhere on the host, slowly
# make bench  the figures of benchmarks/
# make lint   style, types and import contracts only
# make clean  remove .venv and what the tools left behind
#
# PYTHON=python3.12 chooses the interpreter (3.11 or later) that .venv is made with.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
MLX    := $(VENV)/.mlx
RAY    := $(VENV)/.ray

# The driver for OpenCL on the processor is published for x86-64 only.
OPENCL := backends/opencl$(if $(filter x86_64 amd64,$(shell uname -m)),[cpu])
# MPICH's wheel is not published for every system.
MPI := plugins/mpi$(if $(filter Linux,$(shell uname -s)),[mpich])
DISTS  := -e '.[dev]' -e core -e backends/cpu -e backends/cuda -e '$(OPENCL)' -e backends/metal -e plugins/conformance -e plugins/refdev -e plugins/threads -e plugins/tcp -e plugins/nccl -e plugins/fake -e plugins/redis -e plugins/ray -e '$(MPI)'
DEVICES := cpu opencl refdev
SOURCE := core backends plugins examples benchmarks tests scripts

.PHONY: demo test test-full soak conformance metal bench lint install clean

demo: $(STAMP)
	$(BIN)/python examples/train_digits.py --compile

# Python's files are compiled once, not by each process that imports them. docs/testing.md says what the tiers are.
# Unit tests, tests/core, are a run of their own: one without a C compiler.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q -n auto --dist worksteal
SEED = $(eval SEED := $(shell od -An -N4 -tu4 /dev/urandom))$(SEED)

test: lint
	$(BIN)/python examples/train_digits.py --output $(VENV)/demo.png
	TENSORBUS_TEST_PROFILE=fast $(PYTEST) -m 'not full' tests/core
	TENSORBUS_TEST_PROFILE=fast $(PYTEST) -m 'not full' --ignore tests/core

FULL = TENSORBUS_TEST_PROFILE=full $(PYTEST) --hypothesis-seed=$(strip $(SEED)) $(if $(SHARD),--suite-shard=$(SHARD))

test-full: $(MLX) $(RAY)
	$(FULL) tests/core
	$(FULL) --ignore tests/core --report $(VENV)/conformance.json

MINUTES ?= 10

soak: $(STAMP)
	$(BIN)/python tests/faults/soak.py --minutes $(MINUTES) $(if $(filter command line environment,$(origin SEED)),--seed $(strip $(SEED)))

# One command a device: what fails on one is told after the others have run.
conformance: $(STAMP)
	@mkdir -p conformance
	@failed=; for device in $(DEVICES); do \
	    $(BIN)/tensorbus conformance --device $$device -n 0 --report conformance/$$device.json || failed="$$failed $$device"; \
	done; [ -z "$$failed" ] || { echo "make: found something wrong on$$failed" >&2; exit 1; }

metal: $(MLX)
	@mkdir -p conformance
	TENSORBUS_METAL_HOST=$(if $(filter Darwin,$(shell uname -s)),,1) \
	    $(BIN)/tensorbus conformance --device metal --quick -n 0 --report conformance/metal.json

bench: $(STAMP)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -e '.[bench]'
	$(BIN)/python -m benchmarks

lint: $(STAMP)
	$(BIN)/ruff check $(SOURCE)
	$(BIN)/ruff format --check --diff $(SOURCE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_imports.py
	$(BIN)/python scripts/check_words.py

install: $(STAMP)

$(STAMP): pyproject.toml $(wildcard core/pyproject.toml backends/*/pyproject.toml plugins/*/pyproject.toml) | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --retries 8 --timeout 60 $(DISTS)
	$(BIN)/python -m compileall -q core backends plugins
	@touch $@

# What runs the metal device on the host. Not every system has a wheel of it.
$(MLX): $(STAMP)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --retries 8 --timeout 60 -e 'backends/metal[host]' || \
	    echo "make: MLX cannot be installed here, so the tests that need it are skipped" >&2
	@touch $@

# Ray itself, 70 MB, which only the full tier needs. Not every system has a wheel of it.
$(RAY): $(STAMP)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --retries 8 --timeout 60 -e 'plugins/ray[ray]' || \
	    echo "make: Ray cannot be installed here, so the tests that need it are skipped" >&2
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
	    { echo "make: there is no '$(PYTHON)' here; name a Python 3.11 or later: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "make: $$($(PYTHON) --version) is too old; name a Python 3.11 or later: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	    { echo "make: $(PYTHON) lacks venv or pip; install them (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks conformance demo.png
	find $(SOURCE) -name __pycache__ -type d -prune -exec rm -rf {} +
