#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh group...: installs what is missing of the groups build, test, demo, lint and aarch64 with
# apt, as root or through sudo. Without apt it lists what is missing and fails. Says nothing when all is there.
set -euo pipefail

declare -A groups=(
  [build]="g++ cmake ninja-build pkg-config libhwy-dev libtbb-dev"
  [test]="ccache libgtest-dev libopenblas-dev binutils util-linux python3 python3-venv"
  [demo]="ccache bible-kjv libopenblas-dev"
  [lint]="clang-format-14 clang-tidy-14"
  [aarch64]="g++-aarch64-linux-gnu qemu-user libhwy-dev:arm64 libtbb-dev:arm64 libgtest-dev:arm64"
)

packages=()
for group in "$@"; do
  if [[ -z ${groups[$group]:-} ]]; then
    echo "setup.sh: no group '$group'; there are: ${!groups[*]}" >&2
    exit 1
  fi
  read -ra of_group <<<"${groups[$group]}"
  packages+=("${of_group[@]}")
done

includes() { # header: whether the C++ compiler finds it
  echo "#include <$1>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1
}

# Whether what the package is for is there, whoever brought it.
works() {
  case $1 in
    g++) command -v c++ ;;
    cmake) command -v cmake ;;
    ninja-build) command -v ninja ;;
    pkg-config) command -v pkg-config ;;
    libhwy-dev) includes hwy/highway.h ;;
    libtbb-dev) includes oneapi/tbb/scalable_allocator.h ;;
    libopenblas-dev) pkg-config --exists openblas ;;
    libgtest-dev) includes gtest/gtest.h ;;
    binutils) command -v readelf ;;
    util-linux) command -v setarch ;;
    python3) command -v python3 ;;
    python3-venv) python3 -c 'import ensurepip, venv' ;;
    bible-kjv) command -v bible ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ ;;
    qemu-user) command -v qemu-aarch64 ;;
    *) command -v "$1" ;;
  esac >/dev/null 2>&1
}

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || works "$package" || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

list() {
  echo "Install these (names of Debian's packages) and run the command again:" >&2
  printf '  %s\n' "${missing[@]}" >&2
}

if ! command -v apt-get >/dev/null; then
  echo "setup.sh: no apt-get here." >&2
  list
  exit 1
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: neither root nor sudo." >&2
    list
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing with apt: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
  { [[ ${missing[*]} != *:arm64* ]] || "${as_root[@]}" dpkg --add-architecture arm64; } &&
    "${as_root[@]}" apt-get -q update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get -q -y install --no-install-recommends "${missing[@]}"
} >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup.sh: apt-get failed." >&2
  list
  exit 1
fi
