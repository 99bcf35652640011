#!/usr/bin/env python3
"""Gradients through attention() by the autograd of the real torch, on the CPU: what plans enqueue is computed here, from the structs that
reach the library.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_autograd_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp. tools/with_torch.sh finds a python that has torch.
"""

import contextlib
import gc
import math
import os
import sys
import unittest
from unittest import mock

import torch

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
import attnforge  # noqa: E402
import cpu_kernels  # noqa: E402
from attnforge._gradients import autograd, backward  # noqa: E402
from cpu_kernels import ALIBI, CAP, DOCUMENTS, TABLE, Cpu, cleared, plain, runs  # noqa: E402


class AutogradTest(unittest.TestCase):
    def setUp(self):
        cpu_kernels.install(self)

    @staticmethod
    def inputs(q=(2, 20, 4, 16), kv=None, dtype="bfloat16", dim_v=None):
        kv = kv or q
        shapes = q, kv, (*kv[:3], dim_v or kv[3])
        return [torch.randn(shape).to(getattr(torch, dtype)).requires_grad_() for shape in shapes]

    def compare(self, got, wanted, limit=2e-2):
        for name, one, other in zip(("dq", "dk", "dv", "dsinks"), got, wanted):
            self.assertEqual((one.shape, one.dtype), (other.shape, other.dtype), name)
            scale = other.abs().max().item() + 1e-3
            self.assertLessEqual((one.double() - other.double()).abs().max().item() / scale, limit, name)

    def check(self, q, k, v, both=False, **options):
        """Gradients of a loss of o, and of lse with `both`, against those of plain operators."""
        names = {name: options[name] for name in ("causal", "window", "softcap", "sinks") if name in options}
        leaves = [q, k, v] + ([options["sinks"]] if "sinks" in options else [])
        result = attnforge.attention(q, k, v, return_lse=both, **options)
        o, lse = result if both else (result, None)
        wanted_o, wanted_lse = plain(*(x.double() for x in (q, k, v)), **names)
        dout, dlse = torch.randn(o.shape, dtype=o.dtype), torch.randn(2, q.shape[2], q.shape[1])
        loss, wanted = (o * dout).double().sum(), (wanted_o * dout.double()).sum()
        if both:
            loss, wanted = loss + (lse * dlse).double().sum(), wanted + (wanted_lse * dlse).sum()
        self.compare(torch.autograd.grad(loss, leaves), torch.autograd.grad(wanted, leaves))
        self.assertEqual(len(runs) % 2, 0)

    def test_calls_with_arrays_numbers_and_blocks_are_remembered_but_not_what_these_hold(self):
        q, k, v = self.inputs((1, 32, 4, 16))
        dout = torch.randn_like(q)
        slope, text = torch.rand(4).requires_grad_(), f"({DOCUMENTS}) && k != hole"

        def both(document, hole, blocks):
            args = {"document": torch.tensor(document, dtype=torch.int32), "hole": hole, "slope": slope}
            o = attnforge.attention(q, k, v, mask=text, score=ALIBI, args=args, block_mask=blocks)
            return o, *torch.autograd.grad(o, [q, k, v, slope], dout)

        def wanted(document, hole, seen):
            at, document = torch.arange(32), torch.tensor(document)
            seen = seen & (document[:, None] == document) & (at != hole)
            o, _ = plain(*(x.double() for x in (q, k, v)), mask=seen, score=lambda s: s + slope.double()[:, None, None] * (at - at[:, None]))
            return o, *torch.autograd.grad(o, [q, k, v, slope], dout.double())

        def blocks(columns):
            seen = torch.zeros(32, 32, dtype=torch.bool)
            for row, column in enumerate(columns):
                seen[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = True
            return attnforge.BlockMask.from_bsr([0, 1, 2], columns, 16, (32, 32), partial=[1, 1]), seen

        first, (other, seen) = blocks([0, 1]), blocks([1, 0])
        cases = ([0] * 32, 3, first), ([0] * 32, 3, first), ([0] * 9 + [1] * 23, 20, first), ([0] * 32, 1, (other, seen))
        for i, (document, hole, (mask, seen)) in enumerate(cases):
            long_way = mock.patch.object(autograd, "why_not_served", side_effect=AssertionError), mock.patch.object(
                backward, "_run", side_effect=AssertionError
            )
            with contextlib.ExitStack() as stack:
                if i == 2:  # the last has blocks that no run has brought to the GPU yet
                    for each in long_way:
                        stack.enter_context(each)
                got = both(document, hole, mask)
            for name, one, other in zip(("o", "dq", "dk", "dv", "slope"), got, wanted(document, hole, seen)):
                self.assertLessEqual((one.double() - other.double()).abs().max().item(), 2e-2 * (other.abs().max().item() + 1e-3), (i, name))

    def test_gradients_are_those_of_plain_operators(self):
        cases = ({}, {"causal": True}, {"window": 5}, {"softcap": 2.0, "causal": True}, {"both": True}, {"both": True, "causal": True})
        for options in cases:
            with self.subTest(options):
                self.check(*self.inputs(), **options)
                self.check(*self.inputs((2, 7, 6, 8), (2, 20, 2, 8), dim_v=24), **options)
                self.check(*self.inputs(dtype="float16"), **options)

    def test_of_sinks(self):
        for both in (False, True):
            sinks = torch.randn(4).requires_grad_()
            self.check(*self.inputs(), causal=True, sinks=sinks, both=both)
        q, k, v = self.inputs()
        attnforge.attention(q.detach(), k.detach(), v.detach(), sinks=sinks).sum().backward()
        self.assertIsNotNone(sinks.grad)
        self.assertIsNone(q.grad)
        self.assertIn(" sinks", runs[-1])
        attnforge.attention(q, k, v, sinks=sinks.detach()).sum().backward()
        self.assertNotIn(" sinks", runs[-1], "the other gradients do not depend on them")

    def test_of_sinks_of_packed_sequences_are_those_of_each_alone(self):
        sinks = torch.randn(4).requires_grad_()
        q, k, v = (torch.randn(23, 4, 16).to(torch.bfloat16) for _ in range(3))
        dout, ends = torch.randn(23, 4, 16).to(torch.bfloat16), [0, 9, 9, 23]
        o = attnforge.attention(q, k, v, cu_seqlens=torch.tensor(ends, dtype=torch.int32), max_seqlen=14, sinks=sinks)
        got = torch.autograd.grad(o, sinks, dout)[0]
        wanted = torch.zeros(4)
        for first, last in zip(ends, ends[1:]):
            if first < last:
                one = attnforge.attention(*(x[None, first:last] for x in (q, k, v)), sinks=sinks)
                wanted += torch.autograd.grad(one, sinks, dout[None, first:last])[0]
        self.compare([got], [wanted])

    def test_through_texts_and_block_masks(self):
        apart = torch.arange(20)[None, :] - torch.arange(20)[:, None]
        slope, document = torch.rand(4), (torch.arange(20) // 7).int()
        blocks = attnforge.BlockMask.from_dense([[row // 16 == key // 16 for key in range(20)] for row in range(20)], 16)
        block_of = torch.arange(20) // 16
        cases = (
            ({"score": ALIBI, "args": {"slope": slope}}, {"score": lambda s: s + slope[:, None, None].double() * apart}),
            ({"score": CAP, "args": {"gain": 0.75}}, {"score": lambda s: 1.5 * torch.tanh(s / 2)}),
            ({"mask": DOCUMENTS, "args": {"document": document}}, {"mask": document[:, None] == document[None]}),
            ({"block_mask": blocks}, {"mask": block_of[:, None] == block_of[None]}),
        )
        for options, wanted in cases:
            with self.subTest(options):
                q, k, v = self.inputs((2, 20, 4, 16))
                o = attnforge.attention(q, k, v, causal=True, **options)
                dout = torch.randn(o.shape, dtype=o.dtype)
                wanted_o, _ = plain(*(x.double() for x in (q, k, v)), causal=True, **wanted)
                got = torch.autograd.grad((o * dout).double().sum(), [q, k, v])
                self.compare(got, torch.autograd.grad((wanted_o * dout.double()).sum(), [q, k, v]))
                with torch.no_grad():  # and by hand
                    o, lse = attnforge.attention(q, k, v, causal=True, return_lse=True, **options)
                    self.compare(attnforge.attention_backward(q, k, v, o, lse, dout, causal=True, **options), got, 0)

    def test_arrays_of_texts_are_kept_and_must_not_change(self):
        q, k, v = self.inputs()
        slope = torch.rand(4)
        o = attnforge.attention(q, k, v, score=ALIBI, args={"slope": slope})
        slope.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            o.float().sum().backward()

    def test_of_arrays_that_the_score_reads(self):
        apart = torch.arange(20)[None, :] - torch.arange(20)[:, None]

        def alibi(s, slope):
            return s + slope[:, None, None] * apart

        def by_table(s, factor, table):
            return s * factor[:, None, None] + table[apart + 19]

        cases = (
            (ALIBI, alibi, {"slope": torch.rand(4)}),
            (TABLE, by_table, {"factor": torch.rand(4).half(), "table": torch.rand(39)}),
        )
        for text, score, arrays in cases:
            for trained in (list(arrays), list(arrays)[:1], []):
                for of_inputs in (True, False):
                    with self.subTest(text=text, trained=trained, of_inputs=of_inputs):
                        q, k, v = (x if of_inputs else x.detach() for x in self.inputs((2, 20, 4, 16), (2, 20, 2, 16)))
                        given = {name: x.clone().requires_grad_(name in trained) for name, x in arrays.items()}
                        leaves = [x for x in (q, k, v, *given.values()) if x.requires_grad]
                        if not leaves:
                            continue
                        o = attnforge.attention(q, k, v, causal=True, score=text, args=given)
                        dout = torch.randn(o.shape, dtype=o.dtype)
                        wide = [x.double() for x in given.values()]
                        wanted, _ = plain(*(x.double() for x in (q, k, v)), causal=True, score=lambda s: score(s, *wide))
                        got = torch.autograd.grad((o * dout).double().sum(), leaves)
                        self.compare(got, torch.autograd.grad((wanted * dout.double()).sum(), leaves))
                        self.assertEqual('dargs="' in runs[-1], bool(trained))

    def test_arrays_get_gradients_once_and_in_any_order(self):
        q, k, v = self.inputs()
        slope = torch.rand(4).requires_grad_()
        options = {"score": ALIBI, "args": {"slope": slope}}
        with self.assertRaisesRegex(attnforge.UnsupportedError, "dargs does not go with deterministic"):
            attnforge.attention(q, k, v, deterministic=True, **options)
        with self.assertRaisesRegex(attnforge.UnsupportedError, "dargs names slope, which score does not read"):
            attnforge.attention(q, k, v, mask=DOCUMENTS, score="s * 2", args={"document": torch.zeros(20).int(), "slope": slope})
        o = attnforge.attention(q.detach(), k.detach(), v.detach(), **options).float().sum()
        with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
            torch.autograd.grad(o, [slope], create_graph=True)[0].sum().backward()
        with torch.no_grad():
            attnforge.attention(q, k, v, **options)
        self.assertNotIn("dargs", runs[-1])

    def test_gradients_of_arrays_by_hand(self):
        q, k, v = self.inputs()
        slope = torch.rand(4)
        options = {"score": ALIBI, "args": {"slope": slope}}
        with torch.no_grad():
            o, lse = attnforge.attention(q, k, v, return_lse=True, **options)
            run = lambda **more: attnforge.attention_backward(q, k, v, o, lse, o, **options, **more)  # noqa: E731
            into = torch.zeros(4)
            run(dargs={"slope": into})
            once = into.clone()
            run(dargs={"slope": into})
            self.assertGreater(once.abs().max().item(), 0)
            self.assertTrue(torch.allclose(into, 2 * once), "a run adds to what is there")
            wrong = (
                (torch.zeros(4), "dargs is a torch.Tensor; it must be a dict"),
                ({"slop": into}, "dargs\\['slop'\\] has no array to be the gradient of: args names slope"),
                ({"slope": torch.zeros(5)}, "must be contiguous float32 \\(4,\\)"),
                ({"slope": torch.zeros(4).half()}, "is fp16"),
                ({"slope": torch.zeros(8)[::2]}, "with strides"),
                ({"slope": slope}, "shares memory with another array"),
            )
            for dargs, why in wrong:
                with self.subTest(why), self.assertRaisesRegex((attnforge.InvalidError, TypeError), why):
                    run(dargs=dargs)
            with self.assertRaisesRegex(attnforge.InvalidError, "does not go with deterministic"):
                run(dargs={"slope": into}, deterministic=True)

    def test_of_one_input_alone_and_of_one_tensor_three_times(self):
        q, k, v = self.inputs()
        for i in range(3):
            leaves = [x.detach().requires_grad_(i == j) for j, x in enumerate((q, k, v))]
            attnforge.attention(*leaves).float().sum().backward()
            self.assertEqual([x.grad is not None for x in leaves], [i == j for j in range(3)])
        o = attnforge.attention(q, q, q, causal=True)
        wanted, _ = plain(*[q.double()] * 3, causal=True)
        self.compare(torch.autograd.grad(o.float().sum(), [q]), torch.autograd.grad(wanted.sum(), [q]))

    def test_of_lse_alone(self):
        q, k, v = self.inputs()
        _, lse = attnforge.attention(q, k, v, return_lse=True)
        got = torch.autograd.grad(lse.sum(), [q, k])
        self.compare(got, torch.autograd.grad(plain(q.double(), k.double(), v.double())[1].sum(), [q, k]))

    def test_the_second_backward_needs_retain_graph_and_a_derivative_of_it_is_refused(self):
        q, k, v = self.inputs()
        o = attnforge.attention(q, k, v).float().sum()
        first = torch.autograd.grad(o, [q], retain_graph=True)[0]
        self.assertTrue(torch.equal(first, torch.autograd.grad(o, [q])[0]))
        with self.assertRaisesRegex(RuntimeError, "second time"):
            torch.autograd.grad(o, [q])
        dq = torch.autograd.grad(attnforge.attention(q, k, v).float().sum(), [q], create_graph=True)[0]
        for loss in (dq.float().sum(), q.float().sum() + dq.float().sum()):
            with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
                loss.backward()

    def test_what_was_written_to_in_between_is_refused(self):
        q, k, v = self.inputs()
        o = attnforge.attention(q * 1, k, v)
        with torch.no_grad():
            k.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            o.float().sum().backward()

    def test_under_checkpointing(self):
        from torch.utils.checkpoint import checkpoint

        q, k, v = self.inputs()

        def block(q, k, v):
            return attnforge.attention(q * 1, k * 1, v * 1, causal=True)

        wanted = torch.autograd.grad(block(q, k, v).float().sum(), [q, k, v])
        for reentrant in (False, True):
            got = torch.autograd.grad(checkpoint(block, q, k, v, use_reentrant=reentrant).float().sum(), [q, k, v]) if not reentrant else None
            if reentrant:
                for x in (q, k, v):
                    x.grad = None
                checkpoint(block, q, k, v, use_reentrant=True).float().sum().backward()
                got = [x.grad for x in (q, k, v)]
            self.compare(got, wanted, 0)

    def test_under_autocast(self):
        q, k, v = self.inputs(dtype="float32")
        with mock.patch.object(torch, "is_autocast_enabled", lambda *_: True), mock.patch.object(
            torch, "get_autocast_dtype", lambda *_: torch.bfloat16
        ):
            o = attnforge.attention(q, k.to(torch.bfloat16), v)
            self.assertEqual(o.dtype, torch.bfloat16)
            got = torch.autograd.grad(o.float().sum(), [q, k, v])
            with torch.no_grad():
                for _ in range(3):
                    self.assertEqual(attnforge.attention(q, k, v).dtype, torch.bfloat16)
        self.assertTrue(all(" bf16 " in problem for problem in runs), runs)
        self.compare(got, torch.autograd.grad(plain(q, k, v)[0].sum(), [q, k, v]))
        with torch.no_grad():
            for _ in range(3):
                self.assertEqual(attnforge.attention(q, k, v).dtype, torch.float32)

    def test_a_backward_like_an_earlier_one_is_one_look_up(self):
        def step(dout_of, fresh=False):
            """Gradients, and how often attention_backward() was called for them."""
            q, k, v = inputs
            if fresh:
                attnforge.plan_cache.clear()
            o = attnforge.attention(q, k, v, causal=True)
            with mock.patch.object(autograd, "attention_backward", wraps=autograd.attention_backward) as called:
                return torch.autograd.grad(o, [q, k, v], dout_of(o)), called.call_count

        inputs, shape = self.inputs(), self.inputs()[0].shape
        dout = torch.randn(shape).to(inputs[0].dtype)
        turned = dout.transpose(1, 2).contiguous().transpose(1, 2)
        step(lambda o: dout)  # keeps the options
        wanted, _ = step(lambda o: dout)
        for dout_of, count, fresh in (
            (lambda o: dout, 0, False), (lambda o: turned, 1, False), (lambda o: turned, 0, False), (lambda o: dout, 1, True),
            (lambda o: torch.ones(()).to(o.dtype).expand(shape), 1, False),
        ):  # fmt: skip
            got, called = step(dout_of, fresh)
            with self.subTest(count=count, fresh=fresh):
                self.assertEqual(called, count)
                if dout_of(dout).shape and dout_of(dout).stride()[-1]:
                    self.compare(got, wanted, 0)

    def test_hooks_of_saved_tensors_may_change_their_strides(self):
        def gradients(hooked):
            pack = torch.Tensor.contiguous if hooked else lambda x: x
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                o = attnforge.attention(q, k, v, layout="bhsd")
            return torch.autograd.grad(o, [q, k, v], dout)

        q, k, v, dout = (torch.randn(2, 8, 4, 16).to(torch.bfloat16).transpose(1, 2) for _ in range(4))
        for x in (q, k, v):
            x.requires_grad_()
        wanted = gradients(False)
        for hooked in (False, True, True, False):
            self.compare(gradients(hooked), wanted, 0)

    def test_of_sums_and_of_views(self):
        """Gradients of o without strides, and tensors that are slices."""
        qkv = torch.randn(2, 20, 3, 4, 16).to(torch.bfloat16).requires_grad_()
        attnforge.attention(*qkv.unbind(2), causal=True).sum().backward()
        wanted = torch.autograd.grad(plain(*qkv.double().unbind(2), causal=True)[0].sum(), [qkv])
        self.compare([qkv.grad], wanted)
        q, k, v = self.inputs()
        o = attnforge.attention(*(x.transpose(1, 2) for x in (q, k, v)), layout="bhsd").transpose(1, 2)
        self.compare(torch.autograd.grad(o.float().sum(), [q, k, v]), torch.autograd.grad(attnforge.attention(q, k, v).float().sum(), [q, k, v]))

    def test_of_packed_sequences(self):
        lengths, keys = (5, 0, 9, 1), (5, 3, 11, 0)
        ends, ends_kv = (torch.tensor([0, *each]).cumsum(0).int() for each in (lengths, keys))
        for of_kv, lengths_kv in ((ends, lengths), (ends_kv, keys)):
            q = torch.randn(sum(lengths) + 3, 4, 16).to(torch.bfloat16).requires_grad_()
            k, v = (torch.randn(sum(lengths_kv) + 3, 2, 16).to(torch.bfloat16).requires_grad_() for _ in range(2))
            bounds = ends if of_kv is ends else (ends, of_kv)
            o, lse = attnforge.attention(q, k, v, causal=True, cu_seqlens=bounds, max_seqlen=(9, 11), return_lse=True)
            self.assertTrue((o[sum(lengths) :] == 0).all() and (lse[:, sum(lengths) :] == 0).all())
            got = torch.autograd.grad(o.float().sum(), [q, k, v])
            parts = []
            for i in range(4):
                one = [x[None, of[i] : of[i + 1]].double() for x, of in ((q, ends), (k, of_kv), (v, of_kv))]
                parts.append(plain(*one, causal=True)[0].nan_to_num(0.0).sum() if lengths[i] and lengths_kv[i] else 0)
            self.compare(got, [x.nan_to_num(0.0) for x in torch.autograd.grad(sum(parts), [q, k, v])])
            self.assertTrue(all((x[-3:] == 0).all() for x in got), "rows after the end have gradients of 0")

    def test_of_used_lengths(self):
        q, k, v = self.inputs()
        used_q, used = torch.tensor([20, 3], dtype=torch.int32), torch.tensor([7, 20], dtype=torch.int32)
        for lengths in (used, (used_q, used), (used_q, None)):
            o = attnforge.attention(q, k, v, used_kv=lengths)
            got = torch.autograd.grad(o.float().sum(), [q, k, v])
            of_q, of_kv = lengths if isinstance(lengths, tuple) else (None, lengths)
            total = 0
            for i in range(2):
                rows, keys = (20 if each is None else each[i] for each in (of_q, of_kv))
                total = total + plain(q[i : i + 1, :rows].double(), k[i : i + 1, :keys].double(), v[i : i + 1, :keys].double())[0].sum()
            self.compare(got, torch.autograd.grad(total, [q, k, v]))

    def test_a_ring_by_hand(self):
        """Two steps whose keys are halves: o and lse of all, gradients of q added up, in fp32."""
        q, k, v = (x.detach() for x in self.inputs())
        o, lse = attnforge.attention(q, k, v, return_lse=True)
        dout = torch.randn(o.shape).to(o.dtype)
        dq, dk, dv = (torch.zeros(x.shape) for x in (q, k, v))
        for half in (slice(0, 10), slice(10, 20)):
            out = dq, dk[:, half], dv[:, half]
            result = attnforge.attention_backward(q, k[:, half], v[:, half], o, lse, dout, out=out, accumulate=True)
            self.assertIs(result[0], dq)
        wanted = attnforge.attention_backward(q, k, v, o, lse, dout, fp32_gradients=True)
        self.compare((dq, dk, dv), wanted, 1e-5)
        self.assertIn("accumulate gradients=fp32", runs[-2])

    def test_words_of_the_problem(self):
        q, k, v = self.inputs()
        o, lse = attnforge.attention(q, k, v, return_lse=True, deterministic=True)
        (o.float().sum() + lse.sum()).backward()
        self.assertRegex(runs[-1], "^bwd bf16 .* deterministic dlse")
        with mock.patch.object(torch, "are_deterministic_algorithms_enabled", lambda: True):
            attnforge.attention(q, k, v).float().sum().backward()
        self.assertRegex(runs[-1], " deterministic$")
        attnforge.attention(q, k, v).float().sum().backward()
        self.assertNotRegex(runs[-1], "deterministic|dlse|lse")

    def test_memory_goes_with_the_graph(self):
        gc.collect()
        q, k, v = self.inputs()
        o = attnforge.attention(q, k, v)
        function = o.grad_fn
        kept = [x for x in function.saved_tensors if x is not None]
        self.assertEqual(len(kept), 5, "q, k, v, o and lse")
        o.float().sum().backward()

    def test_without_rows_or_keys(self):
        for q, kv in (((2, 0, 4, 16), (2, 20, 4, 16)), ((2, 20, 4, 16), (2, 0, 4, 16)), ((0, 20, 4, 16), (0, 20, 4, 16))):
            q, k, v = self.inputs(q, kv)
            with torch.no_grad():
                o, lse = torch.zeros(q.shape, dtype=q.dtype), torch.zeros(q.shape[0], 4, q.shape[1])
                gradients = attnforge.attention_backward(q, k, v, o, lse, o)
            self.assertTrue(all((x == 0).all() for x in gradients))

    # ---- What only torch sees of autograd.py ----

    def test_one_tensor_under_two_names_gets_the_sum(self):
        q, k, v = self.inputs((2, 20, 4, 16))
        both = torch.rand(4).requires_grad_()
        text, apart = "s * factor[head] + slope[head] * (k - q)", torch.arange(20)[None, :] - torch.arange(20)[:, None]

        o = attnforge.attention(q, k, v, score=text, args={"factor": both, "slope": both})
        dout = torch.randn(o.shape, dtype=o.dtype)
        wide = both.double()[:, None, None]
        wanted, _ = plain(q.double(), k.double(), v.double(), score=lambda s: s * wide + wide * apart)
        got = torch.autograd.grad((o * dout).double().sum(), [q, both])
        self.compare(got, torch.autograd.grad((wanted * dout.double()).sum(), [q, both]))

    def test_tensors_in_lists_are_kept_too(self):
        q, k, v = self.inputs()
        used = torch.tensor([7, 20], dtype=torch.int32)
        o = attnforge.attention(q, k, v, used_kv=[None, used])
        used.sub_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            o.float().sum().backward()

    def test_autocast_leaves_what_it_does_not_know(self):
        q, k, v = (x.detach() for x in self.inputs(dtype="float32"))
        for dtype in (torch.bfloat16, torch.float32):
            with mock.patch.object(torch, "is_autocast_enabled", lambda *_: True), mock.patch.object(
                torch, "get_autocast_dtype", lambda *_: dtype
            ):
                self.assertEqual(attnforge.attention(q, k, v).dtype, dtype)
                self.assertEqual(attnforge.attention(*(x.half() for x in (q, k, v))).dtype, torch.float16, "no float32, no cast")
                with self.assertRaisesRegex(attnforge.InvalidError, "k has dtype torch.float64"):
                    attnforge.attention(q, k.double(), v)
                with self.assertRaises((attnforge.InvalidError, TypeError)):
                    attnforge.attention(q, [1.0], v)
                for _ in range(2):  # the caller's own words are stronger
                    self.assertEqual(attnforge.attention(q, k, v, tf32=True).dtype, torch.float32)
                    out = torch.empty_like(q)
                    self.assertIs(attnforge.attention(q, k, v, out=out), out)
                    self.assertIn(" fp32 ", runs[-1])

    def test_autocast_of_a_call_that_is_remembered_without_it(self):
        q, k, v = (x.detach() for x in self.inputs(dtype="float32"))
        for _ in range(3):
            self.assertEqual(attnforge.attention(q, k, v).dtype, torch.float32)
        with mock.patch.object(torch, "is_autocast_enabled", lambda *_: True), mock.patch.object(
            torch, "get_autocast_dtype", lambda *_: torch.bfloat16
        ):
            self.assertEqual(attnforge.attention(q, k, v).dtype, torch.bfloat16)

    def test_autocast_of_older_torch(self):
        """Whose functions take no device."""
        q, k, v = (x.detach() for x in self.inputs(dtype="float32"))
        with mock.patch.object(torch, "is_autocast_enabled", lambda: True), mock.patch.object(
            torch, "get_autocast_gpu_dtype", lambda: torch.bfloat16
        ), mock.patch.object(torch, "get_autocast_dtype"):
            del torch.get_autocast_dtype
            self.assertEqual(attnforge.attention(q, k, v).dtype, torch.bfloat16)

    def test_who_requires_grad_is_named_with_what_does_not_go_with_it(self):
        q, k, v = (x.detach() for x in self.inputs())
        sinks, slope = torch.zeros(4), torch.zeros(4)
        table = torch.zeros(1, 1, dtype=torch.int32)
        by_array = {"score": ALIBI, "args": {"slope": slope}}
        for name in ("q", "k", "v", "sinks", "args['slope']"):
            on = {"q": q, "k": k, "v": v, "sinks": sinks, "args['slope']": slope}[name].detach().requires_grad_()
            inputs = [on if each == name else x for each, x in (("q", q), ("k", k), ("v", v))]
            more = {"sinks": on if name == "sinks" else sinks} if name != "args['slope']" else {"score": ALIBI, "args": {"slope": on}}
            call = lambda **words: attnforge.attention(*inputs, **more, **words)  # noqa: E731
            for _ in range(2):  # the second call is one that could be remembered
                with self.assertRaisesRegex(attnforge.InvalidError, f"^{name} requires grad, and out=".replace("[", r"\[")):
                    call(out=torch.empty_like(q))
                with self.assertRaisesRegex(attnforge.UnsupportedError, "requires grad, but a call with rope has no gradients: rotate"):
                    call(rope=(torch.ones(20, 8), torch.ones(20, 8)))
                with self.assertRaisesRegex(attnforge.UnsupportedError, "requires grad, but a call with page_table has no gradients: pass"):
                    call(page_table=table, used_kv=torch.ones(2, dtype=torch.int32))
                self.assertIsNotNone(call().grad_fn)
                with torch.no_grad():
                    self.assertIsNone(call(out=torch.empty_like(q)).grad_fn)
        for _ in range(2):
            self.assertIsNone(attnforge.attention(q, k, v, sinks=sinks, **by_array).grad_fn)
            out = torch.empty_like(q)
            self.assertIs(attnforge.attention(q, k, v, out=out, **by_array), out)

    def test_sinks_of_another_framework_are_refused(self):
        q, k, v = self.inputs()
        with self.assertRaisesRegex(attnforge.InvalidError, "q requires grad, and sinks is of another framework than torch"):
            attnforge.attention(q, k, v, sinks=object())

    def test_only_the_current_stream_has_gradients(self):
        q, k, v = self.inputs()
        for stream in (0, 5):
            with mock.patch("cpu_kernels.torch_stream", [stream]):
                self.assertIsNotNone(attnforge.attention(q, k, v, stream=stream).grad_fn)
                with self.assertRaisesRegex(attnforge.InvalidError, "q requires grad, and gradients run on torch's current stream"):
                    attnforge.attention(q, k, v, stream=stream + 1)

    def test_forward_asks_for_the_problem_that_backward_runs(self):
        q, k, v = self.inputs()
        sinks, slope = torch.rand(4), torch.rand(4)
        asked = []
        ask = autograd.why_not_served
        with mock.patch.object(autograd, "why_not_served", lambda *a, **words: (asked.append(words), ask(*a, **words))[1]):
            for both in (False, True):
                for of_sinks in (False, True):
                    for of_slope in (False, True):
                        o = attnforge.attention(
                            q, k, v, return_lse=both, sinks=sinks.clone().requires_grad_(of_sinks), score=ALIBI,
                            args={"slope": slope.clone().requires_grad_(of_slope)}, deterministic=not of_slope)
                        sum(x.float().sum() for x in (o if both else (o,))).backward()
                        words = asked.pop()
                        self.assertEqual(words, {"deterministic": not of_slope, "dlse": both, "sinks": of_sinks, "dargs": "slope" * of_slope})
                        for word, there in (("dlse", both), ("sinks", of_sinks), ("dargs=", of_slope), ("deterministic", not of_slope)):
                            self.assertEqual(f" {word}" in runs[-1], there, (word, runs[-1]))

    def test_outputs_are_cleared_only_where_rows_may_not_count(self):
        q, k, v = self.inputs()
        empty = Cpu.empty

        def not_cleared(*arguments, zeros=False):
            self.assertFalse(zeros or arguments[5:] == (True,))
            return empty(*arguments)

        ends = torch.tensor([0, 5, 9]).int()
        packed = [torch.randn(12, 4, 16, requires_grad=True) for _ in range(3)]
        with mock.patch.object(Cpu, "empty", not_cleared):
            attnforge.attention(q, k, v).float().sum().backward()
            self.assertEqual(cleared, [])
            attnforge.attention(*packed, cu_seqlens=ends, max_seqlen=5, sinks=torch.zeros(4).requires_grad_()).sum().backward()
            self.assertEqual(cleared, [2, 3], "one launch for o and lse, and one for dq, dk and dv")
            with torch.no_grad():
                attnforge.attention(*packed, cu_seqlens=ends, max_seqlen=5)
            self.assertEqual(len(cleared), 2, "who asks for no gradient pays nothing")
        self.assertTrue(all((x.grad[9:] == 0).all() for x in packed))

    def test_of_packed_sequences_without_keys_or_rows_in_use(self):
        ends = torch.tensor([0, 0]).int()
        for rows, keys in ((3, 3), (0, 3), (3, 0)):
            q, k, v = (torch.randn(n, 4, 16, requires_grad=True) for n in (rows, keys, keys))
            o, lse = attnforge.attention(q, k, v, cu_seqlens=(ends, ends), max_seqlen=4, return_lse=True)
            o.sum().backward()
            for x in (o, lse, q.grad, k.grad, v.grad):
                self.assertTrue((x == 0).all(), (rows, keys))

    def test_what_nobody_differentiates_is_not_computed(self):
        class Nothing(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                return x.clone()

            @staticmethod
            def backward(ctx, _):
                return None

        q, k, v = self.inputs()
        o, lse = attnforge.attention(q, k, v, return_lse=True)
        (Nothing.apply(o).float().sum() + Nothing.apply(lse).sum()).backward()
        self.assertEqual(len(runs), 1, "no run for no gradient")
        self.assertIsNone(q.grad)
        o, lse = attnforge.attention(q, k, v, return_lse=True)
        o.float().sum().backward()
        self.assertNotIn(" dlse", runs[-1])

    def test_gradients_that_come_in_as_views(self):
        """Of any strides, of an address that is no multiple of 16, of which torch has only noted that they are negative."""
        q, k, v = self.inputs()
        dout, dlse = torch.randn(2, 20, 4, 16).to(torch.bfloat16), torch.randn(2, 4, 20)

        def moved(x, by):
            memory = torch.full((x.numel() + 64,), math.nan, dtype=x.dtype)
            return memory[by : by + x.numel()].view(x.shape).copy_(x)

        def gradients(dout, dlse):
            return torch.autograd.grad(attnforge.attention(q, k, v, return_lse=True), [q, k, v], [dout, dlse])

        wanted = gradients(dout, dlse)
        strange = (
            (torch._neg_view(-dout), torch._neg_view(-dlse)),
            (dout.transpose(1, 3).contiguous().transpose(1, 3), dlse.transpose(1, 2).contiguous().transpose(1, 2)),
            (moved(dout, 1), moved(dlse, 1)),
            (moved(dout, 4), moved(dlse, 3)),
            (torch.cat([dout, dout], 3)[..., :16], torch.cat([dlse, dlse], 2)[..., :20]),
            (torch.nn.functional.pad(dout, (0, 1))[..., :16], dlse),
            (torch.stack([dout, 0 * dout], 4)[..., 0], dlse),
        )
        for one, other in strange:
            for got, right in zip(gradients(one, other), wanted):
                self.assertTrue(torch.equal(got, right), (one.stride(), other.stride()))
            self.assertIn(" dlse", runs[-1])
            self.assertNotIn("alignment", runs[-1], "what is not aligned is copied")
        of_one = torch.randn(2, 20, 1, 16).to(torch.bfloat16).expand(2, 20, 4, 16)
        for got, right in zip(gradients(of_one, dlse), gradients(of_one.contiguous(), dlse)):
            self.assertTrue(torch.equal(got, right))

        def is_copied(x):
            return autograd.readable(torch, x).data_ptr() != x.data_ptr()

        self.assertFalse(is_copied(dout))
        self.assertFalse(is_copied(dout[:, :, 1:3].transpose(1, 2)))
        self.assertFalse(is_copied(dout.as_strided((1, 20, 4, 16), (7, 64, 16, 1))), "nobody goes by the stride of one")
        self.assertFalse(is_copied(dout.as_strided((2, 20, 4, 1), (1280, 64, 16, 5))))
        self.assertTrue(is_copied(of_one), "rows of several heads in one place")

    def test_of_a_graph_of_the_first_gradients_the_others_are_there(self):
        """create_graph=True where some inputs and arrays require grad: the right gradient beside each."""
        q, k, v = self.inputs()
        sinks = torch.rand(4).requires_grad_()
        wanted = torch.autograd.grad(attnforge.attention(q, k, v, sinks=sinks).float().sum(), [k, v, sinks])
        got = torch.autograd.grad(attnforge.attention(q.detach(), k, v, sinks=sinks).float().sum(), [k, v, sinks], create_graph=True)
        self.compare(got, wanted, 0)
        self.assertTrue(all(x.requires_grad for x in got))
        with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
            got[2].sum().backward()

    def test_derivatives_of_torch_func_are_refused(self):
        q, k, v = (x.detach() for x in self.inputs())
        with self.assertRaises(attnforge.InvalidError):
            torch.func.grad(lambda x: attnforge.attention(x, k, v).float().sum())(q)


if __name__ == "__main__":
    unittest.main()
