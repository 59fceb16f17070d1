#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py BASE HEAD [options and problems of aclgrad_bench]: races two commits.

Builds each in a worktree below build/compare (kept: the second race of a commit starts at once),
with CUDA only where ACLGRAD_DEVICE=cuda asks for it, and measures them by turns in the same rounds,
with the same --view and --target. HEAD may be `.`: the tree as it lies here. The table shows HEAD's
times, and in the last column BASE's and how many times HEAD is faster.
"""
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "compare"
# Options that say how to compute rather than how to measure: both sides take them.
SHARED = ("--view", "--target")


def run(*command, **options):
    """The table alone goes to the standard output."""
    return subprocess.run(command, check=True, text=True, **{"stdout": sys.stderr, **options})


def checked_out(reference):
    """The tree of a commit, and where it is built."""
    if reference == ".":
        return ROOT, FOLDER / "here"
    found = subprocess.run(["git", "-C", ROOT, "rev-parse", "--verify", "--quiet",
                            reference + "^{commit}"], check=False, text=True, stdout=subprocess.PIPE)
    if found.returncode != 0:
        sys.exit(f"compare.py: {reference} is no commit here; expected one, or . for the tree as it is")
    tree = FOLDER / found.stdout.strip()[:12]
    if not tree.exists():
        run("git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", tree, reference)
    return tree, tree / "build" / "release"


def build(tree, folder):
    """The bench program of a commit."""
    cuda = "AUTO" if os.environ.get("ACLGRAD_DEVICE") == "cuda" else "OFF"
    run("cmake", "--preset", "release", "-B", folder, f"-DACLGRAD_CUDA={cuda}", cwd=tree)
    run("cmake", "--build", folder, "--target", "aclgrad_bench", cwd=tree)
    return folder / "bench" / "aclgrad_bench"


def shared(options):
    """Those of SHARED, with their values."""
    pairs = zip(options, options[1:])
    return [word for pair in pairs if pair[0] in SHARED for word in pair]


def main():
    if len(sys.argv) < 3 or any(name.startswith("-") for name in sys.argv[1:3]):
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    trees = [checked_out(reference) for reference in sys.argv[1:3]]
    base, head = (build(*each) for each in trees)
    serve = shlex.join([str(base), "--serve", *shared(sys.argv[3:])])
    sys.exit(subprocess.run([head, "--rival", f"base={serve}", *sys.argv[3:]], check=False).returncode)


if __name__ == "__main__":
    main()
