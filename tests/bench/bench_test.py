# SPDX-License-Identifier: Apache-2.0
"""bench_test.py ACLGRAD_BENCH ACLGRAD_SMALL_CALLS FOLDER [TEST...]: the bench measures, never how fast.

Every operator, view and target is measured once on small shapes, against itself as a rival, and the
tables and the picture are read back. A timing is only asked to be a positive number. On the device that
the environment chooses.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH, SMALL_CALLS, FOLDER = sys.argv[1:4]
ON_GPU = os.environ.get("ACLGRAD_DEVICE") == "cuda"
sys.path.insert(0, FOLDER)
import goals  # pylint: disable=wrong-import-position
import sweep  # pylint: disable=wrong-import-position
import table  # pylint: disable=wrong-import-position

SMALL = ("layer_norm/f32/16x64", "layer_norm_backward/f16/16x64", "embedding/bf16/16x32x64",
         "embedding_dense_backward/f32/16x32x64", "scaled_masked_softmax/f32/1x2x16x64",
         "scaled_masked_softmax_backward/bf16/1x2x16x64", "grouped_bias_add_grad/f32/64x24-g4",
         "nsa_compress/f16/64x1x64-l32-d16", "nsa_compress_grad/bf16/64x1x64-l32-d16")


def run(*command, **environment):
    return subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=300, env={**os.environ, **environment})


# An emulated GPU has the operators that have kernels for it.
LISTED = run(BENCH, "--list").stdout.split()
if ON_GPU:
    SMALL = tuple(name for name in SMALL
                  if name.split("/")[0] in {each.split("/")[0] for each in LISTED})


def bench(*arguments):
    return run(BENCH, "--rounds", "2", "--cached", *arguments)


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.csv = str(pathlib.Path(self.folder.name) / "bench.csv")

    def test_every_operator_has_defaults_and_is_measured_beside_a_rival(self):
        self.assertEqual({name.split("/")[0] for name in LISTED},
                         {name.split("/")[0] for name in SMALL})
        done = bench("--threads", "1", "--rival", f"itself={BENCH} --serve", "--csv", self.csv,
                     *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        machine, rows = table.read(self.csv)
        self.assertIn("GFLOP/s; small problems in the caches", machine)
        self.assertEqual([row["problem"] for row in rows], list(SMALL))
        for row in rows:
            for column in ("us", "bytes", "gb_per_s", "share_of_roof", "copy_gb_per_s",
                           "read_gb_per_s", "add_gb_per_s", "itself_us"):
                self.assertGreater(row[column], 0, (row["problem"], column))
            self.assertLessEqual(row["us_20"], row["us"])
            self.assertLessEqual(row["us"], row["us_80"])
            self.assertLessEqual(row["itself_us_20"], row["itself_us"])
            self.assertLessEqual(row["itself_us"], row["itself_us_80"])
            self.assertEqual(row["itself_way"], "aclgrad")
            if ON_GPU:
                self.assertEqual(row["target"], "cuda")
                self.assertGreater(row["threads"], 0)
            else:
                self.assertEqual(row["threads"], 1)

    def test_the_peak_holds_the_workspace_whatever_was_measured_before(self):
        bench("--csv", self.csv, *(f"layer_norm_backward/{dtype}/2048x512"
                                   for dtype in ("f32", "bf16", "f16")))
        for row in table.read(self.csv)[1]:
            self.assertGreater(row["workspace_bytes"], 0, row["problem"])
            self.assertGreaterEqual(row["peak_bytes"], row["workspace_bytes"], row["problem"])

    def test_views_and_targets(self):
        for options in (("--view", "padded"), ("--view", "transposed"), ("--view", "offset"),
                        ("--view", "strided"), ("--view", "reversed"), ("--target", "SCALAR")):
            if ON_GPU and options[0] == "--target":
                continue
            done = bench(*options, "--csv", self.csv, SMALL[-1])
            self.assertEqual(done.returncode, 0, (options, done.stderr))
            row = table.read(self.csv)[1][0]
            self.assertEqual(row[options[0].lstrip("-")], options[1])

    def test_variants_of_a_shape(self):
        variants = ("layer_norm_backward/f32/out110/16x64", "layer_norm_backward/f32/out001/16x64",
                    "scaled_masked_softmax/f32/mask1x1/2x3x16x64",
                    "scaled_masked_softmax_backward/f32/mask2x3/2x3x16x64")
        variants = [name for name in variants
                    if name.split("/")[0] in {each.split("/")[0] for each in SMALL}]
        done = bench("--rival", f"itself={BENCH} --serve", "--csv", self.csv, *variants)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = table.read(self.csv)[1]
        self.assertEqual([row["problem"] for row in rows], variants)
        moved = {row["problem"].split("/", 1)[1]: row["bytes"] for row in rows}
        # dy, x, dx; mean, rstd; gamma, dgamma: not dbeta. And: dy, dbeta.
        self.assertEqual(moved["f32/out110/16x64"], 4 * (3 * 16 * 64 + 2 * 16 + 2 * 64))
        self.assertEqual(moved["f32/out001/16x64"], 4 * (16 * 64 + 64))
        if "f32/mask1x1/2x3x16x64" in moved:
            self.assertEqual(moved["f32/mask1x1/2x3x16x64"], 16 * 64 * (4 * 2 * 6 + 1))
            self.assertEqual(moved["f32/mask2x3/2x3x16x64"], 16 * 64 * (4 * 3 * 6 + 6))

    def test_a_problem_is_measured_once_however_often_it_is_named(self):
        default = next(name for name in LISTED if name.startswith("layer_norm_backward/f32/"))
        twice = run(BENCH, "--list", default, "layer_norm_backward/f32", "layer_norm_backward")
        self.assertEqual(len(twice.stdout.split()), len(set(twice.stdout.split())))
        self.assertIn(default, twice.stdout.split())
        self.assertEqual(run(BENCH, "--help").returncode, 0)

    @unittest.skipIf(ON_GPU, "of the CPU's plans")
    def test_the_workspace_of_large_default_problems_is_at_most_a_twentieth_of_their_bytes(self):
        done = run(BENCH, "--plan")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual([name for name, *_ in rows], LISTED)
        large = 0
        for name, moved, workspace in rows:
            most = int(moved) / 20
            if name.startswith("embedding_dense_backward/"):  # the sort, whatever the bytes
                indices, table_rows = name.split("/")[2].split("x")[:2]
                most = min(most, 16 * int(indices) + 8 * int(table_rows) + 64)
            elif int(moved) < 64e6:
                continue
            large += 1
            self.assertLessEqual(int(workspace), most, name)
        self.assertGreater(large, 100)

    def test_goals_are_of_default_problems(self):
        wanted = set(goals.goals())
        self.assertLessEqual(wanted if not ON_GPU else set(), set(LISTED))
        self.assertGreater(len(wanted), 150)
        shown = run(sys.executable, f"{FOLDER}/goals.py", "--all", "Intel")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("miss their goal", shown.stdout)
        unknown = run(sys.executable, f"{FOLDER}/goals.py", "Z80")
        self.assertEqual(unknown.returncode, 1)
        self.assertIn("'Z80'; there are:", unknown.stderr)

    def test_what_is_no_table_is_refused_by_name(self):
        for name, wanted in ((f"{FOLDER}/history.csv", "no table"), (__file__, "no table"), ("gone.csv", ": No such")):
            done = run(sys.executable, f"{FOLDER}/roofline.py", name, "gone.svg")
            self.assertEqual(done.returncode, 1, name)
            self.assertTrue(done.stderr.startswith(name) and wanted in done.stderr, done.stderr)

    def test_of_every_rival_the_newest_ratio_counts(self):
        fields = "commit,rounds,us,pytorch_ratio,compiled_ratio,onednn_ratio"
        rows = ["a,9,1,,5,2", "b,7,2,1.5,,", "b,3,3,1.25,4,", "c,3,4,1.75,,"]
        self.addCleanup(setattr, goals, "FOLDER", goals.FOLDER)
        with tempfile.TemporaryDirectory() as made:
            goals.FOLDER = pathlib.Path(made)
            for count, wanted in ((3, ["2", "1.5", "4", "2"]), (4, ["4", "1.75", "4", "2"])):
                lines = ["machine,target,threads,view,problem," + fields]
                lines += ["M; peak 1,AVX3,2,contiguous,p," + row for row in rows[:count]]
                (goals.FOLDER / "history.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
                row = goals.newest("M")["M, AVX3"]["p"]
                self.assertEqual([row[name] for name in ("us", "pytorch_ratio", "compiled_ratio", "onednn_ratio")],
                                 wanted)

    def test_the_sweep_asks_for_nothing_but_problems(self):
        known = {name.split("/")[0] for name in LISTED}
        names = {name for group in sweep.groups_of(known) for _, name in group}
        self.assertGreater(len(names), 100 * len(known))
        listed = run(BENCH, "--list", *names)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(set(listed.stdout.split()), names)

    def test_what_cannot_be_measured_does_not_end_the_run(self):
        done = bench("--csv", self.csv, "layer_norm_backward/f32/0x0", SMALL[1])
        self.assertEqual(done.returncode, 1)
        self.assertIn("layer_norm_backward/f32/0x0 is left out", done.stderr)
        self.assertEqual([row["problem"] for row in table.read(self.csv)[1]], [SMALL[1]])

    def test_copies_of_a_problem_leave_the_caches(self):
        done = run(BENCH, "--rounds", "1", "--csv", self.csv, "scaled_masked_softmax/f32/1x1x512x512")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(table.read(self.csv)[1][0]["copy_gb_per_s"], 0)

    def test_figures_of_the_cpu_are_not_given_for_those_of_a_gpu(self):
        done = run(BENCH, "--rounds", "2", "--cached", "--csv", self.csv, SMALL[0],
                   ACLGRAD_DEVICE="cuda", ACLGRAD_EMULATED_DEVICES="0")
        if done.returncode == 0:  # there is a GPU
            self.assertEqual(table.read(self.csv)[1][0]["target"], "cuda")
        else:
            self.assertIn("nothing was run on the CPU", done.stderr)
            self.assertFalse(os.path.exists(self.csv))

    def test_a_table_without_rows_is_no_picture(self):
        pathlib.Path(self.csv).write_text("# nothing\nproblem,us\n", encoding="ascii")
        done = run(sys.executable, f"{FOLDER}/roofline.py", self.csv, self.csv + ".svg")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no problem to draw", done.stderr)
        self.assertFalse(os.path.exists(self.csv + ".svg"))

    def test_the_picture_has_a_point_for_every_problem_and_rival(self):
        bench("--rival", f"itself={BENCH} --serve", "--csv", self.csv, *SMALL)
        picture = self.csv + ".svg"
        done = run(sys.executable, f"{FOLDER}/roofline.py", self.csv, picture)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = xml.etree.ElementTree.parse(picture).getroot()
        titles = [title.text for title in text.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(len(titles), 2 * len(SMALL))

    def test_a_rival_that_does_not_know_a_problem_is_left_out_of_it(self):
        rival = pathlib.Path(self.folder.name) / "rival.py"
        rival.write_text("import sys\n"
                         "for line in sys.stdin:\n"
                         "    print('no idea' if line[0] == 'm' else 'ok', flush=True)\n",
                         encoding="ascii")
        done = bench("--rival", f"ignorant={sys.executable} {rival}", "--csv", self.csv, SMALL[0])
        self.assertEqual(done.returncode, 0, done.stderr)
        row = table.read(self.csv)[1][0]
        self.assertIsNone(row["ignorant_us"])
        self.assertEqual(row["ignorant_way"], "idea")

    def test_a_rival_that_ends_is_left_out_from_then_on(self):
        rival = pathlib.Path(self.folder.name) / "rival.py"
        rival.write_text("""
import sys
made = 0
for line in sys.stdin:
    made += line[0] == "m"
    if line[0] == "r" and made == 2:
        sys.exit(1)
    print({"t": "ok", "m": 'ok its, "way"', "r": "0.5"}[line[0]], flush=True)
""", encoding="ascii")
        done = bench("--rival", f"mortal={sys.executable} {rival}", "--csv", self.csv, SMALL[0],
                     SMALL[1], SMALL[-1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out from now on", done.stderr)
        rows = table.read(self.csv)[1]
        self.assertEqual([row["mortal_us"] for row in rows], [500000, None, None])
        self.assertEqual(rows[0]["mortal_way"], 'its, "way"')
        self.assertIn("ended", rows[2]["mortal_way"])

    def test_what_is_wrong_is_named(self):
        for arguments, word in (
                (("scaled_masked_softmax/f32/16",), "'16'"),
                (("scaled_masked_softmax/f64/1x1x16x64",), "f64"),
                (("layer_norm_forward/f32/16x64",), "layer_norm_forward"),
                ((SMALL[0], "layer_norm_backward/f32/16"), "'16'"),
                (("--list", "layer_norm_backward/f32/8192"), "'8192'"),
                (("grouped_bias_add_grad/f32/64x24-g4-giantx",), "-giant"),
                (("grouped_bias_add_grad/f32/64x24-g2049",), "2048"),
                (("nsa_compress_grad/f32/64x1x64-l32-d16",), "f32"),
                (("nsa_compress_grad/bf16/64x1x64-l-d16",), "-l<window>"),
                (("nsa_compress_grad/bf16/64x1x64-l32-d16-s4-unevenly",), "-uneven"),
                (("embedding_dense_backward/f32/16x0x64",), "not empty"),
                (("scaled_masked_softmax_backward/f32/mask2x3/2x4x16x64",), "1 or 4"),
                (("layer_norm_backward/f32/out11/16x64",), "out<dx>"),
                (("layer_norm_backward/f32/out000/16x64",), "out<dx>"),
                (("layer_norm_backward/f32/out/16x64",), "out<dx>"),
                (("--view", "padded", "--view", "offset", SMALL[0]), "given twice"),
                (("--view", "upside", SMALL[0]), "upside"),
                (("--threads", "none", SMALL[0]), "none"),
                (("--target", "MMX", SMALL[0]), "MMX"),
                (("--rival", "nothing", SMALL[0]), "nothing"),
                (("--rival", "gone=false", SMALL[0]), "gone"),
                (("--rival", "same=false", "--rival", "same=true", SMALL[0]), "given twice"),
                (("--patience", "-1", SMALL[0]), "from 0 to 1024"),
                (("--threads", "0", SMALL[0]), "from 1 to 1024"),
                (("--csv", "/no/such/folder/x.csv", SMALL[0]), "/no/such/folder"),
                (("--speed", "1"), "--speed")):
            done = bench(*arguments)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertNotIn("%", done.stdout, arguments)  # nothing was measured
            self.assertIn(word, done.stderr, arguments)

    @unittest.skipIf(ON_GPU, "an emulated GPU is too slow for it")
    def test_small_calls(self):
        done = run(SMALL_CALLS, "--csv", self.csv)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split() for line in done.stdout.splitlines() if "/" in line.split(" ")[0]]
        self.assertEqual(len(rows), 5)
        for row in rows:
            self.assertTrue(all(float(number) > 0 for number in row[1:]), row)
        machine, table_rows = table.read(self.csv)
        self.assertIn("GFLOP/s", machine)
        for row, printed in zip(table_rows, rows, strict=True):
            self.assertEqual(row["problem"], printed[0])
            columns = ("whole_us", "phase_two_us", "idle_us", "idle_phase_one_us", "idle_phase_two_us",
                       "repeat_us", "queued_us", "among_1000_us", "crowded_us")
            for column, number in zip(columns, printed[1:], strict=True):
                self.assertAlmostEqual(row[column], float(number), delta=0.001)
        self.assertEqual(run(SMALL_CALLS, "--speed").returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
