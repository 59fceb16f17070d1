#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# aarch64.sh build-folder native-build-folder [seed]: the tests of the kernels under qemu-user, then random
# calls of all operators there and here. The lines that the two fuzz_test write must be the same.
set -euo pipefail
build=$1
native=$2
seed=${3:-$(date +%s)}
calls=3000
# As in cmake/aarch64.cmake.
emulator=(qemu-aarch64 -R 0x2000000000)

ctest --test-dir "$build" --output-on-failure --no-tests=error \
  -R '^(attention_blocks|lanes|pairs|exp|segments)_test$'

digests() { # file command...: runs the calls; what it says only where it fails
  local file=$1 log
  shift
  log=$("$@" --seed "$seed" --count "$calls" --digests "$file") || { echo "$log"; return 1; }
}
here=$native/tests/fuzz/digests.txt
there=$build/tests/fuzz/digests.txt
digests "$here" "$native/tests/fuzz/fuzz_test"
digests "$there" "${emulator[@]}" "$build/tests/fuzz/fuzz_test"
[[ $(wc -l <"$here") -eq $calls ]]
if ! diff "$here" "$there"; then
  echo "These calls differ: < here, > on aarch64. Each begins with the seed that replays it." >&2
  exit 1
fi
echo "$calls random calls from seed $seed on: the same bits here and on aarch64."
