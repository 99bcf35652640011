"""A drawn forward or backward pass over whole sequences: its tensors, attnforge's call, the kernels of others, and what is right.

The peers take windows, soft caps, unequal lengths and packed rows as their own interfaces have them. Importing this file imports no torch.
"""

import functools
import importlib.metadata
import inspect
import itertools

import drawn_problems
import exact
import peer_kernels
import rounds
from peer_kernels import output_of

WRONG = {False: peer_kernels.WRONG, True: 2e-2}  # of a forward, of a backward pass


class Case:
    """Tensors of a point: [batch, seqlen, heads, head_dim], packed [tokens, heads, head_dim]. dout: None of a forward pass."""

    columns = "num_heads_q num_heads_kv head_dim head_dim_v causal softcap packed".split()  # of the point

    def __init__(self, point, torch, backward):
        self.point, self.torch, self.name = point, torch, drawn_problems.words_of(point)
        self.num_heads_q, self.num_heads_kv, self.causal, self.softcap = point.num_heads_q, point.num_heads_kv, point.causal, point.softcap
        lengths = list(zip(*point.lengths))  # of queries, of keys
        heads = point.num_heads_q, point.num_heads_kv, point.num_heads_kv, point.num_heads_q
        dims = point.head_dim, point.head_dim, point.head_dim_v, point.head_dim_v
        tensors = []
        for i in range(4 if backward else 3):
            rows = lengths[0 if i in (0, 3) else 1]
            shape = (sum(rows),) if point.packed else (len(rows), rows[0])
            tensors.append(torch.randn(*shape, heads[i], dims[i], device="cuda", dtype=torch.bfloat16))
        self.q, self.k, self.v, self.dout = (*tensors, None)[:4]
        self.ends = [torch.tensor([0, *itertools.accumulate(each)], dtype=torch.int32, device="cuda") for each in lengths]
        self.longest = [max(each) for each in lengths]

    def options(self):
        """Of attnforge.attention()."""
        window = tuple(None if side < 0 else side for side in self.point.window)
        options = {"causal": self.causal, "softcap": self.softcap or None, "window": window if self.point.window[0] >= 0 else None}
        if self.point.packed:
            options |= {"cu_seqlens": tuple(self.ends), "max_seqlen": tuple(self.longest)}
        return options

    def call(self, attnforge):
        """A function that runs attnforge, as a user calls it, and returns its results. A backward pass is one by itself, into gradients
        that are there; its forward is not tuned."""
        options, tensors = self.options(), (self.q, self.k, self.v)
        if self.dout is None:
            return lambda: [attnforge.attention(*tensors, **options)]
        attnforge.configure(policy="estimate")
        o, lse = attnforge.attention(*tensors, return_lse=True, **options)
        attnforge.configure(policy="first_run")
        out = tuple(map(self.torch.empty_like, tensors))
        return lambda: attnforge.attention_backward(*tensors, o, lse, self.dout, out=out, **options)

    def last(self, x, side):
        """The rows of the last sequence, whose place depends on all lengths. side: 0 of what has the rows of q, 1 of k."""
        return x[-self.point.lengths[-1][side] :] if self.point.packed else x[-1]

    def error_of(self, results):
        """The largest relative error, to fp32, of o or of dq, dk and dv in the last sequence and the first head of k."""
        sides = (0,) if self.dout is None else (0, 1, 1)
        return exact.error_of([self.last(x, side) for x, side in zip(results, sides)], self.wanted)

    @functools.cached_property
    def wanted(self):
        tensors = [self.last(x, side) for x, side in ((self.q, 0), (self.k, 1), (self.v, 1))]
        dout = None if self.dout is None else self.last(self.dout, 0)
        return exact.exact(self.torch, *tensors, dout, self.causal, self.point.window, self.softcap)

    def named(self):
        """Cells of its rows."""
        cells = {column: getattr(self.point, column) for column in self.columns}
        queries, keys = (sum(each[i] for each in self.point.lengths) for i in (0, 1))
        left, right = self.point.window
        return cells | {
            "causal": int(self.causal), "packed": int(self.point.packed), "window_left": left, "window_right": right,
            "sequences": len(self.point.lengths), "queries": queries, "keys": keys, "longest_q": self.longest[0], "longest_kv": self.longest[1],
        }  # fmt: skip

    def work(self):
        """work() of rounds.table()."""
        return rounds.tflops(drawn_problems.flops(self.point) * (1 if self.dout is None else 2.5))


# ---- Peers: prepare(case) gives functions with the results of the case ----


def results_of(case, attend):
    """A function with the results of a case, of one that gives o of q, k and v."""
    tensors = case.q, case.k, case.v
    if case.dout is None:
        return lambda: [output_of(attend(*tensors))]
    leaves = [x.detach().requires_grad_() for x in tensors]
    with case.torch.enable_grad():
        return peer_kernels.of_autograd(output_of(attend(*leaves)), leaves, case.dout)


def sdpa(name):
    """PyTorch's scaled_dot_product_attention, which aligns a causal mask of unequal lengths differently."""
    version, prepare = peer_kernels.torch_backend(name)

    def of_case(case):
        if case.point.packed or case.softcap or case.point.window[0] >= 0 or case.causal and case.q.shape[1] != case.k.shape[1]:
            raise ValueError("only called for equal lengths without windows or soft caps")
        runs = prepare(case, case.q, case.k, case.v, case.dout)
        return runs if case.dout is not None else [lambda run=run: [run()] for run in runs]

    return version, of_case


def flash(package, version, open_side):
    """FlashAttention-3 or -4. open_side: what it calls the open side of a window."""

    def prepare(case):
        function = package.flash_attn_varlen_func if case.point.packed else package.flash_attn_func
        options = {"causal": case.causal}
        if case.point.window[0] >= 0:
            options["window_size"] = tuple(open_side if side < 0 else side for side in case.point.window)
        if case.softcap:
            options["softcap"] = case.softcap
        if case.point.packed:
            known = inspect.signature(function).parameters
            bounds = zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"), (*case.ends, *case.longest))
            options |= {name: value for name, value in bounds if name in known}
        runs = [results_of(case, functools.partial(function, **options))]
        if case.dout is None and open_side == -1 and case.longest[0] < case.longest[1]:
            runs.append(results_of(case, functools.partial(function, num_splits=0, **options)))
        return runs

    return version, prepare


def flex(**kernel):
    """PyTorch's flex_attention. kernel: its kernel_options."""
    import torch

    def prepare(case):
        if case.point.packed:
            raise ValueError("only called for sequences of equal lengths")
        left, right = case.point.window
        ahead = case.k.shape[1] - case.q.shape[1]

        def mask(batch, head, row, key):
            seen = key <= row + ahead + (0 if case.causal else right)
            return seen & (key >= row + ahead - left) if left >= 0 else seen

        score = (lambda s, batch, head, row, key: case.softcap * torch.tanh(s / case.softcap)) if case.softcap else None
        visible = mask if case.causal or left >= 0 else None
        run = peer_kernels.flex_run(case.q, case.k, case.v, visible, score, case.dout, kernel)
        return [run if case.dout is not None else lambda: [run()]]

    return f"torch {torch.__version__}, triton {importlib.metadata.version('triton')}", prepare


LOADERS = {
    "torch-cudnn": functools.partial(sdpa, "CUDNN_ATTENTION"),
    "torch-flash": functools.partial(sdpa, "FLASH_ATTENTION"),
    "fa3": lambda: flash(*peer_kernels.fa3_package(), -1),
    "fa4": lambda: flash(*peer_kernels.fa4_package("flash_attn.cute"), None),
    "torch-efficient": functools.partial(sdpa, "EFFICIENT_ATTENTION"),
    "flex": flex,
    "flex-flash": functools.partial(flex, BACKEND="FLASH"),
}
LAST = ("torch-efficient", "flex", "flex-flash")  # only where none of the others serves: they are slower, or compile for long
