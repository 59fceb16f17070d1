# SPDX-License-Identifier: Apache-2.0
"""sweep_test.py FOLDER: the sweep finds a cliff, and nothing but cliffs. In the bench's place stands a
program that says what it is told to."""
import csv
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

FOLDER = sys.argv[1]
sys.path.insert(0, FOLDER)
import sweep  # pylint: disable=wrong-import-position

# Everything at 10 GB/s, but for what lies beside it in slow.txt. `turns` counts how often it was asked.
BENCH = '''#!{python}
import pathlib, sys
here = pathlib.Path(__file__).parent
slow = (here / "slow.txt").read_text().split()
out = sys.argv[sys.argv.index("--csv") + 1]
problems = [word for word in sys.argv[1:] if word.count("/") == 2]
with open(here / "turns", "a") as file:
    file.write(f"{{len(problems)}}\\n")
with open(out, "w") as file:
    file.write("# A machine; peak 1 GFLOP/s\\nproblem,target,threads,gb_per_s,share_of_roof\\n")
    for name in problems:
        file.write(f"{{name}},AVX3,2,{{5.9 if name in slow else 10}},0.5\\n")
'''


class Sweep(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "bench"
        self.program.write_text(BENCH.format(python=sys.executable), encoding="ascii")
        self.program.chmod(0o755)
        self.out = self.folder / "sweep.csv"

    def sweep(self, *operators, slow=()):
        (self.folder / "slow.txt").write_text(" ".join(slow), encoding="ascii")
        return subprocess.run([sys.executable, f"{FOLDER}/sweep.py", self.program, self.out, *operators],
                              check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_no_cliff(self):
        done = self.sweep()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len((self.folder / "turns").read_text(encoding="ascii").split()), 1)
        with open(self.out, encoding="utf-8") as file:
            self.assertRegex(file.readline(),
                             r"^# A machine; .*; 2 threads; AVX3; \d{4}-\d\d-\d\d; \S+")
            rows = list(csv.DictReader(file))
        self.assertEqual({row["problem"].split("/")[0] for row in rows},
                         {family.operator for family in sweep.FAMILIES})

    def test_a_cliff_is_measured_again_and_named(self):
        groups = list(sweep.groups_of(["layer_norm"]))
        name = groups[len(groups) // 2][1][1]
        done = self.sweep("layer_norm", slow=[name])
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.splitlines(), ["cliffs:", f"{name}: 59% of its neighbour"])
        first, *others = map(int, (self.folder / "turns").read_text(encoding="ascii").split())
        self.assertEqual(len(others), sweep.AGAIN)
        self.assertLess(max(others), first)

    def test_a_group_is_compared_within_one_run(self):
        group = [(size, f"layer_norm/f32/1000x{size}") for size in (31, 32, 33)]
        first, second, third = (name for _, name in group)
        speed = {first: (5, 0.5), second: (10, 0.6), third: (9, 0.6)}  # memory became faster
        sweep.take_again([group], speed, {first: (4, 0.5), second: (5, 0.6), third: (5, 0.6)})
        self.assertEqual(speed, {first: (4, 0.5), second: (5, 0.6), third: (5, 0.6)})
        sweep.take_again([group], speed, {first: (1, 0.5), second: (5, 0.6), third: (5, 0.6)})
        self.assertEqual(speed[first], (4, 0.5))

    def test_less_arithmetic_is_no_neighbour(self):
        group = [(step, f"nsa_compress/bf16/65536x4x128-l128-d{step}-s1") for step in (16, 32, 48)]
        names = [name for _, name in group]
        speed = dict(zip(names, ((5, 0.5), (10, 0.5), (5, 0.5))))
        self.assertEqual(sweep.slow([group], speed), {names[0]: 0.5, names[2]: 0.5})
        self.assertEqual(sweep.slow([group], speed, sweep.ALIKE), {names[2]: 0.5})

    def test_rows_that_are_looked_up_are_compared_by_lines(self):
        # Bytes of a row: the lines that it touches.
        for bytes_of_row, lines in ((64, 1), (68, 2), (60, 1.875), (96, 2), (128, 2), (4, 1)):
            moved = sweep.moved_for_a_byte(f"embedding_dense_backward/f32/10x10x{bytes_of_row // 4}")
            self.assertAlmostEqual(moved * bytes_of_row, 64 * lines + bytes_of_row)
        group = [(size, f"embedding/f32/1000x1000x{size}") for size in (15, 16, 17)]
        names = [name for _, name in group]
        speed = dict(zip(names, ((5, 0.5), (10, 0.5), (5, 0.5))))
        self.assertEqual(sweep.slow([group], speed), {names[0]: 0.5, names[2]: 0.5})
        self.assertEqual(sweep.slow([group], speed, sweep.ALIKE), {})
        speed[names[2]] = (4, 0.5)  # the lines leave 128 / 196 * 68 / 64 of 10
        self.assertEqual(list(sweep.slow([group], speed, sweep.ALIKE)), [names[2]])

    def test_an_unknown_operator_is_refused(self):
        done = self.sweep("nsa_compres", "layer_norm")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nsa_compres: no such operator", done.stderr)
        self.assertFalse((self.folder / "turns").exists())

    def test_sequences_have_windows(self):
        names = [name for group in sweep.groups_of(["nsa_compress", "nsa_compress_grad"])
                 for _, name in group]
        self.assertTrue(names)
        for name in names:
            tokens, window, sequences = map(int, re.match(
                r".*/(\d+)x.*-l(\d+)-d\d+-s(\d+)$", name).groups())
            self.assertGreaterEqual(tokens // sequences, window, name)

    def test_a_problem_has_about_as_many_bytes_as_every_other(self):
        for family in sweep.FAMILIES:
            for dtype in family.dtypes:
                others = {name: values[0] for name, values in family.others.items()}
                for middle in family.middles:
                    free = family.free_size({**others, family.varied: middle}, dtype)
                    dims = {**others, family.varied: middle, family.free: free}
                    moved = family.elements(dims) * sweep.DTYPE_BYTES[dtype]
                    self.assertAlmostEqual(moved, 1e8, delta=1.5e7, msg=(family.text, dims))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
