# make demo · make test · make ui: each sets up .venv by itself; nothing else is needed than Python 3.11 and make.
PYTHON ?= python3.11
PIP_ARGS ?=
SEGY ?=
export SEGY
BIN := .venv/bin

.PHONY: help setup demo ui test test-browser test-cluster proof lint bench clean

help:
	@echo "make demo [SEGY=/path/file.sgy]  run one week on made surveys (and your file); again: the next week"
	@echo "make ui                          serve the demo's MLflow registry on http://127.0.0.1:5000"
	@echo "make test                        all tests, with the services they need"
	@echo "make test-browser                the pages in a real Chromium, from the system"
	@echo "make test-cluster                launching on a real Slurm; as root, with slurm-wlm and munge installed"
	@echo "make proof                       long proofs (kills, wide matrices); renews docs/proofs.md"
	@echo "make lint                        ruff, mypy, import-linter"
	@echo "make bench                       every benchmark"
	@echo "make clean                       remove the demo's data"

setup: .venv/ready

# torch first and exactly, so that no other dependency chooses another build of it
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

# what the makers of the EKS operators publish, whose pins do not go with ours; tests check manifests against it
.venv-schemas/ready: tests/schemas.txt
	$(PYTHON) -m venv .venv-schemas
	.venv-schemas/bin/pip install --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps -r tests/schemas.txt
	@touch $@

demo: setup
	$(BIN)/python -m flows.demo $${SEGY:+--segy "$$SEGY"}

ui: setup
	$(BIN)/python -m flows.demo --ui

# two at a time, one file on one worker (services and made surveys are shared within a file), in the order of tests/conftest.py
test: setup .venv-schemas/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder tests/unit tests/integration tests/distributed

# Chromium and its driver come from the system: apt-get install chromium chromium-driver
test-browser: setup
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[browser]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/browser

test-cluster: setup
	NEEDS_SLURM=yes OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/cluster

proof: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --timeout=7200 tests/proof

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[bench]'
	@for module in $(filter-out __init__ common crew memory,$(basename $(notdir $(wildcard benchmarks/*.py)))); do \
		$(BIN)/python -m benchmarks.$$module || exit 1; done

clean:
	rm -rf .demo
