# `make` alone lists the targets. Each makes the environment that it needs; python3 (3.11 or newer, with venv) is enough.

PYTHON ?= python3
# Processes that run tests.
JOBS ?= 2
# Files for `make demo` to identify; the repository's own when empty.
FILES ?=
# Which CuPy `make test-cuda` installs: cuda13, cuda12, or none; needed where there is a GPU.
CUPY ?= $(if $(shell command -v nvidia-smi),cuda13)
# Options for pytest, such as ARGS="tests/ir -k parse".
ARGS ?=

VENV := .venv
DEMO := .venv-demo
OCR := .venv-ocr
CUDA := .venv-cuda
CUDA_BUILD := .venv-cuda-build
TOY := plugins/cuda_ge/tests/toy_plugin
CUDA_SOURCES := plugins/cuda_ge/pyproject.toml plugins/cuda_ge/CMakeLists.txt \
	$(shell find plugins/cuda_ge/cmake plugins/cuda_ge/graph_executor -type f) \
	plugins/int8_quant/CMakeLists.txt $(shell find plugins/int8_quant/cmake plugins/int8_quant/csrc -type f)
PROJECTS := pyproject.toml plugins/cpu_numpy/pyproject.toml plugins/int8_quant/pyproject.toml tests/fake_gpu/pyproject.toml
PIP := -m pip --disable-pip-version-check
BACKENDS := -e plugins/cpu_numpy -e tests/fake_gpu
PLUGINS := $(BACKENDS) -e plugins/int8_quant

define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "aicore needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@echo "making $(1)"
	@$(PYTHON) -m venv --clear $(1)
endef

.DELETE_ON_ERROR:
.PHONY: help setup models demo ocr test test-slow test-cuda cuda lint types format docs bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp  ## make .venv with aicore, its plugins and the tools to work on them

models: $(VENV)/.stamp  ## fetch the real models that tests and benchmarks use
	@$(VENV)/bin/python -m tools.fetch_models

demo: $(DEMO)/.stamp  ## identify files with the magika client on aicore, without onnxruntime (FILES="a b")
	$(DEMO)/bin/aicore demo $(FILES)

ocr: $(OCR)/.stamp  ## read the text of a scanned page with the rapidocr client on aicore (Python 3.11 or 3.12)
	$(OCR)/bin/python examples/ocr.py

test: models  ## run the tests (ARGS="tests/ir -k parse", JOBS=2)
	$(VENV)/bin/python -m pytest -n $(JOBS) -m "not slow" $(ARGS)

test-slow: models  ## run the tests that are marked slow
	$(VENV)/bin/python -m pytest -n $(JOBS) -m slow $(ARGS)

test-cuda: $(CUDA)/.stamp  ## build the CUDA kernels and run their tests; those that need a GPU say so where there is none
	$(CUDA)/bin/python -m pytest plugins/cuda_ge/tests plugins/int8_quant/tests/cuda $(ARGS)

cuda: AICORE_CUDA_TOOLKIT ?= wheel
cuda: AICORE_CUDA_ARCHITECTURES ?= 75;90a
cuda:  ## compile the CUDA kernels of all plugins from nothing and import them; needs neither a GPU nor a CUDA toolkit
	$(call make_venv,$(CUDA_BUILD))
	@AICORE_CUDA_TOOLKIT='$(AICORE_CUDA_TOOLKIT)' AICORE_CUDA_ARCHITECTURES='$(AICORE_CUDA_ARCHITECTURES)' AICORE_INT8_CUDA=1 \
		$(CUDA_BUILD)/bin/python $(PIP) install --quiet -e . -e plugins/cpu_numpy ./plugins/cuda_ge ./$(TOY) ./plugins/int8_quant
	@$(CUDA_BUILD)/bin/python -c 'import aicore_cuda_ge.plugin as p; print(len(p.register_kernels()), "kernels")'
	@$(CUDA_BUILD)/bin/python -c 'import aicore_toy_cuda.plugin as p; print(p.register_kernels())'
	@$(CUDA_BUILD)/bin/python -c 'import aicore_int8_quant.cuda as p; print(len(p.kernels()), "int8 kernels"); assert p.kernels()'
	$(CUDA_BUILD)/bin/aicore plugins doctor cuda_ge || test $$? -eq 2  # 2: it is healthy, but there is no GPU

lint: $(VENV)/.stamp  ## check style and layout
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.stamp  ## check types
	$(VENV)/bin/mypy

format: $(VENV)/.stamp  ## repair style and layout
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(VENV)/.stamp  ## renew the generated pages of docs/
	$(VENV)/bin/python -m tools.op_docs

bench: models  ## run the benchmarks
	$(VENV)/bin/python -m benchmarks $(ARGS)

clean:  ## remove environments, caches and builds
	rm -rf $(VENV) $(DEMO) $(OCR) $(CUDA) $(CUDA_BUILD) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf build dist *.egg-info plugins/*/build plugins/*/*.egg-info tests/*/build tests/*/*.egg-info
	find aicore benchmarks examples plugins tests tools -name __pycache__ -prune -exec rm -rf {} +

# An environment is made anew when a pyproject changes, so that it never holds what is no longer asked for.
$(VENV)/.stamp: $(PROJECTS)
	$(call make_venv,$(VENV))
	@$(VENV)/bin/python $(PIP) install --quiet -e '.[test,dev,bench]' $(PLUGINS)
	@touch $@

# The clients come without their dependencies: those name onnxruntime, and the demo is to run without it.
$(DEMO)/.stamp: $(PROJECTS)
	$(call make_venv,$(DEMO))
	@$(DEMO)/bin/python $(PIP) install --quiet -e . $(BACKENDS) 'click>=8.1.7'
	@$(DEMO)/bin/python $(PIP) install --quiet --no-deps magika==1.0.3
	@touch $@

$(OCR)/.stamp: $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13) and "rapidocr-onnxruntime needs Python 3.12 or older; try make ocr PYTHON=python3.12")'
	$(call make_venv,$(OCR))
	@$(OCR)/bin/python $(PIP) install --quiet -e . $(BACKENDS) \
		'pyclipper>=1.2' opencv-python-headless six 'Shapely>=2.0.5' PyYAML Pillow tqdm scikit-image
	@$(OCR)/bin/python $(PIP) install --quiet --no-deps rapidocr-onnxruntime==1.4.4
	@touch $@

# Editable: only what nvcc and g++ read is compiled again. The compiler is the one that AICORE_CUDA_TOOLKIT says.
$(CUDA)/.stamp: $(PROJECTS) $(CUDA_SOURCES)
	$(call make_venv,$(CUDA))
	@AICORE_INT8_CUDA=1 $(CUDA)/bin/python $(PIP) install --quiet -e '.[test]' -e plugins/cpu_numpy \
		-e 'plugins/cuda_ge$(CUPY:%=[%])' ./$(TOY) -e plugins/int8_quant
	@touch $@
