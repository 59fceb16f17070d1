#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh folder: on a machine with a GPU and nvcc, builds what has to do with GPUs in `folder`, runs its
# tests there (label "cuda"), and again under the tools of compute-sanitizer, which slow kernels down a
# hundred times, on the quick ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1

cmake -S . -B "$folder" -G Ninja -DACLGRAD_CUDA=ON -DACLGRAD_ORACLE=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CUDA_FLAGS_RELWITHDEBINFO="-O3 -lineinfo -DNDEBUG"
cmake --build "$folder"
export ACLGRAD_DEVICE=cuda
status=0
ctest --test-dir "$folder" -L cuda --output-on-failure || status=1

quick='*DocumentedExample*:*SmallExample*:*EveryStridedView*:*InPlace*:*BothVersions*:*DataErrors*:*BadIndex*'
shopt -s nullglob
for tool in memcheck racecheck initcheck synccheck; do
  for program in "$folder"/src/ops/*_test; do
    [[ -f src/ops/$(basename "$program" _test)/cuda.cu ]] || continue
    echo "== compute-sanitizer $tool $(basename "$program") =="
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" --gtest_filter="$quick" \
      --gtest_brief=1 || status=1
  done
done
exit $status
