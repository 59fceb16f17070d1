# SPDX-License-Identifier: Apache-2.0
# Cross build for 64-bit ARM with Debian's compiler; test programs run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# 128 GiB of addresses: the emulator keeps memory for every page of what the runtime reserves, which
# is as much as it can get.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -R 0x2000000000)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu /usr)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
