# `make demo` and `make test` do all their own set-up: a fresh machine needs Python ≥ 3.11 only.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types format bench compatibility docs clean

demo: .venv/installed
	$(BIN)/trimol compare digits --out runs/demo
	$(BIN)/trimol report runs/demo

test: .venv/installed
	$(BIN)/python -m pytest -n auto --dist loadgroup

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/step_cost.py

# For example: make compatibility RELEASES="2.6.0 2.15.0" UNDER=python3.13
compatibility: .venv/installed
	$(BIN)/python benchmarks/compatibility.py $(RELEASES) --python $(or $(UNDER),$(PYTHON))
	$(BIN)/python docs/measured.py

docs: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -W -b html docs build/docs

clean:
	rm -rf .venv build

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trimol needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@
