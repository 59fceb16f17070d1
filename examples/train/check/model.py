# SPDX-License-Identifier: Apache-2.0
"""The model of the training program in PyTorch, over whatever gives it the operators.

`operators` has layer_norm, embedding, softmax, compress, group_rows and at_port; everything else,
matrix products, activation and cross entropy, is PyTorch's.
"""
import math

import torch


class Windows:
    """Where the windows of a batch lie: rows of the padded arrays, and who may see what."""

    def __init__(self, size, ends):
        slots = (size["context"] - size["window"]) // size["stride"] + 1
        rows = ends[-1] // size["context"]
        self.starts, self.slot = [], []
        self.mask = torch.ones(rows, 1, size["context"], slots, dtype=torch.bool)
        used, begin = [0] * rows, 0
        for end in ends:
            for start in range(begin, end - size["window"] + 1, size["stride"]):
                row = start // size["context"]
                self.starts.append(start)
                self.slot.append(row * slots + used[row])
                first = start + size["window"] - 1 - row * size["context"]
                self.mask[row, 0, first:, used[row]] = False
                used[row] += 1
            begin = end
        self.slots = slots
        self.rows = rows
        self.seen = (~self.mask).any(dim=-1, keepdim=True)


class Model:
    """loss(parameters, bytes, targets, ends) with the operators given."""

    def __init__(self, size, operators):
        self.size = size
        self.operators = operators
        self.choices = []
        self.lost = 0.0

    def loss(self, parameters, tokens, targets, ends, choices=None):
        """`choices`: the expert of each token, block after block, in place of the router's own."""
        size, operators = self.size, self.operators
        windows = Windows(size, ends)
        position = torch.arange(size["context"]).repeat(windows.rows)
        stream = operators.embedding(parameters["token_table"], tokens)
        stream = stream + operators.embedding(parameters["position_table"], position)
        self.choices = []
        for i in range(size["blocks"]):
            own = {name.split(".")[1]: value for name, value in parameters.items()
                   if name.startswith(f"block{i}.")}
            normal = operators.layer_norm(stream, own["attention_gamma"], own["attention_beta"])
            stream = stream + self._attention(own, normal, windows)
            normal = operators.layer_norm(stream, own["experts_gamma"], own["experts_beta"])
            stream = stream + self._experts(own, normal, None if choices is None else choices[i])
        final = operators.layer_norm(stream, parameters["final_gamma"], parameters["final_beta"])
        scores = final @ parameters["head"]
        return torch.nn.functional.cross_entropy(scores, targets)

    def _attention(self, own, normal, windows):
        size, operators = self.size, self.operators
        rows, context, heads = windows.rows, size["context"], size["heads"]
        depth = size["width"] // heads
        scale = 1 / math.sqrt(depth)
        q, k, v = (normal @ own["query_key_value"]).split(size["width"], dim=-1)

        def by_head(x):
            return x.reshape(rows, -1, heads, depth).transpose(1, 2)

        def compressed(x, weight):
            out = operators.compress(x.reshape(-1, heads, depth), weight, windows.starts)
            padded = x.new_zeros(rows * windows.slots, size["width"])
            padded = padded.index_copy(0, torch.tensor(windows.slot, dtype=torch.int64),
                                       out.reshape(-1, size["width"]))
            return by_head(padded)

        query = by_head(q)
        place = torch.arange(context)
        distance = (place[:, None] - place[None, :]).clamp(min=0)
        slope = torch.tensor([4.0**-head for head in range(heads)], dtype=torch.float64)
        near = -(math.sqrt(depth) * slope[:, None, None] * distance).to(normal.dtype)
        causal = (place[None, :] > place[:, None])[None, None]
        shares = operators.softmax(query @ by_head(k).transpose(-1, -2) + near, causal, scale)
        window_scores = query @ compressed(k, own["compress_keys"]).transpose(-1, -2)
        window_shares = operators.softmax(window_scores, windows.mask, scale)
        window_shares = window_shares * windows.seen.to(normal.dtype)
        mixed = shares @ by_head(v)
        mixed = mixed + window_shares @ compressed(v, own["compress_values"])
        return mixed.transpose(1, 2).reshape(-1, size["width"]) @ own["attention_out"]

    def _experts(self, own, normal, choice):
        operators = self.operators
        scores = normal @ own["router"]
        no_mask = torch.zeros(1, 1, *scores.shape, dtype=torch.bool)
        chances = operators.softmax(scores[None, None], no_mask, 1.0)[0, 0]
        best = chances.argmax(dim=-1)
        self.choices.append(best)
        if choice is None:
            choice = best
        lost = 1 - chances.gather(-1, choice[:, None])[:, 0] / chances.amax(-1)
        self.lost = max(self.lost, lost.max().item())
        order = torch.argsort(choice, stable=True)
        count = torch.bincount(choice, minlength=self.size["experts"])
        in_bias = operators.group_rows(own["expert_in_bias"], choice[order])
        out_bias = operators.group_rows(own["expert_out_bias"], choice[order])
        results = []
        begin = 0
        for expert, rows in enumerate(count.tolist()):
            tokens = order[begin:begin + rows]
            before = normal[tokens] @ own["expert_in"][expert] + in_bias[begin:begin + rows]
            after = torch.nn.functional.silu(before)
            results.append(after @ own["expert_out"][expert] + out_bias[begin:begin + rows])
            begin += rows
        result = torch.cat(results) * chances[order, choice[order]][:, None]
        return torch.zeros_like(normal).index_copy(0, order, result)
