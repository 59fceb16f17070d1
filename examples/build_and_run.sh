#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the examples against an installed prefix in both ways a user would, a CMake project and a
# plain compiler line, runs them, prints what they print and compares it with *.expected.
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

plain() {  # plain <source> <compiler and flags...>
  local source=$1
  shift
  "$@" "$here/$source" -o "$work/plain/${source%.*}" -I"$prefix/include" \
    -I"$prefix/include/aclnn" -L"$prefix/lib64" -lopapi -lnnopbase -lascendcl
}
failed=0
for source in quickstart.c layer_norm_backward.cpp embedding_dense_backward.cpp \
  scaled_masked_softmax_backward.cpp grouped_bias_add_grad.cpp nsa_compress_grad.cpp; do
  name=${source%.*}
  case $source in
    *.c) plain "$source" gcc -std=c11 ;;
    *) plain "$source" g++ -std=c++11 ;;
  esac
  printf '%s\n' "== $name"
  for program in "$work/cmake/$name" "$work/plain/$name"; do
    output=$("$program") || { printf '%s\n' "$output"; failed=1; }
    if [ "$output" != "$(cat "$here/$name.expected")" ]; then
      printf '%s\n' "$program printed something else than $name.expected:" "$output"
      failed=1
    fi
  done
  cat "$here/$name.expected"
done
exit $failed
