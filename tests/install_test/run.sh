#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh build-folder work-folder: installs the toolkit, moves it, and uses it in every documented way.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
work=$2
cmake=${CMAKE:-cmake}
cc=${CC:-cc}
cxx=${CXX:-c++}
consumer=$here/consumer/consumer.cpp
expected="5 10 15 10"
warnings=(-Wall -Wextra -Wpedantic -Werror)

unset ASCEND_HOME_PATH ASCEND_TOOLKIT_HOME ASCEND_CUSTOM_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH
unset LD_PRELOAD PKG_CONFIG_PATH

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

expect_equal() { # what given wanted
  [[ $2 == "$3" ]] || fail "$1: expected '$3', got '$2'"
  echo "ok: $1"
}

rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first place" >/dev/null
mv "$work/first place" "$work/moved toolkit"
prefix="$work/moved toolkit"

for entry in include/acl/acl.h include/aclnn/aclnn_base.h include/aclnnop/aclnn_util.h \
  lib64/libascendcl.so lib64/libnnopbase.so lib64/libopapi.so set_env.sh \
  lib64/cmake/aclgrad/aclgradConfig.cmake lib64/pkgconfig/aclgrad.pc; do
  [[ -f $prefix/$entry && ! -L $prefix/$entry ]] || fail "no file $entry in the prefix"
done
expect_equal "libacl_rt" "$(readlink "$prefix/lib64/libacl_rt.so")" libascendcl.so
for name in nn math transformer; do
  expect_equal "libopapi_$name" "$(readlink "$prefix/lib64/libopapi_$name.so")" libopapi.so
done
for name in ascendcl nnopbase opapi; do
  dynamic=$(readelf -dW "$prefix/lib64/lib$name.so")
  [[ $dynamic == *"soname: [lib$name.so]"* ]] || fail "lib$name.so: the SONAME is not its name"
done
readelf -dW "$prefix/lib64/libopapi.so" | grep -q 'NEEDED.*\[libnnopbase\.so\]' ||
  fail "libopapi.so does not depend on libnnopbase.so"
if nm -D --defined-only "$prefix"/lib64/lib*.so | grep PTA; then
  fail "PTA symbols are exported"
fi

# set_env.sh, sourced by every shell that is here, from another folder, with a relative path, twice.
variables='printf "%s|" "$ASCEND_HOME_PATH" "$ASCEND_TOOLKIT_HOME" "$ASCEND_CUSTOM_PATH" \
  "$LD_LIBRARY_PATH" "$CMAKE_PREFIX_PATH"'
wanted="$prefix|$prefix|$prefix|$prefix/lib64|$prefix/lib64/cmake|"
for shell in bash sh dash zsh; do
  command -v "$shell" >/dev/null || continue
  given=$(cd "$work" && "$shell" -uc ". './moved toolkit/set_env.sh' && $variables")
  expect_equal "set_env.sh in $shell" "$given" "$wanted"
done
given=$(LD_LIBRARY_PATH=/a CMAKE_PREFIX_PATH=/b bash -c ". '$prefix/set_env.sh' && $variables")
expect_equal "set_env.sh keeps what was there" "$given" \
  "$prefix|$prefix|$prefix|$prefix/lib64:/a|$prefix/lib64/cmake:/b|"

# 1. find_package, without RPATH: the program finds the libraries by LD_LIBRARY_PATH only.
# shellcheck disable=SC1091
(
  source "$prefix/set_env.sh"
  "$cmake" -S "$here/consumer" -B "$work/consumer" -DCMAKE_SKIP_RPATH=TRUE \
    -DCMAKE_CXX_COMPILER="$cxx" >"$work/cmake.log" || fail "find_package: $(cat "$work/cmake.log")"
  "$cmake" --build "$work/consumer" >"$work/cmake.log" || fail "consumer: $(cat "$work/cmake.log")"
)
if "$work/consumer/consumer" >/dev/null 2>&1; then
  fail "the consumer found the libraries without LD_LIBRARY_PATH: it proves nothing"
fi
run() { # what program...
  # shellcheck disable=SC1091
  (source "$prefix/set_env.sh" && "${@:2}") >"$work/output" || fail "$1: $(cat "$work/output")"
  expect_equal "$1" "$(cat "$work/output")" "$expected"
}
run "find_package" "$work/consumer/consumer"

# 2. pkg-config. Its flags quote the blank in the prefix.
eval "flags=($(PKG_CONFIG_PATH="$prefix/lib64/pkgconfig" pkg-config --cflags --libs aclgrad))"
"$cxx" -std=c++11 "${warnings[@]}" "$consumer" "${flags[@]}" -o "$work/by_pkg_config"
run "pkg-config" "$work/by_pkg_config"

# 3. A bare compiler line, also through the other names of the libraries.
"$cxx" -std=c++11 "${warnings[@]}" -I"$prefix/include" "$consumer" -L"$prefix/lib64" \
  -lascendcl -lnnopbase -lopapi -o "$work/by_hand"
run "bare compiler line" "$work/by_hand"
"$cxx" -std=c++11 -I"$prefix/include" -I"$prefix/include/aclnn" -I"$prefix/include/aclnnop" \
  "$consumer" -L"$prefix/lib64" -lacl_rt -lnnopbase -lopapi_transformer -o "$work/by_alias"
run "alias libraries" "$work/by_alias"

# 4. Every name loaded into one process.
"$cc" -std=c11 "${warnings[@]}" "$here/loader.c" -o "$work/loader" -ldl
expected="one state behind 7 names"
run "dlopen of all names" "$work/loader"
