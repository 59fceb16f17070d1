#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh <prefix> [text]: builds the demo against the installed toolkit and runs it on the text; the
# King James Bible, printed by the program of Debian's bible-kjv, when none is given.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(cd "$1" && pwd)
text=${2:-}
work=$prefix/../demo
mkdir -p "$work"
# shellcheck disable=SC1091
source "$prefix/set_env.sh"

if [ -z "$text" ]; then
  text=$work/king_james_bible.txt
  [ -s "$text" ] || bible -f 'Gen1:1-Rev22:21' >"$text"
elif [ ! -r "$text" ]; then
  echo "demo: cannot read $text" >&2
  exit 1
fi
cmake -S "$here" -B "$work" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_RPATH=TRUE >"$work/log" ||
  { cat "$work/log"; exit 1; }
cmake --build "$work" -j2 >"$work/log" || { cat "$work/log"; exit 1; }
"$work/demo" "$text"
