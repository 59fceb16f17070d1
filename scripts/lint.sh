#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lint.sh folder [file...]: clang-tidy 14 with the compile commands of a build folder, over all own
# sources or those given. Kernels are looked at for one instruction set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
shift
if [[ $# -eq 0 ]]; then
  # Rivals are compiled by scripts/rivals.sh, against what may not be installed.
  mapfile -t files < <(git ls-files 'src/*.cpp' 'tests/*.cpp' 'bench/*.cpp' ':!bench/rivals')
  # What this build leaves out (emulated devices) has no compile command.
  set --
  for file in "${files[@]}"; do
    grep -qF "$PWD/$file" "$folder/compile_commands.json" && set -- "$@" "$file"
  done
fi
printf '%s\0' "$@" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 --quiet -p "$folder" --warnings-as-errors='*' \
    --extra-arg=-DHWY_COMPILE_ONLY_STATIC \
    2> >(grep -v 'warnings\? generated' >&2)
