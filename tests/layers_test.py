#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py must find every kind of violation, planted into a copy of the tree."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPERATOR = "src/ops/layer_norm_backward"
SISTER = "src/ops/nsa_compress_grad"


class PlantedViolations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("include", "src"):
            shutil.copytree(ROOT / name, self.root / name)

    def plant(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text() if file.exists() else ""
        file.write_text(before + text)

    def check(self):
        command = [sys.executable, str(ROOT / "scripts/check_layers.py"), str(self.root)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def refused(self, expected):
        result = self.check()
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(expected, result.stdout)

    def test_clean_tree_passes(self):
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_base_includes_runtime(self):
        self.plant("src/base/status.h", '#include "runtime/work.h"\n')
        self.refused("base must not see runtime")

    def test_header_includes_source_floor(self):
        self.plant("include/acl/acl_rt.h", '#  include "base/status.h"\n')
        self.refused("include must not see base")

    def test_runtime_includes_tensor(self):
        self.plant("src/tensor/planted.h", "")
        self.plant("src/runtime/work.h", "#include <tensor/planted.h>\n")
        self.refused("runtime must not see tensor")

    def test_kernels_and_runtime_are_apart(self):
        self.plant("src/kernels/cpu/planted.h", '#include "runtime/work.h"\n')
        self.refused("kernels must not see runtime")

    def test_tensor_includes_operator(self):
        self.plant(f"{OPERATOR}/planted.h", "")
        self.plant("src/tensor/planted.h", '#include "ops/layer_norm_backward/planted.h"\n')
        self.refused("tensor must not see ops")

    def test_operator_includes_operator(self):
        self.plant(f"{OPERATOR}/planted.h", "")
        self.plant(f"{SISTER}/planted.h", '#include "ops/layer_norm_backward/planted.h"\n')
        self.refused("operators never include each other")

    def test_kernel_includes_runtime(self):
        self.plant(f"{OPERATOR}/cpu.cpp", '\n#include "runtime/work.h"\n')
        self.refused("a kernel must not reach src/runtime/work.h")

    def test_kernel_reaches_tensor_through_its_own_header(self):
        self.plant("src/tensor/planted.h", "")
        self.plant(f"{OPERATOR}/planted.h", '#include "tensor/planted.h"\n')
        self.plant(f"{OPERATOR}/cpu.cpp", '\n#include "ops/layer_norm_backward/planted.h"\n')
        self.refused("a kernel must not reach src/tensor/planted.h")

    def test_include_that_names_no_file(self):
        self.plant("src/base/status.h", '#include "status.h"\n')
        self.refused("which is no file below src/ or include/")


if __name__ == "__main__":
    unittest.main()
