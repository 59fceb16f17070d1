# SPDX-License-Identifier: Apache-2.0
# A thin front over the CMake presets. `make` alone lists the targets.

PREFIX ?= build/prefix
# ORACLE=off: leave out the checks against PyTorch.
ORACLE ?= on
# CUDA=ON: no nvcc is an error; OFF: it is not looked for.
CUDA ?= AUTO
# CUDA_ARCHITECTURES=90-real: kernels for this GPU alone, in a third of the time; by default for those of
# cmake/Cuda.cmake.
CUDA_ARCHITECTURES ?=
CUDA_OPTIONS = -DACLGRAD_CUDA=$(CUDA) \
  $(if $(CUDA_ARCHITECTURES),'-DACLGRAD_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)',-UACLGRAD_CUDA_ARCHITECTURES)
# TEXT=file: the text the demo trains on, in place of the King James Bible.
export TEXT ?=
# PROBLEMS='layer_norm_backward/f16 --threads 1': what the bench measures, and its options; by default
# everything, small calls and the division among cores included.
PROBLEMS ?=
# OPERATORS='nsa_compress embedding': what the sweep measures; all by default.
OPERATORS ?=
# RIVALS='pytorch onednn': with whom the sweep's shapes are raced too, of those that are installed.
RIVALS ?=
# PARTS=suite memcheck: options and parts of scripts/gpu.sh; all by default.
PARTS ?=

# What the builds below build/ compile alike is compiled once, where there is ccache; that warnings
# are errors to some of them makes no difference to it, nor the folder that debug information names.
export CCACHE_DIR ?= $(CURDIR)/build/ccache
export CCACHE_IGNOREOPTIONS ?= -Werror*
export CCACHE_NOHASHDIR ?= true

help:
	@echo 'make demo                 build, install below build/, train a language model on a real book'
	@echo 'make test [ORACLE=off]    build and run all tests'
	@echo 'make cuda-emulated        the CUDA kernels, run on the host without a GPU'
	@echo 'make gpu [PARTS=...]      on a machine with a GPU: the tests there, compute-sanitizer, the bench'
	@echo 'make install PREFIX=dir   the toolkit: headers, libraries, set_env.sh'
	@echo 'make bench [PROBLEMS=...] the speed of operators, beside the rivals that are installed; on a GPU with'
	@echo '                          ACLGRAD_DEVICE=cuda; of all of them also what small calls cost, and how'
	@echo '                          the work divides among cores. PROBLEMS=--help names the options'
	@echo 'make bench-sweep          looks for cliffs between neighbouring shapes; OPERATORS="embedding layer_norm"'
	@echo '                          RIVALS=pytorch: and shapes that it computes faster'
	@echo 'make rivals               installs PyTorch and oneDNN (2 GB) below build/ for the bench'
	@echo 'make asan, make tsan      the tests under the sanitizers'
	@echo 'make aarch64              a cross build for ARM, under qemu: its kernels, the same bits as here'
	@echo 'make format, make lint    clang-format (changes files), clang-tidy'
	@echo 'make clean                remove build/'

demo:
	@test -z "$$TEXT" || { test -f "$$TEXT" && test -r "$$TEXT" && test -s "$$TEXT"; } || \
	  { echo "TEXT=$$TEXT is missing, empty, unreadable or no file" >&2; exit 1; }
	scripts/setup.sh build demo
	cmake --preset toolkit $(CUDA_OPTIONS)
	cmake --build --preset toolkit
	cmake --install build/toolkit --prefix build/prefix
	scripts/demo.sh build/prefix $${TEXT:+"$$TEXT"}

test:
	scripts/setup.sh build test
	scripts/oracle.sh $(ORACLE)
	cmake --preset dev -DACLGRAD_ORACLE=$(ORACLE) $(CUDA_OPTIONS)
	cmake --build --preset dev
	@# Where ACLGRAD_DEVICE is cuda, and no GPU can be used, the tests would serve the CPU and pass.
	build/dev/bench/aclgrad_bench --list >/dev/null
	ctest --preset dev

gpu:
	scripts/setup.sh build test
	scripts/gpu.sh $(PARTS)

cuda-emulated:
	scripts/setup.sh build test
	cmake --preset $@
	cmake --build --preset $@
	ctest --preset $@

install:
	scripts/setup.sh build
	cmake --preset toolkit $(CUDA_OPTIONS)
	cmake --build --preset toolkit
	cmake --install build/toolkit --prefix '$(PREFIX)'

bench:
	scripts/setup.sh build test
	cmake --preset release
	cmake --build --preset release --target bench/all
	scripts/bench.sh $(PROBLEMS)

bench-sweep:
	scripts/setup.sh build test
	cmake --preset release
	cmake --build --preset release --target aclgrad_bench
	for name in $(RIVALS); do \
	  command=$$(scripts/rivals.sh options | grep "^$$name=") || { echo "no rival $$name"; exit 1; }; \
	  set -- "$$@" --rival "$$command"; \
	done; \
	python3 bench/sweep.py "$$@" build/release/bench/aclgrad_bench build/sweep.csv $(OPERATORS)

rivals:
	scripts/setup.sh build test
	scripts/rivals.sh install

asan tsan:
	scripts/setup.sh build test
	cmake --preset $@
	cmake --build --preset $@
	ctest --preset $@

aarch64:
	scripts/setup.sh build test aarch64
	cmake --preset aarch64
	cmake --build --preset aarch64
	cmake --preset dev
	cmake --build --preset dev --target fuzz_test
	scripts/aarch64.sh build/aarch64 build/dev

format:
	scripts/setup.sh lint
	scripts/format.sh

lint:
	scripts/setup.sh build test lint
	cmake --preset dev
	scripts/lint.sh build/dev

clean:
	cmake -E rm -rf build

.PHONY: help demo test install bench bench-sweep rivals asan tsan cuda-emulated gpu aarch64 format lint clean
