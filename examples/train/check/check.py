#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py <folder>: what `train --check` wrote there, computed anew from the first weights.

(a) each parameter's gradient of the first step: PyTorch's autograd;
(b) the loss of each step: PyTorch's model, trained with its AdamW;
(c) the formulas in float64: their gradients against central differences of their loss, and the
    program's gradients against theirs.
Exits with 1 when one is off, and names it.
"""
import pathlib
import random
import sys

try:
    import numpy
    import torch
except ImportError as error:
    sys.exit(f"train --check needs PyTorch and NumPy ({error}); name a python that has them in "
             "ACLGRAD_ORACLE_PYTHON")

from model import Model, Windows
from operators import Formulas, Framework

CLOSE = 1e-4        # relative L2 of a gradient in FP32
THROUGH_BF16 = 1e-2  # of one that passes through BF16
LOSS = 1e-3
# By how much the chance of the program's expert may be below the best one's. Such experts are equal
# but for the last bits of matrix products; in BF16 but for those of twenty steps' weights too.
EQUAL, EQUAL_BF16 = 1e-4, 5e-2
DIFFERENCES = 1e-6
STEP = 2e-4         # of a central difference of order four
SAMPLES = 320       # parameters whose differences are taken


class Recorded:
    """The folder's contents."""

    def __init__(self, folder):
        self.folder = folder
        self.size, self.adamw, self.rates, self.parameters = {}, {}, [], []
        for line in (folder / "model.txt").read_text().splitlines():
            kind, *words = line.split()
            if kind == "size":
                self.size[words[0]] = int(words[1])
            elif kind == "adamw":
                self.adamw[words[0]] = float(words[1])
            elif kind == "rate":
                self.rates.append(float(words[0]))
            else:
                dims = [int(word) for word in words[3:]]
                self.parameters.append((words[0], int(words[1]), words[2] == "1", dims))
        self.losses = [float(word) for word in (folder / "losses.txt").read_text().split()]
        ends = (folder / "ends.txt").read_text().splitlines()
        self.ends = [[int(word) for word in line.split()] for line in ends]
        steps = self.size["steps"]
        self.bytes = self._bytes("bytes.bin").reshape(steps, -1)
        self.targets = self._bytes("targets.bin").reshape(steps, -1)
        self.bf16 = self.size["bf16"] == 1
        choices = numpy.fromfile(folder / "choices.bin", numpy.uint32).astype(numpy.int64)
        self.choices = torch.from_numpy(choices).reshape(steps, self.size["blocks"], -1)
        flat = torch.from_numpy(numpy.fromfile(folder / "rounded.bin", numpy.int16))
        # Of each step: keys and values of each block, all tokens and then all windows.
        calls = 2 * self.size["blocks"]
        rows = [calls * (len(self.bytes[0]) + len(Windows(self.size, each).starts))
                for each in self.ends]
        self.rounded = flat.view(torch.bfloat16).reshape(-1, self.size["width"]).split(rows)

    def _bytes(self, name):
        return torch.from_numpy(numpy.fromfile(self.folder / name, numpy.uint8).astype(numpy.int64))

    def compressions(self, step, rows):
        """What each NsaCompress of a step read and wrote, of the first rows."""
        context, tokens = self.size["context"], len(self.bytes[0])
        windows = len(Windows(self.size, self.ends[step]).starts)
        kept = Windows(self.size, [end for end in self.ends[step] if end <= rows * context]).starts
        out = []
        for call in self.rounded[step].split(tokens + windows):
            out.append((call[:rows * context], call[tokens:tokens + len(kept)]))
        return out

    def arrays(self, name):
        """The flat array of a file as one tensor for each parameter."""
        flat = torch.from_numpy(numpy.fromfile(self.folder / name, numpy.float32))
        out = {}
        for key, offset, _, dims in self.parameters:
            out[key] = flat[offset:offset + int(numpy.prod(dims))].reshape(dims).clone()
        return out

    def limit(self, name):
        """Of a gradient's difference. Only what lies after the last compression has a gradient that
        never was BF16."""
        last = f"block{self.size['blocks'] - 1}."
        after = ("attention_out", "experts_gamma", "experts_beta", "router", "expert_in",
                 "expert_in_bias", "expert_out", "expert_out_bias")
        exact = name.startswith(("head", "final")) or name in [last + each for each in after]
        return CLOSE if exact and not self.bf16 else THROUGH_BF16


class Report:
    def __init__(self):
        self.failed = 0

    def line(self, what, error, limit):
        good = error <= limit  # not when it is no number
        self.failed += not good
        print(f"  {what:34} {error:10.2e}  at most {limit:.0e}{'' if good else '   OFF'}")


def relative(got, exact):
    got, exact = got.double(), exact.double()
    norm = float(exact.norm())
    difference = float((got - exact).norm())
    return difference / norm if norm > 0 else difference


def used_weights(recorded, master):
    """What the model computes with; the gradient goes to the master weights as it is."""
    if not recorded.bf16:
        return master
    return {name: w + (w.to(torch.bfloat16).to(w.dtype) - w).detach() for name, w in master.items()}


def check_training(recorded, report):
    """(a) and (b)"""
    master = {name: w.requires_grad_() for name, w in recorded.arrays("weights.bin").items()}
    decays = {name: decay for name, _, decay, _ in recorded.parameters}
    adamw = recorded.adamw
    optimizer = torch.optim.AdamW(
        [{"params": [w for name, w in master.items() if decays[name] == decay],
          "weight_decay": adamw["weight_decay"] if decay else 0.0} for decay in (False, True)],
        betas=(adamw["first_decay"], adamw["second_decay"]), eps=adamw["epsilon"])
    model = Model(recorded.size, Framework(recorded.bf16))
    losses = []
    for step, rate in enumerate(recorded.rates):
        optimizer.zero_grad()
        model.operators.take(recorded.compressions(step, recorded.size["batch"]))
        loss = model.loss(used_weights(recorded, master), recorded.bytes[step],
                          recorded.targets[step], recorded.ends[step], recorded.choices[step])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            print("(a) gradients of the first step, against PyTorch: relative L2")
            same = (torch.stack(model.choices) == recorded.choices[0]).double().mean().item()
            gradients = recorded.arrays("gradients.bin")
            for name, w in master.items():
                gradient = w.grad if w.grad is not None else torch.zeros_like(w)
                report.line(name, relative(gradients[name], gradient), recorded.limit(name))
            print(f"  {same:.2%} of the bytes went to the same expert")
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    print(f"(b) loss of {len(losses)} steps, against PyTorch: difference")
    worst = max(abs(a - b) for a, b in zip(losses, recorded.losses))
    report.line(f"{losses[0]:.4f} to {losses[-1]:.4f}", worst, LOSS)
    report.line("the program's expert, below the best", model.lost,
                EQUAL_BF16 if recorded.bf16 else EQUAL)


def first_rows(recorded, rows):
    """The first rows of the first batch: loss arguments, and the experts they went to."""
    count = rows * recorded.size["context"]
    ends = [end for end in recorded.ends[0] if end <= count]
    return ((recorded.bytes[0][:count], recorded.targets[0][:count], ends),
            recorded.choices[0][:, :count])


def formula_gradients(recorded, rows, reads_rounded):
    """Weights with the gradients of the formulas in float64, and their loss, for the first rows."""
    arguments, choices = first_rows(recorded, rows)
    weights = {name: used.double() for name, used in recorded.arrays("weights.bin").items()}
    weights = {name: used.detach().requires_grad_()
               for name, used in used_weights(recorded, weights).items()}
    operators = Formulas(recorded.bf16, recorded.compressions(0, rows), reads_rounded)
    model = Model(recorded.size, operators)
    loss = model.loss(weights, *arguments, choices)
    loss.backward()
    operators.freeze()
    return weights, lambda: model.loss(weights, *arguments, choices).item()


def central_difference(values, index, loss):
    """Of order four; `values` is flat and restored."""
    kept = values[index].item()
    at = {}
    for distance in (-2, -1, 1, 2):
        values[index] = kept + distance * STEP
        at[distance] = loss()
    values[index] = kept
    return (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * STEP)


def check_formulas(recorded, report):
    """(c)"""
    rows = recorded.size["batch"]
    weights, _ = formula_gradients(recorded, rows, True)
    print("(c) gradients of the first step, against formulas in float64: relative L2")
    gradients = recorded.arrays("gradients.bin")
    for name, w in weights.items():
        report.line(name, relative(gradients[name], w.grad), recorded.limit(name))
    if report.failed:
        print("    the formulas' own differences are left out: see to the others first")
        return
    weights, loss = formula_gradients(recorded, 2, False)
    draw = random.Random(1)
    print("    formulas against central differences of their loss: relative L2")
    with torch.no_grad():
        for name, w in weights.items():
            flat, exact = w.view(-1), w.grad.view(-1)
            places = exact.nonzero().view(-1).tolist() or [0]
            # Most where there is a gradient; a few anywhere, so that a zero is looked at, too.
            each = -(-SAMPLES // len(weights))
            chosen = draw.sample(places, min(each - 2, len(places)))
            chosen += [draw.randrange(len(flat)) for _ in range(2)]
            taken = torch.tensor([central_difference(flat, i, loss) for i in chosen],
                                 dtype=torch.float64)
            report.line(f"{name}, {len(chosen)} of them", relative(taken, exact[chosen]),
                        DIFFERENCES)


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    recorded = Recorded(pathlib.Path(sys.argv[1]))
    report = Report()
    check_training(recorded, report)
    check_formulas(recorded, report)
    if report.failed:
        print(f"check: {report.failed} comparisons are off")
        return 1
    print(f"check: all agree with PyTorch {torch.__version__} and with the formulas")
    return 0


if __name__ == "__main__":
    sys.exit(main())
