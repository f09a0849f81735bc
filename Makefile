# Two commands: `make demo` shows what this is, `make test` runs every check. Both make their own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REPRODUCED ?= reproduced

.PHONY: demo test bench reproduce format clean

demo: $(VENV)/installed
	$(BIN)/tasktheme demo --out demo --overwrite

# One thread for each test worker: two workers with two threads each would fight over two cores.
test: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -q

bench: $(VENV)/installed
	$(BIN)/tasktheme bench --overwrite --out bench.json

reproduce: $(VENV)/installed
	$(BIN)/tasktheme reproduce --scale tiny --out $(REPRODUCED)

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) demo reproduced .pytest_cache .mypy_cache .ruff_cache

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "tasktheme needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@
