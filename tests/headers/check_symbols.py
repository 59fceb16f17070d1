#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the headers declare with what the libraries export and the tests name.

    check_symbols.py exports --include DIR --acl LIB --aclnn LIB --aclnnop LIB [--nm NM]
    check_symbols.py calls --include DIR FILE...

`exports`: each library exports exactly the functions its headers declare (acl/ libascendcl, aclnn/
libnnopbase, aclnnop/ libopapi), unversioned; besides them only the three *HugeMem* functions of
libnnopbase and names that begin with aclgrad_ and carry the version ACLGRAD_PRIVATE.
`calls`: each FILE names every declared function.
"""

import argparse
import pathlib
import re
import subprocess
import sys

PRIVATE_PREFIX = "aclgrad_"
PRIVATE_VERSION = "ACLGRAD_PRIVATE"
MARKS = ("ACL_FUNC_VISIBILITY", "ACLNN_API")
EXTRA = {
    "aclnn": {"InitHugeMemThreadLocal", "UnInitHugeMemThreadLocal", "ReleaseHugeMem"},
}
FOLDERS = ("acl", "aclnn", "aclnnop")


def without_comments(text):
    """Comments become blanks; string literals stay as they are."""
    pattern = r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/'
    return re.sub(pattern, lambda m: m[0] if m[0][0] == '"' else " ", text, flags=re.S)


def declared_functions(text):
    """(name, whether it is marked for export) of each function declared in a header's text."""
    text = without_comments(text).replace("\\\n", " ")
    text = re.sub(r"^[ \t]*#[^\n]*$", "", text, flags=re.M)
    text = text.replace('extern "C" {', "")
    text = re.sub(r"\{[^{}]*\}", "", text)  # the bodies of enumerations
    for statement in re.split(r"[;{}]", text):
        statement = " ".join(statement.split())
        if not statement or re.match(r"(typedef|static|constexpr|struct|enum)\b", statement):
            continue
        match = re.search(r"(\w+) ?\(", statement)
        if not match:
            raise ValueError("cannot read the declaration: " + statement)
        yield match[1], any(statement.startswith(mark + " ") for mark in MARKS)


def read_headers(include):
    """Folder -> names declared in it; and the complaints."""
    names = {}
    problems = []
    for folder in FOLDERS:
        names[folder] = set()
        for header in sorted((include / folder).rglob("*.h")):
            for name, marked in declared_functions(header.read_text(encoding="ascii")):
                where = header.relative_to(include)
                if not marked:
                    problems.append(f"{where}: {name} lacks ACL_FUNC_VISIBILITY or ACLNN_API")
                if any(name in others for others in names.values()):
                    problems.append(f"{where}: {name} is declared twice")
                names[folder].add(name)
        if not names[folder]:
            problems.append(f"{folder}: no function declared, or no such folder")
    return names, problems


def exported_symbols(nm, library):
    """(name, version or None) of each symbol in the dynamic table of a library."""
    command = [nm, "-D", "--defined-only", "--with-symbol-versions", str(library)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return parse_symbols(output)


def parse_symbols(output):
    for line in output.splitlines():
        fields = line.split()
        if len(fields) != 3:
            raise ValueError("cannot read the line of nm: " + line)
        name, _, version = fields[2].partition("@")
        version = version.lstrip("@")
        if fields[1] == "A" and name == PRIVATE_VERSION:
            continue  # the definition of the version itself
        yield name, version or None


def compare(label, expected, allowed, symbols):
    """The complaints about one library."""
    problems = []
    seen = set()
    for name, version in symbols:
        seen.add(name)
        if name.startswith(PRIVATE_PREFIX):
            if version != PRIVATE_VERSION:
                problems.append(f"{label}: {name} has version {version}, not {PRIVATE_VERSION}")
        elif name not in expected | allowed:
            problems.append(f"{label}: exports {name}, which its headers do not declare")
        elif version:
            problems.append(f"{label}: {name} carries version {version}; programs know none")
    for name in sorted(expected | allowed):
        if name not in seen:
            problems.append(f"{label}: {name} is missing")
    return problems


def check_exports(arguments):
    names, problems = read_headers(arguments.include)
    for folder in FOLDERS:
        library = getattr(arguments, folder)
        symbols = list(exported_symbols(arguments.nm, library))
        problems += compare(library.name, names[folder], EXTRA.get(folder, set()), symbols)
        print(f"{library.name}: {len(symbols)} symbols, {len(names[folder])} functions declared")
    return problems


def check_calls(arguments):
    names, problems = read_headers(arguments.include)
    for file in arguments.files:
        words = set(re.findall(r"\w+", without_comments(file.read_text(encoding="ascii"))))
        for name in sorted(set().union(*names.values()) - words):
            problems.append(f"{file.name}: does not name {name}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    exports = commands.add_parser("exports")
    exports.set_defaults(check=check_exports)
    exports.add_argument("--nm", default="nm")
    for folder in FOLDERS:
        exports.add_argument("--" + folder, type=pathlib.Path, required=True, metavar="LIB")
    calls = commands.add_parser("calls")
    calls.set_defaults(check=check_calls)
    calls.add_argument("files", nargs="+", type=pathlib.Path)
    for command in (exports, calls):
        command.add_argument("--include", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    problems = arguments.check(arguments)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
