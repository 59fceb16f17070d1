#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh <prefix> <text> [flags]: builds the training program against the installed toolkit, in
# <prefix>/../train, and trains on the text. The loss curve and the checkpoint lie there, too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(cd "$1" && pwd)
text=$2
work=$(cd "$prefix/.." && pwd)/train
mkdir -p "$work"
# shellcheck disable=SC1091
source "$prefix/set_env.sh"

cmake -S "$here" -B "$work" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=TRUE >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
cmake --build "$work" -j2 >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
files=(--curve "$work/loss.svg" --save "$work/checkpoint")
[[ " ${*:3} " == *" --check "* ]] && files=()  # a check writes none
"$work/train" "${files[@]}" "${@:3}" "$text"
