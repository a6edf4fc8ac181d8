# make demo, make test and make check each work on a fresh clone with Python 3.11 and make.
# make bench runs every benchmark, for hours; make bench BENCH=--save also writes benchmarks/results.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# What needs another server or much time; `make test` leaves it out but for one smoke test of each server.
LONG := smoke or spark or postgres or browser or faults or fuzz or slow
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --durations 10 -rs

.PHONY: demo test test-long test-all test-system check docs bench vectors clean

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

# COUNTVEIL_BARE=1 make test: as on a machine without PostgreSQL, Chromium, Java, curl and a C compiler.
test: $(VENV)/.developed
	COUNTVEIL_TESTS=fast $(PYTEST) -m 'smoke or not ($(LONG))'

# Another program for cell keys, which ours is compared with, in an environment of its own.
$(VENV)-peer/.installed:
	$(PYTHON) -m venv $(VENV)-peer
	$(VENV)-peer/bin/python -m pip install --quiet --disable-pip-version-check cell-key-perturbation==3.1.0 'pandas>=2,<4'
	touch $@

test-long: $(VENV)/.developed $(VENV)-peer/.installed
	$(PYTEST) -m '$(LONG) or examples'

test-all: test test-long

# Debian's packages that test-long uses; as root.
test-system:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		postgresql chromium openjdk-17-jre-headless curl gcc libc6-dev > /dev/null

check: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation site, in build/site/index.html.
docs: $(VENV)/.developed
	$(BIN)/python -m sphinx -W --keep-going -qE -d build/doctrees docs build/site

bench: $(VENV)/.developed
	$(BIN)/python benchmarks $(BENCH)

vectors: $(VENV)/.developed
	for maker in paper optimal program remap families recent_families accounting ptables; do $(BIN)/python vectors/makers/$$maker.py || exit 1; done

clean:
	rm -rf $(VENV) $(VENV)-peer build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
