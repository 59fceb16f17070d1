#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# aarch64.sh build-folder: the tests of the kernels and random calls of all operators, under qemu-user.
set -euo pipefail
build=$1

ctest --test-dir "$build" --output-on-failure --no-tests=error \
  -R '^((attention_blocks|lanes|pairs|exp|segments)_test|fuzz_[12])$'
