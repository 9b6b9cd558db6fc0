# Nothing is needed but Python 3.11 or later and make; everything else goes into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS ?=

.PHONY: run test soak matrix lint format clean

run: $(READY)  ## ids from the embedded SQLite
	@$(BIN)/allocator next order -n 5
	@echo "These came from ./allocator.db; run it again for the next five. More: $(BIN)/allocator --help"

test: $(READY)  ## everything quick, on every database that can be had
	$(BIN)/python -m pytest $(TESTS)

soak: $(READY)  ## the long runs, minutes each; the report is reports/soak.md
	$(BIN)/python -m pytest tests/endurance --capture=no --verbose

matrix: $(READY)  ## the quick tests on every Python, and on both lines of SQLAlchemy
	$(BIN)/python tests/matrix.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-matrix reports dist

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@touch $@
