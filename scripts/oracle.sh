#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The python whose PyTorch is the independent oracle of the tests.
#   oracle.sh on    finds one, or makes a virtual environment in build/oracle. Where neither works it
#                   says so and succeeds: the checks that need it then fail by name
#   oracle.sh off   does nothing
#   oracle.sh find  prints the path of a python that works, or fails
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=2.13
environment=$PWD/build/oracle

works() {
  "$1" -c "import numpy, torch; assert torch.__version__.startswith('$version.')" >/dev/null 2>&1
}

find_python() {
  local python named=${ACLGRAD_ORACLE_PYTHON:-}
  if [[ -n $named ]] && ! works "$named"; then
    echo "ACLGRAD_ORACLE_PYTHON=$named is no python with PyTorch $version and numpy: looking for another" >&2
  fi
  for python in "$named" "$environment/bin/python" python3 /usr/bin/python3; do
    if [[ -n $python ]] && python=$(command -v "$python") && works "$python"; then
      echo "$python"
      return
    fi
  done
  return 1
}

make_environment() {
  local base=python3
  [[ -x /usr/bin/python3 ]] && base=/usr/bin/python3
  rm -rf "$environment"
  "$base" -m venv "$environment" || return 1
  # The index of PyTorch has wheels without CUDA (a tenth of the size); any other index may do.
  local install=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)
  "${install[@]}" --retries 1 --timeout 20 --index-url https://download.pytorch.org/whl/cpu \
    "torch==$version.0" numpy ||
    "${install[@]}" "torch==$version.0" numpy
}

case ${1:-} in
  off) ;;
  find) find_python ;;
  on)
    if ! find_python >/dev/null; then
      echo "Installing PyTorch $version for the CPU into build/oracle"
      mkdir -p build
      if ! make_environment >build/oracle.log 2>&1 || ! works "$environment/bin/python"; then
        tail -n 5 build/oracle.log >&2
        echo "PyTorch $version cannot be had here: the checks against it cannot run, and the tests" \
          "labelled 'oracle' will fail. ORACLE=off leaves them out." >&2
      fi
    fi
    ;;
  *)
    echo "oracle.sh: ORACLE must be on or off, is '${1:-}'" >&2
    exit 1
    ;;
esac
