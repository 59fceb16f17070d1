#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh [options] [part...]: on a machine with a GPU and nvcc, everything that has to do with GPUs. Parts, all
# of them by default, in this order:
#   build       what the parts below need, with nvcc; again and again what is left after a time-out
#   suite       the tests with label "cuda", on the GPU
#   streams     small problems of all operators on several streams at once
#   memcheck, racecheck, initcheck, synccheck   the quick tests under a tool of compute-sanitizer, which slows
#               kernels down a hundred times
#   bench       every operator beside the roofs, and beside PyTorch where a python has one with CUDA
# Options:
#   --folder F  where it is built (build/gpu)
#   --arch A    the GPU's architecture alone (90), for a quick build
#   --seconds N ends before that, with status 124 where something is left; done parts are not done again
#               while F/done stays
#   --only W    suite and tools: operators whose names contain W; bench: problems that begin so
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build/gpu
arch=
only=
end=
parts=()
tools=(memcheck racecheck initcheck synccheck)
while (($# > 0)); do
  case $1 in
    --folder) folder=$2; shift ;;
    --arch) arch=$2; shift ;;
    --only) only=$2; shift ;;
    --seconds) end=$((SECONDS + $2)); shift ;;
    build | suite | streams | memcheck | racecheck | initcheck | synccheck | bench) parts+=("$1") ;;
    *) sed -n '3,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//' >&2; exit 2 ;;
  esac
  shift
done
((${#parts[@]} > 0)) || parts=(build suite streams "${tools[@]}" bench)
mkdir -p "$folder/done"
export ACLGRAD_DEVICE=cuda
status=0

# step NAME command...: runs it unless it is done; within the time that is left.
step() {
  local name=${1//\//_} begin=$SECONDS answer=0
  shift
  [[ -e $folder/done/$name ]] && return
  local limit=()
  if [[ -n $end ]]; then
    if ((end - SECONDS < 5)); then
      echo "== $name: no time left =="
      exit 124
    fi
    limit=(timeout --kill-after=5 $((end - SECONDS)))
  fi
  echo "== $name: $* =="
  "${limit[@]}" "$@" || answer=$?
  echo "== $name ended with $answer after $((SECONDS - begin)) s =="
  if [[ -n $end ]] && ((answer == 124)); then exit 124; fi
  if ((answer == 0)); then touch "$folder/done/$name"; else status=1; fi
}

build() {
  local options=(-DACLGRAD_CUDA=ON -DACLGRAD_ORACLE=OFF -DCMAKE_BUILD_TYPE=Release
    "-DCMAKE_CUDA_FLAGS_RELEASE=-O3 -lineinfo -DNDEBUG")
  [[ -n $arch ]] && options+=("-DACLGRAD_CUDA_ARCHITECTURES=$arch")
  rm -f "$folder/done/configure" "$folder/done/build"
  step configure cmake -S . -B "$folder" -G Ninja "${options[@]}"
  step build cmake --build "$folder" --target gpu
}

suite() {
  local name
  for name in $(ctest --test-dir "$folder" -N -L cuda | sed -n 's/^ *Test *#[0-9]*: //p'); do
    [[ $name == *"$only"* ]] || continue
    step "suite-$name" ctest --test-dir "$folder" -R "^$name\$" --output-on-failure
  done
}

streams() {
  step streams "$folder/tests/cuda/cuda_streams_test" --gtest_brief=1
}

# Few and small problems of each rule of a kernel.
quick='*DocumentedExample*:*SmallExample*:*EveryStridedView*:*InPlace*:*BothVersions*:*DataErrors*:*BadIndex*'
under() {
  local program
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed" >&2; exit 1; }
  for program in "$folder"/src/ops/*_test; do
    [[ $(basename "$program") == *"$only"* ]] || continue
    step "$1-$(basename "$program")" compute-sanitizer --tool "$1" --error-exitcode 9 "$program" \
      --gtest_filter="$quick" --gtest_brief=1
  done
}

bench() {
  local problem rivals=()
  mapfile -t rivals < <(scripts/rivals.sh options)
  mkdir -p "$folder/bench"
  # A table a problem, so that what was measured stays.
  for problem in $("$folder/bench/aclgrad_bench" --list); do
    [[ $problem == "$only"* ]] || continue
    step "bench-$problem" "$folder/bench/aclgrad_bench" "${rivals[@]}" \
      --csv "$folder/bench/${problem//\//_}.csv" "$problem"
  done
  # One table of all.
  local first=1 table
  for table in "$folder"/bench/*.csv; do
    if ((first)); then cat "$table"; else tail -n +3 "$table"; fi
    first=0
  done >"$folder/bench.csv"
  echo "$folder/bench.csv is written"
}

for part in "${parts[@]}"; do
  case $part in
    memcheck | racecheck | initcheck | synccheck) under "$part" ;;
    *) "$part" ;;
  esac
done
exit $status
