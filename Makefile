# Needs python3, bash and make, nothing else. Every target sets up .venv first; the second time that is free.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH := .venv-bench

.PHONY: demo test coverage lint bench faults study clean

# torch goes first and by its exact version, so that pip never resolves to another build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $(READY)

demo: $(READY)
	@echo "1. Twenty ReLU layers: does He's initialisation help against weights of deviation 0.01?"
	$(BIN)/apoint compare digits-deep-relu --change init=he --runs-root demo-runs
	@echo; echo "2. Does a learning rate that is a thousandth higher change anything?"
	$(BIN)/apoint compare digits-mlp --change optimizer.lr=2.002e-3 --runs-root demo-runs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typed_use.py

# What starts processes of its own comes second and two files at a time; the rest takes every core.
APART := tests/book tests/cli tests/doctor tests/engine tests/faults tests/inspection tests/report tests/store tests/trials
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto $(addprefix --ignore=,$(APART))
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile $(APART)

# Watching every line makes the tests half as slow again, so this stands apart.
coverage: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest --cov --cov-report=term:skip-covered

# The tools we measure against have an environment of their own; without it they are left out, aloud.
$(BENCH)/.ready: bench/peers/requirements.txt bench/peers/requirements-alone.txt constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip install --quiet "$$(grep '^torch==' constraints.txt)" --requirement bench/peers/requirements.txt
	$(BENCH)/bin/pip install --quiet --no-deps --requirement bench/peers/requirements-alone.txt
	touch $(BENCH)/.ready

bench: $(READY)
	-$(MAKE) --no-print-directory $(BENCH)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m bench

# Thousands of deliberate faults, at most an hour; running it again goes on where it was. Writes docs/faults.md.
faults: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m faults

study: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow -v --durations=0

clean:
	rm -rf $(VENV) $(BENCH) demo-runs .pytest_cache .mypy_cache .ruff_cache .coverage .faults build *.egg-info
