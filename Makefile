# `make demo` and `make test` do all their own set-up: a fresh machine needs Python ≥ 3.11 only.
PYTHON ?= python3
BIN := .venv/bin
# The command as users install it, without what developing takes.
USE := .venv-use/bin

.PHONY: demo test test-data test-slow lint types format coverage bench compatibility docs package clean

demo: .venv-use/installed
	$(USE)/trimol reproduce fig1 --quick --out runs/demo
	$(USE)/trimol compare digits --steps 200 --out runs/demo/digits
	$(USE)/trimol report runs/demo
	@$(USE)/python -c "import json; print(json.load(open('runs/demo/fig1/study.json'))['notes'][0])"
	@echo "The picture: runs/demo/fig1/fig1.png. Everything, on one page: runs/demo/report.html"

# What a change is tried with, in less than ten minutes on two cores; the others in as long again.
test: .venv/installed
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow"

# The tests that need real data (TRIMOL_DATA), which `make test` skips without.
test-data: .venv/installed
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "data and not slow"

test-slow: .venv/installed
	$(BIN)/python -m pytest -n auto --dist loadgroup -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The maths, the engine and the methods, branch by branch; below the floor it fails.
coverage: .venv/installed
	$(BIN)/python -m pytest -q -n auto --dist loadgroup --cov=trimol.maths --cov=trimol.gradients \
		--cov=trimol.methods --cov-report=term --cov-report=html:build/coverage --cov-fail-under=95 \
		tests/maths tests/gradients tests/methods src/trimol/maths src/trimol/gradients src/trimol/methods

bench: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/step_cost.py

# For example: make compatibility RELEASES="2.6.0 2.15.0" UNDER=python3.13
compatibility: .venv/installed
	$(BIN)/python benchmarks/compatibility.py $(RELEASES) --python $(or $(UNDER),$(PYTHON))
	$(BIN)/python docs/measured.py

docs: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src examples
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python docs/check.py build/docs

# A wheel and an sdist; the core alone in a clean environment, then the command.
package: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[package]'
	rm -rf build/package build/clean
	$(BIN)/python -m build --outdir build/package
	$(BIN)/python -m twine check --strict build/package/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet -c constraints.txt build/package/*.whl
	cd build && clean/bin/python ../.ci/core_step.py
	build/clean/bin/python -m pip install --quiet -c constraints.txt "$$(ls build/package/*.tar.gz)[studies,report]"
	cd build && clean/bin/trimol doctor && clean/bin/trimol run digits --steps 20 --quiet --out $$(mktemp -d)/run
	rm -rf build/clean

clean:
	rm -rf .venv .venv-use build

.venv/installed: EXTRAS := dev
.venv-use/installed: EXTRAS := studies,report

.venv/installed .venv-use/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trimol needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade pip
	$(@D)/bin/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@
