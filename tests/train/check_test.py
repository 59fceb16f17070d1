#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_test.py <train> <zeroed_operator.so>: `train --check` passes, and fails as soon as any one
of the five gradient operators gives zeros. So does a training run, which names it."""
import os
import pathlib
import subprocess
import sys
import unittest

TRAIN, ZEROED = sys.argv[1:3]
TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"


def check(*arguments, **variables):
    command = [TRAIN, "--check", "--size", "small", "--threads", "1", *arguments, str(TEXT)]
    return subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, **variables})


class Check(unittest.TestCase):
    def test_passes(self):
        result = check()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("check: all agree", result.stdout)
        self.assertIn("went to the same expert", result.stdout)
        self.assertNotIn("OFF", result.stdout)

    def test_passes_in_bfloat16(self):
        result = check("--dtype", "bf16")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def zeroed(self, operator, parameter):
        result = check(LD_PRELOAD=ZEROED, ZEROED_OPERATOR=operator)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        lines = [line for line in result.stdout.splitlines() if line.endswith("OFF")]
        self.assertTrue(any(line.split()[0] == parameter for line in lines), result.stdout)
        self.assertIn("comparisons are off", result.stdout)

    def test_layer_norm_backward_replaced_by_zeros(self):
        self.zeroed("aclnnLayerNormBackward", "final_gamma")

    def test_embedding_dense_backward_replaced_by_zeros(self):
        self.zeroed("aclnnEmbeddingDenseBackward", "token_table")

    def test_scaled_masked_softmax_backward_replaced_by_zeros(self):
        self.zeroed("aclnnScaledMaskedSoftmaxBackward", "block1.router")

    def test_grouped_bias_add_grad_replaced_by_zeros(self):
        self.zeroed("aclnnGroupedBiasAddGrad", "block0.expert_in_bias")

    def test_nsa_compress_grad_replaced_by_zeros(self):
        self.zeroed("aclnnNsaCompressGrad", "block1.compress_keys")

    def test_a_training_run_names_every_gradient_that_is_zero(self):
        # Behind a gradient of zeros lie others that it makes zero.
        command = [TRAIN, "--size", "small", "--steps", "4", "--sample", "0", str(TEXT)]
        result = subprocess.run(command, capture_output=True, text=True, check=False,
                                env={**os.environ, "LD_PRELOAD": ZEROED,
                                     "ZEROED_OPERATOR": "aclnnLayerNormBackward"})
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for operator in ("LayerNormBackward", "NsaCompressGrad"):
            self.assertIn(f"aclnn{operator} gave a zero or infinite gradient, first at step 2",
                          result.stderr)

    def test_preloading_alone_changes_nothing(self):
        result = check(LD_PRELOAD=ZEROED)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_a_python_without_pytorch_is_a_failure(self):
        result = check(ACLGRAD_ORACLE_PYTHON="/bin/false")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
