#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py BASE HEAD [options and problems of aclgrad_bench]: races two commits.

Builds each in a worktree below build/compare (kept: the second race of a commit starts at once) and
measures them by turns in the same rounds. HEAD may be `.`: the tree as it lies here. The table shows
HEAD's times, and in the last column BASE's and how many times HEAD is faster.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "compare"


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, **options)


def build(reference):
    """The bench program of a commit."""
    tree = ROOT
    if reference != ".":
        commit = run("git", "-C", ROOT, "rev-parse", "--verify", reference + "^{commit}",
                     stdout=subprocess.PIPE).stdout.strip()
        tree = FOLDER / commit[:12]
        if not tree.exists():
            run("git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", tree, commit)
    folder = tree / "build" / "release"
    run("cmake", "--preset", "release", cwd=tree, stdout=subprocess.DEVNULL)
    run("cmake", "--build", "--preset", "release", "--target", "aclgrad_bench", cwd=tree,
        stdout=subprocess.DEVNULL)
    return folder / "bench" / "aclgrad_bench"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    base, head = (build(reference) for reference in sys.argv[1:3])
    sys.exit(subprocess.run([head, "--rival", f"base={base} --serve", *sys.argv[3:]],
                            check=False).returncode)


if __name__ == "__main__":
    main()
