#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh prefix [text]: as a user of the installed toolkit would, trains a language model on a real
# book (the King James Bible, printed by the program of Debian's bible-kjv, when no text is given),
# runs all gradient operators on it against their references, and runs the example programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=$(cd "$1" && pwd)
text=${2:-}
goal=()

if [[ -z $text ]]; then
  text=$(dirname "$prefix")/king_james_bible.txt
  if [[ ! -s $text ]]; then
    bible -f 'Gen1:1-Rev22:21' >"$text.partial"  # half a book must not pass for the whole
    mv "$text.partial" "$text"
  fi
  goal=(--goal)  # of a text that is known, the model must have learnt enough
fi
examples/train/run.sh "$prefix" "$text" "${goal[@]}"
echo
demo/run.sh "$prefix" "$text"
echo
examples/build_and_run.sh "$prefix"
