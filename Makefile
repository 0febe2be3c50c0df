# make demo | make test | make check: each creates .venv by itself the first time (a few minutes).
PYTHON ?= python3
BIN := .venv/bin
# The stamp carries a checksum of both files, so that a changed pin installs again and nothing else does.
STAMP := .venv/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: setup demo test check clean

setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "emads needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "installing into .venv (a few minutes the first time)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@rm -f .venv/.installed-*
	@touch $@

demo: setup
	$(BIN)/emads demo

# One thread per worker: two workers with two torch threads each are slower than two with one.
# A file stays with one worker, so that the runs which its tests share are made once.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile tests

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
