#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The rivals of the bench.
#   rivals.sh install  PyTorch into build/oracle and oneDNN (2 GB) into build/onednn, with pip
#   rivals.sh options  aclgrad_bench's options, a word a line, for each rival that is installed and
#                      starts; says on the standard error which are left out
# ACLGRAD_ONEDNN names a folder with include/dnnl.hpp and lib/libdnnl.so from elsewhere. With ACLGRAD_DEVICE=cuda
# the one rival is PyTorch on the GPU, in any version: ACLGRAD_CUDA_PYTHON names a python that has it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
onednn=${ACLGRAD_ONEDNN:-$PWD/build/onednn}

install_onednn() {
  [[ -e $onednn/lib/libdnnl.so ]] && return
  echo "Installing oneDNN into $onednn"
  python3 -m venv "$onednn"
  # 3.13 came as 2026.1 of the packages of its vendor.
  "$onednn/bin/python" -m pip install --quiet --disable-pip-version-check onednn-devel
}

build_onednn_rival() {
  local program=build/onednn_rival
  [[ $program -nt bench/rivals/onednn.cpp ]] && return
  c++ -std=c++20 -O2 bench/rivals/onednn.cpp -I"$onednn/include" -L"$onednn/lib" -ldnnl \
    -Wl,-rpath-link,"$onednn/lib" -o "$program"
}

gpu_options() {
  local python
  for python in "${ACLGRAD_CUDA_PYTHON:-}" python3 /usr/bin/python3; do
    [[ -n $python ]] && command -v "$python" >/dev/null || continue
    "$python" -c "import torch; assert torch.cuda.is_available()" >/dev/null 2>&1 || continue
    offer pytorch "$python $PWD/bench/rivals/pytorch.py --cuda"
    offer compiled "$python $PWD/bench/rivals/pytorch.py --cuda --compiled"
    return
  done
  echo "no python has a PyTorch that finds a GPU (ACLGRAD_CUDA_PYTHON): no rival" >&2
}

# offer NAME COMMAND: the options for a rival that starts and answers; the bench ends at one that
# does not.
offer() {
  if [[ $(echo "threads 1" | timeout 120 bash -c "exec $2" 2>/dev/null) == ok ]]; then
    printf '%s\n' --rival "$1=$2"
  else
    echo "$1 is installed and does not start ($2): left out" >&2
  fi
}

options() {
  local python
  if python=$(scripts/oracle.sh find); then
    offer pytorch "$python $PWD/bench/rivals/pytorch.py"
    offer compiled "$python $PWD/bench/rivals/pytorch.py --compiled"
  else
    echo "PyTorch 2.13 is not installed: left out (make rivals installs it)" >&2
  fi
  if [[ -e $onednn/lib/libdnnl.so ]] && build_onednn_rival; then
    # It runs on a runtime that finds a processor only when it is told where.
    local settings="LD_LIBRARY_PATH=$onednn/lib OCL_ICD_FILENAMES=$onednn/lib/libintelocl.so"
    offer onednn "env $settings $PWD/build/onednn_rival"
  else
    echo "oneDNN is not installed: left out (make rivals installs it)" >&2
  fi
}

case ${1:-} in
  install)
    scripts/oracle.sh on
    install_onednn
    ;;
  options)
    if [[ ${ACLGRAD_DEVICE:-} == cuda ]]; then gpu_options; else options; fi
    ;;
  *)
    echo "rivals.sh: expected install or options, is '${1:-}'" >&2
    exit 1
    ;;
esac
