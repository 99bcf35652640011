"""attnforge against PyTorch, in fp64 and in the dtype at hand. Needs torch and a GPU.

The rule: the largest error against fp64 is at most twice that of a plain attention in the same dtype, written with PyTorch's
own operators, plus a small absolute tolerance.
"""

import gc
import math
import pathlib
import sys
import threading
import unittest
import warnings

try:
    import torch
except ImportError:
    torch = None
try:
    import cupy
except ImportError:
    cupy = None

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


def plain(q, k, v, mask, softcap, dtype, sinks=None):
    """Attention as one writes it down, everything in `dtype`. [batch, seqlen, heads, head_dim] in and out."""
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    s = s.masked_fill(~mask, -math.inf)
    if sinks is not None:  # a key without a value
        s = torch.cat([s, sinks.to(dtype)[None, :, None, None].expand(*s.shape[:3], 1)], dim=-1)
        v = torch.cat([v, torch.zeros_like(v[:, :, :1])], dim=2)
    p = torch.softmax(s, dim=-1).nan_to_num(0.0)
    return (p @ v).transpose(1, 2), torch.logsumexp(s, dim=-1)


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs torch and a GPU")
class TorchTest(unittest.TestCase):
    def check(self, batch=2, heads=(4, 4), seqlen=(200, 200), dims=(64, 64), causal=False, window=None, softcap=None,
              dtype="bfloat16", shift=0.0, scale=1.0, dense=None, block_mask=None, sinks=None):
        torch.manual_seed(hash((batch, heads, seqlen, dims)) % 1000)
        kind = getattr(torch, dtype)
        q = (torch.randn(batch, seqlen[0], heads[0], dims[0], device="cuda") * scale).to(kind)
        k = (torch.randn(batch, seqlen[1], heads[1], dims[0], device="cuda") + shift).to(kind)
        v = torch.randn(batch, seqlen[1], heads[1], dims[1], device="cuda").to(kind)
        if shift:
            q = -q.abs()  # all scores strongly negative
        bounds = None if window is None else (window, 0 if causal else window)
        mask = visible(seqlen[0], seqlen[1], causal, bounds)
        if dense is not None:
            mask = mask & dense
        exact, exact_lse = plain(q, k, v, mask, softcap, torch.float64, sinks)
        rough, _ = plain(q, k, v, mask, softcap, kind, sinks)
        options = {} if block_mask is None else {"block_mask": block_mask}
        if sinks is not None:
            options["sinks"] = sinks
        o, lse = attnforge.attention(q, k, v, causal=causal, window=window, softcap=softcap, return_lse=True, **options)
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

    def test_sinks(self):
        torch.manual_seed(6)
        for heads, seqlen in (((4, 4), (200, 200)), ((8, 1), (3, 300)), ((8, 2), (300, 77))):
            sinks = 3 * torch.randn(heads[0], device="cuda")
            sinks[0], sinks[1] = -math.inf, 20
            for dtype in ("float16", "bfloat16"):
                with self.subTest(heads=heads, seqlen=seqlen, dtype=dtype):
                    self.check(heads=heads, seqlen=seqlen, causal=True, dtype=dtype, sinks=sinks)
                    self.check(heads=heads, seqlen=seqlen, window=31, softcap=3.0, dtype=dtype, sinks=sinks)

    def test_block_masks(self):
        torch.manual_seed(5)
        for block in (16, 32, 64, 128, (128, 32)):
            block_q, block_kv = block if isinstance(block, tuple) else (block, block)
            for heads, seqlen in ((1, (200, 300)), (2, (130, 130)), (4, (300, 200))):
                with self.subTest(block=block, heads=heads):
                    blocks = torch.rand(heads, -(-seqlen[0] // block_q), -(-seqlen[1] // block_kv)) < 0.5
                    whole = blocks.repeat_interleave(block_q, 1).repeat_interleave(block_kv, 2)[:, : seqlen[0], : seqlen[1]]
                    of_head = whole.cuda().repeat_interleave(4 // heads, 0)
                    mask = attnforge.BlockMask.from_dense(whole, block)
                    self.assertEqual((mask.full, mask.partial), (int(blocks.sum()), 0))
                    for causal in (False, True):
                        self.check(heads=(4, 2), seqlen=seqlen, causal=causal, dense=of_head, block_mask=mask)
                    ragged = whole & (torch.rand(whole.shape) < 0.8)
                    mask = attnforge.BlockMask.from_dense(ragged, block)
                    self.assertTrue(mask.has_bits)
                    of_head = ragged.cuda().repeat_interleave(4 // heads, 0)
                    self.check(heads=(4, 2), seqlen=seqlen, dense=of_head, block_mask=mask, dtype="float16")

    def test_block_masks_of_texts(self):
        torch.manual_seed(6)
        seqlen = (300, 200)
        q, k = torch.arange(seqlen[0], device="cuda")[:, None], torch.arange(seqlen[1], device="cuda")[None, :]
        document = torch.randint(0, 3, (2, 300), device="cuda").sort(dim=1).values.int()
        of_keys = document[:, : seqlen[1]].contiguous()
        per_head = torch.stack([k <= q - 20 * head for head in range(4)])
        cases = (
            ("k <= q && q - k < 90", {}, (k <= q) & (q - k < 90), {}),
            ("k <= q - step * head", {"step": 20}, per_head, {"heads": 4}),
            ("of_q[q] == of_k[k]", {"of_q": document[0], "of_k": of_keys[0]}, document[0][:, None] == of_keys[0][None, :], {}),
        )
        for text, args, dense, options in cases:
            for block in (16, 64, (128, 32)):
                for bits in (False, True):
                    with self.subTest(text=text, block=block, bits=bits):
                        mask = attnforge.BlockMask.from_text(text, *seqlen, args=args, block=block, bits=bits, **options)
                        same = attnforge.BlockMask.from_dense(dense.cpu(), block)
                        self.assertEqual(mask.lists()[:2], same.lists()[:2])
                        self.assertEqual((mask.has_bits, mask.to_text()), (bits and mask.has_bits, same.to_text()))
                        on_gpu = attnforge.BlockMask.from_dense(dense.contiguous(), block)
                        self.assertEqual((on_gpu.device, on_gpu.lists()[:2]), (q.device.index, same.lists()[:2]))
                        self.assertEqual(mask.transposed().transposed().lists(), mask.lists())
                        of_head = dense if dense.dim() == 3 else dense[None].expand(4, -1, -1)
                        for causal in (False, True):
                            self.check(heads=(4, 2), seqlen=seqlen, causal=causal, dense=of_head, block_mask=mask)
                        self.check(heads=(4, 2), seqlen=seqlen, dense=of_head, block_mask=on_gpu)

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

    def test_strides_that_tma_cannot_take(self):
        """Rows that run backwards have no view in torch: cupy's arrays do, see CupyTest. Here: odd strides and addresses."""
        torch.manual_seed(5)
        q, k, v = (torch.randn(2, 300, 4, 64, device="cuda").to(torch.bfloat16) for _ in range(3))
        expected = attnforge.attention(q, k, v, causal=True)
        for columns in (66, 68, 72):
            wide = torch.empty(2, 300, 4, columns, device="cuda", dtype=torch.bfloat16)
            views = []
            for x in (q, k, v):
                view = wide.clone()[..., 2:66]
                view.copy_(x)
                views.append(view)
            got = attnforge.attention(*views, causal=True)
            self.assertLessEqual((got.float() - expected.float()).abs().max().item(), 2e-2)

    def test_cliffs_warn_once(self):
        q = torch.randn(1, 128, 2, 64, device="cuda")
        k, v = (torch.randn(1, 128, 2, 64, device="cuda").to(torch.bfloat16) for _ in range(2))
        attnforge.plan_cache.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                attnforge.attention(q, k, v)
        texts = [str(each.message) for each in caught if each.category is attnforge.PerformanceWarning]
        self.assertEqual(len(texts), 1)
        self.assertIn("q is fp32", texts[0])

    def test_calls_without_a_derivative_or_memory_are_refused(self):
        from torch.autograd import forward_ad

        q = torch.randn(1, 64, 2, 64, device="cuda", dtype=torch.bfloat16)
        for _ in range(3):
            attnforge.attention(q, q, q)
        scale = torch.nn.Parameter(torch.tensor(0.5, device="cuda"))
        parameter = torch.nn.Parameter(q)
        cases = {
            "a tensor as scale": lambda: attnforge.attention(q, q, q, softmax_scale=scale),
            "a tensor as window": lambda: attnforge.attention(q, q, q, window=torch.tensor(3)),
            "requires grad, into out": lambda: attnforge.attention(q, parameter, q, out=torch.empty_like(q)),
            "negative view": lambda: attnforge.attention(q, torch._neg_view(q), q),
            "zero tensor": lambda: attnforge.attention(
                q, torch._efficientzerotensor(q.shape, dtype=q.dtype, device="cuda"), q
            ),
            "vmap": lambda: torch.vmap(lambda x: attnforge.attention(x, q, q))(q[None]),
            "grad": lambda: torch.func.grad(lambda x: attnforge.attention(x, q, q).sum())(q),
            "jvp": lambda: torch.func.jvp(lambda x: attnforge.attention(x, q, q), (q,), (q,)),
            "meta": lambda: attnforge.attention(q, q.to("meta"), q),
            "cpu": lambda: attnforge.attention(q, q, q.cpu()),
            "sparse": lambda: attnforge.attention(q, q.to_sparse(), q),
            "in place": lambda: attnforge.attention(q, q, q, out=q),
            "stride 0": lambda: attnforge.attention(q, q, q, out=q.new_empty(1, 1, 2, 64).expand_as(q)),
            "a stream that is none": lambda: attnforge.attention(q, q, q, stream="x"),
        }
        for name, call in cases.items():
            with self.subTest(name), self.assertRaises(attnforge.InvalidError):
                call()
        with forward_ad.dual_level(), self.assertRaises(attnforge.InvalidError):
            attnforge.attention(forward_ad.make_dual(q, q), q, q)
        with torch.no_grad():
            attnforge.attention(q, parameter, q)
        torch.cuda.synchronize()  # nothing ended the context

    def test_outputs_for_another_stream_are_allocated_on_it(self):
        q = torch.randn(2, 512, 4, 64, device="cuda").to(torch.bfloat16)
        expected, expected_lse = attnforge.attention(q, q, q, causal=True, return_lse=True)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        for _ in range(20):
            # Memory that the current stream has freed and still writes: it must not become the output.
            busy = torch.empty_like(q)
            torch.cuda._sleep(2_000_000)
            busy.fill_(float("nan"))
            del busy
            got, lse = attnforge.attention(q, q, q, causal=True, return_lse=True, stream=stream.cuda_stream)
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(got, expected) and torch.equal(lse, expected_lse))

    def test_graphs(self):
        for causal in (False, True):
            q = torch.randn(2, 512, 4, 64, device="cuda").to(torch.bfloat16)
            expected = attnforge.attention(q, q, q, causal=causal)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                got = attnforge.attention(q, q, q, causal=causal)
            for _ in range(5):
                graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(got, expected))

    def test_threads_on_streams_of_their_own(self):
        inputs = [torch.randn(2, 1024, 8, 64, device="cuda").to(torch.bfloat16) for _ in range(4)]
        expected = [attnforge.attention(q, q, q, causal=True) for q in inputs]
        torch.cuda.synchronize()
        wrong = []

        def work(q, wanted):
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    got = attnforge.attention(q, q, q, causal=True)
                    if not torch.equal(got, wanted):
                        wrong.append(1)

        in_threads([lambda q=q, o=o: work(q, o) for q, o in zip(inputs, expected)])
        self.assertEqual(wrong, [])


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs torch and a GPU")
class LengthsTest(unittest.TestCase):
    """Packed sequences and used lengths against dense attention of each sequence alone, in fp64 and in the dtype at hand."""

    POISON = 7.0  # what must stay where no row of a sequence is

    @staticmethod
    def ends_of(lengths):
        return torch.tensor([0, *lengths], device="cuda").cumsum(0).int()

    def check_sequence(self, got, got_lse, q, k, v, causal):
        """One sequence: [rows, heads, head_dim] of q, k, v, o, and lse [heads, rows] or None."""
        if q.shape[0] == 0:
            return
        mask = visible(q.shape[0], k.shape[0], causal, None)
        one = [x[None] for x in (q, k, v)]
        exact, exact_lse = plain(*one, mask, None, torch.float64)
        rough, _ = plain(*one, mask, None, q.dtype)
        error = (got[None].double() - exact).abs().max().item()
        allowed = 2 * (rough.double() - exact).abs().max().item() + ATOL[str(q.dtype).partition(".")[2]]
        self.assertLessEqual(error, allowed)
        if got_lse is not None:
            finite = torch.isfinite(exact_lse[0])
            self.assertTrue(torch.equal(torch.isfinite(got_lse), finite))
            if finite.any():
                self.assertLessEqual((got_lse.double() - exact_lse[0])[finite].abs().max().item(), 1e-3)

    def check_packed(self, lengths_q, lengths_kv, o, lse, q, k, v, causal):
        begin_q = begin_kv = 0
        for rows, keys in zip(lengths_q, lengths_kv):
            of_q, of_kv = slice(begin_q, begin_q + rows), slice(begin_kv, begin_kv + keys)
            of_lse = None if lse is None else lse[:, of_q]
            self.check_sequence(o[of_q], of_lse, q[of_q], k[of_kv], v[of_kv], causal)
            begin_q, begin_kv = begin_q + rows, begin_kv + keys
        self.assertTrue((o[begin_q:] == self.POISON).all().item(), "rows after the end stay as they are")

    @staticmethod
    def packed(lengths_q, lengths_kv, heads, dim, extra=0, dtype="bfloat16"):
        """q, k and v; `extra` rows after the end are NaN, as memory that nobody wrote may be."""
        torch.manual_seed(sum(lengths_q) + dim)
        tensors = []
        for lengths, count in ((lengths_q, heads[0]), (lengths_kv, heads[1]), (lengths_kv, heads[1])):
            tensor = torch.randn(sum(lengths) + extra, count, dim, device="cuda").to(getattr(torch, dtype))
            tensor[sum(lengths) :] = math.nan
            tensors.append(tensor)
        return tensors

    def test_packed(self):
        some = (37, 1, 300, 0, 128, 65)
        cases = (
            {},
            {"heads": (8, 2)},
            {"dim": 128},
            {"dim": 128, "heads": (8, 1), "dtype": "float16"},
            {"lengths_kv": (100, 1, 299, 5, 0, 700)},
            {"lengths_kv": (100, 1, 299, 5, 0, 700), "heads": (6, 3), "dim": 128},
            {"lengths_q": (1, 1, 1, 0, 1, 1), "lengths_kv": (37, 1, 300, 0, 1000, 65), "heads": (8, 1)},
            {"lengths_q": (1500, 3), "lengths_kv": (1500, 3)},
            {"extra": 77},
        )
        for case in cases:
            for causal in (False, True):
                with self.subTest(causal=causal, **case):
                    case = {"heads": (4, 4), "dim": 64, **case}
                    lengths_q = case.pop("lengths_q", some)
                    lengths_kv = case.pop("lengths_kv", lengths_q)
                    q, k, v = self.packed(lengths_q, lengths_kv, **case)
                    o = torch.full_like(q, self.POISON)
                    lse = torch.full((q.shape[1], q.shape[0]), self.POISON, device="cuda")
                    same = lengths_kv is lengths_q
                    ends = self.ends_of(lengths_q) if same else (self.ends_of(lengths_q), self.ends_of(lengths_kv))
                    attnforge.attention(
                        q, k, v, causal=causal, return_lse=True, out=(o, lse), cu_seqlens=ends,
                        max_seqlen=max(lengths_q) if same else (max(lengths_q), max(lengths_kv)),
                    )
                    self.check_packed(lengths_q, lengths_kv, o, lse, q, k, v, causal)
                    self.assertTrue((lse[:, sum(lengths_q) :] == self.POISON).all().item())

    def test_packed_window_softcap_and_outputs_of_its_own(self):
        lengths = (200, 31, 513)
        q, k, v = self.packed(lengths, lengths, (4, 2), 64)
        ends = self.ends_of(lengths)
        options = {"causal": True, "window": 50, "softcap": 20.0}
        o, lse = attnforge.attention(q, k, v, cu_seqlens=ends, max_seqlen=513, return_lse=True, **options)
        self.assertEqual((o.shape, lse.shape), (q.shape, (4, 744)))
        begin = 0
        for rows in lengths:
            of = slice(begin, begin + rows)
            alone, alone_lse = attnforge.attention(q[None, of], k[None, of], v[None, of], return_lse=True, **options)
            self.assertLessEqual((o[of].float() - alone[0].float()).abs().max().item(), 2e-2)
            self.assertLessEqual((lse[:, of] - alone_lse[0]).abs().max().item(), 1e-3)
            begin += rows

    def test_strides_of_packed_tensors(self):
        """q, k and v as views of one tensor, as a projection writes them."""
        lengths = (100, 259)
        qkv = torch.randn(359, 3, 4, 64, device="cuda").to(torch.bfloat16)
        q, k, v = qkv.unbind(1)
        ends = self.ends_of(lengths)
        o = attnforge.attention(q, k, v, causal=True, cu_seqlens=ends, max_seqlen=259)
        copies = [x.contiguous() for x in (q, k, v)]
        self.assertTrue(torch.equal(o, attnforge.attention(*copies, causal=True, cu_seqlens=ends, max_seqlen=259)))
        self.check_packed(lengths, lengths, o, None, q, k, v, True)

    def test_totals_of_one_bucket_share_a_plan(self):
        attnforge.plan_cache.clear()
        for lengths in ((100, 200, 90), (128, 256, 128), (128, 1, 1)):
            q, k, v = self.packed(lengths, lengths, (4, 4), 64)
            o = attnforge.attention(q, k, v, causal=True, cu_seqlens=self.ends_of(lengths), max_seqlen=max(lengths))
            self.check_packed(lengths, lengths, o, None, q, k, v, True)
        plans = list(attnforge.plan_cache)
        self.assertEqual(len(plans), 2, [str(plan.problem) for plan in plans])  # up to 512 tokens, and to 256

    def test_used_lengths(self):
        capacity, batch = 400, 5
        used = {"q": (1, 400, 0, 64, 129), "kv": (400, 1, 77, 0, 256)}
        for heads, dim in (((4, 4), 64), ((8, 2), 128)):
            for causal in (False, True):
                for which in ("kv", "q", "both"):
                    with self.subTest(heads=heads, causal=causal, which=which):
                        torch.manual_seed(dim)
                        q = torch.randn(batch, capacity, heads[0], dim, device="cuda").to(torch.bfloat16)
                        k, v = (torch.randn(batch, capacity, heads[1], dim, device="cuda").to(torch.bfloat16) for _ in range(2))
                        rows = [capacity] * batch if which == "kv" else used["q"]
                        keys = [capacity] * batch if which == "q" else used["kv"]
                        for i in range(batch):  # what does not count may be anything
                            q[i, rows[i] :] = k[i, keys[i] :] = v[i, keys[i] :] = math.nan
                        of_q, of_kv = (torch.tensor(each, device="cuda", dtype=torch.int32) for each in (rows, keys))
                        arrays = {"kv": of_kv, "q": (of_q, None), "both": (of_q, of_kv)}[which]
                        o, lse = torch.full_like(q, self.POISON), torch.full(
                            (batch, heads[0], capacity), self.POISON, device="cuda"
                        )
                        attnforge.attention(q, k, v, causal=causal, return_lse=True, out=(o, lse), used_kv=arrays)
                        for i in range(batch):
                            self.check_sequence(
                                o[i, : rows[i]], lse[i, :, : rows[i]], q[i, : rows[i]], k[i, : keys[i]], v[i, : keys[i]], causal
                            )
                            self.assertTrue((o[i, rows[i] :] == self.POISON).all().item())

    def test_no_sequence_has_a_key_or_a_row(self):
        q, k, v = self.packed((5, 9), (0, 0), (4, 4), 64)
        none, ends = torch.zeros(3, device="cuda", dtype=torch.int32), self.ends_of((5, 9))
        o, lse = attnforge.attention(q, k, v, cu_seqlens=(ends, none), max_seqlen=(9, 0), return_lse=True)
        self.assertTrue((o == 0).all().item() and (lse == -math.inf).all().item())
        o = attnforge.attention(k, q, q, cu_seqlens=(none, ends), max_seqlen=(0, 9))
        self.assertEqual(o.shape, (0, 4, 64))
        torch.cuda.synchronize()

    def test_lengths_change_between_replays_of_a_graph(self):
        batches = ((100, 200, 212), (512, 0, 0), (1, 255, 256), (170, 171, 171))
        q, k, v = self.packed((512,), (512,), (4, 2), 64)
        for causal in (False, True):
            ends = self.ends_of(batches[0])
            options = {"causal": causal, "return_lse": True, "cu_seqlens": ends, "max_seqlen": 512}
            attnforge.attention(q, k, v, **options)  # makes the plan
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                o, lse = attnforge.attention(q, k, v, **options)
            for lengths in (*batches, *batches[::-1]):
                ends.copy_(self.ends_of(lengths))
                graph.replay()
                torch.cuda.synchronize()
                self.check_packed(lengths, lengths, o, lse, q, k, v, causal)

    def test_used_keys_grow_between_replays_of_a_graph(self):
        q = torch.randn(3, 1, 8, 128, device="cuda").to(torch.bfloat16)
        k, v = (torch.randn(3, 1000, 2, 128, device="cuda").to(torch.bfloat16) for _ in range(2))
        used = torch.tensor([1, 500, 990], device="cuda", dtype=torch.int32)
        attnforge.attention(q, k, v, causal=True, used_kv=used)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = attnforge.attention(q, k, v, causal=True, used_kv=used)
        for _ in range(10):
            graph.replay()
            torch.cuda.synchronize()
            for i, keys in enumerate(used.tolist()):
                self.check_sequence(o[i], None, q[i], k[i, :keys], v[i, :keys], True)
            used += 1

    def test_streams_do_not_share_the_list_of_work(self):
        """The list of a run is in memory of the run: two at a time with different lengths."""
        batches = ((2048, 0, 0, 0), (512, 512, 512, 512), (1, 2045, 1, 1), (0, 0, 1024, 1024))
        q, k, v = self.packed((2048,), (2048,), (8, 8), 64)
        ends = [self.ends_of(lengths) for lengths in batches]
        options = {"causal": True, "max_seqlen": 2048}
        expected = [attnforge.attention(q, k, v, cu_seqlens=each, **options) for each in ends]
        torch.cuda.synchronize()
        wrong = []

        def work(each, wanted):
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    if not torch.equal(attnforge.attention(q, k, v, cu_seqlens=each, **options), wanted):
                        wrong.append(1)

        in_threads([lambda each=each, o=o: work(each, o) for each, o in zip(ends, expected)])
        self.assertEqual(wrong, [])


def in_threads(functions):
    """Runs each in a thread of its own; raises the first exception."""
    failed = []

    def kept(function):
        try:
            function()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=kept, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@unittest.skipUnless(cupy is not None, "needs cupy")
class CupyTest(unittest.TestCase):
    """Streams whose numbers say nothing: CUDA gives that of a destroyed one to the next, and number 2 is one of each thread."""

    def setUp(self):
        generator = cupy.random.RandomState(6)
        self.inputs = [
            tuple(generator.standard_normal((2, 1024, 8, 64), dtype="float32").astype("float16") for _ in range(3))
            for _ in range(4)
        ]
        self.expected = [attnforge.attention(*each, causal=True) for each in self.inputs]
        cupy.cuda.Device().synchronize()

    def test_streams_that_are_dropped_after_the_call(self):
        results = []
        for i in range(200):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                results.append((i % 4, attnforge.attention(*self.inputs[i % 4], causal=True)))
            del stream
            gc.collect(0)
        cupy.cuda.Device().synchronize()
        for i, got in results:
            self.assertTrue(bool((got == self.expected[i]).all()))

    def test_the_default_stream_of_each_thread(self):
        wrong = []

        def work(i):
            with cupy.cuda.Stream.ptds:
                for _ in range(100):
                    got = attnforge.attention(*self.inputs[i], causal=True)
                    cupy.cuda.Stream.ptds.synchronize()
                    if not bool((got == self.expected[i]).all()):
                        wrong.append(i)

        in_threads([lambda i=i: work(i) for i in range(4)])
        self.assertEqual(wrong, [])

    def test_rows_that_run_backwards(self):
        q, k, v = self.inputs[0]
        expected = attnforge.attention(q, cupy.ascontiguousarray(k[:, ::-1]), cupy.ascontiguousarray(v[:, ::-1]))
        got = attnforge.attention(q, k[:, ::-1], v[:, ::-1])
        self.assertLessEqual(float(cupy.abs(got.astype("float32") - expected.astype("float32")).max()), 1e-2)

    def test_last_dimensions_that_run_backwards_are_refused(self):
        q, k, v = self.inputs[0]
        with self.assertRaisesRegex(attnforge.InvalidError, "the last dimension of k has stride -1"):
            attnforge.attention(q, k[..., ::-1], v[..., ::-1])


if __name__ == "__main__":
    unittest.main()
