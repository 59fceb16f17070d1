#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [options and problems of aclgrad_bench]: the release build against every rival that is
# installed; the table also as build/bench.csv, and as a picture in build/roofline.svg. With ACLGRAD_DEVICE=cuda
# on a GPU: build/bench-cuda.csv and build/roofline-cuda.svg. Without arguments also what small calls
# cost (build/small_calls.csv) and how the work divides among cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
programs=build/release/bench
case " $* " in
  *' --list '* | *' --plan '* | *' --help '* | *' --serve '*) exec "$programs/aclgrad_bench" "$@" ;;
esac

suffix=
[[ ${ACLGRAD_DEVICE:-} == cuda ]] && suffix=-cuda
csv=build/bench$suffix.csv
picture=build/roofline$suffix.svg
options=(--csv "$csv")
previous=
for word in "$@"; do
  if [[ $previous == --csv ]]; then  # the user's own
    csv=$word
    picture=${word%.csv}.svg
    options=()
  fi
  previous=$word
done

mapfile -t rivals < <(scripts/rivals.sh options)
status=0
begin=$(mktemp)
trap 'rm -f "$begin"' EXIT
"$programs/aclgrad_bench" "${rivals[@]}" "${options[@]}" "$@" || status=$?
if [[ $csv -nt $begin ]] && python3 bench/roofline.py "$csv" "$picture"; then
  echo "$csv and $picture are written"
fi
if (($# == 0 && status == 0)) && [[ -z $suffix ]]; then
  echo
  "$programs/aclgrad_small_calls" --csv build/small_calls.csv || status=$?
  echo
  "$programs/aclgrad_cores" || status=$?
fi
exit "$status"
