# make demo, make test and make check each work on a fresh clone with Python 3.11 and make.
# make bench runs every benchmark, for hours; make bench BENCH=--save also writes benchmarks/results.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test check bench vectors clean

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.developed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/countveil demo

test: $(VENV)/.developed
	$(BIN)/python -m pytest

check: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.developed
	$(BIN)/python benchmarks $(BENCH)

vectors: $(VENV)/.developed
	for maker in paper optimal program remap families accounting ptables; do $(BIN)/python vectors/makers/$$maker.py || exit 1; done

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
