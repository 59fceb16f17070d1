#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh [options] [part...]: on a machine with a GPU, everything that has to do with GPUs. Parts, all but
# bundle by default, in this order:
#   build       what the parts below need, with nvcc
#   bundle      programs and libraries alone, stripped, in FOLDER/bundle: for a machine with a GPU and no
#               compiler. There: gpu.sh --folder FOLDER/bundle suite ...
#   suite       the tests that a GPU can change, on the GPU
#   streams     the threads' tests, each thread with a stream of its own, twenty times
#   memcheck, racecheck, initcheck, synccheck   the quick tests under a tool of compute-sanitizer, which slows
#               kernels down a hundred times
#   bench       every operator beside the roofs, and beside PyTorch where a python has one with CUDA
# Options:
#   --folder F  where it is built, and where what was found is kept (build/gpu)
#   --arch A    code for this architecture alone (90): a third of nvcc's time
#   --seconds N ends before that, with status 124 where something is left. The same command again goes on:
#               what has passed is not done again until F/done is removed, or `build` makes something else
#   --only W    programs whose names contain W; problems that begin so
set -euo pipefail
script=$(readlink -f "${BASH_SOURCE[0]}")
cd "$(dirname "$script")/.."

folder=build/gpu
arch=
only=
end=
parts=()
while (($# > 0)); do
  case $1 in
    --folder) folder=$2; shift ;;
    --arch) arch=$2; shift ;;
    --only) only=$2; shift ;;
    --seconds) end=$((SECONDS + $2)); shift ;;
    build | bundle | suite | streams | memcheck | racecheck | initcheck | synccheck | bench) parts+=("$1") ;;
    *) sed -n '3,/^set/p' "$script" | sed '$d; s/^# \{0,1\}//' >&2; exit 2 ;;
  esac
  shift
done
((${#parts[@]} > 0)) || parts=(build suite streams memcheck racecheck initcheck synccheck bench)
mkdir -p "$folder/done"
folder=$(readlink -f "$folder")
status=0

# step NAME command...: runs it unless it has passed; no longer than there is time.
step() {
  local name=$1 begin=$SECONDS answer=0 limit=()
  shift
  [[ -e $folder/done/$name ]] && return
  if [[ -n $end ]]; then
    if ((end - SECONDS < 10)); then
      echo "== $name: no time left =="
      exit 124
    fi
    limit=(timeout --kill-after=3 $((end - SECONDS - 5)))
  fi
  echo "== $name =="
  "${limit[@]}" "$@" || answer=$?
  echo "== $name: status $answer, $((SECONDS - begin)) s =="
  [[ -n $end && $answer == 124 ]] && exit 124
  if ((answer == 0)); then touch "$folder/done/$name"; else status=1; fi
}

build() {
  local options=(-DACLGRAD_CUDA=ON -DACLGRAD_ORACLE=OFF -DCMAKE_BUILD_TYPE=Release
    "-DCMAKE_CUDA_FLAGS_RELEASE=-O3 -lineinfo -DNDEBUG")
  [[ -n $arch ]] && options+=("-DACLGRAD_CUDA_ARCHITECTURES=$arch")
  rm -f "$folder/done/configure" "$folder/done/build"
  step configure cmake -S . -B "$folder" -G Ninja "${options[@]}"
  step build cmake --build "$folder"
  # What passed with other libraries or tests has not passed with these.
  local bytes
  bytes=$(find "$folder"/{lib64,src,tests,bench} -type f \( -name '*.so' -o -executable \) -not -path '*/CMakeFiles/*' \
    -exec sha256sum {} + | sort | sha256sum)
  [[ -e $folder/bytes && $(<"$folder/bytes") == "$bytes" ]] && return
  find "$folder/done" -type f -not -name configure -not -name build -delete
  echo "$bytes" >"$folder/bytes"
}

# The tests that a GPU can change (label "cuda"), by their programs.
programs() {
  local program
  for program in "$folder"/src/ops/*_test "$folder"/tests/runtime/runtime_*_test \
    "$folder"/tests/protocol/protocol_{phases,memory}_test "$folder"/tests/cuda/cuda_device_test \
    "$folder"/tests/tensor/tensor_{phases,executor,addresses,misuse}_test; do
    [[ -x $program && $(basename "$program") == *"$only"* ]] && echo "$program"
  done
  return 0
}

# Tests start programs by the paths that they were built with: `built` remembers them.
bundle() {
  local bundle=$folder/bundle file
  rm -rf "$bundle"
  mkdir -p "$bundle/lib64"
  (cd "$folder" && cp --parents src/ops/*_test tests/runtime/runtime_* tests/protocol/protocol_{phases,memory}_test \
    tests/tensor/tensor_{phases,executor,addresses,misuse}_test tests/cuda/cuda_{device_test,same_bits} \
    tests/fuzz/fuzz_test bench/aclgrad_bench "$bundle")
  find "$bundle" -name '*.cmake' -delete
  cp -P "$folder"/lib64/*.so* "$bundle/lib64"
  for file in $(ldd "$folder/bench/aclgrad_bench" "$folder/src/ops/embedding_test" |
    grep -o '/[^ ]*lib\(tbb\|tbbmalloc\|hwy\|gtest\|gtest_main\)\.so[^ ]*' | sort -u); do
    cp -L "$file" "$bundle/lib64"
  done
  find "$bundle" -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
  echo "$folder" >"$bundle/built"
  du -sh "$bundle"
}

use_bundle() {
  local built
  [[ -e $folder/built ]] || return 0
  built=$(<"$folder/built")
  export LD_LIBRARY_PATH=$folder/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  [[ -e $built ]] && return
  mkdir -p "$(dirname "$built")"
  ln -s "$folder" "$built"
}

suite() {
  local program
  for program in $(programs); do
    step "suite.$(basename "$program")" "$program" --gtest_brief=1
  done
  step suite.fuzz python3 tests/fuzz/devices_test.py "$folder/tests/fuzz/fuzz_test" 6000
  step suite.same_bits python3 tests/cuda/same_bits_test.py "$folder/tests/cuda/cuda_same_bits"
}

streams() {
  step streams "$folder/tests/protocol/protocol_memory_test" --gtest_filter='Threads.*' --gtest_repeat=20 \
    --gtest_brief=1
}

# Few and small problems for every rule of a kernel.
quick='*DocumentedExample*:*SmallExample*:*EveryStridedView*:*InPlace*:*BothVersions*:*DataErrors*:*BadIndex*'
quick+=':*FullyMaskedRows*:*NanInfAndSubnormals*:*BlocksOfManyVisits*:*EveryMask*:*LongListsDoNotWait*'
under() {
  local program
  if ! command -v compute-sanitizer >/dev/null; then
    echo "$1: compute-sanitizer is not in PATH (a package such as cuda-sanitizer-13-0; /usr/local/cuda/bin)" >&2
    status=1
    return
  fi
  for program in $(programs | grep -e /src/ops/ -e /cuda_device_test); do
    step "$1.$(basename "$program")" compute-sanitizer --tool "$1" --error-exitcode 9 "$program" \
      --gtest_filter="$quick" --gtest_brief=1
  done
}

# A table a problem, so that what was measured stays; then one of all.
bench() {
  local problem rivals=() tables first=1 table
  mapfile -t rivals < <(scripts/rivals.sh options)
  mkdir -p "$folder/tables"
  for problem in $("$folder/bench/aclgrad_bench" --list); do
    [[ $problem == "$only"* ]] || continue
    step "bench.${problem//\//_}" "$folder/bench/aclgrad_bench" "${rivals[@]}" \
      --csv "$folder/tables/${problem//\//_}.csv" "$problem"
  done
  tables=("$folder"/tables/*.csv)
  if [[ ! -e ${tables[0]} ]]; then
    echo "no problem begins with '$only', or none could be measured: no table"
    return
  fi
  for table in "${tables[@]}"; do
    if ((first)); then cat "$table"; else tail -n +3 "$table"; fi
    first=0
  done >"$folder/bench-cuda.csv"
  echo "$folder/bench-cuda.csv: ${#tables[@]} problems"
}

# Without a usable GPU the tests would serve the CPU, and pass; the bench lists nothing then, and says why.
need_gpu() {
  "$folder/bench/aclgrad_bench" --list >/dev/null || exit 1
}

for part in "${parts[@]}"; do
  if [[ $part != build && $part != bundle ]]; then
    export ACLGRAD_DEVICE=cuda
    use_bundle
    need_gpu
  fi
  case $part in
    memcheck | racecheck | initcheck | synccheck) under "$part" ;;
    *) "$part" ;;
  esac
done
exit $status
