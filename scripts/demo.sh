#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh prefix [text]: builds and runs the example programs as a user of the installed toolkit
# would, then all operators on a real book.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
examples/build_and_run.sh "$1"
demo/run.sh "$@"
