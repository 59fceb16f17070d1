#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""same_bits_test.py program: it prints the same digests on the CPU and on a GPU.

Without a usable GPU there is nothing to compare, and the test is skipped (status 77).
"""
import os
import subprocess
import sys


def lines_on(program, device):
    environment = dict(os.environ, ACLGRAD_DEVICE=device)
    done = subprocess.run([program, device], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} on {device} ended with {done.returncode}")
    return done.stdout.splitlines()


def main():
    cuda = lines_on(sys.argv[1], "cuda")
    if cuda[0] != "device cuda":
        print("no usable GPU")
        return 77
    cpu = lines_on(sys.argv[1], "cpu")
    assert cpu[0] == "device cpu", cpu[0]
    assert len(cpu) == len(cuda) > 100, (len(cpu), len(cuda))
    different = [(a, b) for a, b in zip(cpu[1:], cuda[1:]) if a != b]
    for a, b in different[:20]:
        print(f"CPU {a}\nGPU {b}")
    print(f"{len(different)} of {len(cpu) - 1} cases differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
