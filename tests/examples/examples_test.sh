#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples_test.sh <source> <build> <folder>: installs the build, then builds and runs the examples
# against the installed toolkit; their output must be what examples/*.expected say.
set -euo pipefail
rm -rf "$3"
cmake --install "$2" --prefix "$3/prefix" >/dev/null
"$1/examples/build_and_run.sh" "$3/prefix" "$3/examples"
