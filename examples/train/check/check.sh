#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh <folder>: check.py with the python that ACLGRAD_ORACLE_PYTHON names, or else with one
# that is found to have PyTorch, as the tests do.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${ACLGRAD_ORACLE_PYTHON:-}
find=$here/../../../scripts/oracle.sh
if [[ -z $python ]]; then
  python=$([[ -x $find ]] && "$find" find) || python=python3
fi
exec "$python" "$here/check.py" "$1"
