# `make help` lists the targets. Each makes its own environment in .venv first.

PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3),python3)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
READY := .venv/.ready
INPUTS := pyproject.toml tests/requirements.txt tinyai/install_tvm.py tinyai/tvm_wheel.py $(shell find tinyai/tvm_include -type f)

# ExecuTorch wants a newer numpy than TVM: it has an environment of its own.
EXECUTORCH := .venv-executorch
EXECUTORCH_INPUTS := pyproject.toml $(addprefix tests/executorch/,requirements.txt torch_build.py)

# The stock TVM, whose Relax takes the place of Relay: not beside a TVM with Relay either.
RELAX := .venv-relax
RELAX_INPUTS := pyproject.toml tests/relax/requirements.txt tests/executorch/torch_build.py

# What writes the documentation site; it needs no framework, and reads tinyai from its source.
DOCS := .venv-docs

# Without it TVM looks for tuning logs on the network at every build.
export TOPHUB_LOCATION := NONE

.DEFAULT_GOAL := help
.PHONY: help env demo demo-full bench test test-long test-all lint format mcu wheel clean pytest pytest-all
.PHONY: executorch executorch-env relax relax-env docs docs-env docs-pictures pages page-pictures notebooks

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

# The lock keeps two makes from building the same environment at once.
env: ## make .venv: a TVM with Relay, the pinned packages, tinyai
	@flock Makefile $(MAKE) --no-print-directory --silent $(READY)

demo: env ## a file without TVM; quantize, partition, build, run a network; compare with TVM
	$(BIN)/python benchmarks/file_demo.py
	$(BIN)/python benchmarks/demo.py

demo-full: env ## the same with MobileNetV1 224, which takes minutes
	$(BIN)/python benchmarks/demo.py --full

bench: env ## compare speed with LiteRT, ONNX Runtime and TVM; BENCH="--help" shows the options
	$(BIN)/python benchmarks/bench.py $(BENCH)

mcu: env ## run C packages on microcontrollers that QEMU plays; docs/microcontrollers.md gets the tables
	$(BIN)/python -m benchmarks.mcu.run $(MCU)

# What is no package of Python's comes from npm, in exactly these versions.
PAGE_TOOLS := typescript@7.0.2 prettier@3.10.1 axe-core@4.14.1
EXPLORER := ai-edge-model-explorer==0.1.34 jinja2 click rich tflite flatbuffers
PAGE_SCRIPTS := $(filter-out %.min.js,$(wildcard tinyai/report/assets/*.js))

pages: env ## check the script of the report's page, and try the page in Chromium
	npm install --silent --no-save --prefix build/page $(PAGE_TOOLS)
	build/page/node_modules/.bin/tsc -p benchmarks/page
	build/page/node_modules/.bin/prettier --check --print-width 100 $(PAGE_SCRIPTS)
	$(PYTHON) -m venv build/page/explorer
	build/page/explorer/bin/python -m pip --disable-pip-version-check --quiet install $(EXPLORER)
	$(BIN)/python -m pytest -rP tests/report

page-pictures: env executorch-env relax-env ## pictures of reports' pages by Chromium, in build/pictures
	$(BIN)/python -m benchmarks.page.pictures files
	$(EXECUTORCH)/bin/python -m benchmarks.page.pictures executorch
	$(RELAX)/bin/python -m benchmarks.page.pictures relax

executorch-env: ## make .venv-executorch: torch, ExecuTorch, the pinned packages, tinyai
	@flock Makefile $(MAKE) --no-print-directory --silent $(EXECUTORCH)/.ready

# In a process of its own: the environment of TVM has no torch, and this one has no TVM.
executorch: executorch-env ## run a network in ExecuTorch beside XNNPACK, and the tests of that front end
	$(EXECUTORCH)/bin/python benchmarks/executorch_demo.py
	$(EXECUTORCH)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" tests/executorch

relax-env: ## make .venv-relax: the stock TVM with Relax, torch, the pinned packages, tinyai
	@flock Makefile $(MAKE) --no-print-directory --silent $(RELAX)/.ready

relax: relax-env ## build a network with the stock TVM's Relax, and the tests of that front end
	$(RELAX)/bin/python benchmarks/relax_demo.py
	$(RELAX)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" tests/relax

docs-env: ## make .venv-docs: what writes the documentation site
	@flock Makefile $(MAKE) --no-print-directory --silent $(DOCS)/.ready

docs: docs-env ## write the documentation site, in build/site; any warning is an error
	@$(DOCS)/bin/python docs/build.py

docs-pictures: docs ## pictures of six pages of it by Chromium, in build/pictures
	@$(DOCS)/bin/python docs/pictures.py

NOTEBOOKS := $(BIN)/python -m tests.support.notebooks
THEIRS := $(wildcard tutorials/*executorch*.ipynb tutorials/*relax*.ipynb)
notebooks: env executorch-env relax-env ## run the notebooks of tutorials/, and write what they show anew
	$(NOTEBOOKS) $(filter-out $(THEIRS),$(wildcard tutorials/*.ipynb))
	$(NOTEBOOKS) --python $(CURDIR)/$(EXECUTORCH)/bin/python $(wildcard tutorials/*executorch*.ipynb)
	$(NOTEBOOKS) --python $(CURDIR)/$(RELAX)/bin/python $(wildcard tutorials/*relax*.ipynb)

test: lint pytest ## format, lint, types and the quick tests

test-long: env ## the tests that take seconds each, as continuous integration runs them too
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "long and not slow"

test-all: lint pytest-all ## format, lint, types and all tests

lint: env ## format, lint and types, without changing a file
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

pytest: env
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not long"

pytest-all: env
	$(BIN)/python -m pytest -n 2 --dist worksteal

format: env ## format the code, and repair what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# A fixed time, so that the same sources give the same bytes; build/lib may hold files of the past.
wheel: env ## build the wheel, in build/wheel
	@rm -rf build/lib build/wheel
	@SOURCE_DATE_EPOCH=315532800 $(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheel .
	@ls build/wheel/*.whl

clean: ## remove output and caches; the environment stays
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis .pkl_memoize_py3

# The stamp is there only when every step went well, and is as old as the beginning, so that an
# input which changes meanwhile counts. An environment that was begun and not finished starts anew;
# one that is not ours is left alone.
$(READY): $(INPUTS)
$(EXECUTORCH)/.ready: $(EXECUTORCH_INPUTS)
$(RELAX)/.ready: $(RELAX_INPUTS)
$(DOCS)/.ready: docs/requirements.txt
$(READY) $(EXECUTORCH)/.ready $(RELAX)/.ready $(DOCS)/.ready:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo 'No fitting Python.'; \
	  echo "  found:   $$($(PYTHON) --version 2>&1) ($(PYTHON))"; \
	  echo '  allowed: Python 3.11 or 3.12'; \
	  echo '  try:     apt install python3 python3-venv, or make PYTHON=/path/to/python3.11'; \
	  exit 1; } >&2
	@test -e $@ || test ! -e $(@D)/.begun || rm -rf $(@D)
	@test -e $@ || test ! -e $(@D) || { \
	  echo 'The environment cannot be made.'; \
	  echo '  found:   a folder $(@D) that this Makefile did not make'; \
	  echo '  allowed: none, or one of its own'; \
	  echo '  try:     move it away, or run your own tools in it without make'; \
	  exit 1; } >&2
	@mkdir -p $(@D) && touch $(@D)/.begun && rm -f $@
	@test -e $(@D)/bin/python || $(PYTHON) -m venv --prompt tinyai $(@D) || { \
	  echo 'Without the module venv there is no environment. Try: apt install python3-venv'; \
	  exit 1; } >&2
	@echo '$(@D): installing the pinned packages'
	@$(PACKAGES)
	@mv $(@D)/.begun $@
	@echo '$(@D): ready'

# How packages come into each of them.
$(READY): PACKAGES = $(PIP) install --requirement tests/requirements.txt && \
  $(PIP) install --no-deps --no-build-isolation --editable . && \
  $(BIN)/python -m tinyai install-tvm --no-deps && \
  $(PIP) check

# ExecuTorch asks for much that only its other back ends use: what is needed is pinned, all of it.
$(EXECUTORCH)/.ready: PIP = $(EXECUTORCH)/bin/python -m pip --disable-pip-version-check --quiet
$(EXECUTORCH)/.ready: PACKAGES = $(EXECUTORCH)/bin/python tests/executorch/torch_build.py && \
  $(PIP) install --no-deps --requirement tests/executorch/requirements.txt && \
  $(PIP) install --no-deps --no-build-isolation --editable .

# TVM's wheel asks for its own packages only; torch exports what TVM imports.
$(RELAX)/.ready: PIP = $(RELAX)/bin/python -m pip --disable-pip-version-check --quiet
$(RELAX)/.ready: PACKAGES = $(RELAX)/bin/python tests/executorch/torch_build.py && \
  $(PIP) install --no-deps --requirement tests/relax/requirements.txt && \
  $(PIP) install --no-deps --no-build-isolation --editable .

$(DOCS)/.ready: PIP = $(DOCS)/bin/python -m pip --disable-pip-version-check --quiet
$(DOCS)/.ready: PACKAGES = $(PIP) install --no-deps --requirement docs/requirements.txt && $(PIP) check
