#!/usr/bin/env python3
"""Programs of other libraries, each ported by the tables of docs/COMING_FROM.md alone, beside the original, or beside torch's attention
where the original is not installed. On the CPU, where what plans enqueue is computed here; with --gpu on a GPU, by kernels.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_coming_from_test.py PACKAGE_FOLDER [--gpu] [unittest arguments]
"""

import itertools
import math
import os
import sys
import unittest

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("there is no torch, skipped")
    sys.exit(77)

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attnforge  # noqa: E402
import cpu_kernels  # noqa: E402

ON_GPU = "--gpu" in sys.argv
if ON_GPU:
    sys.argv.remove("--gpu")
    if not torch.cuda.is_available():
        print("there is no GPU, skipped")
        sys.exit(77)
DEVICE = "cuda" if ON_GPU else "cpu"


def rand(*shape):
    return torch.randn(*shape, device=DEVICE).to(torch.float16)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def seen(rows, keys, left=None, right=None, top_left=False):
    """Booleans [rows, keys] of a window around a query's position."""
    position = torch.arange(rows, device=DEVICE)[:, None] + (0 if top_left else keys - rows)
    key = torch.arange(keys, device=DEVICE)
    mask = torch.ones(rows, keys, dtype=torch.bool, device=DEVICE)
    mask &= key >= position - left if left is not None else mask
    return mask & (key <= position + right) if right is not None else mask


def of_torch(q, k, v, mask=None, scale=None, bias=None):
    """(o, lse) of [batch, seqlen, heads, head_dim] in fp32 by torch alone."""
    q, k, v = (each.float().transpose(1, 2) for each in (q, k, v))
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    s = q @ k.transpose(2, 3) * (scale or 1 / math.sqrt(q.shape[-1]))
    s = s if bias is None else s + bias
    s = s if mask is None else s.masked_fill(~mask, -math.inf)
    lse = torch.logsumexp(s, -1)
    return (torch.exp(s - lse[..., None]) @ v).transpose(1, 2), lse


class ComingFromTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        if not ON_GPU:
            cpu_kernels.install(self)

    def same(self, got, wanted, tolerance=4e-3):
        self.assertEqual(got.shape, wanted.shape)
        self.assertLess((got.float() - wanted.float()).abs().max().item(), tolerance)

    # ---- torch's scaled_dot_product_attention ----

    def test_sdpa_causal_and_scale(self):
        q, k, v = rand(2, 4, 100, 64), rand(2, 2, 100, 64), rand(2, 2, 100, 64)
        there = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True, scale=0.2, enable_gqa=True)
        here = attnforge.attention(q, k, v, layout="bhsd", causal=True, softmax_scale=0.2)
        self.same(here, there)

    def test_sdpa_causal_of_unequal_lengths(self):
        q, k, v = rand(1, 2, 24, 64), rand(1, 2, 40, 64), rand(1, 2, 40, 64)
        there = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
        self.same(attnforge.attention(q, k, v, layout="bhsd", mask="k <= q"), there)

    def test_sdpa_masks(self):
        q, k, v = (rand(2, 2, 32, 64) for _ in range(3))
        floats = torch.randn(2, 1, 32, 32, device=DEVICE)
        for mask in (floats, floats > 0):
            there = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask)
            self.same(attnforge.attention(q, k, v, layout="bhsd", attn_mask=mask), there)

    # ---- flash_attn ----

    def test_flash_attn_func(self):
        q, k, v = rand(2, 48, 4, 64), rand(2, 80, 2, 64), rand(2, 80, 2, 64)
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=DEVICE)
        apart = (torch.arange(48, device=DEVICE)[:, None] + 32 - torch.arange(80, device=DEVICE)).abs()
        cases = (
            ({"causal": True}, {"causal": True}, {"mask": seen(48, 80, None, 0)}),
            ({"window_size": (7, 3), "softmax_scale": 0.1}, {"window": (7, 3), "softmax_scale": 0.1}, {"mask": seen(48, 80, 7, 3), "scale": 0.1}),
            ({"window_size": (7, -1), "causal": True}, {"window": (7, -1), "causal": True}, {"mask": seen(48, 80, 7, 0)}),
            (
                {"causal": True, "alibi_slopes": slopes},
                {"causal": True, **attnforge.texts.alibi(slopes)},
                {"mask": seen(48, 80, None, 0), "bias": -slopes[:, None, None] * apart},
            ),
        )
        for there, here, torchs in cases:
            with self.subTest(there=there):
                wanted = flash_attn("flash_attn_func", q, k, v, **there)
                wanted = of_torch(q, k, v, **torchs)[0] if wanted is None else wanted
                self.same(attnforge.attention(q, k, v, **here), wanted)

    def test_flash_attn_func_with_lse(self):
        q, k, v = (rand(1, 40, 2, 64) for _ in range(3))
        o, lse = attnforge.attention(q, k, v, return_lse=True)
        there = flash_attn("flash_attn_func", q, k, v, return_attn_probs=True)
        wanted, wanted_lse = there[:2] if there is not None else of_torch(q, k, v)
        self.same(o, wanted)
        self.same(lse, wanted_lse)

    def test_flash_attn_varlen_func(self):
        rows, keys = (7, 30, 1), (20, 30, 9)
        a, b = (ints(*itertools.accumulate(each, initial=0)) for each in (rows, keys))
        q, k, v = rand(38, 4, 64), rand(59, 2, 64), rand(59, 2, 64)
        here = attnforge.attention(q, k, v, causal=True, cu_seqlens=(a, b), max_seqlen=(max(rows), max(keys)))
        wanted = flash_attn("flash_attn_varlen_func", q, k, v, a, b, max(rows), max(keys), causal=True)
        if wanted is None:
            parts = zip(*(torch.split(x, n) for x, n in ((q, rows), (k, keys), (v, keys))))
            wanted = torch.cat([of_torch(*(x[None] for x in part), mask=seen(len(part[0]), len(part[1]), None, 0))[0][0] for part in parts])
        self.same(here, wanted)

    def test_flash_attn_with_kvcache(self):
        for paged in (False, True):
            with self.subTest(paged=paged):
                n, table = ints(5, 40), ints(3, 1, 0, 2).view(2, 2) if paged else None
                shape = (4, 32, 2, 64) if paged else (2, 64, 2, 64)
                k_cache, v_cache, q, k, v = rand(*shape), rand(*shape), rand(2, 1, 4, 64), rand(2, 1, 2, 64), rand(2, 1, 2, 64)
                there = k_cache.clone(), v_cache.clone()
                with torch.no_grad():
                    attnforge.append_kv(k, v, k_cache, v_cache, used_kv=n, page_table=table)
                    here = attnforge.attention(q, k_cache, v_cache, causal=True, used_kv=n + k.shape[1], page_table=table)
                wanted = None
                if not paged:  # flash_attn wants pages of 256 rows
                    wanted = flash_attn("flash_attn_with_kvcache", q, *there, k, v, cache_seqlens=n, causal=True)
                if wanted is None:
                    wanted = []
                    for i, length in enumerate(n.tolist()):
                        old = [x[table[i]].flatten(0, 1) if paged else x[i] for x in there]
                        both = [torch.cat([x[:length], new[i]])[None] for x, new in zip(old, (k, v))]
                        wanted.append(of_torch(q[i : i + 1], *both)[0])
                    wanted = torch.cat(wanted)
                self.same(here, wanted)

    def test_flash_attn_with_kvcache_and_rotary(self):
        n, (q, k, v) = ints(5, 12), (rand(2, 1, 2, 64) for _ in range(3))
        k_cache, v_cache = rand(2, 24, 2, 64), rand(2, 24, 2, 64)
        there = k_cache.clone(), v_cache.clone()
        angle = torch.outer(torch.arange(24.0, device=DEVICE), 10000 ** (-torch.arange(0, 64, 2, device=DEVICE) / 64))
        c, s = angle.cos(), angle.sin()
        with torch.no_grad():
            turned = attnforge.append_kv(k, v, k_cache, v_cache, used_kv=n, q=q, rope=(c, s), rope_interleaved=True)
            here = attnforge.attention(turned, k_cache, v_cache, causal=True, used_kv=n + k.shape[1])
        wanted = flash_attn("flash_attn_with_kvcache", q, *there, k, v, c.half(), s.half(), cache_seqlens=n, causal=True)
        if wanted is None:

            def rotated(x, at):
                first, second = x[..., 0::2].float(), x[..., 1::2].float()
                return torch.stack([first * c[at] - second * s[at], first * s[at] + second * c[at]], -1).flatten(-2).half()

            wanted = []
            for i, at in enumerate(n.tolist()):
                keys, values = torch.cat([there[0][i, :at], rotated(k[i], at)])[None], torch.cat([there[1][i, :at], v[i]])[None]
                wanted.append(of_torch(rotated(q[i], at)[None], keys, values)[0])
            wanted = torch.cat(wanted)
        self.same(here, wanted, 2e-2)

    # ---- FlexAttention ----

    def test_flex_attention(self):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        q, k, v = (rand(1, 2, 128, 64) for _ in range(3))
        slope, doc = torch.tensor([0.5, 0.1], device=DEVICE), (torch.arange(128, device=DEVICE) // 50).int()
        wide = [each.float() for each in (q, k, v)]
        there = flex_attention(*wide, score_mod=lambda s, b, h, i, j: s + slope[h] * (j - i))
        self.same(attnforge.attention(q, k, v, layout="bhsd", score="s + slope[head] * (k - q)", args={"slope": slope}), there)
        blocks = create_block_mask(lambda b, h, i, j: doc[i] == doc[j], None, None, 128, 128, device=DEVICE)
        there, lse = flex_attention(*wide, block_mask=blocks, return_lse=True, scale=0.3)
        named = {"mask": "doc[q] == doc[k]", "args": {"doc": doc}, "softmax_scale": 0.3}
        here, here_lse = attnforge.attention(q, k, v, layout="bhsd", return_lse=True, **named)
        self.same(here, there)
        self.same(here_lse, lse)

    # ---- xFormers ----

    def test_xformers(self):
        q, k, v = rand(2, 40, 4, 64), rand(2, 40, 4, 64), rand(2, 40, 4, 64)
        bias = torch.randn(2, 4, 40, 40, device=DEVICE).half()
        cases = (
            (lambda x: x.LowerTriangularMask(), {"causal": True}, {"mask": seen(40, 40, None, 0)}),
            (lambda x: x.LowerTriangularFromBottomRightMask(), {"causal": True}, {"mask": seen(40, 40, None, 0)}),
            (lambda x: bias, {"attn_mask": bias}, {"bias": bias.float()}),
        )
        for make, here, torchs in cases:
            wanted = xformers(q, k, v, make)
            wanted = of_torch(q, k, v, **torchs)[0] if wanted is None else wanted
            self.same(attnforge.attention(q, k, v, **here), wanted)

    def test_xformers_packed_sequences(self):
        n = [7, 20, 13]
        q, k, v = (rand(1, sum(n), 2, 64) for _ in range(3))
        sums = ints(*itertools.accumulate(n, initial=0))
        here = attnforge.attention(q[0], k[0], v[0], cu_seqlens=sums, max_seqlen=max(n))
        wanted = xformers(q, k, v, lambda x: x.BlockDiagonalMask.from_seqlens(n))
        if wanted is None:
            wanted = torch.cat([of_torch(*(x[None] for x in part))[0] for part in zip(*(torch.split(x[0], n) for x in (q, k, v)))], 1)
        self.same(here, wanted[0])

    def test_xformers_groups(self):
        q, one = rand(2, 24, 2, 3, 64), rand(2, 24, 2, 1, 64)
        k = v = one.expand(2, 24, 2, 3, 64)
        here = attnforge.attention(q.flatten(2, 3), k[:, :, :, 0], v[:, :, :, 0])
        wanted = xformers(q, k, v, lambda x: None)
        wanted = of_torch(q.flatten(2, 3), one[:, :, :, 0], one[:, :, :, 0])[0] if wanted is None else wanted.flatten(2, 3)
        self.same(here, wanted)


def flash_attn(name, *arguments, **options):
    """The original's result, None where it is not installed."""
    if not ON_GPU:
        return None
    try:
        import flash_attn as original
    except ImportError:
        return None
    return getattr(original, name)(*arguments, **options)


def xformers(q, k, v, bias):
    """The same of memory_efficient_attention(). bias: of the module of biases."""
    if not ON_GPU:
        return None
    try:
        from xformers.ops import fmha, memory_efficient_attention
    except ImportError:
        return None
    return memory_efficient_attention(q, k, v, attn_bias=bias(fmha.attn_bias))


if __name__ == "__main__":
    unittest.main()
