# Needs python3, bash and make, nothing else. Every target sets up .venv first; the second time that is free.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench study clean

# torch goes first and by its exact version, so that pip never resolves to another build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $(READY)

demo: $(READY)
	$(BIN)/apoint train recipes/digits-mlp.yaml --runs-root demo-runs
	$(BIN)/apoint train recipes/digits-lion.yaml --runs-root demo-runs
	$(BIN)/apoint runs curves --runs-root demo-runs --metric test_loss digits-mlp digits-lion
	$(BIN)/apoint runs list --runs-root demo-runs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --cov --cov-report=term:skip-covered

bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m bench

study: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow -v --durations=0

clean:
	rm -rf $(VENV) demo-runs .pytest_cache .mypy_cache .ruff_cache .coverage build *.egg-info
