#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_test.py <train> [tests...]: the training program as a user runs it, in its small size. The
same bits for any run and any number of threads, checkpoints that continue to the same bits, and bad
input."""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

TRAIN = sys.argv[1]
TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"


def train(*arguments, limit=None, output=subprocess.PIPE, **variables):
    """`limit`: bytes that a file may have, as if the disk were full then."""
    def full_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [TRAIN, "--size", "small", "--sample", "0", *[str(each) for each in arguments]]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False,
                          preexec_fn=full_disk if limit else None,
                          env={**os.environ, **variables})


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def good(self, *arguments, **variables):
        result = train(*arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def weights(self, *arguments, **variables):
        return re.search(r"hash ([0-9a-f]{16})", self.good(*arguments, **variables))[1]

    def refused(self, message, *arguments, status=1, **more):
        result = train(*arguments, **more)
        self.assertEqual(result.returncode, status, f"{result.stdout}{result.stderr}")
        self.assertIn(message, result.stderr)
        return result


class SameBits(Case):
    def test_two_runs_and_one_or_more_threads(self):
        first = self.weights("--steps", 12, "--threads", 1, TEXT)
        for threads in (1, 2, 5):
            self.assertEqual(self.weights("--steps", 12, "--threads", threads, TEXT), first)
        self.assertNotEqual(self.weights("--steps", 12, "--seed", 2, TEXT), first)

    def test_any_instruction_set_of_the_operators(self):
        first = self.weights("--steps", 12, TEXT)
        self.assertEqual(self.weights("--steps", 12, TEXT, ACLGRAD_TARGET="SCALAR"), first)

    def test_bfloat16(self):
        first = self.weights("--steps", 12, "--dtype", "bf16", "--threads", 1, TEXT)
        second = self.weights("--steps", 12, "--dtype", "bf16", "--threads", 2, TEXT)
        self.assertEqual(second, first)
        self.assertNotEqual(self.weights("--steps", 12, TEXT), first)

    def test_the_base_model(self):
        runs = [self.weights("--size", "base", "--steps", 2, "--threads", threads, TEXT)
                for threads in (1, 2)]
        self.assertEqual(runs[0], runs[1])

    def test_a_checkpoint_continues_to_the_same_bits(self):
        for dtype in ("fp32", "bf16"):
            saved = self.folder / dtype
            common = ["--dtype", dtype, TEXT]
            straight = self.weights("--steps", 14, *common)
            half = self.weights("--steps", 6, "--save", saved, *common)
            self.assertEqual(self.weights("--steps", 6, "--load", saved, *common), half)
            self.assertEqual(self.weights("--steps", 14, "--load", saved, *common), straight)

    def test_a_checkpoint_keeps_its_seed(self):
        saved = self.folder / "saved"
        straight = self.weights("--steps", 8, "--seed", 5, TEXT)
        self.weights("--steps", 4, "--seed", 5, "--save", saved, TEXT)
        self.assertEqual(self.weights("--steps", 8, "--load", saved, TEXT), straight)

    def test_a_checkpoint_knows_its_text(self):
        saved, other = self.folder / "saved", self.folder / "other"
        self.good("--steps", 2, "--save", saved, TEXT)
        other.write_bytes(TEXT.read_bytes()[:-1])
        go_on = ("--steps", 3, "--load", saved, "--save", saved)
        self.assertNotIn("warning", train(*go_on, TEXT).stderr)
        moved = train(*go_on, other)
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertIn("was trained on another text", moved.stderr)
        self.assertNotIn("warning", train(*go_on, other).stderr)


class Report(Case):
    def test_what_a_run_prints(self):
        curve = self.folder / "loss.svg"
        output = self.good("--steps", 15, "--sample", 30, "--curve", curve, TEXT)
        for text in ("unigram entropy", "bigram entropy", "validation loss", "sample before",
                     "sample after", "tokens/s", "% of the time in the operators"):
            self.assertIn(text, output)
        for operator in ("LayerNormBackward", "EmbeddingDenseBackward", "NsaCompressGrad",
                         "ScaledMaskedSoftmaxBackward", "GroupedBiasAddGrad"):
            row = re.search(rf"aclnn{operator} .*", output)[0].split()
            self.assertGreater(float(row[-1]), 0, row)
            self.assertGreater(float(row[-2]), 0, row)
        self.assertIn("<svg", curve.read_text())

    def test_entropies(self):
        text = self.folder / "text"
        text.write_bytes(b"ab" * 4000)
        output = self.good("--steps", 0, text)
        self.assertRegex(output, r"unigram entropy +0\.6931 \(1\.0000\)")
        self.assertRegex(output, r"bigram entropy +0\.0000 \(0\.0000\)")

    def test_it_learns(self):
        text = self.folder / "text"
        text.write_bytes(b"".join(b"%d and %d make %d\n" % (a, b, a + b)
                                  for a in range(40) for b in range(40)))
        output = self.good("--steps", 200, "--goal", text)
        self.assertIn("reached", output)

    def test_missing_the_goal_is_a_failure_when_asked_for(self):
        self.refused("", "--steps", 1, "--goal", TEXT)

    def test_any_bytes(self):
        text = self.folder / "text"
        text.write_bytes(bytes((i * i + i // 7) % 256 for i in range(9000)))
        self.good("--steps", 3, "--sample", 40, text)


class BadInput(Case):
    def test_flags(self):
        self.refused("there is no flag --stepz", "--stepz", 5, TEXT, status=2)
        self.refused("--steps needs a value", TEXT, "--steps", status=2)
        self.refused("--steps takes a number", "--steps", "many", TEXT, status=2)
        self.refused("--steps takes a number", "--steps", -1, TEXT, status=2)
        self.refused("--threads takes a number", "--threads", 0, TEXT, status=2)
        self.refused("--size is small or base", "--size", "huge", TEXT, status=2)
        self.refused("--dtype is fp32 or bf16", "--dtype=fp8", TEXT, status=2)
        self.refused("--save-every needs --save", "--save-every", 5, TEXT, status=2)
        self.refused("one text only", TEXT, TEXT, status=2)
        self.refused("the text to train on is missing", status=2)
        self.refused("--check takes no value", "--check=1", TEXT, status=2)
        self.refused("--help takes no value", "--help=3", status=2)

    def test_what_a_check_would_ignore(self):
        for flag in (["--steps", 5], ["--save", "s"], ["--save", "s", "--save-every", 5],
                     ["--curve=c"], ["--goal"], ["--sample", 3]):
            # `train` itself would give a --sample.
            result = subprocess.run([TRAIN, "--check", *map(str, flag), TEXT], text=True,
                                    capture_output=True, check=False, cwd=self.folder)
            self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
            self.assertIn(f"goes without {str(flag[0]).split('=', maxsplit=1)[0]}", result.stderr)

    def test_texts(self):
        text = self.folder / "text"
        self.refused(f"cannot read the text {text}: No such file", text)
        self.refused("is a folder", self.folder)
        self.refused("is no file", "/dev/zero")
        text.write_bytes(b"")
        self.refused("is empty", text)
        text.write_bytes(b"In the beginning")
        self.refused("is too short: it has 16 bytes; this model needs at least 520", text)
        text.write_bytes(b"x" * 519)
        self.refused("is too short", text)
        text.write_bytes(b"xy" * 260)
        self.good("--steps", 2, text)

    def test_checkpoints_that_cannot_be_loaded(self):
        saved, bad = self.folder / "saved", self.folder / "bad"
        self.good("--steps", 2, "--save", saved, TEXT)
        whole = saved.read_bytes()
        self.refused("cannot read the checkpoint", "--load", bad, TEXT)
        self.refused("no checkpoint", "--load", self.folder, TEXT)
        self.refused("is no checkpoint of this program", "--load", TEXT, TEXT)
        for length in (0, 7, 8, 60, len(whole) // 2, len(whole) - 1):
            bad.write_bytes(whole[:length])
            self.refused("is no checkpoint" if length < 8 else "is cut off", "--load", bad, TEXT)
        bad.write_bytes(whole + b"x")
        self.refused("is too long", "--load", bad, TEXT)
        bad.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
        self.refused("is damaged", "--load", bad, TEXT)
        self.refused("belongs to another model", "--size", "base", "--load", saved, TEXT)
        self.refused("another --dtype", "--dtype", "bf16", "--load", saved, TEXT)

    def test_a_full_disk_keeps_the_last_checkpoint(self):
        saved = self.folder / "saved"
        self.good("--steps", 2, "--save", saved, TEXT)
        good = saved.read_bytes()
        result = self.refused("cannot write", "--steps", 4, "--load", saved, "--save", saved, TEXT,
                              limit=len(good) // 2)
        for text in ("norm, smallest", "validation loss", "weights after step 4: hash"):
            self.assertIn(text, result.stdout)
        self.assertEqual(saved.read_bytes(), good)
        self.assertEqual([each.name for each in self.folder.iterdir()], ["saved"])
        self.good("--steps", 3, "--load", saved, TEXT)

    def test_a_full_disk_on_the_way_does_not_end_the_run(self):
        saved = self.folder / "saved"
        self.good("--steps", 2, "--save", saved, TEXT)
        good = saved.read_bytes()
        result = self.refused("after step 3: cannot write", "--steps", 5, "--load", saved, "--save",
                              saved, "--save-every", 3, TEXT, limit=len(good) // 2)
        self.assertIn("after step 5: cannot write", result.stderr)
        for text in ("norm, smallest", "validation loss", "weights after step 5: hash"):
            self.assertIn(text, result.stdout)
        self.assertEqual(saved.read_bytes(), good)

    def test_a_full_disk_keeps_the_last_curve(self):
        curve = self.folder / "curve.svg"
        curve.write_text("the last one")
        result = self.refused("cannot write", "--steps", 2, "--curve", curve, TEXT, limit=100)
        self.assertIn("weights after step 2: hash", result.stdout)
        self.assertEqual(curve.read_text(), "the last one")
        self.assertEqual([each.name for each in self.folder.iterdir()], ["curve.svg"])

    def test_a_report_that_cannot_be_written(self):
        for arguments in (["--steps", 1, TEXT], ["--help"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                self.refused("cannot write the report: No space", *arguments, output=full)

    def test_nothing_that_is_needed_is_overwritten(self):
        text, saved, link = (self.folder / name for name in ("text", "saved", "link"))
        text.write_bytes(TEXT.read_bytes())
        link.symlink_to("text")
        self.good("--steps", 1, "--save", saved, text)
        partial = self.folder / "new.partial"
        shutil.copy(saved, partial)
        before = {each: each.read_bytes() for each in self.folder.iterdir()}
        new = self.folder / "new"
        for message, *arguments in (
                ("--curve would overwrite the text", "--curve", text),
                ("--curve would overwrite the text", "--curve", link),
                ("--save would overwrite the text", "--save", text),
                ("--save would overwrite the text", "--save", self.folder / "." / "link"),
                ("--curve would overwrite the checkpoint", "--load", saved, "--curve", saved),
                ("--save would overwrite the --curve", "--save", new, "--curve", new),
                ("--save would overwrite the --curve", "--save", new, "--curve",
                 f"{self.folder}/../{self.folder.name}/new"),
                ("--save would overwrite the checkpoint", "--load", partial, "--save", new),
                ("--curve would overwrite the --save", "--save", partial, "--curve", new)):
            with self.subTest(arguments=arguments):
                self.refused(message, "--steps", 2, *arguments, text, status=2)
                after = {each: each.read_bytes() for each in self.folder.iterdir()}
                self.assertEqual(after, before)

    def test_a_link_stays_a_link(self):
        real, link = self.folder / "real", self.folder / "link"
        link.symlink_to("real")
        for steps in (1, 2):  # a link to nothing yet, then to the last checkpoint
            self.good("--steps", steps, "--save", link, TEXT)
            self.assertTrue(link.is_symlink())
            self.assertIn(f"continued from step {steps}",
                          self.good("--steps", 3, "--load", real, TEXT))

    def test_places_that_cannot_be_written(self):
        self.refused("cannot write", "--steps", 1, "--save", self.folder / "none" / "saved", TEXT)
        self.refused("no ordinary file", "--steps", 1, "--save", self.folder, TEXT)
        self.refused("no ordinary file", "--steps", 1, "--save", "/dev/full", TEXT)
        self.refused("cannot write", "--steps", 1, "--curve", self.folder / "none" / "c.svg", TEXT)

    def test_periodic_checkpoints(self):
        saved, copy = self.folder / "saved", self.folder / "copy"
        self.good("--steps", 5, "--save", saved, "--save-every", 2, TEXT)
        shutil.copy(saved, copy)
        self.assertIn("continued from step 5", self.good("--steps", 6, "--load", copy, TEXT))
        self.assertIn("nothing to train", self.good("--steps", 3, "--load", copy, TEXT))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
