# SPDX-License-Identifier: Apache-2.0
"""The operators in PyTorch. Each function gives (eager ways, compiled ways) of a problem: functions without
arguments by name, and formulas with their arguments."""
import torch

from tensors import DEVICE, normal, parts, random_numbers
from windows import nsa_compress, nsa_compress_grad

aten = torch.ops.aten
SCALE = 0.125
MOST_UNROLLED = 64  # groups that a compiled loop may have
MOST_ONE_HOT = 128  # table rows; with more the products cost more than what they save


def zipf(count, rows):
    uniform = torch.rand(count, dtype=torch.float64, device=DEVICE, generator=random_numbers(2))
    return (torch.floor((rows + 1.0) ** uniform) - 1).long()


def layer_norm(dtype, text):
    (rows, cols), _ = parts(text)
    x, w, b = normal((rows, cols), dtype), normal(cols, dtype, 2), normal(cols, dtype, 3)

    def formula(x, w, b):
        x = x.float()
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        rstd = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return [(centred * rstd * w + b).to(dtype), mean, rstd]

    return ({"native_layer_norm": lambda: torch.native_layer_norm(x, [cols], w, b, 1e-5)},
            {"the formula": (formula, (x, w, b))})


def layer_norm_backward(dtype, text):
    (rows, cols), _ = parts(text)
    dy, x, w = normal((rows, cols), dtype), normal((rows, cols), dtype, 2), normal(cols, dtype, 3)
    b = torch.zeros_like(w)
    _, mean, rstd = torch.native_layer_norm(x, [cols], w, b, 1e-5)

    def formula(dy, x, mean, rstd, w):
        dy = dy.float()
        xhat = (x.float() - mean) * rstd
        g = dy * w
        dx = rstd * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
        return [dx.to(dtype), (dy * xhat).sum(0).to(dtype), dy.sum(0).to(dtype)]

    return ({"native_layer_norm_backward": lambda: aten.native_layer_norm_backward(
        dy, x, [cols], mean, rstd, w, b, [True, True, True])},
            {"the formula": (formula, (dy, x, mean, rstd, w))})


def indices_of(count, rows, options):
    if "uniform" in options:
        return torch.randint(0, rows, (count,), device=DEVICE, generator=random_numbers(2))
    if "equal" in options:
        return torch.zeros(count, dtype=torch.long, device=DEVICE)
    return zipf(count, rows)


def embedding(dtype, text):
    (count, rows, cols), options = parts(text)
    w, indices = normal((rows, cols), dtype), indices_of(count, rows, options)
    out = torch.empty(count, cols, dtype=dtype, device=DEVICE)
    bags = torch.arange(count + 1, device=DEVICE)  # of one row each
    every_column = indices[:, None].expand(-1, cols)
    return ({"embedding": lambda: [torch.embedding(w, indices)],
             "index_select, out given": lambda: [torch.index_select(w, 0, indices, out=out)],
             "gather": lambda: [torch.gather(w, 0, every_column)],
             "embedding_bag of single rows": lambda: [
                 aten.embedding_bag(w, indices, bags, False, 0, False, None, True)[0]]},
            {"rows by index": (lambda w, indices: [w[indices]], (w, indices))})


def embedding_dense_backward(dtype, text):
    (count, rows, cols), options = parts(text)
    dy, indices = normal((count, cols), dtype), indices_of(count, rows, options)
    by_freq = "freq" in options
    every_column = indices[:, None].expand(-1, cols)

    def zeros():
        return torch.zeros(rows, cols, dtype=dtype, device=DEVICE)

    def sorted_bags():
        ordered, order = torch.sort(indices)
        counts = torch.bincount(ordered, minlength=rows)
        weights = counts.double().reciprocal_().to(dtype)[ordered] if by_freq else None
        return [aten.embedding_bag(
            dy, order, counts.cumsum(0) - counts, False, 0, False, weights)[0]]

    def one_hot(dy, indices):
        table = torch.arange(rows, device=DEVICE)
        return [(indices == table[:, None]).to(dtype) @ dy]

    def formula(dy, indices):
        return [aten.embedding_dense_backward(dy, indices, rows, -1, by_freq)]

    ways = {"embedding_dense_backward": lambda: formula(dy, indices),
            "embedding_bag of sorted rows": sorted_bags}
    formulas = {"embedding_dense_backward": (formula, (dy, indices))}
    if by_freq:
        ways["scatter_reduce_ mean"] = lambda: [
            zeros().scatter_reduce_(0, every_column, dy, "mean", include_self=False)]
        return ways, formulas
    ways["index_add_"] = lambda: [zeros().index_add_(0, indices, dy)]
    ways["scatter_add_"] = lambda: [zeros().scatter_add_(0, every_column, dy)]
    if rows <= MOST_ONE_HOT:
        ways["one-hot indices @ dy"] = lambda: one_hot(dy, indices)
        formulas["one-hot indices @ dy"] = (one_hot, (dy, indices))
    return ways, formulas


def mask_of(batch, rows, cols):
    """Every third element, as aclgrad's bench has it."""
    count = batch * rows * cols
    return (torch.arange(count, device=DEVICE) % 3 == 2).view(batch, 1, rows, cols)


def scaled_masked_softmax_backward(dtype, text):
    (batch, heads, rows, cols), _ = parts(text)
    y = torch.softmax(normal((batch, heads, rows, cols), torch.float32), -1).to(dtype)
    dy = normal(y.shape, dtype, 2)
    mask = mask_of(batch, rows, cols)
    factors = torch.where(mask, 0.0, SCALE).to(dtype)

    def by_fill():
        dx = aten._softmax_backward_data(dy, y, -1, dtype)
        return [dx.mul_(SCALE).masked_fill_(mask, 0.0)]

    def by_factors():
        return [aten._softmax_backward_data(dy, y, -1, dtype).mul_(factors)]

    def formula(dy, y, mask):
        dy, y = dy.float(), y.float()
        dx = SCALE * (dy * y - y * (dy * y).sum(-1, keepdim=True))
        return [dx.masked_fill(mask, 0.0).to(dtype)]

    return ({"softmax backward, mul_, masked_fill_": by_fill,
             "softmax backward, mul_ by scale or 0": by_factors},
            {"the formula": (formula, (dy, y, mask))})


def scaled_masked_softmax(dtype, text):
    (batch, heads, rows, cols), _ = parts(text)
    x = normal((batch, heads, rows, cols), dtype)
    mask = mask_of(batch, rows, cols)
    shift = torch.where(mask, -10000.0, 0.0).to(dtype)

    def formula(x, mask):
        return [torch.softmax((x.float() * SCALE).masked_fill(mask, -10000.0), -1).to(dtype)]

    return ({"mul, masked_fill_, softmax": lambda: [
        torch.softmax((x * SCALE).masked_fill_(mask, -10000.0), -1)],
             "add to 0 or -10000, softmax": lambda: [
                 torch.softmax(torch.add(shift, x, alpha=SCALE), -1)]},
            {"the formula": (formula, (x, mask))})


def grouped_bias_add_grad(dtype, text):
    dims, options = parts(text)
    if "g" not in options:
        dy = normal(dims, dtype)
        ones = torch.ones(dims[0], 1, dims[1], dtype=dtype, device=DEVICE)
        return ({"sum": lambda: [torch.sum(dy, 1)],
                 "ones @ dy": lambda: [torch.bmm(ones, dy)[:, 0]]},
                {"sum": (lambda dy: [torch.sum(dy, 1)], (dy,))})
    (rows, width), groups = dims, options["g"]
    dy = normal((rows, width), dtype)
    ends = [rows * (j + 1) // groups for j in range(groups)]
    if "giant" in options:
        ends = [0] * (groups // 2) + [rows] * (groups - groups // 2)
    begins = [0] + ends[:-1]

    def sums():
        out = torch.empty(groups, width, dtype=dtype, device=DEVICE)
        for j, (begin, end) in enumerate(zip(begins, ends)):
            torch.sum(dy[begin:end], 0, out=out[j])
        return [out]

    ones = torch.ones(1, rows, dtype=dtype, device=DEVICE)

    def products():
        out = torch.empty(groups, width, dtype=dtype, device=DEVICE)
        for j, (begin, end) in enumerate(zip(begins, ends)):
            torch.mm(ones[:, begin:end], dy[begin:end], out=out[j:j + 1])
        return [out]

    def formula(dy):
        return [torch.stack([dy[begin:end].sum(0) for begin, end in zip(begins, ends)])]

    every_row = torch.arange(rows, dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([0, *ends], dtype=torch.int32, device=DEVICE)
    ways = {"a sum for each group": sums, "ones @ dy for each group": products,
            "embedding_bag of all rows": lambda: [
                aten.embedding_bag(dy, every_row, offsets, False, 0, False, None, True)[0]]}
    formulas = {"a sum for each group": (formula, (dy,))} if groups <= MOST_UNROLLED else {}
    if rows % groups == 0 and "giant" not in options:
        def equal_groups(dy):
            return [dy.view(groups, -1, width).sum(1)]

        ways["one sum over equal groups"] = lambda: equal_groups(dy)
        formulas["one sum over equal groups"] = (equal_groups, (dy,))
    return ways, formulas


OPERATORS = {fn.__name__: fn for fn in (
    layer_norm, layer_norm_backward, embedding, embedding_dense_backward, scaled_masked_softmax,
    scaled_masked_softmax_backward, grouped_bias_add_grad, nsa_compress, nsa_compress_grad)}
