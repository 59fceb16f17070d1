#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_symbols.py finds what it is there to find."""

import pathlib
import tempfile
import unittest

import check_symbols

HEADER = """
// SPDX-License-Identifier: Apache-2.0
#ifndef A_H_
#define A_H_
#define CALL(level, ...) aclLog(level, \\
                                __VA_ARGS__)
#ifdef __cplusplus
extern "C" {
#endif
/** aclInComment(void); */
typedef void (*aclrtCallback)(void* userData);
typedef enum aclKind { ACL_A = 0, ACL_B = 1 } aclKind;
typedef struct aclTensor aclTensor;
static const int ACL_SUCCESS = 0;
#ifdef __cplusplus
constexpr int OK = 0;
#endif
ACL_FUNC_VISIBILITY aclTensor* aclCreate(const int64_t* dims,
                                         uint64_t count);
ACLNN_API int aclRun(aclrtCallback fn, void* data);
int aclUnmarked(void);
#ifdef __cplusplus
}
#endif
#endif
"""

NM = """\
0000000000000000 A ACLGRAD_PRIVATE
0000000000001000 T aclCreate
0000000000001010 T aclgrad_fail@@ACLGRAD_PRIVATE
0000000000001020 W _ZNSt6vectorIiSaIiEE9push_backEi
0000000000001030 T aclVersioned@@ACLGRAD_1
0000000000001040 T aclgrad_loose
"""


class CheckSymbolsTest(unittest.TestCase):
    def test_reads_declarations_and_nothing_else(self):
        found = list(check_symbols.declared_functions(HEADER))
        self.assertEqual(found, [("aclCreate", True), ("aclRun", True), ("aclUnmarked", False)])

    def test_reads_names_and_versions(self):
        found = dict(check_symbols.parse_symbols(NM))
        self.assertNotIn("ACLGRAD_PRIVATE", found)
        self.assertIsNone(found["aclCreate"])
        self.assertEqual(found["aclgrad_fail"], "ACLGRAD_PRIVATE")

    def test_complains_of_missing_additional_versioned_and_loose_symbols(self):
        expected = {"aclCreate", "aclMissing", "aclVersioned"}
        problems = check_symbols.compare(
            "lib", expected, {"ReleaseHugeMem"}, check_symbols.parse_symbols(NM))
        self.assertEqual(sorted(problems), [
            "lib: ReleaseHugeMem is missing",
            "lib: aclMissing is missing",
            "lib: aclVersioned carries version ACLGRAD_1; programs know none",
            "lib: aclgrad_loose has version None, not ACLGRAD_PRIVATE",
            "lib: exports _ZNSt6vectorIiSaIiEE9push_backEi, which its headers do not declare",
        ])

    def test_is_content_with_a_match(self):
        symbols = [("aclCreate", None), ("aclgrad_fail", "ACLGRAD_PRIVATE")]
        self.assertEqual(check_symbols.compare("lib", {"aclCreate"}, set(), symbols), [])

    def test_reports_unmarked_and_repeated_declarations(self):
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder)
            for name in check_symbols.FOLDERS:
                (include / name).mkdir()
                (include / name / "a.h").write_text(HEADER)
            names, problems = check_symbols.read_headers(include)
        self.assertEqual(names["acl"], {"aclCreate", "aclRun", "aclUnmarked"})
        self.assertEqual(sum("lacks" in problem for problem in problems), 3)
        self.assertEqual(sum("twice" in problem for problem in problems), 6)


if __name__ == "__main__":
    unittest.main()
