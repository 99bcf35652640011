#!/usr/bin/env python3
"""What torch traces, and attnforge under the names of others: with the real torch on the CPU, as python_autograd_test.py.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_integrations_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp. tools/with_torch.sh finds a python that has torch.
"""

import gc
import inspect
import math
import os
import sys
import traceback
import types
import unittest
import unittest.mock
import warnings
import weakref

import torch
from torch._dynamo.utils import counters

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
import attnforge  # noqa: E402
import cpu_kernels  # noqa: E402
import flex_programs  # noqa: E402
from attnforge import _graphs, flash_attn  # noqa: E402
from attnforge.flash_attn import v3  # noqa: E402
from attnforge.integrations import flex, masks, sdpa, torch_ops  # noqa: E402,F401
from attnforge.integrations import transformers as of_transformers  # noqa: E402
from cpu_kernels import ALIBI, plain, runs  # noqa: E402

ops = torch.ops.attnforge


def inputs(q=(2, 20, 4, 16), kv=None, dtype=torch.bfloat16, grad=False):
    kv = kv or q
    return [torch.randn(shape).to(dtype).requires_grad_(grad) for shape in (q, kv, kv)]


def gradients(function, leaves, *more):
    o = function(*leaves, *more)
    return [o, *torch.autograd.grad(sum(x.float().square().sum() for x in (o if isinstance(o, tuple) else (o,))), leaves)]


class OnCpu(unittest.TestCase):
    def setUp(self):
        cpu_kernels.install(self)
        torch._dynamo.reset()
        counters.clear()

    def same(self, got, wanted):
        for i, (one, other) in enumerate(zip(got, wanted, strict=True)):
            for x, y in zip(*((z if isinstance(z, tuple) else (z,)) for z in (one, other)), strict=True):
                self.assertEqual(x.stride(), y.stride(), i)
                self.assertTrue(torch.equal(x, y), (i, (x.float() - y.float()).abs().max()))


class CompileTest(OnCpu):
    """torch.compile: one graph, and the numbers of calls outside of one."""

    def check(self, function, make, cases, backend="aot_eager", most=1):
        """`function` in one graph, of inputs that make(case) makes; compiled at most so often."""
        compiles = []

        def counting(module, example):
            compiles.append(module)
            from torch._dynamo.backends.registry import lookup_backend

            return lookup_backend(backend)(module, example)

        compiled = torch.compile(function, backend=counting, fullgraph=True, dynamic=True)
        for case in cases:
            tensors, more = make(case)
            grad = any(x.requires_grad for x in tensors)
            got = gradients(compiled, tensors, *more) if grad else [compiled(*tensors, *more)]
            self.same(got, gradients(function, tensors, *more) if grad else [function(*tensors, *more)])
        self.assertLessEqual(len(compiles), most, "compiled anew for another size")
        return compiles

    def test_a_call_with_gradients_is_part_of_one_graph_for_all_sizes(self):
        def block(q, k, v):
            return attnforge.attention(q * 2, k, v, causal=True, window=7) * 3

        self.check(block, lambda n: (inputs((2, n, 4, 16), (2, n, 2, 16), grad=True), ()), (20, 24, 33))

    def test_options_of_each_kind(self):
        sinks, slope = torch.rand(4).requires_grad_(), torch.rand(4).requires_grad_()
        blocks = attnforge.BlockMask.sliding_window(16, 0, 16, 32)

        def all_of(q, k, v, sinks, slope):
            o = attnforge.attention(q, k, v, causal=True, sinks=sinks, score=ALIBI, args={"slope": slope}, softmax_scale=0.3)
            o = o + attnforge.attention(q, k, v, layout="bhsd", softcap=2.0, window=(3, None))
            p, lse = attnforge.attention(q, k, v, return_lse=True)
            return o + p, lse

        def with_blocks(q, k, v):
            return attnforge.attention(q, k, v, block_mask=blocks)

        self.check(all_of, lambda n: ([*inputs((2, n, 4, 16), grad=True), sinks, slope], ()), (4,), "eager")
        self.check(with_blocks, lambda n: (inputs((1, n, 4, 16), grad=True), ()), (32,), "eager")

    def test_lengths_are_read_nowhere_and_compile_nothing(self):
        def packed(q, k, v, ends, longest):
            return attnforge.attention(q, k, v, causal=True, cu_seqlens=ends, max_seqlen=longest)

        def make(lengths):
            ends = torch.tensor([0, *lengths]).cumsum(0).int()
            return inputs((sum(lengths) + 3, 4, 16), grad=True), (ends, max(lengths))

        def by_hand(q, k, v, ends, longest):
            options = {"causal": True, "cu_seqlens": ends, "max_seqlen": longest}
            o, lse = attnforge.attention(q, k, v, return_lse=True, **options)
            return attnforge.attention_backward(q, k, v, o, lse, o, **options)

        self.check(packed, make, ((5, 9, 6), (12, 3, 7), (8, 8, 20)))
        cases = [([x.detach() for x in tensors], more) for tensors, more in map(make, ((5, 9, 6), (8, 8, 20)))]
        self.check(by_hand, lambda case: case, cases)
        for tensors, more in cases:
            del cpu_kernels.cleared[:]
            found = torch.compile(by_hand, backend="aot_eager")(*tensors, *more)
            self.assertIn(3, cpu_kernels.cleared)
            self.assertTrue(all((x[-3:] == 0).all() and (x[:-3] != 0).any() for x in found))

        def used(q, k, v, lengths):
            return attnforge.attention(q, k, v, used_kv=lengths)

        self.check(used, lambda n: (inputs(grad=True), (torch.tensor([n, 20 - n]).int(),)), (3, 7), "eager")

    def test_decode_with_a_cache(self):
        pool = [torch.zeros(6, 8, 2, 16, dtype=torch.bfloat16) for _ in range(4)]
        table = torch.tensor([[3, 1], [0, 5]]).int()

        def step(q, k, v, k_pool, v_pool, used):
            attnforge.append_kv(k, v, k_pool, v_pool, used, table, used_kv_after=used)
            return attnforge.attention(q, k_pool, v_pool, causal=True, used_kv=used, page_table=table)

        def stepped(pools):
            used, results = torch.tensor([4, 2]).int(), []
            function = torch.compile(step, backend="aot_eager", fullgraph=True) if pools == 0 else step
            for i in range(2):
                torch.manual_seed(i)
                q, k, v = inputs((2, 1, 4, 16), (2, 1, 2, 16))
                results.append(function(q, k, v, *pool[pools : pools + 2], used))
            return (*results, used)

        self.same(stepped(0), stepped(2))
        self.same(pool[:2], pool[2:])
        self.assertEqual(pool[0][1].abs().sum().item(), 0, "the second page of a sequence of six rows")

    def test_rows_of_a_cache_of_fewer_bits(self):
        k, v = torch.randn(3, 2, 2, 64).bfloat16(), torch.randn(3, 2, 2, 32).bfloat16()
        used, table = torch.tensor([7, 2, 0]).int(), torch.tensor([[3, 1], [0, 5], [4, 2]]).int()

        def step(k_pool, v_pool, k_scale, v_scale):
            attnforge.append_kv(k, v, k_pool, v_pool, used, table, k_scale=k_scale, v_scale=v_scale)

        # In a graph each dtype, each kind of scales, with zero points and without.
        for dtype, scale, zero, in_graph in (
            ("int8", "token", False, True), ("int4", "group32", False, False), ("e4m3", "group64", False, True),
            ("int4", "token", True, False), ("int4", "group32", True, True),
        ):  # fmt: skip
            made = []
            for function in (step, torch.compile(step, backend="aot_eager", fullgraph=True))[: 1 + in_graph]:
                pools = [attnforge.quantize_kv(torch.zeros(6, 8, 2, dim), dtype, scale, zero) for dim in (64, 32)]
                function(*(each[i] for i in range(2) for each in pools))
                made.append([each for pool in pools for each in pool])
            for x, y in zip(made[0], made[-1]):
                self.assertTrue(torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8)))
            numbers, scales = attnforge.quantize_kv(k, dtype, scale, zero)
            self.assertTrue(torch.equal(made[0][0][1, 0].view(torch.uint8), numbers[0, 1].view(torch.uint8)), "position 8 of sequence 0")
            self.assertTrue(torch.equal(made[0][1][1, 0], scales[0, 1]))

    def test_a_model_with_a_cache(self):
        def model(cache, x):
            for layer in range(2):
                cache.append(x, x, layer=layer)
                x = x + cache.attend(x * (layer + 1), layer=layer)
            return x

        def steps(function, packed):
            cache = attnforge.KvCache(4, 32, 2, 16, page_size=8, layers=2, device="cpu")
            results = []
            for i, rows in enumerate((3, 1, 1, 4)):
                torch.manual_seed(i)
                cache.begin([rows, 2] if packed else rows, ["a", "b"])
                results.append(function(cache, torch.randn(*((rows + 2,) if packed else (2, rows)), 2, 16).to(torch.bfloat16)))
            return results

        with unittest.mock.patch.object(torch.Tensor, "pin_memory", lambda self: self), unittest.mock.patch.object(
            torch.Tensor, "get_device", lambda self: 0
        ):
            self.same(steps(torch.compile(model, backend="eager", fullgraph=True, dynamic=True), True), steps(model, True))
            for packed in (False, True):  # other rows than were begun
                cache = attnforge.KvCache(4, 32, 2, 16, page_size=8, device="cpu")
                cache.begin([3, 1] if packed else 2, ["a", "b"])
                x = torch.zeros(*((5,) if packed else (2, 3)), 2, 16, dtype=torch.bfloat16)
                with self.assertRaisesRegex(attnforge.InvalidError, r"begin\(\) was of \((4,|2, 2)\) rows"):
                    cache.append(x, x)

    def test_by_hand_into_what_is_given_and_merged(self):
        def ring(q, k, v):
            half = q.shape[1] // 2
            out = torch.empty_like(q)
            lse = torch.empty(q.shape[0], q.shape[2], q.shape[1])
            attnforge.attention(q, k[:, :half], v[:, :half], out=(out, lse), return_lse=True)
            second = attnforge.attention(q, k[:, half:], v[:, half:], return_lse=True)
            o, lse = attnforge.merge_states([out, second[0]], [lse, second[1]])
            grads = [torch.zeros(x.shape) for x in (q, k, v)]
            attnforge.attention_backward(q, k, v, o, lse, o, out=grads, accumulate=True)
            attnforge.attention_backward(q, k, v, o, lse, o, out=grads, accumulate=True)
            return (o, lse, *grads, *attnforge.attention_backward(q, k, v, o, lse, o, fp32_gradients=True))

        (graph,) = self.check(ring, lambda n: (inputs((2, n, 4, 16)), ()), (20, 26))
        self.assertIn("attnforge.merge_states", graph.code)

    def test_checkpointing_and_autocast(self):
        from torch.utils.checkpoint import checkpoint

        def block(q, k, v):
            return checkpoint(lambda q, k, v: attnforge.attention(q * 2, k, v, causal=True), q, k, v, use_reentrant=False)

        self.check(block, lambda n: (inputs((2, n, 4, 16), grad=True), ()), (20,))
        with unittest.mock.patch("attnforge._gradients.autograd.is_autocast_enabled", lambda _: True), unittest.mock.patch(
            "attnforge._gradients.autograd._autocast_dtype", lambda _: torch.bfloat16
        ):
            got = torch.compile(lambda q: attnforge.attention(q, q, q), backend="eager", fullgraph=True)(torch.randn(2, 20, 4, 16))
            self.assertEqual(got.dtype, torch.bfloat16)

    def test_without_gradients_no_lse_is_asked_for(self):
        graphs = self.check(lambda q, k, v: attnforge.attention(q, k, v), lambda n: (inputs(), ()), (1,), "eager")
        self.assertIn("attnforge.decode", graphs[0].code)
        self.assertNotIn(" lse", runs[0])

    def test_what_cannot_be_part_of_a_graph_says_why(self):
        q, k, v = inputs(grad=True)
        rope = torch.ones(20, 8), torch.zeros(20, 8)
        for options, why in (
            ({"stream": 5}, "stream= is no part of a graph"),
            ({"out": q.detach().clone()}, "out= does not go with gradients"),
            ({"rope": rope}, "a call with rope has no gradients"),
            ({"colour": 1}, "unexpected keyword argument 'colour'"),
        ):
            with self.subTest(why), self.assertRaisesRegex(Exception, why):
                torch.compile(lambda: attnforge.attention(q, k, v, **options), backend="eager", fullgraph=True)()  # noqa: B023

    def test_of_torch_that_came_later(self):
        """A call outside of a graph that torch.compile sees before any other."""
        from torch._C._dynamo import eval_frame

        traced = eval_frame._FrameExecStrategy(eval_frame._FrameAction.DEFAULT, eval_frame._FrameAction.DEFAULT)
        for function in _graphs._with_ops:
            eval_frame.set_code_exec_strategy(function.__code__, traced)
        _graphs.waiting = True
        q, k, v = inputs(grad=True)

        def broken(q, k, v):
            torch._dynamo.graph_break()
            return [each(2 * q, k, v, causal=True) for each in [attnforge.attention]][0] * 3

        self.same(gradients(torch.compile(broken, backend="eager"), [q, k, v]), gradients(broken, [q, k, v]))


class OpsTest(OnCpu):
    """The ops themselves: what torch says of them, of strides and of what is mapped and exported."""

    def test_opcheck(self):
        base = torch.randn(2, 20, 6, 4, 16).to(torch.bfloat16)
        permuted = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in base.unbind(2)[:3]]
        sliced = list(base.unbind(2)[3:])
        expanded = [base[:1, :, 0].expand(2, 20, 4, 16), base[:, :, 1, :1].expand(2, 20, 4, 16), base[:, :, 2]]
        sinks = torch.rand(4)
        kinds = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        for tensors, options in ((permuted, "{'layout':'=bhsd','causal':True}"), (sliced, "{}"), (expanded, "{}")):
            leaves = [x.detach().requires_grad_() for x in tensors]
            torch.library.opcheck(ops.forward.default, (*leaves, [], [], options), test_utils=kinds)
            torch.library.opcheck(ops.decode.default, (*tensors, [], [], "{}"), test_utils=kinds[:3])
        o, lse = attnforge.attention(*permuted, sinks=sinks, return_lse=True)
        arrays = *permuted, o, lse, o.transpose(1, 2).contiguous().transpose(1, 2), None, [sinks], [], "{'sinks':'$0'}"
        torch.library.opcheck(ops.backward.default, (*arrays, [True]), test_utils=kinds[:3])
        torch.library.opcheck(ops.merge_states.default, ([o, o], [lse, lse], "bshd"), test_utils=kinds[:3])
        torch.library.opcheck(ops.merge_states_out.default, ([o, o], [lse, lse], "bshd", o.clone(), lse.clone()), test_utils=kinds[:3])
        torch.library.opcheck(ops.forward_out.default, (*permuted, [], [], "{}", torch.empty_like(o), None), test_utils=kinds[:3])

    def test_o_of_numbers_of_4_bits_is_as_wide_as_they_are_many(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            q, k = torch.empty(2, 5, 4, 64, dtype=torch.bfloat16), torch.empty(2, 20, 4, 64, dtype=torch.int8)
            v, scale = torch.empty(2, 20, 4, 16, dtype=torch.uint8), torch.empty(2, 20, 4)
            for options in ({}, {"return_lse": True}):
                o = attnforge.attention(q, k, v, k_scale=scale, v_scale=scale, **options)
                self.assertEqual((o[0] if options else o).shape, (2, 5, 4, 32))

    def test_vmap_where_it_is_a_reshape(self):
        q, k, v = (torch.randn(3, 2, 20, 4, 16).to(torch.bfloat16) for _ in range(3))
        sinks, used = torch.rand(4), torch.randint(1, 20, (3, 2)).int()
        for tensors, dims in (((q, k, v), (0, 0, 0)), ((q, k[0], v[0]), (0, None, None)), ((q.movedim(0, 2), k, v), (2, 0, 0))):
            got = torch.vmap(lambda q, k, v: attnforge.attention(q, k, v, causal=True, sinks=sinks), in_dims=dims)(*tensors)
            at = [(lambda i, x=x, d=d: x if d is None else x.select(d, i)) for x, d in zip(tensors, dims)]
            for i in range(3):
                self.assertTrue(torch.equal(got[i], attnforge.attention(*(each(i) for each in at), causal=True, sinks=sinks)))
        got = torch.vmap(lambda q, k, v, used: attnforge.attention(q, k, v, used_kv=used, return_lse=True)[1])(q, k, v, used)
        self.assertTrue(torch.equal(got[2], attnforge.attention(q[2], k[2], v[2], used_kv=used[2], return_lse=True)[1]))
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        of_map = torch.autograd.grad(torch.vmap(attnforge.attention)(*leaves).float().sum(), leaves)
        alone = [x[1].clone().requires_grad_() for x in (q, k, v)]
        self.assertTrue(torch.equal(of_map[1][1], torch.autograd.grad(attnforge.attention(*alone).float().sum(), alone)[1]))
        with self.assertRaisesRegex(attnforge.UnsupportedError, "torch.vmap of a call over tables, sinks"):
            torch.vmap(lambda q, sinks: attnforge.attention(q, q, q, sinks=sinks))(q, torch.rand(3, 4))
        with self.assertRaisesRegex(attnforge.UnsupportedError, "whose text names batch"):
            torch.vmap(lambda q: attnforge.attention(q, q, q, score="s * batch"))(q)

    def test_export_keeps_one_node(self):
        class Block(torch.nn.Module):
            def forward(self, q, k, v):
                return attnforge.attention(q, k, v, causal=True, window=5)

        tensors = inputs()
        rows = torch.export.Dim("rows", min=2, max=4096)
        for strict in (False, True):
            program = torch.export.export(Block(), tuple(tensors), dynamic_shapes=({1: rows},) * 3, strict=strict)
            nodes = [node for node in program.graph.nodes if "attnforge" in str(node.target)]
            self.assertEqual([str(node.target) for node in nodes], ["attnforge.decode.default"])
            for tensors in (tensors, inputs((2, 31, 4, 16))):
                self.same([program.module()(*tensors)], [attnforge.attention(*tensors, causal=True, window=5)])

    def test_no_second_derivative(self):
        leaves = inputs(grad=True)
        o, _ = ops.forward(*leaves, [], [], "{}")
        (dq,) = torch.autograd.grad(o.float().sum(), leaves[:1], create_graph=True)
        with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
            dq.float().sum().backward()
        with self.assertWarnsRegex(UserWarning, "autograd kernel was not registered"):
            ops.decode(*leaves, [], [], "{}").float().sum().backward()

    def test_a_block_mask_that_is_gone(self):
        q, k, v = inputs()
        with self.assertRaisesRegex((attnforge.InvalidError, RuntimeError), "block mask 12345 is not there"):
            ops.decode(q, k, v, [], [12345], "{'block_mask':'@0'}")


# Of flash_attn 2.8 and 3, names and defaults.
OF_ATTENTION = "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, "
OF_ATTENTION += "return_attn_probs=False"
LENGTHS, TENSORS = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k", "dout, q, k, v, out, softmax_lse, dq, dk, dv"
SIGNATURES = {
    "flash_attn_func": f"q, k, v, {OF_ATTENTION}",
    "flash_attn_kvpacked_func": f"q, kv, {OF_ATTENTION}",
    "flash_attn_qkvpacked_func": f"qkv, {OF_ATTENTION}",
    "flash_attn_varlen_func": f"q, k, v, {LENGTHS}, {OF_ATTENTION}, block_table=None",
    "flash_attn_varlen_kvpacked_func": f"q, kv, {LENGTHS}, {OF_ATTENTION}",
    "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {OF_ATTENTION}",
    "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
    "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
    "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False",
    "_flash_attn_forward": "q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes, "
    "return_softmax",
    "_flash_attn_varlen_forward": f"q, k, v, {LENGTHS}, dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1, "
    "softcap=0.0, alibi_slopes=None, return_softmax=False, block_table=None, leftpad_k=None, seqused_k=None, zero_tensors=False",
    "_flash_attn_backward": f"{TENSORS}, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes, "
    "deterministic, rng_state=None",
    "_flash_attn_varlen_backward": f"{TENSORS}, {LENGTHS}, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, "
    "alibi_slopes, deterministic, rng_state=None, zero_tensors=False",
}
DESCALE, REST = "qv=None, q_descale=None, k_descale=None, v_descale=None", "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0"
OF_3 = f"softmax_scale=None, causal=False, {DESCALE}, window_size=(-1, -1), attention_chunk=0, softcap=0.0, {REST}, return_attn_probs=False"
SIGNATURES_3 = {
    "flash_attn_func": f"q, k, v, {OF_3}",
    "flash_attn_qkvpacked_func": "qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None, "
    "window_size=(-1, -1), attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, return_attn_probs=False",
    "flash_attn_varlen_func": f"q, k, v, {LENGTHS}, seqused_q=None, seqused_k=None, {OF_3}",
    "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
    "cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, "
    "rotary_seqlens=None, q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False, window_size=(-1, -1), "
    "attention_chunk=0, softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, "
    "return_softmax_lse=False",
    "flash_attn_combine": "out_partial, lse_partial, out=None, out_dtype=None",
    "_flash_attn_forward": "q, k, v, k_new=None, v_new=None, qv=None, out_=None, cu_seqlens_q=None, cu_seqlens_k=None, "
    "cu_seqlens_k_new=None, seqused_q=None, seqused_k=None, max_seqlen_q=None, max_seqlen_k=None, page_table=None, kv_batch_idx=None, "
    "leftpad_k=None, rotary_cos=None, rotary_sin=None, seqlens_rotary=None, q_descale=None, k_descale=None, v_descale=None, "
    "softmax_scale=None, causal=False, window_size_left=-1, window_size_right=-1, attention_chunk=0, softcap=0.0, "
    "rotary_interleaved=True, scheduler_metadata=None, num_splits=1, pack_gqa=None, sm_margin=0",
    "_flash_attn_backward": "dout, q, k, v, out, softmax_lse, cu_seqlens_q=None, cu_seqlens_k=None, sequed_q=None, sequed_k=None, "
    "max_seqlen_q=None, max_seqlen_k=None, dq=None, dk=None, dv=None, softmax_scale=None, is_causal=False, window_size_left=-1, "
    "window_size_right=-1, softcap=0.0, deterministic=False, sm_margin=0",
}


class FlashAttnTest(OnCpu):
    """attnforge.flash_attn: signatures, and results against plain operators."""

    def close(self, got, wanted, limit=2e-2):
        self.assertEqual(got.shape, wanted.shape)
        self.assertLess((got.double() - wanted.double()).abs().max().item(), limit * (wanted.abs().max().item() + 1e-3))

    def test_signatures(self):
        for module, table in ((flash_attn.flash_attn_interface, SIGNATURES), (v3, SIGNATURES_3)):
            for name, wanted in table.items():
                self.assertEqual(str(inspect.signature(getattr(module, name))), f"({wanted})", name)
        for name in SIGNATURES:
            if name.startswith("_"):
                self.assertIs(getattr(flash_attn.flash_attn_interface, "_wrapped" + name), getattr(flash_attn.flash_attn_interface, name))
            else:
                self.assertTrue(hasattr(flash_attn, name))

    def test_func_with_gradients(self):
        apart = torch.arange(20)[None, :] - torch.arange(20)[:, None]
        slopes = torch.rand(4)
        cases = (
            ({"causal": True}, {"causal": True}),
            ({"window_size": (5, 5), "softcap": 2.0}, {"window": 5, "softcap": 2.0}),
            ({"alibi_slopes": slopes}, {"score": lambda s: s - slopes[:, None, None].double() * apart.abs()}),
            ({"alibi_slopes": slopes, "causal": True}, {"causal": True, "score": lambda s: s + slopes[:, None, None].double() * apart}),
        )
        for given, wanted in cases:
            with self.subTest(given):
                for q, kv in (((2, 20, 4, 16), (2, 20, 2, 16)), ((2, 20, 4, 20), (2, 20, 4, 20))):
                    leaves = inputs(q, kv, grad=True)
                    o, lse, _ = flash_attn.flash_attn_func(*leaves, return_attn_probs=True, **given)
                    o_wanted, lse_wanted = plain(*(x.double() for x in leaves), **wanted)
                    self.close(o, o_wanted)
                    self.close(lse, lse_wanted)
                    for one, other in zip(torch.autograd.grad(o.float().square().sum(), leaves), torch.autograd.grad(o_wanted.square().sum(), leaves)):
                        self.close(one, other)
        self.assertNotIn("softmax_scale=0.25", runs[0], "the usual scale is not another problem")

    def test_packed_ones(self):
        qkv = torch.randn(2, 20, 3, 4, 16).to(torch.bfloat16)
        wanted = attnforge.attention(*qkv.unbind(2), causal=True)
        self.same([flash_attn.flash_attn_qkvpacked_func(qkv, causal=True)], [wanted])
        self.same([flash_attn.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], causal=True)], [wanted])
        self.same([v3.flash_attn_qkvpacked_func(qkv, causal=True)], [wanted])
        flat, ends = qkv.flatten(0, 1), torch.tensor([0, 20, 40]).int()
        packed = flash_attn.flash_attn_varlen_qkvpacked_func(flat, ends, 20, causal=True)
        self.same([packed.unflatten(0, (2, 20))], [wanted])
        of_kv = flash_attn.flash_attn_varlen_kvpacked_func(flat[:, 0], flat[:, 1:], ends, ends, 20, torch.tensor(20), causal=True)
        self.same([of_kv], [packed])
        self.same([v3.flash_attn_varlen_func(*flat.unbind(1), ends, ends, 20, 20, causal=True)], [packed])
        mask = torch.tensor([[1] * 7 + [0] * 13, [1] * 20])
        rows, indices, ends, longest, _ = flash_attn.bert_padding.unpad_input(qkv, mask)
        self.assertEqual((rows.shape[0], ends.tolist(), longest), (27, [0, 7, 27], 20))
        self.assertTrue(torch.equal(flash_attn.bert_padding.pad_input(rows, indices, 2, 20), qkv * mask[:, :, None, None, None]))

    def test_names_beside_the_functions(self):
        """Rotary embeddings, and rows that hold several sequences each."""
        rotary = attnforge.flash_attn.layers.rotary
        x, angle = torch.randn(2, 9, 3, 16), torch.randn(40, 4)
        cos, sin = angle.cos(), angle.sin()
        for interleaved in (False, True):
            wanted = x.clone()
            pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + 4) for i in range(4)]
            starts = torch.tensor([5, 11])
            for sequence, row in ((s, r) for s in range(2) for r in range(9)):
                for i, (a, b) in enumerate(pairs):
                    turn = torch.polar(torch.tensor(1.0), angle[row + starts[sequence], i])
                    y = torch.complex(x[sequence, row, :, a], x[sequence, row, :, b]) * turn
                    wanted[sequence, row, :, a], wanted[sequence, row, :, b] = y.real, y.imag
            o = rotary.apply_rotary_emb(x, cos, sin, interleaved, seqlen_offsets=starts)
            self.assertLess((o - wanted).abs().max().item(), 1e-5)
            packed = torch.cat([x.flatten(0, 1), x[0, :2]])  # and tokens of nobody
            o = rotary.apply_rotary_emb(packed, cos, sin, interleaved, seqlen_offsets=starts, cu_seqlens=torch.tensor([0, 9, 18]).int())
            self.assertLess((o[:18].view_as(x) - wanted).abs().max().item(), 1e-5)
            kv = torch.stack([x, x], 2)
            self.assertIs(rotary.apply_rotary_emb_kv_(kv, cos, sin, interleaved, starts), kv)
            self.assertLess((kv[:, :, 0] - wanted).abs().max().item(), 1e-5)
            self.assertTrue(torch.equal(kv[:, :, 1], x))
        rows, indices, ends, longest = flash_attn.bert_padding.unpad_input_for_concatenated_sequences(
            x, torch.tensor([[2, 3] + [0] * 7, [6] + [0] * 8])
        )
        self.assertEqual((ends.tolist(), longest, indices.tolist()), ([0, 2, 5, 11], 6, [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14]))
        self.assertTrue(torch.equal(rows, torch.cat([x[0, :5], x[1, :6]])))

    def test_scales_and_windows_that_problems_do_not_have(self):
        q, k, v = inputs()
        self.same([flash_attn.flash_attn_func(q, k, v, window_size=(2**31 - 1, 0))], [flash_attn.flash_attn_func(q, k, v, window_size=(-1, 0))])
        for scale in (0.0, -0.5):
            o = flash_attn.flash_attn_func(q, k, v, softmax_scale=scale)
            self.assertLess((o - plain(*(x.float() for x in (q, k, v)), scale=scale)[0]).abs().max().item(), 2e-2, scale)
        slopes = torch.rand(4)
        o = flash_attn.flash_attn_func(q, k, v, softmax_scale=0.0, causal=True, alibi_slopes=slopes)
        distance = torch.arange(20)[:, None] - torch.arange(20)
        wanted = plain(*(x.float() for x in (q, k, v)), causal=True, scale=0.0, score=lambda s: s - slopes[:, None, None] * distance)[0]
        self.assertLess((o - wanted).abs().max().item(), 2e-2)

    def test_with_kvcache(self):
        q, k, v = inputs((2, 3, 4, 16), (2, 3, 2, 16))
        old_k, old_v = (torch.randn(4, 32, 2, 16).to(torch.bfloat16) for _ in range(2))
        angle = torch.rand(40, 8)
        cos, sin = angle.cos(), angle.sin()

        def turned(x, at):
            first, second = x[..., ::2].float(), x[..., 1::2].float()
            c, s = cos[at : at + x.shape[0], None], sin[at : at + x.shape[0], None]
            return torch.stack([first * c - second * s, first * s + second * c], -1).flatten(-2).to(x.dtype)

        for rotary in (False, True):
            for kind in ("rows", "which rows", "pages"):
                lengths, places = torch.tensor([5, 12]).int(), torch.tensor([3, 1]).int()
                k_cache, v_cache, given = old_k.clone(), old_v.clone(), {}
                if kind == "which rows":
                    given["cache_batch_idx"] = places
                elif kind == "pages":
                    k_cache, v_cache = (x.view(16, 8, 2, 16) for x in (k_cache, v_cache))
                    given["block_table"] = torch.tensor([[12, 13, 14], [4, 5, 6]]).int()
                else:
                    places = torch.tensor([0, 1])
                if rotary:
                    given.update(rotary_cos=cos, rotary_sin=sin)
                o, lse = flash_attn.flash_attn_with_kvcache(
                    q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True, return_softmax_lse=True, **given
                )
                self.assertEqual(lengths.tolist(), [5, 12])
                for i, (used, place) in enumerate(zip(lengths.tolist(), places.tolist())):
                    one_q, one_k = (turned(x[i], used) if rotary else x[i] for x in (q, k))
                    keys, values = torch.cat([old_k[place, :used], one_k]), torch.cat([old_v[place, :used], v[i]])
                    self.assertTrue(torch.equal(k_cache.view(4, 32, 2, 16)[place, : used + 3], keys))
                    wanted, wanted_lse = plain(one_q[None].double(), keys[None].double(), values[None].double(), causal=True)
                    self.close(o[i], wanted[0])
                    self.close(lse[i], wanted_lse[0])
        trained = [x.clone().requires_grad_() for x in (q, k, v)]  # it has no derivative
        o = flash_attn.flash_attn_with_kvcache(trained[0], old_k.clone(), old_v.clone(), *trained[1:], cache_seqlens=lengths, causal=True)
        self.assertFalse(o.requires_grad)
        all_of = flash_attn.flash_attn_with_kvcache(q, old_k, old_v)
        self.same([all_of, v3.flash_attn_with_kvcache(q, old_k, old_v, cache_seqlens=32)], [attnforge.attention(q, old_k[:2], old_v[:2])] * 2)

    def test_a_ring_through_what_is_beneath(self):
        """As ring-flash-attention calls it: keywords of the signature with its defaults, gradients into buffers."""
        q, k, v = inputs()
        spec = inspect.getfullargspec(flash_attn.flash_attn_interface._flash_attn_forward)
        given = {**dict.fromkeys(spec.args), "q": q, "k": k, "v": v, "dropout_p": 0.0, "causal": True}
        given.update(window_size_left=-1, window_size_right=-1, return_softmax=False)
        o, lse, _, _ = flash_attn.flash_attn_interface._flash_attn_forward(**given)
        wanted = attnforge.attention(q, k, v, causal=True, return_lse=True)
        self.same([o, lse], wanted)
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        of_backward = 0.0, 0.25, True, -1, -1, 0.0, None, False
        flash_attn.flash_attn_interface._flash_attn_backward(o, q, k, v, o, lse, dq, dk, dv, *of_backward)
        self.same([dq, dk, dv], attnforge.attention_backward(q, k, v, o, lse, o, causal=True))
        gradients_3 = [torch.empty_like(x) for x in (q, k, v)]
        v3._flash_attn_backward(o, q, k, v, o, lse, **dict(zip(("dq", "dk", "dv"), gradients_3)), is_causal=True)
        self.same(gradients_3, [dq, dk, dv])
        flat, ends = [x.flatten(0, 1) for x in (q, k, v)], torch.tensor([0, 20, 40]).int()
        out = flash_attn.flash_attn_interface._flash_attn_varlen_forward(*flat, ends, ends, 20, 20, 0.0, None, True)
        self.same([out[0].view_as(o)], [o])
        packed = [torch.empty_like(x) for x in flat]
        flash_attn.flash_attn_interface._flash_attn_varlen_backward(
            out[0], *flat, out[0], out[1], *packed, ends, ends, 20, 20, *of_backward
        )
        self.same([x.view_as(o) for x in packed], [dq, dk, dv])
        parts = [v3._flash_attn_forward(q, k[:, half], v[:, half]) for half in (slice(0, 10), slice(10, 20))]
        o, lse = v3.flash_attn_combine(torch.stack([x[0] for x in parts]), torch.stack([x[1].transpose(1, 2) for x in parts]))
        wanted = attnforge.attention(q, k, v, return_lse=True)
        self.close(o, wanted[0])
        self.close(lse.transpose(1, 2), wanted[1])

    def test_what_is_refused(self):
        q, k, v = inputs()
        for function, why in (
            (lambda: flash_attn.flash_attn_func(q, k, v, dropout_p=0.1), "dropout_p=0.1: dropout of probabilities is not there"),
            (lambda: flash_attn.flash_attn_with_kvcache(q, k, v, cache_leftpad=torch.zeros(2)), "cache_leftpad"),
            (lambda: flash_attn.flash_attn_with_kvcache(q, k, v, cache_batch_idx=torch.zeros(2)), "multiple of 8; it is 20"),
            (lambda: flash_attn.flash_attn_with_kvcache(q, k, v, q, q, torch.ones(9, 8), torch.ones(9, 8)), "one position"),
            (lambda: v3.flash_attn_func(q, k, v, q_descale=torch.ones(1)), "q_descale: fp8 is not there"),
            (lambda: v3.flash_attn_func(q, k, v, qv=q), "qv: attention with two parts"),
        ):
            with self.assertRaisesRegex(attnforge.UnsupportedError, why):
                function()
        pages, table = torch.randn(8, 8, 2, 16).to(torch.bfloat16), torch.arange(8).view(2, 4).int()
        with self.assertRaisesRegex(attnforge.InvalidError, "page_table wants seqused_k"):
            v3._flash_attn_forward(q, pages, pages, page_table=table)
        rows, angles = torch.randn(4, 4, 16).to(torch.bfloat16), [torch.ones(32, 8)] * 2
        ends, other = torch.tensor([0, 1, 4]).int(), torch.tensor([0, 3, 4]).int()
        with self.assertRaisesRegex(attnforge.UnsupportedError, "to be one tensor"):
            v3.flash_attn_with_kvcache(
                rows, pages, pages, rows[:, :2], rows[:, :2], None, *angles, torch.tensor([2, 2]).int(), page_table=table, cu_seqlens_q=ends,
                cu_seqlens_k_new=other, max_seqlen_q=3, causal=True,
            )  # fmt: skip

    def test_under_compile(self):
        def of_names(q, k, v):
            return flash_attn.flash_attn_func(q, k, v, causal=True, window_size=(7, 0)) + v3.flash_attn_func(q, k, v)

        q, k, v = inputs(grad=True)
        self.same(gradients(torch.compile(of_names, backend="eager", fullgraph=True), (q, k, v)), gradients(of_names, (q, k, v)))

    def test_under_another_name_by_request_only(self):
        names = [each for each in sys.modules if each.partition(".")[0] in ("flash_attn", "flash_attn_interface")]
        self.assertEqual(names, [])
        with unittest.mock.patch.dict(sys.modules):
            attnforge.integrations.install_as("flash_attn")
            attnforge.integrations.install_as("flash_attn_interface")
            attnforge.integrations.install_as("flash_attn")
            from flash_attn.bert_padding import pad_input  # noqa: F401
            from flash_attn.flash_attn_interface import _flash_attn_forward
            from flash_attn.layers.rotary import apply_rotary_emb  # noqa: F401
            from flash_attn_interface import flash_attn_combine

            import flash_attn.kvcache as of_name  # noqa: I001

            self.assertIs(of_name, attnforge.flash_attn.kvcache)
            self.assertIs(_flash_attn_forward, flash_attn.flash_attn_interface._flash_attn_forward)
            self.assertIs(flash_attn_combine, v3.flash_attn_combine)
        with unittest.mock.patch.dict(sys.modules, {"flash_attn": unittest}), self.assertRaisesRegex(ImportError, "was imported before"):
            attnforge.integrations.install_as("flash_attn")


class SdpaTest(OnCpu):
    """attnforge.integrations.sdpa, whose kernels are called here for tensors of the CPU, where torch has none of these."""

    def setUp(self):
        super().setUp()
        self.active = sdpa.Active(key="CPU")
        self.addCleanup(self.active.remove)

    def test_forward_and_gradients(self):
        aten = torch.ops.aten
        for causal in (False, True):
            for of_heads in (True, False):
                shape = (2, 4, 20, 16) if of_heads else (2, 20, 4, 16)
                leaves = [torch.randn(shape).to(torch.bfloat16) for _ in range(3)]
                leaves = [(x if of_heads else x.transpose(1, 2)).requires_grad_() for x in leaves]
                o, lse, _, _, max_q, max_k, *_ = aten._scaled_dot_product_flash_attention(*leaves, 0.0, causal, scale=0.5)
                self.assertEqual((o.stride(), max_q, max_k), (leaves[0].stride(), 20, 20))
                again = [x.detach().transpose(1, 2).requires_grad_() for x in leaves]
                wanted = attnforge.attention(*again, causal=causal, softmax_scale=0.5, return_lse=True)
                self.assertTrue(torch.equal(o, wanted[0].transpose(1, 2)) and torch.equal(lse, wanted[1]))
                got = torch.autograd.grad(o.float().sum(), leaves)
                for x, y, of in zip(got, torch.autograd.grad(wanted[0].float().sum(), again), leaves):
                    self.assertTrue(torch.equal(x, y.transpose(1, 2)))
                    self.assertEqual(x.stride(), of.stride())

    def test_packed(self):
        q, k, v = inputs((27, 4, 16), grad=True)
        ends = torch.tensor([0, 7, 27]).int()
        slopes = torch.rand(4)
        given = {"window_size_left": 5, "window_size_right": -1, "scale": 0.25}
        o, lse, *_ = torch.ops.aten._flash_attention_forward(q, k, v, ends, ends, 20, 20, 0.0, True, False, **given)
        wanted = attnforge.attention(q, k, v, causal=True, window=(5, -1), cu_seqlens=ends, max_seqlen=20, return_lse=True)
        self.same([o, lse], wanted)
        loss = [torch.autograd.grad(x.float().square().sum(), [q, k, v]) for x in (o, wanted[0])]
        self.same(*loss)
        with torch.no_grad():
            got = torch.ops.aten._flash_attention_forward(*inputs(), None, None, 20, 20, 0.0, True, False, alibi_slopes=slopes)
        self.assertEqual((got[0].shape, got[1].shape), ((2, 20, 4, 16), (2, 4, 20)))

    def test_what_is_not_served_goes_to_torch_once_with_the_reason(self):
        tensors, said = [torch.randn(2, 4, 20, 16).to(torch.bfloat16) for _ in range(3)], "runs torch's own kernel, not attnforge's: dropout_p=0.5"
        with self.assertRaisesRegex(attnforge.UnsupportedError, "dropout_p=0.5"):
            torch.ops.aten._scaled_dot_product_flash_attention(*tensors, 0.5)

        class Native:
            @staticmethod
            def call_boxed(keys, *arguments, **named):
                return arguments[0] * 3, arguments[0].float()[..., 0], None, None, 20, 20, *sdpa._of_dropout(arguments[0])

        self.active.native["_scaled_dot_product_flash_attention"] = Native
        for warns in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                o = torch.ops.aten._scaled_dot_product_flash_attention(*tensors, 0.5)[0]
            self.assertTrue(torch.equal(o, tensors[0] * 3))
            self.assertEqual([said in str(each.message) for each in caught], [True] * warns)
        self.active.strict = True
        with self.assertRaisesRegex(attnforge.UnsupportedError, "dropout_p=0.5"):
            torch.ops.aten._scaled_dot_product_flash_attention(*tensors, 0.5)

    def test_the_function_with_masks(self):
        theirs = torch.nn.functional.scaled_dot_product_attention
        q, k, v = (torch.randn(2, heads, rows, 20).requires_grad_() for heads, rows in ((4, 20), (2, 28), (2, 28)))
        seen = (torch.rand(20, 28) < 0.6) | (torch.arange(28) == 0)
        added = torch.randn(4, 20, 28).requires_grad_()
        cases = ({"is_causal": True}, {"attn_mask": seen}, {"attn_mask": seen[None, :1]}, {"attn_mask": added, "scale": 0.3},
                 {"attn_mask": torch.randn(2, 1, 1, 28)}, {"attn_mask": torch.randn(2, 4, 20, 1)},
                 {"attn_mask": torch.randn(1, 4, 20, 40)[..., 5:33]}, {"attn_mask": torch.randn(20, 28).expand(2, 1, 20, 28).requires_grad_()},
                 {"attn_mask": torch.randn(2, 1, 20, 28).masked_fill(torch.rand(20, 28) < 0.3, -math.inf)})  # fmt: skip
        for given in cases:
            leaves = [q, k, v] + [x for x in given.values() if isinstance(x, torch.Tensor) and x.requires_grad]
            o, wanted = (f(q, k, v, enable_gqa=True, **given) for f in (sdpa.scaled_dot_product_attention, theirs))
            self.assertLess((o - wanted).abs().max().item(), 1e-5, given)
            dout = torch.randn_like(o)
            for x, y in zip(torch.autograd.grad(o, leaves, dout), torch.autograd.grad(wanted, leaves, dout)):
                self.assertLess((x - y).abs().max().item(), 1e-4, given)
        with self.assertRaisesRegex(attnforge.UnsupportedError, "dropout_p=0.5"):
            sdpa.scaled_dot_product_attention(q, k, v, dropout_p=0.5, enable_gqa=True)
        with self.assertRaisesRegex(attnforge.UnsupportedError, "is not of 20 queries and 28 keys"):
            sdpa.scaled_dot_product_attention(q, k, v, seen[:5], enable_gqa=True)

    def test_a_mask_beside_other_options(self):
        """Of rows that are no multiple of 16 bytes, beside a window and lengths that texts call by the same names."""
        q, k, v = (torch.randn(2, rows, heads, 16).bfloat16() for heads, rows in ((4, 20), (2, 27), (2, 27)))
        used = torch.tensor([27, 9], dtype=torch.int32)
        for dtype in (torch.bfloat16, torch.float32, torch.bool):
            mask = torch.randn(4, 20, 27) > 0 if dtype == torch.bool else torch.randn(4, 20, 27).to(dtype)
            o = attnforge.attention(q, k, v, causal=True, used_kv=used, attn_mask=mask)
            for i, keys in enumerate(used.tolist()):
                seen = torch.arange(keys) <= torch.arange(20)[:, None] + keys - 20
                seen = mask[..., :keys] & seen if dtype == torch.bool else mask[..., :keys].float().masked_fill(~seen, -math.inf)
                x, y, z = (each[i, :rows].transpose(0, 1).float() for each, rows in ((q, 20), (k, keys), (v, keys)))
                wanted = torch.nn.functional.scaled_dot_product_attention(x, y, z, seen, enable_gqa=True).transpose(0, 1)
                self.assertLess((o[i] - wanted.nan_to_num(0)).abs().max().item(), 2e-2, (dtype, i))
        added = torch.randn(20, 27).bfloat16().requires_grad_()
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        for deterministic in (False, True):
            o = attnforge.attention(q, k, v, attn_mask=added, deterministic=deterministic)
            wanted = torch.nn.functional.scaled_dot_product_attention(
                *(x.transpose(1, 2).float() for x in (q, k, v)), added.float(), enable_gqa=True
            )
            dout = torch.randn_like(o)
            (x,), (y,) = torch.autograd.grad(o, [added], dout), torch.autograd.grad(wanted.transpose(1, 2), [added], dout.float())
            self.assertLess((x - y).abs().max().item(), 6e-2, deterministic)
        more = torch.randn(20, 32).bfloat16()  # beside an aligned array, and a text that makes choices
        given = {"score": "(k < q ? s : s * 0.5f) + bias[q * 32 + k]", "args": {"bias": more}}
        o = attnforge.attention(q, k, v, attn_mask=added, **given)
        s = lambda s: torch.where(torch.arange(27) < torch.arange(20)[:, None], s, s * 0.5) + more[:, :27].float() + added.float()  # noqa: E731
        self.assertLess((o - plain(*(x.float() for x in (q, k, v)), score=s)[0]).abs().max().item(), 3e-2)
        del runs[:]
        added = torch.randn(2, 4, 20, 27).bfloat16().requires_grad_()  # each pair has an element of its own
        o = attnforge.attention(q, k, v, causal=True, attn_mask=added)
        scores = [x.transpose(1, 2).float() for x in (q, k, v)]
        seen = torch.ones(20, 27, dtype=torch.bool).tril(7)
        wanted = torch.nn.functional.scaled_dot_product_attention(*scores, added.float().masked_fill(~seen, -math.inf), enable_gqa=True)
        dout = torch.randn_like(o)
        (x,), (y,) = torch.autograd.grad(o, [added], dout), torch.autograd.grad(wanted.transpose(1, 2), [added], dout.float())
        self.assertLess((x - y).abs().max().item(), 3e-2)
        self.assertIn("whole attn_mask", str(runs[-1]))
        compiled = torch.compile(lambda q, k, v, mask: attnforge.attention(q, k, v, causal=True, attn_mask=mask), backend="aot_eager", fullgraph=True)
        again = compiled(q, k, v, added)
        self.same([again, *torch.autograd.grad(again, [added], dout)], [o, x])
        with self.assertRaisesRegex(attnforge.UnsupportedError, "attn_mask does not go with cu_seqlens"):
            attnforge.attention(q[0], k[0], v[0], cu_seqlens=used, max_seqlen=9, attn_mask=mask)
        for words, bad in (("is a list", [1.0]), ("dtype torch.int64", mask.long()), ("dtype torch.float64", mask.double())):
            with self.subTest(words), self.assertRaisesRegex(attnforge.InvalidError, f"^attn_mask .*{words}"):
                attnforge.attention(q, k, v, attn_mask=bad)
        for bad in ([q], None, q[0]):
            with self.assertRaisesRegex(attnforge.InvalidError, "^q "):
                attnforge.attention(bad, k, v, attn_mask=mask)

    def test_attn_mask_of_no_pair(self):
        q, k, v = inputs(q=(2, 20, 4, 16), kv=(2, 27, 4, 16))
        for dtype in (torch.float32, torch.bool):
            mask = torch.ones(2, 4, 20, 27, dtype=dtype)
            for x, y, z, m in ((q[:0], k[:0], v[:0], mask[:0]), (q[:, :0], k, v, mask[:, :, :0]), (q, k[:, :0], v[:, :0], mask[..., :1])):
                o = attnforge.attention(x, y, z, attn_mask=m)
                self.assertEqual(o.shape, x.shape)
                self.assertTrue(torch.equal(o, torch.zeros_like(o)), "a row that sees no key gives 0")

    def test_quantize_kv_says_what_it_cannot_take(self):
        for words, x in (("x is a list", [1.0]), (r"x has shape \(3, 63\)", torch.ones(3, 63)), ("x has shape", torch.ones(3, 0))):
            with self.subTest(words), self.assertRaisesRegex(attnforge.InvalidError, words):
                attnforge.quantize_kv(x, "int4")
        numbers, scales = attnforge.quantize_kv(torch.full((3, 64), -3.5).requires_grad_(), "int4")
        self.assertFalse(scales.requires_grad)
        self.assertTrue(bool((numbers == 0x99).all()) and bool((scales == 0.5).all()))
        numbers, pairs = attnforge.quantize_kv(torch.tensor([[1.0, 2.0, 8.5, 16.0], [3.0] * 4]), "int4", zero=True)
        self.assertEqual(numbers.tolist(), [[0x98, 0x70], [0, 0]], "the least is -8 and the largest 7")
        self.assertEqual(pairs.tolist(), [[[1.0, 9.0]], [[0.0, 3.0]]])
        with self.assertRaisesRegex(attnforge.InvalidError, "zero points are of int4, not of e5m2"):
            attnforge.quantize_kv(torch.ones(3, 64), "e5m2", zero=True)
        rows = torch.tensor([[0.0, -0.0], [float("nan"), 1.0], [1.0, float("-inf")], [1.125e-40, -1.125e-40], [2.5, 127.0]])
        numbers, scales = attnforge.quantize_kv(rows, "int8")
        self.assertEqual(numbers.tolist()[:3] + numbers.tolist()[4:], [[0, 0], [0, 0], [0, 0], [2, 127]], "ties to even")
        self.assertEqual([scales[0].item(), scales[4].item(), *scales[1:3].isnan().tolist()], [0.0, 1.0, True, True])
        numbers, _ = attnforge.quantize_kv(rows, "e5m2")
        self.assertEqual(numbers[3].float().tolist(), [0.0, 0.0], "a scale that is no normal number")

    def test_scales_of_a_heads_rows_lie_together(self):
        x = torch.randn(2, 6, 3, 64)
        for scale, strides in (("token", (18, 1, 6)), ("group32", (36, 2, 12, 1))):
            numbers, scales = attnforge.quantize_kv(x, "int4", scale)
            self.assertEqual((scales.shape[:3], scales.stride()), (x.shape[:3], strides))
            self.assertTrue(torch.equal(scales[1, 4, 2], attnforge.quantize_kv(x[1, 4], "int4", scale)[1][2]))

    def test_zeros_for_rows_that_do_not_count_are_of_the_outputs_kind(self):
        from attnforge._gradients import autograd

        q, v = torch.zeros(2, 3, 4, 64).to(torch.float8_e4m3fn), torch.zeros(2, 5, 2, 32, dtype=torch.uint8)
        o, lse = autograd._zeros(q, v, {})
        self.assertEqual((o.shape, o.dtype, lse.shape, lse.dtype), ((2, 3, 4, 64), torch.bfloat16, (2, 4, 3), torch.float32))

    def test_registered_by_request_and_restored(self):
        from torch.nn import attention as of_torch

        self.assertNotIn("ATTNFORGE", of_torch.list_flash_attention_impls())
        sdpa.register()
        self.assertIsNone(of_torch.current_flash_attention_impl())
        self.active.remove()

        def is_ours():
            return "sdpa.py" in torch._C._dispatch_dump("aten::_scaled_dot_product_flash_attention")

        self.assertFalse(is_ours())
        of_torch.activate_flash_attention_impl("ATTNFORGE")
        self.assertEqual((is_ours(), of_torch.current_flash_attention_impl()), (True, "ATTNFORGE"))
        self.assertEqual(len(of_torch._registry._FLASH_ATTENTION_ACTIVE[1].native), 4, "torch's own kernels were kept")
        of_torch.restore_flash_attention_impl()
        self.assertFalse(is_ours())



# As transformers builds mask functions; masks.py knows them by these names.


def causal_mask_function(batch, head, q, k):
    return k <= q


def packed_sequence_mask_function(ids):
    def inner_mask(batch, head, q, k):
        return ids[batch, q] == ids[batch, k]

    return inner_mask


def and_masks(*functions):
    def and_mask(batch, head, q, k):
        return functions[0](batch, head, q, k) & functions[1](batch, head, q, k)

    return and_mask


class TransformersTest(OnCpu):
    """attnforge.integrations.transformers without transformers: what its models would hand over. The models: transformers_test.py."""

    def attend(self, mask, dense, rows=20, keys=20, **given):
        """attention_forward() with a mask, and plain operators with a dense one, [batch, queries, keys]."""
        q, k, v = inputs((2, 4, rows, 16), (2, 2, keys, 16))
        o, weights = of_transformers.attention_forward(torch.nn.Module(), q, k, v, mask, **given)
        self.assertIsNone(weights)
        self.assertTrue(o.is_contiguous())
        q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
        for i in range(2):
            wanted = plain(q[i : i + 1], k[i : i + 1], v[i : i + 1], mask=dense[i], scale=given.get("scaling"))[0].nan_to_num(0.0)
            self.assertLess((o[i] - wanted[0]).abs().max().item(), 2e-2)

    def test_each_kind_of_mask(self):
        at = torch.arange(20)
        causal = (at[None, :] <= at[:, None]).expand(2, 20, 20)
        padded = torch.ones(2, 20, dtype=torch.bool)
        padded[0, :7] = False
        make = dict(batch_size=2, q_length=20, kv_length=20, mask_function=causal_mask_function)
        self.assertIsNone(masks.mask_for(**make))
        self.assertIsNone(masks.mask_for(**make, attention_mask=torch.ones(2, 20, dtype=torch.bool)))
        self.attend(None, causal, scaling=0.3)
        self.attend(masks.mask_for(**make, attention_mask=padded), causal & padded[:, None])
        self.attend(masks.mask_for(**make, attention_mask=padded), padded[:, None].expand(2, 20, 20), is_causal=False)
        self.attend(None, causal & (at[None, :] > at[:, None] - 6), sliding_window=6)
        ids = torch.stack([at // 7, at // 3])
        packed = and_masks(causal_mask_function, packed_sequence_mask_function(ids))
        mask = masks.mask_for(**{**make, "mask_function": packed})
        self.assertEqual(mask.shape, (2, 1, 2, 20))
        dense = causal & (ids[:, :, None] == ids[:, None, :])
        self.attend(mask, dense)
        self.attend(masks._rows(packed, (2, 20, 20), (0, 0), None, "cpu"), dense)
        self.attend(masks._rows(causal_mask_function, (2, 20, 20), (0, 0), padded, "cpu"), causal & padded[:, None])
        self.attend(dense[:, None], dense)
        self.attend(torch.zeros(2, 1, 20, 20).masked_fill(~dense[:, None], -1e9), dense)
        with self.assertRaisesRegex(RuntimeError, "with others between"):
            masks._rows(lambda batch, head, q, k: (k % 2 == 0) & (k <= q), (2, 20, 20), (0, 0), None, "cpu")

    def test_a_static_cache(self):
        for offset in (5, torch.tensor(5)):
            for padded in (None, torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8]).bool()):
                make = dict(batch_size=2, q_length=3, kv_length=32, q_offset=offset, mask_function=causal_mask_function)
                mask = masks.mask_for(**make, attention_mask=padded)
                dense = (torch.arange(32)[None, :] <= torch.arange(5, 8)[:, None]).expand(2, 3, 32)
                if padded is not None:
                    dense = dense & torch.nn.functional.pad(padded, (0, 24))[:, None]
                self.attend(mask, dense, 3, 32)
                self.attend(mask, dense & (torch.arange(32)[None, :] > torch.arange(5, 8)[:, None] - 4), 3, 32, sliding_window=4)

    def test_in_a_graph(self):
        """What torch.compile sees of masks: names of closures, no values."""
        at = torch.arange(20)
        ids = torch.stack([at // 7, at // 3])

        def or_masks(*functions):
            def or_mask(batch, head, q, k):
                return functions[0](batch, head, q, k) | functions[1](batch, head, q, k)

            return or_mask

        def make(ids, padded, kind):
            function = and_masks(causal_mask_function, packed_sequence_mask_function(ids)) if kind else causal_mask_function
            function = or_masks(causal_mask_function, packed_sequence_mask_function(ids)) if kind == "blocks" else function
            plain = dict(batch_size=2, q_length=20, kv_length=20, mask_function=function, attention_mask=padded)
            return masks.mask_for(**plain, allow_is_causal_skip=not kind)

        compiled = torch.compile(make, backend="eager", fullgraph=True)
        padded = (at >= 2).expand(2, 20)
        causal, same = (at[None, :] <= at[:, None]).expand(2, 20, 20), ids[:, :, None] == ids[:, None, :]
        for keys, kind, dense, form in (
            (None, "", causal, None), (padded, "", causal & padded[:, None], 1), (None, "packed", causal & same, 2),
            (None, "blocks", causal | same, 3), (padded, "blocks", (causal | same) & padded[:, None], 3),
        ):
            mask = compiled(ids, keys, kind)
            self.assertEqual(form, mask if mask is None else mask.shape[2])
            self.attend(mask, dense)

    def test_packed_and_paged(self):
        q, k, v = inputs((1, 4, 20, 16))
        ends = torch.tensor([0, 7, 20])
        o, _ = of_transformers.attention_forward(torch.nn.Module(), q, k, v, None, cu_seq_lens_q=ends, cu_seq_lens_k=ends)
        wanted = attnforge.attention(*(x[0].transpose(0, 1) for x in (q, k, v)), causal=True, cu_seqlens=ends.int(), max_seqlen=20)
        self.same([o[0]], [wanted])
        module = types.SimpleNamespace(scaling=0.25, layer_idx=0)
        old_k, old_v = (torch.randn(9, 4, 16).to(torch.bfloat16) for _ in range(2))
        calls = []

        class Cache:
            def update(self, key_states, value_states, **named):
                calls.append(named)
                return torch.cat([old_k, key_states[0].transpose(0, 1)]), torch.cat([old_v, value_states[0].transpose(0, 1)])

        of_keys = {"full_attention": torch.tensor([0, 9, 29]), "sliding_attention": None}
        of_call = dict(cache=Cache(), cu_seq_lens_q=torch.tensor([0, 5, 20]), cu_seq_lens_k=of_keys, read_index=1, write_index=2)
        o, _ = of_transformers.paged_attention_forward(module, q, k, v, None, **of_call)
        self.assertEqual(calls, [{"layer_idx": 0, "read_index": 1, "write_index": 2}])
        keys, values = torch.cat([old_k, k[0].transpose(0, 1)]), torch.cat([old_v, v[0].transpose(0, 1)])
        one = attnforge.attention(q[:, :, :5].transpose(1, 2), keys[None, :9], values[None, :9], causal=True)
        self.assertTrue(torch.equal(o[:, :5], one))

    def test_what_is_refused(self):
        q, k, v = inputs((2, 4, 20, 16))
        for given, why in (({"dropout": 0.1}, "dropout of probabilities"), ({"attention_mask": torch.ones(2, 20)}, "must be \\[batch, heads")):
            with self.assertRaisesRegex(attnforge.UnsupportedError, why):
                of_transformers.attention_forward(torch.nn.Module(), q, k, v, **{"attention_mask": None, **given})

    def test_registered_by_request(self):
        stub, made = types.ModuleType("transformers"), []
        stub.AttentionInterface = types.SimpleNamespace(register=lambda name, function: made.append(name))
        stub.AttentionMaskInterface = types.SimpleNamespace(register=lambda name, function: made.append(f"mask of {name}"))
        with unittest.mock.patch.dict(sys.modules, {"transformers": stub}):
            of_transformers.register()
        self.assertEqual(made, ["attnforge", "paged|attnforge", "mask of attnforge"])


class FlexTest(OnCpu):
    """attnforge.integrations.flex beside plain operators."""

    def test_twenty_programs(self):
        from torch.nn.attention import flex_attention as of_torch

        for name, score_mod, mask_mod, trained in flex_programs.programs(4, 40, "cpu"):
            with self.subTest(name):
                q, k, v = (torch.randn(2, heads, 40, 16).requires_grad_() for heads in (4, 2, 2))
                mask = None if mask_mod is None else of_torch.create_block_mask(mask_mod, 2, 4, 40, 40, device="cpu", BLOCK_SIZE=16)
                got = flex.flex_attention(q, k, v, score_mod, mask, scale=0.3, enable_gqa=True, return_lse=True)
                wanted = flex_programs.dense(q, k, v, score_mod, mask_mod, 0.3)
                loss = [x[0].double().square().sum() + x[1].double().clamp(min=-5).sum() for x in (got, wanted)]
                leaves = [q, k, v, *trained]
                for x, y in zip(got, wanted):
                    self.assertLess((x - y).nan_to_num(0.0, 0.0, 0.0).abs().max().item(), 1e-4)
                for x, y in zip(torch.autograd.grad(loss[0], leaves), torch.autograd.grad(loss[1], leaves)):
                    self.assertLess((x - y).abs().max().item(), 1e-3 * (y.abs().max().item() + 1e-2))

    def test_blocks_are_those_of_the_mask(self):
        from torch.nn.attention.flex_attention import BlockMask, create_block_mask, noop_mask

        of = {name: mask_mod for name, _, mask_mod, _ in flex_programs.programs(4, 40, "cpu") if mask_mod}
        q, k, v = (torch.randn(1, 2, 32, 16) for _ in range(3))
        here, visible = torch.arange(32), torch.arange(32)[:, None] >= torch.arange(32)
        for mask_mod, wanted in ((lambda b, h, q, k: q >= k, visible), (noop_mask, torch.ones_like(visible)), (None, torch.ones_like(visible))):
            diagonal = torch.tensor([[[1, 1]]]).int(), torch.tensor([[[[0, 1], [1, 0]]]]).int()
            mask = BlockMask.from_kv_blocks(*diagonal, mask_mod=mask_mod, BLOCK_SIZE=16)
            wanted = wanted & (here[:, None] // 16 == here // 16)
            o = flex.flex_attention(q, k, v, block_mask=mask)
            exact = plain(*(x.transpose(1, 2) for x in (q, k, v)), mask=wanted)[0].transpose(1, 2)
            self.assertLess((o - exact).abs().max().item(), 1e-4)
            self.assertIs(flex.options_of(None, mask)["block_mask"], flex.options_of(None, mask)["block_mask"])
            self.assertGreater(flex.options_of(None, mask)["block_mask"].partial, 0)
        mask = create_block_mask(of["documents"], None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
        with self.assertRaisesRegex(attnforge.UnsupportedError, "is of 40 queries and 40 keys; the call has 20"):
            flex.flex_attention(*(torch.randn(2, 4, 20, 16) for _ in range(3)), block_mask=mask)

    def test_blocks_that_follow_from_the_function_are_left_to_it(self):
        from torch.nn.attention.flex_attention import BlockMask, create_block_mask

        for name, _, mask_mod, _ in flex_programs.programs(4, 40, "cpu"):
            if mask_mod is not None:
                mask = create_block_mask(mask_mod, 2, 4, 40, 40, device="cpu", BLOCK_SIZE=16)
                options = flex.options_of(None, mask)
                self.assertNotIn("block_mask", options, name)
                with unittest.mock.patch.object(flex, "_PAIRS_AT_ONCE", 2 * 4 * 40 * 20):  # a row of blocks after the other
                    again = create_block_mask(mask_mod, 2, 4, 40, 40, device="cpu", BLOCK_SIZE=16)
                    self.assertEqual("block_mask" in flex.options_of(None, again), "args" in options, name)
                    again = create_block_mask(mask_mod, 2, 4, 40, 40, device="cpu", BLOCK_SIZE=16)
                    again.kv_num_blocks[1, 2, 2] = again.full_kv_num_blocks[1, 2, 2] = 0  # of the last row
                    self.assertIn("block_mask", flex.options_of(None, again), name)
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
        kinds = mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices
        fewer = BlockMask.from_kv_blocks(kinds[0], kinds[1], (kinds[2] - 1).clamp(min=0), kinds[3], BLOCK_SIZE=16, mask_mod=mask.mask_mod)
        self.assertIn("block_mask", flex.options_of(None, fewer))
        of_head = create_block_mask(lambda b, h, q, k: q >= k + h, None, 1, 40, 40, device="cpu", BLOCK_SIZE=16)
        self.assertIn("block_mask", flex.options_of(None, of_head), "which all heads share")
        prefix = torch.tensor([9, 25])
        of_first = create_block_mask(lambda b, h, q, k: k < prefix[b], None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
        self.assertIn("block_mask", flex.options_of(None, of_first), "which all sequences share")
        mask.mask_mod = lambda b, h, q, k: q >= k + 17
        self.assertIn("block_mask", flex.options_of(None, mask), "another function than that of its blocks")
        of_numbers = BlockMask.from_kv_blocks(*kinds, BLOCK_SIZE=16, mask_mod=lambda b, h, q, k: (q >= k) * 1, seq_lengths=(40, 40))
        self.assertIn("block_mask", flex.options_of(None, of_numbers), "torch makes no blocks of such a function")

    def test_blocks_stay_where_a_captured_tensor_was_changed(self):
        from torch.nn.attention.flex_attention import create_block_mask

        document = torch.arange(40) // 9
        mask = create_block_mask(lambda b, h, q, k: document[q] == document[k], None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
        self.assertNotIn("block_mask", flex.options_of(None, mask))
        document[20:] = 0
        blocks = flex.options_of(None, mask)["block_mask"]  # queries from 27 on see none of the first keys in its lists
        self.assertIs(flex.options_of(None, mask)["block_mask"], blocks)
        q, k, v = (torch.randn(1, 2, 40, 16) for _ in range(3))
        here = torch.arange(40)
        present = mask.to_dense()[0, 0].bool()[here // 16][:, here // 16]
        wanted = present & (document[:, None] == document)
        exact = plain(*(x.transpose(1, 2) for x in (q, k, v)), mask=wanted)[0].transpose(1, 2)
        self.assertLess((flex.flex_attention(q, k, v, block_mask=mask) - exact).abs().max().item(), 1e-4)
        document.copy_(torch.arange(40) // 9)
        self.assertNotIn("block_mask", flex.options_of(None, mask))
        with torch.inference_mode():
            uncounted = torch.arange(40) // 9
            mask = create_block_mask(lambda b, h, q, k: uncounted[q] == uncounted[k], None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
            self.assertIn("block_mask", flex.options_of(None, mask), "nobody tells when it changes")

    def test_what_may_have_changed_is_traced_anew(self):
        class Bias:
            def __init__(self, value):
                self.bias, self.weight = torch.full((2,), value), value

            def score(self, s, b, h, q, k):
                return s * self.weight + self.bias[h]

        first, second = Bias(1.0), Bias(2.0)
        for each in (first, second, first):
            options = flex.options_of(each.score)
            self.assertIs(options["args"]["of_score0"], each.bias)
            self.assertIn(f"s * {each.weight}f", options["score"])
        first.weight, weights = 4.0, {"w": 1.0}
        self.assertIn("s * 4.0f", flex.options_of(first.score)["score"])
        scaled = lambda s, b, h, q, k: s * weights["w"]  # noqa: E731
        self.assertIn("1.0f", flex.options_of(scaled)["score"])
        weights["w"] = 5.0
        self.assertIn("5.0f", flex.options_of(scaled)["score"])

    def test_lists_and_classes_that_were_captured_may_change_too(self):
        class Weights:
            first = 1.0

        of_class = lambda s, b, h, q, k: s * Weights.first  # noqa: E731
        self.assertIn("1.0f", flex.options_of(of_class)["score"])
        Weights.first = 4.0
        self.assertIn("4.0f", flex.options_of(of_class)["score"])
        x, y = torch.zeros(4), torch.ones(4)
        first, second = [x], [y]
        of_lists = lambda s, b, h, q, k: s * float(len(first)) + first[0][h] * float(len(second))  # noqa: E731
        self.assertIn("s * 1.0f", flex.options_of(of_lists)["score"])
        first[:], second[:] = [x, y], []
        self.assertIn("s * 2.0f", flex.options_of(of_lists)["score"])

        class Odd:  # as an array of numpy, which compares by elements
            __hash__ = None
            weight = 3.0

            def __eq__(self, other):
                raise ValueError("the truth of an array is ambiguous")

        odd = Odd()
        self.assertIn("3.0f", flex.options_of(lambda s, b, h, q, k: s * odd.weight)["score"])

    def test_captured_tensors_are_not_kept(self):
        def biased():
            bias = torch.zeros(2)
            flex.options_of(lambda s, b, h, q, k: s + bias[h])
            return weakref.ref(bias)

        alive = [biased() for _ in range(5)]
        gc.collect()
        self.assertEqual([each() for each in alive], [None] * 5)

    def test_indices_and_sums_of_bools_are_as_torch_has_them(self):
        table = torch.randn(4, 5)
        score = lambda text: flex.options_of(text)["score"]  # noqa: E731
        self.assertEqual(score(lambda s, b, h, q, k: s + table[h, -1]), "(s + of_score0[head * 5 + 4])")
        self.assertEqual(
            score(lambda s, b, h, q, k: s + table[h - 1, k % 5]),
            "(s + of_score0[((head - 1) < 0 ? (head - 1) + 4 : (head - 1)) * 5 + (k % 5)])",
        )
        self.assertIn("||", score(lambda s, b, h, q, k: s + ((q > k) + (k > 3))))
        turned = torch.randint(0, 5, (128, 4)).t()
        self.assertTrue(flex.options_of(lambda s, b, h, q, k: s + turned[h, k])["args"]["of_score0"].is_contiguous())

    def test_what_was_captured_is_looked_at_in_each_call(self):
        bias, scale = [torch.zeros(4), torch.ones(4)], 2.0

        def score_mod(s, b, h, q, k):
            return s * scale + bias[0][h]

        self.assertIn("s * 2.0f", flex.options_of(score_mod)["score"])
        scale = 3.0
        self.assertIn("s * 3.0f", flex.options_of(score_mod)["score"])
        bias.reverse()
        self.assertTrue(torch.equal(flex.options_of(score_mod)["args"]["of_score0"], torch.ones(4)))

    def test_masks_that_torch_puts_together(self):
        from torch.nn.attention.flex_attention import and_masks, or_masks

        document = torch.arange(40) // 9
        function = or_masks(and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: document[q] == document[k]), lambda b, h, q, k: k < 2)
        text, args = flex._text_of(function, False)
        self.assertEqual(text, "(((q >= k) && (of_mask0[q] == of_mask0[k])) || (k < 2))")
        self.assertEqual(flex._as_arrays(args)["of_mask0"].dtype, torch.int32)
        seen = cpu_kernels.evaluate(text, {"q": torch.arange(40)[:, None], "k": torch.arange(40), "of_mask0": document})
        q, k = torch.arange(40)[:, None], torch.arange(40)
        self.assertTrue(torch.equal(seen.bool(), (q >= k) & (document[q] == document[k]) | (k < 2)))

    def test_what_has_no_text_says_which_line(self):
        table = torch.zeros(3, 4)
        for function, why in (
            (lambda s, b, h, q, k: s if q > k else s * 2, "a decision by a value that only the kernel knows .*use torch.where"),
            (lambda s, b, h, q, k: s + table[h], "2 dimensions is read by 1 indices"),
            (lambda s, b, h, q, k: s + torch.special.i0(s), "i0 has no text"),
            (lambda s, b, h, q, k: s + s.cumsum(0), "no text for .cumsum"),
            (lambda s, b, h, q, k: s + [0.0, 1.0][h], "the value of head is asked for"),
            (lambda s, b, h, q, k: s + table, "is not read by an index"),
        ):
            try:
                flex.options_of(function)
            except (attnforge.UnsupportedError, AttributeError) as error:
                self.assertRegex(str(error), why)
                frames = traceback.extract_tb(error.__traceback__)
                self.assertTrue(any(each.filename == __file__ and each.name == "<lambda>" for each in frames) or "not read" in why)
            else:
                self.fail(why)

    def test_under_compile_by_its_options(self):
        slope = torch.rand(4).requires_grad_()
        options = flex.options_of(lambda s, b, h, q, k: s + slope[h] * (k - q))

        def block(q, k, v, slope):
            return attnforge.attention(q, k, v, causal=True, score=options["score"], args={"of_score0": slope})

        leaves = [*inputs(grad=True), slope]
        self.same(gradients(torch.compile(block, backend="eager", fullgraph=True), leaves), gradients(block, leaves))


if __name__ == "__main__":
    unittest.main()
