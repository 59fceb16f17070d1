# SPDX-License-Identifier: Apache-2.0
"""The operators for the model, twice.

Framework: PyTorch's own, with autograd; it rounds to BF16 where the training program does.
Formulas: the formulas of the operators' documentation in float64, forward and backward written out.
"""
import torch

MASKED = -10000.0
EPSILON = 1e-5


def to_bfloat16(x):
    return x.to(torch.bfloat16).to(x.dtype)


def rounded_like(x, program):
    """x in BF16. A number close to the middle between two of BF16 goes to either, by the last bits
    of a matrix product: the program's choice is taken wherever it is one of these two."""
    own = to_bfloat16(x)
    if program is None:
        return own
    program = program.reshape(x.shape).to(x.dtype)
    _, exponent = torch.frexp(x)
    half = torch.ldexp(torch.ones_like(x), exponent - 9)  # of the distance of neighbours
    return torch.where((program - x).abs() <= 1.001 * half, program, own)


class _RoundBoth(torch.autograd.Function):
    """A tensor on its way into or out of an operator in BF16; so is its gradient."""

    @staticmethod
    def forward(_, x, program):
        return rounded_like(x, program)

    @staticmethod
    def backward(_, dy):
        return to_bfloat16(dy), None


class _RoundGradient(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.view_as(x)

    @staticmethod
    def backward(_, dy):
        return to_bfloat16(dy)


class _RoundedSoftmax(torch.autograd.Function):
    """PyTorch's softmax and its gradient. The gradient operator reads the output in BF16, where
    autograd would keep it as it was before rounding."""

    @staticmethod
    def forward(ctx, x, mask, scale):
        y = to_bfloat16(torch.softmax((x * scale).masked_fill(mask, MASKED), dim=-1))
        ctx.save_for_backward(y, mask)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, dy):
        y, mask = ctx.saved_tensors
        dx = torch.ops.aten._softmax_backward_data(to_bfloat16(dy), y, -1, y.dtype)
        return (dx * ctx.scale).masked_fill(mask, 0.0), None, None


def windows_of(x, starts, length):
    """[windows, length, heads, depth]"""
    places = torch.tensor(starts, dtype=torch.int64)[:, None] + torch.arange(length)[None, :]
    return x[places]


class Framework:
    """`take`: what the program's NsaCompress read and wrote, in the order of its calls."""

    def __init__(self, bf16):
        self.bf16 = bf16
        self.compressions = iter(())

    def take(self, compressions):
        self.compressions = iter(compressions)

    def _port(self, x):
        return _RoundBoth.apply(x, None) if self.bf16 else x

    def layer_norm(self, x, gamma, beta):
        y = torch.nn.functional.layer_norm(self._port(x), gamma.shape, gamma, beta, EPSILON)
        return self._port(y)

    def embedding(self, table, indices):
        return self._port(torch.nn.functional.embedding(indices, table))

    def softmax(self, x, mask, scale):
        if self.bf16:
            return _RoundedSoftmax.apply(self._port(x), mask, scale)
        return torch.softmax((x * scale).masked_fill(mask, MASKED), dim=-1)

    def compress(self, x, weight, starts):
        """NsaCompress has no FP32: BF16 whatever the model runs in."""
        read, written = next(self.compressions, (None, None))
        x, weight = _RoundBoth.apply(x, read), _RoundBoth.apply(weight, None)
        return _RoundBoth.apply(
            torch.einsum("wlnd,ln->wnd", windows_of(x, starts, weight.shape[0]), weight), written)

    def group_rows(self, bias, group):
        if not self.bf16:
            return bias[group]
        return _RoundGradient.apply(_RoundGradient.apply(bias)[group])


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta):
        mean = x.mean(-1, keepdim=True)
        rstd = 1 / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + EPSILON)
        ctx.save_for_backward(x, mean, rstd, gamma)
        return (x - mean) * rstd * gamma + beta

    @staticmethod
    def backward(ctx, dy):
        x, mean, rstd, gamma = ctx.saved_tensors
        normal = (x - mean) * rstd
        g = dy * gamma
        dx = rstd * (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True))
        return dx, (dy * normal).sum(0), dy.sum(0)


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, indices):
        ctx.save_for_backward(indices)
        ctx.rows = table.shape[0]
        return table[indices]

    @staticmethod
    def backward(ctx, dy):
        (indices,) = ctx.saved_tensors
        at = torch.nn.functional.one_hot(indices, ctx.rows).to(dy.dtype)
        return at.transpose(0, 1) @ dy, None


class _Softmax(torch.autograd.Function):
    """`keep` makes of the output what the gradient reads."""

    @staticmethod
    def forward(ctx, x, mask, scale, keep):
        scores = torch.where(mask, torch.full_like(x, MASKED), x * scale)
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        y = powers / powers.sum(-1, keepdim=True)
        ctx.save_for_backward(keep(y), mask)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, dy):
        y, mask = ctx.saved_tensors
        dx = ctx.scale * (dy * y - y * (dy * y).sum(-1, keepdim=True))
        return torch.where(mask, torch.zeros_like(dx), dx), None, None, None


class _Compress(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, starts):
        ctx.save_for_backward(x, weight)
        ctx.starts = starts
        rows = [(weight[:, :, None] * x[start:start + len(weight)]).sum(0) for start in starts]
        return torch.stack(rows) if rows else x.new_zeros(0, *x.shape[1:])

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = torch.zeros_like(x), torch.zeros_like(weight)
        for i, start in enumerate(ctx.starts):
            dx[start:start + len(weight)] += weight[:, :, None] * dy[i]
            dweight += (dy[i] * x[start:start + len(weight)]).sum(-1)
        return dx, dweight, None


class _GroupRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bias, group):
        ctx.ends = torch.searchsorted(group, torch.arange(len(bias)), right=True).tolist()
        return bias[group]

    @staticmethod
    def backward(ctx, dy):
        begins = [0] + ctx.ends[:-1]
        return torch.stack([dy[b:e].sum(0) for b, e in zip(begins, ctx.ends)]), None


class Formulas:
    """Rounding is no formula that has a gradient. So that the numbers are the program's all the
    same, what rounding changes is found once, and is a constant to be added from then on.

    `reads_rounded`: the gradient of the softmax reads the rounded output, as the program's does;
    without it it is the exact one of what is computed forward."""

    def __init__(self, bf16, compressions, reads_rounded):
        self.bf16 = bf16
        self.keep = to_bfloat16 if bf16 and reads_rounded else lambda y: y
        self.compressions = iter(compressions)
        self.changes, self.next, self.frozen = [], 0, False

    def freeze(self):
        """From here on the changes of the first run are used, from the first on in each run."""
        self.frozen = True
        self.next = 0

    def _rounded(self, x, program=None):
        if not self.frozen:
            self.changes.append((rounded_like(x, program) - x).detach())
            return x + self.changes[-1]
        change = self.changes[self.next]
        self.next = (self.next + 1) % len(self.changes)
        return x + change

    def _port(self, x):
        return self._rounded(x) if self.bf16 else x

    def layer_norm(self, x, gamma, beta):
        return self._port(_LayerNorm.apply(self._port(x), gamma, beta))

    def embedding(self, table, indices):
        return _Embedding.apply(table, indices)

    def softmax(self, x, mask, scale):
        return self._port(_Softmax.apply(self._port(x), mask.expand_as(x), scale, self.keep))

    def compress(self, x, weight, starts):
        read, written = next(self.compressions, (None, None))
        y = _Compress.apply(self._rounded(x, read), self._rounded(weight), starts)
        return self._rounded(y, written)

    def group_rows(self, bias, group):
        return _GroupRows.apply(bias, group)
