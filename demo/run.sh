#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh <prefix> <text>: builds the table of the operators against the installed toolkit and runs
# it on the text.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(cd "$1" && pwd)
text=$2
work=$prefix/../demo
mkdir -p "$work"
# shellcheck disable=SC1091
source "$prefix/set_env.sh"

cmake -S "$here" -B "$work" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=TRUE >"$work/log" ||
  { cat "$work/log"; exit 1; }
cmake --build "$work" -j2 >"$work/log" || { cat "$work/log"; exit 1; }
"$work/demo" "$text"
