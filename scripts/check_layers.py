#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_layers.py [root]: includes point down only.

include <- base <- { kernels, runtime } <- tensor <- ops. An operator includes no other operator. A
kernel (cpu.cpp, cuda.cu) sees base, kernels and the plain data of its own folder, and reaches neither
tensor nor runtime through any chain of includes.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
BELOW = {
    "include": {"include"},
    "base": {"include", "base"},
    "kernels": {"include", "base", "kernels"},
    "runtime": {"include", "base", "runtime"},
    "tensor": {"include", "base", "kernels", "runtime", "tensor"},
    "ops": {"include", "base", "kernels", "runtime", "tensor"},
}
KERNEL_FILES = {"cpu.cpp", "cuda.cu"}
KERNEL_MAY_NOT = {"tensor", "runtime"}
TEST_FILE = re.compile(r"(.+_)?test\.cpp|test_problem\.h|bench\.cpp|cases\.h|reference\.h")
TEST_TOOLS = ("support/", "bench/")
SUFFIXES = {".h", ".cpp", ".c", ".cu", ".cuh"}


def floor_of(path):
    """The floor of a file, and for an operator its folder: ("ops", "layer_norm_backward")."""
    parts = path.parts
    if parts[0] == "include":
        return "include", None
    floor = parts[1] if len(parts) > 2 else None
    return floor, parts[2] if floor == "ops" and len(parts) > 3 else None


def resolve(root, name):
    """The file an include means: roots are src/ and include/; None for system headers."""
    for base in ("include", "src"):
        if (root / base / name).is_file() or (root / base / f"{name}.in").is_file():
            return pathlib.PurePosixPath(base, name)
    return None


def includes_of(root, path):
    text = (root / path).read_text(encoding="ascii")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2], resolve(root, match[2])


def check_file(root, path):
    floor, operator = floor_of(path)
    if floor not in BELOW:
        yield f"{path}: lies on no floor"
        return
    for line, quote, name, target in includes_of(root, path):
        where = f"{path}:{line}: includes {name}"
        if target is None:
            in_tests = TEST_FILE.fullmatch(path.name) or floor != "ops"
            if quote == '"' and not (name.startswith(TEST_TOOLS) and in_tests):
                yield f"{where}, which is no file below src/ or include/"
            continue
        target_floor, target_operator = floor_of(target)
        if target_floor == "ops" and operator is not None:
            if target_operator != operator:
                yield f"{where}: operators never include each other"
        elif target_floor not in BELOW[floor]:
            yield f"{where}: {floor} must not see {target_floor}"


def check_kernel(root, path):
    """Follows the includes of a kernel, to any depth."""
    seen, queue = {path}, [(path, [path.name])]
    while queue:
        current, chain = queue.pop()
        for _, _, name, target in includes_of(root, current):
            if target is None or target in seen:
                continue
            seen.add(target)
            if floor_of(target)[0] in KERNEL_MAY_NOT:
                yield f"{path}: a kernel must not reach {target} ({' -> '.join(chain + [name])})"
            queue.append((target, chain + [name]))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    files = sorted(
        pathlib.PurePosixPath(file.relative_to(root).as_posix())
        for base in ("include", "src")
        for file in (root / base).rglob("*")
        if file.suffix in SUFFIXES
    )
    problems = []
    for path in files:
        problems += check_file(root, path)
        if path.name in KERNEL_FILES:
            problems += check_kernel(root, path)
    print("\n".join(problems) or f"{len(files)} files, every include points down")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
