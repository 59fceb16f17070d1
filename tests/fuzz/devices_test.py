#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""devices_test.py fuzz_test count: random calls give the same statuses and bits on the CPU and a GPU.

One half of the calls is always the same (it begins before one whose bits once differed), the other
from a new seed each time, which a failure prints. Without a usable GPU there is nothing to compare,
and the test is skipped (status 77).
"""
import os
import random
import subprocess
import sys
import tempfile

OLD_SEED = 777000


def digests_on(device, program, seed, count):
    """The lines that the program writes, or None if it has no such device."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "digests")
        done = subprocess.run(
            [program, "--seed", str(seed), "--count", str(count), "--digests", path],
            env=dict(os.environ, ACLGRAD_DEVICE=device), stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\n{program} on {device} ended with {done.returncode}")
        if f" calls on {device} " not in done.stdout:
            return None
        with open(path) as file:
            return file.read().splitlines()


def differing(program, seed, count):
    cuda = digests_on("cuda", program, seed, count)
    if cuda is None:
        print("no usable GPU")
        sys.exit(77)
    cpu = digests_on("cpu", program, seed, count)
    assert len(cpu) == len(cuda) == count, (len(cpu), len(cuda), count)
    different = [(a, b) for a, b in zip(cpu, cuda) if a != b]
    for a, b in different[:20]:
        print(f"CPU {a}\nGPU {b}")
    print(f"{len(different)} of {count} calls from seed {seed} on differ")
    return len(different)


def main():
    program, count = sys.argv[1], int(sys.argv[2])
    new_seed = random.SystemRandom().randrange(1 << 40)
    different = [differing(program, seed, count // 2) for seed in (OLD_SEED, new_seed)]
    return 1 if any(different) else 0


if __name__ == "__main__":
    sys.exit(main())
