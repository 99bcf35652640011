"""Gradients of attnforge against PyTorch's own operators, in fp64 and in the dtype at hand. Needs torch and a GPU.

The rule: the error against fp64 is at most twice that of a plain attention in the same dtype, written with PyTorch's own operators and
differentiated by autograd, plus a small absolute tolerance. Errors are the largest of all elements, and their root of the mean square.
"""

import math
import pathlib
import sys
import unittest

try:
    import torch
except ImportError:
    torch = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))
import attnforge  # noqa: E402

ATOL = {"float16": 1e-3, "bfloat16": 8e-3}  # of gradients about as large as 1


def visible(rows, keys, causal, window):
    """[rows, keys] of bool, bottom-right aligned. window: None or (left, right)."""
    position = torch.arange(rows, device="cuda")[:, None] + keys - rows
    key = torch.arange(keys, device="cuda")[None, :]
    mask = torch.ones(rows, keys, dtype=torch.bool, device="cuda")
    if causal:
        mask &= key <= position
    if window is not None:
        mask &= (key >= position - window[0]) & (key <= position + window[1])
    return mask


def plain(q, k, v, mask, softcap=None, sinks=None, score=None):
    """(o, lse) as one writes it down, in the dtype of the tensors; rows that see nothing give o = 0, and gradients of 0."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if score is not None:
        s = score(s)
    hidden = ~mask
    s = s.masked_fill(hidden, -math.inf)
    blind = hidden.all(-1) if sinks is None else torch.zeros_like(hidden[..., 0])
    s = s.masked_fill(blind[..., None], 0.0)  # no nan to differentiate
    if sinks is not None:  # a key without a value
        s = torch.cat([s, sinks.to(s.dtype)[None, :, None, None].expand(*s.shape[:3], 1)], dim=-1)
        v = torch.cat([v, torch.zeros_like(v[:, :, :1])], dim=2)
    lse = torch.logsumexp(s, dim=-1)
    o = torch.softmax(s, dim=-1) @ v
    return o.masked_fill(blind[..., None], 0.0).transpose(1, 2), lse.masked_fill(blind, 0.0)


class Case(unittest.TestCase):
    def inputs(self, batch=2, heads=(4, 4), seqlen=(200, 200), dims=(64, 64), dtype="bfloat16", scale=1.0, shift=0.0):
        torch.manual_seed(sum(heads) + sum(seqlen) + sum(dims))
        kind = getattr(torch, dtype)
        q = (torch.randn(batch, seqlen[0], heads[0], dims[0], device="cuda") * scale).to(kind)
        k = (torch.randn(batch, seqlen[1], heads[1], dims[0], device="cuda") + shift).to(kind)
        v = torch.randn(batch, seqlen[1], heads[1], dims[1], device="cuda").to(kind)
        if shift:
            q = -q.abs()  # all scores strongly negative
        return [x.requires_grad_() for x in (q, k, v)]

    def compare(self, got, exact, rough, atol):
        for name, one, wanted, other in zip(("dq", "dk", "dv", "the fourth", "the fifth"), got, exact, rough):
            self.assertEqual(one.shape, wanted.shape, name)
            self.assertTrue(torch.isfinite(one).all().item(), f"{name} is finite")
            error, allowed = ((x.double() - wanted.double()).abs() for x in (one, other))
            size = max(1.0, wanted.abs().max().item())
            self.assertLessEqual(error.max().item(), 2 * allowed.max().item() + atol * size, f"{name}, the largest error")
            rms, rms_allowed = (x.square().mean().sqrt().item() for x in (error, allowed))
            self.assertLessEqual(rms, 2 * rms_allowed + atol * size / 8, f"{name}, the mean error")

    def gradients_of_plain(self, leaves, dout, dlse, dtype, mask, **options):
        copies = [x.detach().to(dtype if x.dim() > 1 else torch.float64).requires_grad_() for x in leaves]
        sinks = copies[3] if len(copies) > 3 else None
        o, lse = plain(*copies[:3], mask, sinks=sinks, **options)
        loss = (o.double() * dout.double()).sum()
        if dlse is not None:
            loss = loss + (lse.double() * dlse.double()).sum()
        return torch.autograd.grad(loss, copies)

    def check(self, causal=False, window=None, softcap=None, dlse=False, sinks=None, dtype="bfloat16", layout="bshd", **sizes):
        q, k, v = leaves = self.inputs(dtype=dtype, **sizes)
        if sinks is not None:
            leaves = [*leaves, sinks]
        options = {"causal": causal, "window": window, "softcap": softcap, "sinks": sinks}
        result = attnforge.attention(q, k, v, return_lse=dlse, **options)
        o, lse = result if dlse else (result, None)
        dout = torch.randn(o.shape, device="cuda").to(o.dtype)
        of_lse = torch.randn(lse.shape, device="cuda") if dlse else None
        tensors, gradients = ([o, lse], [dout, of_lse]) if dlse else ([o], [dout])
        got = torch.autograd.grad(tensors, leaves, gradients)
        bounds = None if window is None else (window, 0 if causal else window)
        mask = visible(q.shape[1], k.shape[1], causal, bounds)
        if of_lse is not None:  # of rows that see nothing lse is -inf, and has no gradient
            of_lse = of_lse.masked_fill(~mask.any(-1), 0.0) if sinks is None else of_lse
        exact, rough = (self.gradients_of_plain(leaves, dout, of_lse, kind, mask, softcap=softcap) for kind in (torch.float64, q.dtype))
        self.compare(got, exact, rough, ATOL[dtype])


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs torch and a GPU")
class GradientsTest(Case):
    def test_full_and_causal(self):
        for dtype in ("float16", "bfloat16"):
            for causal in (False, True):
                with self.subTest(dtype=dtype, causal=causal):
                    self.check(dtype=dtype, causal=causal, seqlen=(513, 513))

    def test_head_dims(self):
        for dim in (8, 16, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256):
            with self.subTest(head_dim=dim):
                self.check(dims=(dim, dim), causal=True, seqlen=(257, 257))

    def test_unequal_head_dims(self):
        for dims in ((192, 128), (64, 256), (72, 40)):
            with self.subTest(dims=dims):
                self.check(dims=dims, causal=True)

    def test_grouped_and_multi_query(self):
        for heads in ((8, 1), (8, 2), (6, 3)):
            for causal in (False, True):
                with self.subTest(heads=heads, causal=causal):
                    self.check(heads=heads, causal=causal, seqlen=(300, 300), dims=(128, 128))

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

    def test_softcap(self):
        for softcap in (5.0, 30.0):
            with self.subTest(softcap=softcap):
                self.check(softcap=softcap, scale=4.0, causal=True)

    def test_of_lse_too(self):
        for causal in (False, True):
            self.check(dlse=True, causal=causal, seqlen=(130, 200))
            self.check(dlse=True, causal=causal, seqlen=(200, 130), heads=(8, 2))

    def test_of_sinks(self):
        for causal in (False, True):
            sinks = torch.randn(4, device="cuda").requires_grad_()
            self.check(sinks=sinks, causal=causal, seqlen=(300, 200))
            self.check(sinks=sinks, causal=causal, dlse=True)

    def test_under_compile(self):
        if not hasattr(torch, "compile"):
            self.skipTest("needs torch.compile")

        def loss(q, k, v):
            return (attnforge.attention(2 * q, k, v, causal=True, deterministic=True) * 3).float().sum()

        compiled = torch.compile(loss, backend="aot_eager")
        for seqlen in ((150, 150), (150, 150), (200, 200)):
            q, k, v = self.inputs(seqlen=seqlen)
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            for got, wanted in zip(torch.autograd.grad(compiled(*leaves), leaves), torch.autograd.grad(loss(*leaves), leaves)):
                self.assertTrue(torch.equal(got, wanted))

    def test_strongly_negative_scores(self):
        for seqlen in ((64, 100), (129, 191)):
            with self.subTest(seqlen=seqlen):
                self.check(seqlen=seqlen, shift=30.0)

    def test_layouts_and_views(self):
        qkv = torch.randn(2, 150, 3, 4, 64, device="cuda").to(torch.float16).requires_grad_()
        q, k, v = qkv.unbind(2)
        dout = torch.randn(q.shape, device="cuda").to(torch.float16)
        copies = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        wanted = torch.autograd.grad(attnforge.attention(*copies, deterministic=True), copies, dout)
        got, = torch.autograd.grad(attnforge.attention(q, k, v, deterministic=True), [qkv], dout)
        for one, other in zip(got.unbind(2), wanted):
            self.assertTrue(torch.equal(one, other))
        first = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
        got = torch.autograd.grad(attnforge.attention(*first, layout="bhsd", deterministic=True), first, dout.transpose(1, 2))
        for one, other in zip(got, wanted):
            self.assertTrue(torch.equal(one.transpose(1, 2), other))

    def test_gradients_of_o_that_are_views_or_sums(self):
        q, k, v = self.inputs()
        o = attnforge.attention(q, k, v, deterministic=True)
        ones = torch.ones_like(o)
        wanted = torch.autograd.grad(o, [q, k, v], ones, retain_graph=True)
        for got in (torch.autograd.grad(o.sum(), [q, k, v], retain_graph=True), torch.autograd.grad(o.transpose(1, 2).contiguous().sum(), [q, k, v])):
            for one, other in zip(got, wanted):
                self.assertTrue(torch.equal(one, other))


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs torch and a GPU")
class LengthsTest(Case):
    """Packed and used lengths against dense gradients of each sequence alone; what does not count is NaN."""

    def check_sequences(self, q, k, v, parts, o, dout, causal, of_q, of_k):
        """parts: (index of a sequence's rows of q, of k). of_q, of_k: where some sequence is."""
        got = torch.autograd.grad(o, [q, k, v], dout)
        for name, gradient, counts in zip(("dq", "dk", "dv"), got, (of_q, of_k, of_k)):
            self.assertTrue((gradient[~counts] == 0).all().item(), f"{name} is 0 where no row counts")
        for rows, keys in parts:
            one = [x[index].detach()[None].requires_grad_() for x, index in ((q, rows), (k, keys), (v, keys))]
            if one[0].shape[1] == 0 or one[1].shape[1] == 0:
                for gradient, index in zip(got, (rows, keys, keys)):
                    self.assertTrue((gradient[index] == 0).all().item())
                continue
            mask = visible(one[0].shape[1], one[1].shape[1], causal, None)
            exact, rough = (self.gradients_of_plain(one, dout[rows][None], None, kind, mask) for kind in (torch.float64, q.dtype))
            self.compare([x[index][None] for x, index in zip(got, (rows, keys, keys))], exact, rough, ATOL["bfloat16"])

    def test_packed(self):
        some = (37, 1, 300, 0, 128, 65)
        for lengths_kv, heads, dim in ((some, (4, 4), 64), (some, (8, 2), 128), ((100, 1, 299, 5, 0, 700), (6, 3), 64)):
            for causal in (False, True):
                with self.subTest(heads=heads, dim=dim, causal=causal):
                    torch.manual_seed(dim)
                    extra = 50
                    tensors = []
                    for lengths, count in ((some, heads[0]), (lengths_kv, heads[1]), (lengths_kv, heads[1])):
                        x = torch.randn(sum(lengths) + extra, count, dim, device="cuda").to(torch.bfloat16)
                        x[sum(lengths) :] = math.nan
                        tensors.append(x.requires_grad_())
                    ends, ends_kv = (torch.tensor([0, *each], device="cuda").cumsum(0).int() for each in (some, lengths_kv))
                    bounds = ends if lengths_kv is some else (ends, ends_kv)
                    o = attnforge.attention(*tensors, causal=causal, cu_seqlens=bounds, max_seqlen=(max(some), max(lengths_kv)))
                    self.assertTrue((o[sum(some) :] == 0).all().item())
                    dout = torch.randn(o.shape, device="cuda").to(o.dtype)
                    dout[sum(some) :] = math.nan
                    at, at_kv = ends.tolist(), ends_kv.tolist()
                    parts = [(slice(*at[i : i + 2]), slice(*at_kv[i : i + 2])) for i in range(len(some))]
                    of_q, of_k = (torch.arange(x.shape[0], device="cuda") < sum(n) for x, n in zip(tensors, (some, lengths_kv)))
                    self.check_sequences(*tensors, parts, o, dout, causal, of_q, of_k)

    def test_sinks_of_packed(self):
        some, sinks = (37, 1, 300, 0, 128, 65), torch.randn(4, device="cuda").requires_grad_()
        q, k, v = (torch.randn(sum(some), 4, 64, device="cuda").to(torch.bfloat16) for _ in range(3))
        ends = torch.tensor([0, *some], device="cuda").cumsum(0).int()
        o = attnforge.attention(q, k, v, causal=True, cu_seqlens=ends, max_seqlen=max(some), sinks=sinks)
        dout = torch.randn(o.shape, device="cuda").to(o.dtype)
        got, = torch.autograd.grad(o, sinks, dout)
        wanted = torch.zeros(4, device="cuda", dtype=torch.float64)
        for first, last in zip(ends.tolist(), ends.tolist()[1:]):
            if first < last:
                one = [x[None, first:last].double() for x in (q, k, v)]
                o_of_one, _ = plain(*one, visible(last - first, last - first, True, None), sinks=sinks)
                wanted += torch.autograd.grad(o_of_one, sinks, dout[None, first:last].double())[0].double()
        # dout and o are rounded to bfloat16: a share of the sum of all rows.
        self.assertLess((got - wanted).abs().max().item(), 2e-2 * wanted.abs().max().item())

    def test_used(self):
        capacity, used_q, used_kv = 200, (1, 200, 0, 64, 129), (200, 1, 77, 0, 130)
        for heads, dim in (((4, 4), 64), ((8, 2), 128)):
            for causal in (False, True):
                with self.subTest(heads=heads, causal=causal):
                    torch.manual_seed(dim)
                    tensors = []
                    for lengths, count in ((used_q, heads[0]), (used_kv, heads[1]), (used_kv, heads[1])):
                        x = torch.randn(5, capacity, count, dim, device="cuda").to(torch.bfloat16)
                        for i, length in enumerate(lengths):
                            x[i, length:] = math.nan
                        tensors.append(x.requires_grad_())
                    arrays = [torch.tensor(each, device="cuda", dtype=torch.int32) for each in (used_q, used_kv)]
                    o = attnforge.attention(*tensors, causal=causal, used_kv=tuple(arrays))
                    dout = torch.randn(o.shape, device="cuda").to(o.dtype)
                    parts = [((i, slice(0, used_q[i])), (i, slice(0, used_kv[i]))) for i in range(5)]
                    of_q, of_k = (torch.arange(capacity, device="cuda") < each[:, None] for each in arrays)
                    self.check_sequences(*tensors, parts, o, dout, causal, of_q, of_k)


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs torch and a GPU")
class AutogradTest(Case):
    def test_one_tensor_three_times(self):
        x, _, _ = self.inputs()
        dout = torch.randn(x.shape, device="cuda").to(x.dtype)
        got = torch.autograd.grad(attnforge.attention(x, x, x, causal=True), [x], dout)
        mask = visible(200, 200, True, None)
        found = []
        for kind in (torch.float64, x.dtype):
            copy = x.detach().to(kind).requires_grad_()
            found.append(torch.autograd.grad(plain(copy, copy, copy, mask)[0], [copy], dout.to(kind)))
        self.compare(got, *found, ATOL["bfloat16"])

    def test_inputs_without_grad_get_none(self):
        for i in range(3):
            leaves = [x.detach().requires_grad_(i == j) for j, x in enumerate(self.inputs())]
            attnforge.attention(*leaves).sum().backward()
            self.assertEqual([x.grad is not None for x in leaves], [i == j for j in range(3)])

    def test_backward_twice_and_no_second_derivative(self):
        q, k, v = self.inputs()
        o = attnforge.attention(q, k, v, deterministic=True).float().square().sum()
        first = torch.autograd.grad(o, [q], retain_graph=True)[0]
        self.assertTrue(torch.equal(first, torch.autograd.grad(o, [q])[0]))
        dq = torch.autograd.grad(attnforge.attention(q, k, v).float().sum(), [q], create_graph=True)[0]
        with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
            (dq.float().sum() + q.float().sum()).backward()

    def test_checkpointing(self):
        from torch.utils.checkpoint import checkpoint

        q, k, v = self.inputs()

        def block(q, k, v):
            return attnforge.attention(q * 1, k * 1, v * 1, causal=True, deterministic=True)

        def gradients(o):
            for x in (q, k, v):
                x.grad = None
            o.float().square().sum().backward()
            return [x.grad for x in (q, k, v)]

        wanted = gradients(block(q, k, v))
        for reentrant in (False, True):
            for one, other in zip(gradients(checkpoint(block, q, k, v, use_reentrant=reentrant)), wanted):
                self.assertTrue(torch.equal(one, other))

    def test_autocast(self):
        torch.manual_seed(3)
        layer = torch.nn.Linear(256, 3 * 256, device="cuda")
        x = torch.randn(2, 130, 256, device="cuda", requires_grad=True)

        def loss(attend):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                q, k, v = layer(x).unflatten(-1, (3, 4, 64)).unbind(2)
                q = torch.nn.functional.layer_norm(q, (64,))  # float32 under autocast
                o = attend(q, k, v)
            return o.float().square().mean()

        def torchs(q, k, v):
            options = {"is_causal": True}
            return torch.nn.functional.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (q, k, v)), **options).transpose(1, 2)

        leaves = [x, *layer.parameters()]
        got = torch.autograd.grad(loss(lambda *qkv: attnforge.attention(*qkv, causal=True)), leaves)
        wanted = torch.autograd.grad(loss(torchs), leaves)
        for one, other in zip(got, wanted):
            self.assertEqual(one.dtype, other.dtype)
            self.assertLessEqual(((one - other).norm() / other.norm()).item(), 2e-2)

    def test_a_step_of_training_on_another_stream_and_thread(self):
        import threading

        q, k, v = self.inputs()
        wanted = torch.autograd.grad(attnforge.attention(q, k, v, deterministic=True).square().sum(), [q, k, v])
        torch.cuda.synchronize()
        wrong = []

        def work():
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    got = torch.autograd.grad(attnforge.attention(q, k, v, deterministic=True).square().sum(), [q, k, v])
                    if not all(torch.equal(one, other) for one, other in zip(got, wanted)):
                        wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_in_a_graph(self):
        q, k, v = self.inputs()
        dout = torch.randn(q.shape, device="cuda").to(q.dtype)

        def step():
            return torch.autograd.grad(attnforge.attention(q, k, v, causal=True, deterministic=True), [q, k, v], dout)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            wanted = step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = step()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        for one, other in zip(got, wanted):
            self.assertTrue(torch.equal(one, other))

    def check_text(self, options, mask=None, score=None, arrays=None, dtype="bfloat16", **sizes):
        """Gradients through texts, and of the arrays that they read. score(s, *arrays) and mask are of plain attention."""
        leaves = [*self.inputs(dtype=dtype, **sizes), *(arrays or {}).values()]
        q, k, v = leaves[:3]
        causal = options.get("causal", False)
        o = attnforge.attention(q, k, v, args=arrays, **options)
        dout = torch.randn(o.shape, device="cuda").to(o.dtype)
        got = torch.autograd.grad(o, leaves, dout)
        seen = visible(q.shape[1], k.shape[1], causal, None) & (True if mask is None else mask)

        def of_plain(kind):
            copies = [x.detach().to(kind).requires_grad_() for x in leaves]
            of_score = None if score is None else lambda s: score(s, *copies[3:])
            wanted, _ = plain(*copies[:3], seen, softcap=options.get("softcap"), score=of_score)
            return torch.autograd.grad((wanted.double() * dout.double()).sum(), copies)

        self.compare(got, of_plain(torch.float64), of_plain(q.dtype), ATOL[dtype])

    def test_through_a_score_text(self):
        distance = torch.arange(333, device="cuda")[None, :] - torch.arange(200, device="cuda")[:, None]
        self.check_text({"score": "s * 2", "causal": True}, score=lambda s: s * 2)
        self.check_text(
            {"score": "s + 0.01f * (k - q) - 0.1f * s * s"},
            score=lambda s: s + 0.01 * distance.to(s.dtype) - 0.1 * s * s,
            seqlen=(200, 333),
            heads=(4, 2),
        )

    def test_through_a_mask_text(self):
        rows, keys = torch.arange(200, device="cuda")[:, None], torch.arange(200, device="cuda")[None, :]
        self.check_text({"mask": "k <= q"}, mask=keys <= rows)
        self.check_text({"mask": "(k + q) % 3 != 0", "causal": True}, mask=(keys + rows) % 3 != 0)

    def test_of_arrays_that_a_score_reads(self):
        """A slope for each head, a table by distance, an array read twice, others by query, key and sequence, alone and together."""
        rows, keys = (torch.arange(n, device="cuda") for n in (200, 333))
        apart = keys[None, :] - rows[:, None]

        def array(*shape, kind=torch.float32):
            return (torch.rand(*shape, device="cuda") / 4).to(kind).requires_grad_()

        cases = (
            ("s + slope[head] * (k - q)", lambda s, slope: s + slope[:, None, None] * apart.to(s.dtype), {"slope": lambda: array(4)}),
            ("s + table[q - k + 332]", lambda s, table: s + table[332 - apart], {"table": lambda: array(532)}),
            (
                "s * (1 + a[k]) + a[q] * a[q]",
                lambda s, a: s * (1 + a[keys]) + (a[rows] * a[rows])[:, None],
                {"a": lambda: array(333)},
            ),
            (
                "s + (k < q ? a[head * 200 + q] : tanhf(b[batch * 333 + k] * s))",
                lambda s, a, b: s
                + torch.where(
                    apart < 0, a.view(4, 200)[None, :, :, None].expand(s.shape), torch.tanh(b.view(2, 333)[:, None, None, :] * s)
                ),
                {"a": lambda: array(800), "b": lambda: array(666, kind=torch.float16)},
            ),
            (
                "[&] { auto x = s * 1; for (int i = 0; i < 3; ++i) x += a[i] * float(k % (i + 2)); return x; }()",
                lambda s, a: s + sum(a[i] * (keys % (i + 2)).to(s.dtype) for i in range(3)),
                {"a": lambda: array(3)},
            ),
        )
        for text, score, arrays in cases:
            for causal, softcap, dims in ((True, None, (64, 64)), (False, 20.0, (128, 128)), (True, None, (256, 256))):
                with self.subTest(text=text, causal=causal, dims=dims):
                    self.check_text(
                        {"score": text, "causal": causal, "softcap": softcap},
                        score=score,
                        arrays={name: make() for name, make in arrays.items()},
                        seqlen=(200, 333),
                        heads=(4, 2),
                        dims=dims,
                    )

    def test_what_cannot_be_differentiated_is_refused(self):
        q, k, v = self.inputs()
        tables = torch.zeros(200, 32, device="cuda"), torch.zeros(200, 32, device="cuda")
        for options in ({"rope": tables}, {"out": torch.empty_like(q)}):
            with self.subTest(list(options)), self.assertRaisesRegex(attnforge.AttnforgeError, "q requires grad"):
                attnforge.attention(q, k, v, **options)
        with self.assertRaises(attnforge.InvalidError):
            torch.func.grad(lambda x: attnforge.attention(x, k.detach(), v.detach()).sum())(q.detach())


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "needs torch and a GPU")
class AttentionBackwardTest(Case):
    def forward(self, **sizes):
        q, k, v = (x.detach() for x in self.inputs(**sizes))
        o, lse = attnforge.attention(q, k, v, return_lse=True)
        return q, k, v, o, lse, torch.randn(o.shape, device="cuda").to(o.dtype)

    def test_deterministic_repeats(self):
        for heads, dims, causal in (((4, 4), (64, 64), True), ((8, 2), (128, 128), False), ((2, 2), (256, 256), True)):
            with self.subTest(heads=heads, dims=dims):
                inputs = self.forward(heads=heads, seqlen=(1024, 1024), dims=dims)
                first = attnforge.attention_backward(*inputs, causal=causal, deterministic=True)
                for _ in range(100):
                    again = attnforge.attention_backward(*inputs, causal=causal, deterministic=True)
                    self.assertTrue(all(torch.equal(one, other) for one, other in zip(again, first)))

    def test_accumulate_and_fp32(self):
        inputs = self.forward(heads=(4, 2))
        wide = attnforge.attention_backward(*inputs, fp32_gradients=True, deterministic=True)
        self.assertTrue(all(x.dtype == torch.float32 for x in wide))
        narrow = attnforge.attention_backward(*inputs, deterministic=True)
        for one, other in zip(wide, narrow):
            self.assertLessEqual((one - other.float()).abs().max().item(), 2**-8 * one.abs().max().item())
        for out in (tuple(torch.ones_like(x) for x in wide), tuple(torch.ones_like(x) for x in narrow)):
            attnforge.attention_backward(*inputs, out=out, accumulate=True, deterministic=True)
            limit = 1e-5 if out[0].dtype == torch.float32 else 2**-7
            for one, other in zip(out, wide):
                self.assertLessEqual((one.float() - 1 - other).abs().max().item(), limit * (1 + other.abs().max().item()))

    def test_a_ring(self):
        """Four parts of the keys, each with the o and lse of all: gradients are those of all."""
        q, k, v, o, lse, dout = self.forward(heads=(4, 2), seqlen=(256, 512))
        wanted = attnforge.attention_backward(q, k, v, o, lse, dout, fp32_gradients=True)
        dq, dk, dv = (torch.zeros(x.shape, device="cuda") for x in (q, k, v))
        for begin in range(0, 512, 128):
            part = slice(begin, begin + 128)
            attnforge.attention_backward(q, k[:, part], v[:, part], o, lse, dout, out=(dq, dk[:, part], dv[:, part]), accumulate=True)
        for one, other in zip((dq, dk, dv), wanted):
            self.assertLessEqual(((one - other).norm() / other.norm()).item(), 2e-3)

    def test_rows_that_have_seen_no_key(self):
        q, k, v, o, lse, dout = self.forward()
        lse[:, :, :50] = -math.inf
        o[:, :50] = 0
        dq, dk, dv = attnforge.attention_backward(q, k, v, o, lse, dout)
        self.assertTrue((dq[:, :50] == 0).all().item())
        self.assertTrue(all(torch.isfinite(x).all().item() for x in (dq, dk, dv)))

    def test_without_rows_or_keys(self):
        for seqlen in ((0, 64), (64, 0)):
            q = torch.randn(2, seqlen[0], 4, 64, device="cuda").to(torch.bfloat16)
            k = torch.randn(2, seqlen[1], 4, 64, device="cuda").to(torch.bfloat16)
            lse = torch.full((2, 4, seqlen[0]), -math.inf, device="cuda")
            gradients = attnforge.attention_backward(q, k, k, torch.zeros_like(q), lse, torch.ones_like(q))
            self.assertTrue(all((x == 0).all().item() for x in gradients))
        torch.cuda.synchronize()


if __name__ == "__main__":
    unittest.main()
