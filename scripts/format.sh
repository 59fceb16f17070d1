#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh [--check]: clang-format 14 over all C and C++ files of the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
arguments=(-i)
[[ ${1:-} == --check ]] && arguments=(--dry-run --Werror)
git ls-files -z --cached --others --exclude-standard '*.c' '*.h' '*.cpp' '*.cu' '*.cuh' |
  xargs -0 -r clang-format-14 "${arguments[@]}"
