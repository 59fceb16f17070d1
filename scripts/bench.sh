#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [options and problems of aclgrad_bench]: the release build against every rival that is
# installed; the table also as build/bench.csv, and as a picture in build/roofline.svg.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t rivals < <(scripts/rivals.sh options)
build/release/bench/aclgrad_bench "${rivals[@]}" --csv build/bench.csv "$@"
python3 bench/roofline.py build/bench.csv build/roofline.svg
echo "build/bench.csv and build/roofline.svg are written"
