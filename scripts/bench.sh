#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [options and problems of aclgrad_bench]: the release build against every rival that is
# installed; the table also as build/bench.csv, and as a picture in build/roofline.svg. With ACLGRAD_DEVICE=cuda
# on a GPU: build/bench-cuda.csv and build/roofline-cuda.svg.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t rivals < <(scripts/rivals.sh options)
suffix=
[[ ${ACLGRAD_DEVICE:-} == cuda ]] && suffix=-cuda
build/release/bench/aclgrad_bench "${rivals[@]}" --csv "build/bench$suffix.csv" "$@"
python3 bench/roofline.py "build/bench$suffix.csv" "build/roofline$suffix.svg"
echo "build/bench$suffix.csv and build/roofline$suffix.svg are written"
