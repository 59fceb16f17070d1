#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# aarch64.sh build-folder native-build-folder: the tests of the kernels under qemu-user, then random
# calls of all operators there and here, which must end with the same digest of all results.
set -euo pipefail
build=$1
native=$2
calls=400
seed=20260101

ctest --test-dir "$build" --output-on-failure --no-tests=error \
  -R '^(attention_blocks|lanes|pairs|exp|segments)_test$'

digest() { # command...: the digest that the random calls end with
  local log
  log=$("$@" --seed "$seed" --count "$calls") || { echo "$log"; return 1; }
  sed -n 's/.*digest //p' <<<"$log"
}
here=$(digest "$native/tests/fuzz/fuzz_test")
there=$(digest qemu-aarch64 "$build/tests/fuzz/fuzz_test")
echo "$calls random calls: digest $here here, $there on aarch64"
[[ -n $here && $here == "$there" ]]
