#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the examples against an installed prefix in both ways a user would, a CMake project and a
# plain compiler line, runs them, prints what they print and compares it with what they should.
#   examples/build_and_run.sh <prefix> [<folder for the builds>]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(cd "$1" && pwd)
work=${2:-$prefix/../examples}
mkdir -p "$work/plain"

# shellcheck disable=SC1091
source "$prefix/set_env.sh"

cmake -S "$here" -B "$work/cmake" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=TRUE >"$work/log" ||
  { cat "$work/log"; exit 1; }
cmake --build "$work/cmake" -j"$(nproc)" >"$work/log" || { cat "$work/log"; exit 1; }

plain() {  # plain <program> <source> <compiler and flags...>
  local program=$1 source=$2
  shift 2
  "$@" "$here/$source" -o "$work/plain/$program" -I"$prefix/include" \
    -I"$prefix/include/aclnn" -L"$prefix/lib64" -lopapi -lnnopbase -lascendcl
}
failed=0
compare() {  # compare <name> <file with what it must print>
  printf '%s\n' "== $1"
  for program in "$work/cmake/$1" "$work/plain/$1"; do
    output=$("$program") || { printf '%s\n' "$output"; failed=1; }
    if [ "$output" != "$(cat "$2")" ]; then
      printf '%s\n' "$program printed something else than $2:" "$output"
      failed=1
    fi
  done
  cat "$2"
}
plain quickstart quickstart.c gcc -std=c11
compare quickstart "$here/quickstart.expected"
for name in layer_norm_backward embedding_dense_backward scaled_masked_softmax_backward \
  grouped_bias_add_grad nsa_compress_grad; do
  plain $name $name/example.cpp g++ -std=c++11
  compare $name "$here/$name/expected"
done
exit $failed
