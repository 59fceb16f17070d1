// SPDX-License-Identifier: Apache-2.0
// main [device]: prints the digests of all operators that have kernels for a GPU, on the device
// that the environment chooses; the first line says which. Nothing else if it is not `device`.
#include <cstdio>
#include <exception>
#include <string>

#include "operators.h"
#include "runtime/services.h"

int main(int count, char** arguments) {
  try {
    aclgrad::test::use_device();
    const std::string device = aclgrad::aclgrad_has_device_queues() ? "cuda" : "cpu";
    std::printf("device %s\n", device.c_str());
    if (count > 1 && device != arguments[1]) return 0;
    for (const auto& print : aclgrad::test::kOperators) print();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
