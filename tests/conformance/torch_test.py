"""attnforge against PyTorch, in fp64 and in the dtype at hand. Needs torch and a GPU.

The rule: the largest error against fp64 is at most twice that of a plain attention in the same dtype, written with PyTorch's
own operators, plus a small absolute tolerance.
"""

import math
import pathlib
import sys
import unittest

try:
    import torch
except ImportError:
    torch = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import attnforge  # noqa: E402

ATOL = {"float16": 2e-4, "bfloat16": 1e-3}


def visible(rows, keys, causal, window):
    """[rows, keys] of bool, bottom-right aligned."""
    position = torch.arange(rows, device="cuda")[:, None] + keys - rows
    key = torch.arange(keys, device="cuda")[None, :]
    mask = torch.ones(rows, keys, dtype=torch.bool, device="cuda")
    if causal:
        mask &= key <= position
    if window is not None:
        left, right = window
        mask &= key >= position - left
        mask &= key <= position + right
    return mask


def plain(q, k, v, mask, softcap, dtype):
    """Attention as one writes it down, everything in `dtype`. [batch, seqlen, heads, head_dim] in and out."""
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    s = s.masked_fill(~mask, -math.inf)
    p = torch.softmax(s, dim=-1).nan_to_num(0.0)
    return (p @ v).transpose(1, 2), torch.logsumexp(s, dim=-1)


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs torch and a GPU")
class TorchTest(unittest.TestCase):
    def check(self, batch=2, heads=(4, 4), seqlen=(200, 200), dims=(64, 64), causal=False, window=None, softcap=None,
              dtype="bfloat16", shift=0.0, scale=1.0):
        torch.manual_seed(hash((batch, heads, seqlen, dims)) % 1000)
        kind = getattr(torch, dtype)
        q = (torch.randn(batch, seqlen[0], heads[0], dims[0], device="cuda") * scale).to(kind)
        k = (torch.randn(batch, seqlen[1], heads[1], dims[0], device="cuda") + shift).to(kind)
        v = torch.randn(batch, seqlen[1], heads[1], dims[1], device="cuda").to(kind)
        if shift:
            q = -q.abs()  # all scores strongly negative
        bounds = None if window is None else (window, 0 if causal else window)
        mask = visible(seqlen[0], seqlen[1], causal, bounds)
        exact, exact_lse = plain(q, k, v, mask, softcap, torch.float64)
        rough, _ = plain(q, k, v, mask, softcap, kind)
        o, lse = attnforge.attention(q, k, v, causal=causal, window=window, softcap=softcap, return_lse=True)
        self.assertFalse(torch.isnan(o).any().item())
        error = (o.double() - exact).abs().max().item()
        allowed = 2 * (rough.double() - exact).abs().max().item() + ATOL[dtype]
        self.assertLessEqual(error, allowed)
        finite = torch.isfinite(exact_lse)
        self.assertTrue(torch.equal(torch.isfinite(lse), finite))
        if finite.any():
            worst = (lse.double() - exact_lse)[finite].abs().max().item()
            self.assertLessEqual(worst, 1e-4 * max(1.0, exact_lse[finite].abs().max().item()))

    def test_full_and_causal(self):
        for dtype in ("float16", "bfloat16"):
            for causal in (False, True):
                with self.subTest(dtype=dtype, causal=causal):
                    self.check(dtype=dtype, causal=causal, seqlen=(513, 513))

    def test_every_head_dim(self):
        for dim in range(8, 257, 8):
            with self.subTest(head_dim=dim):
                self.check(dims=(dim, dim), causal=True, seqlen=(130, 130))

    def test_unequal_head_dims(self):
        for dims in ((192, 128), (64, 256), (72, 40)):
            with self.subTest(dims=dims):
                self.check(dims=dims)

    def test_grouped_and_multi_query(self):
        for heads in ((8, 1), (8, 2), (6, 3)):
            for rows in (1, 7, 300):
                with self.subTest(heads=heads, rows=rows):
                    self.check(heads=heads, seqlen=(rows, 300), causal=True)

    def test_unequal_lengths(self):
        for seqlen in ((1, 1), (1, 1000), (77, 333), (333, 77), (65, 64)):
            for causal in (False, True):
                with self.subTest(seqlen=seqlen, causal=causal):
                    self.check(seqlen=seqlen, causal=causal)

    def test_windows(self):
        for window in (0, 1, 31, 100, 5000):
            for causal in (False, True):
                with self.subTest(window=window, causal=causal):
                    self.check(window=window, causal=causal, seqlen=(257, 300))

    def test_rope(self):
        def rotated(x, positions, cos, sin, interleaved, kind):
            pairs = cos.shape[1]
            cos, sin = (table[positions].to(kind)[None, :, None, :] for table in (cos, sin))
            x = x.to(kind)
            turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
            if interleaved:
                a, b = turned[..., 0::2], turned[..., 1::2]
                turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
            else:
                a, b = turned[..., :pairs], turned[..., pairs:]
                turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
            return torch.cat((turned, rest), dim=-1)

        for interleaved in (False, True):
            for rope_dim, rows, keys in ((64, 200, 200), (32, 3, 300), (24, 90, 40)):
                with self.subTest(interleaved=interleaved, rope_dim=rope_dim, rows=rows, keys=keys):
                    torch.manual_seed(rope_dim)
                    offset = 7 + max(0, rows - keys)
                    angles = torch.arange(offset + keys, dtype=torch.float64, device="cuda")[:, None] * 10000 ** (
                        -torch.arange(rope_dim // 2, dtype=torch.float64, device="cuda") / (rope_dim // 2)
                    )
                    cos, sin = angles.cos().float(), angles.sin().float()
                    q = torch.randn(2, rows, 4, 64, device="cuda", dtype=torch.bfloat16)
                    k, v = (torch.randn(2, keys, 2, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
                    of_k = offset + torch.arange(keys, device="cuda")
                    of_q = offset + keys - rows + torch.arange(rows, device="cuda")
                    mask = visible(rows, keys, True, None)
                    exact, rough = (
                        plain(
                            rotated(q, of_q, cos, sin, interleaved, kind),
                            rotated(k, of_k, cos, sin, interleaved, kind),
                            v,
                            mask,
                            None,
                            kind,
                        )[0]
                        for kind in (torch.float64, torch.bfloat16)
                    )
                    o = attnforge.attention(
                        q, k, v, causal=True, rope=(cos, sin), rope_interleaved=interleaved, rope_offset=offset
                    )
                    error = (o.double() - exact).abs().max().item()
                    self.assertLessEqual(error, 2 * (rough.double() - exact).abs().max().item() + ATOL["bfloat16"])

    def test_softcap(self):
        for softcap in (5.0, 30.0, 50.0):
            with self.subTest(softcap=softcap):
                self.check(softcap=softcap, scale=4.0, causal=True)

    def test_strongly_negative_scores_with_a_ragged_tail(self):
        for seqlen in ((64, 100), (129, 191), (1, 65)):
            with self.subTest(seqlen=seqlen):
                self.check(seqlen=seqlen, shift=30.0)

    def test_growing_maxima(self):
        """Scores that rise along the keys: every tile raises the row maximum."""
        torch.manual_seed(3)
        q = torch.randn(1, 128, 2, 64, device="cuda").abs().to(torch.bfloat16)
        ramp = torch.linspace(0, 6, 1024, device="cuda")[None, :, None, None]
        k = (torch.randn(1, 1024, 2, 64, device="cuda") * 0.1 + ramp).to(torch.bfloat16)
        for keys in (k, k.flip(1)):
            v = torch.randn(1, 1024, 2, 64, device="cuda").to(torch.bfloat16)
            mask = visible(128, 1024, False, None)
            exact, _ = plain(q, keys, v, mask, None, torch.float64)
            rough, _ = plain(q, keys, v, mask, None, torch.bfloat16)
            o = attnforge.attention(q, keys, v)
            error = (o.double() - exact).abs().max().item()
            self.assertLessEqual(error, 2 * (rough.double() - exact).abs().max().item() + ATOL["bfloat16"])

    def test_bhsd_layout_and_views(self):
        torch.manual_seed(4)
        packed = torch.randn(2, 150, 3, 4, 64, device="cuda").to(torch.float16)
        q, k, v = packed.unbind(2)
        expected = attnforge.attention(q.contiguous(), k.contiguous(), v.contiguous())
        self.assertTrue(torch.equal(attnforge.attention(q, k, v), expected))
        first = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        got = attnforge.attention(*first, layout="bhsd")
        self.assertTrue(torch.equal(got.transpose(1, 2), expected))

    def test_runs_on_the_current_stream(self):
        q = torch.randn(2, 512, 4, 64, device="cuda").to(torch.bfloat16)
        expected = attnforge.attention(q, q, q, causal=True)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            late = torch.zeros_like(q)
            torch.cuda._sleep(20_000_000)
            late.copy_(q)
            got = attnforge.attention(late, late, late, causal=True)
        stream.synchronize()
        self.assertTrue(torch.equal(got, expected))


if __name__ == "__main__":
    unittest.main()
