#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo_test.py <demo> [tests...]: the table of the operators on small texts of every kind, each row
within its tolerance, and texts that there is nothing to do with."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEMO = sys.argv[1]
ROWS = 14


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.text = pathlib.Path(folder.name) / "text"

    def run_on(self, contents):
        self.text.write_bytes(contents)
        return subprocess.run([DEMO, str(self.text)], capture_output=True, text=True, check=False)

    def expect_table(self, contents, unit):
        result = self.run_on(contents)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(f" {unit} (", result.stdout.splitlines()[0])
        rows = [line for line in result.stdout.splitlines() if " ms " in line]
        self.assertEqual(len(rows), ROWS, result.stdout)

    def test_words(self):
        self.expect_table(b"".join(b"the word %c\n" % (97 + i) for i in range(26)), "words")

    def test_paragraphs_too_short_for_a_window(self):
        self.expect_table(b"one two three\n\n" * 30, "words")

    def test_numbers(self):
        self.expect_table(b"".join(b"%d %d\n" % (i, i * i) for i in range(100)), "bytes as words")

    def test_few_words_among_numbers(self):
        self.expect_table(b"total\n" + b"1 2 3 4 5\n" * 40, "bytes as words")

    def test_one_line_without_an_end(self):
        self.expect_table(b"3" * 700, "bytes as words")

    def test_any_bytes(self):
        self.expect_table(bytes(i % 64 for i in range(700)), "bytes as words")

    def test_nothing_but_ends_of_lines(self):
        self.expect_table(b"\n" * 700, "bytes as words")

    def test_texts_that_are_too_short(self):
        for contents in (b"", b"In the beginning"):
            result = self.run_on(contents)
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn("the demo needs at least 64", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
