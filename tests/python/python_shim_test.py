#!/usr/bin/env python3
"""libattnforge_torch.so under the real torch on the CPU: calls like an earlier one run without Python, and are as those that do not.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_shim_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp. tools/with_torch.sh finds a python that has torch. Skipped where
torch is older than 2.10.
"""

import contextlib
import copy
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import types
import unittest
import weakref
from unittest import mock

import fresh_process
import torch

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 2, "bench"))
import attnforge  # noqa: E402
import cpu_kernels  # noqa: E402
import host  # noqa: E402
from attnforge._block_mask import by_number  # noqa: E402
from attnforge._calls import native  # noqa: E402
from attnforge._calls.fast import fast  # noqa: E402
from attnforge._calls.lengths import packed_bounds  # noqa: E402
from attnforge._gradients import autograd  # noqa: E402
from attnforge._library import library_path  # noqa: E402
from attnforge.integrations import torch_kernels, torch_shim  # noqa: E402,F401

ops = torch.ops.attnforge
TEXTS = ("{}", "{'causal':True}", "{'causal':True,'softcap':2.0}", "{'layout':'=bhsd'}", "{'window':('#0',0,)}")


class Subclass(torch.Tensor):
    pass


def inputs(q=(2, 20, 4, 16), kv=None, dtype=torch.bfloat16, grad=False):
    return [torch.randn(shape).to(dtype).requires_grad_(grad) for shape in (q, kv or q, kv or q)]


class OnCpu(unittest.TestCase):
    def setUp(self):
        cpu_kernels.install(self)
        torch._dynamo.reset()
        if not cpu_kernels.open_shim():
            self.assertRegex(torch_shim.why_not(), "^torch does not have ")
            self.skipTest(torch_shim.why_not())
        attnforge.attention(*inputs((1, 3, 1, 16)))  # opens the fast path, by whose keys calls are known

    def same(self, got, wanted):
        for x, y in zip(got, wanted, strict=True):
            self.assertEqual(x.stride(), y.stride())
            self.assertTrue(torch.equal(x, y), (x.float() - y.float()).abs().max())

    def known(self, function, calls=1):
        """What function gives, of which so many calls of ops run without Python."""
        before = native.runs()
        result = function()
        self.assertEqual(native.runs() - before, calls)
        return result


class OpsTest(OnCpu):
    def test_a_second_call_needs_no_python(self):
        q, k, v = inputs()
        arguments = q, k, v, [], [], "{'causal':True}"
        with torch.no_grad():
            forward = self.known(lambda: ops.run_forward(*arguments), 0)
            self.same(self.known(lambda: ops.run_forward(*arguments)), forward)
            self.known(lambda: ops.decode(*arguments), 0)
            self.same([self.known(lambda: ops.decode(*arguments))], forward[:1])
            out = torch.full_like(q, 7.0), torch.full((2, 4, 20), 7.0)
            self.known(lambda: ops.forward_out(*arguments, *out), 0)
            out[0].zero_()
            self.known(lambda: ops.forward_out(*arguments, *out))
            self.same(out, forward)
            of_backward = q, k, v, *forward, torch.randn_like(q)
            for dlse in (None, torch.randn(2, 4, 20)):
                backward = self.known(lambda: ops.run_backward(*of_backward, dlse, *arguments[3:], []), 0)
                self.same(self.known(lambda: ops.run_backward(*of_backward, dlse, *arguments[3:], [])), backward)

    def test_numbers_of_texts_are_there_in_each_backward(self):
        q, k, v = inputs()
        text = "{'score':'=s * by','args':{'by':%s}}"
        with torch.no_grad():
            for by in (0.5, 2.0):
                o, lse = ops.run_forward(q, k, v, [], [], text % by)
                wanted = attnforge.attention_backward(q, k, v, o, lse, q, score="s * by", args={"by": by})
                for op in [ops.run_backward] * 3 + [ops.run_backward_cold] * 3:
                    self.same(op(q, k, v, o, lse, q, None, [], [], text % by, []), wanted)
                self.known(lambda: ops.run_backward(q, k, v, o, lse, q, None, [], [], text % by, []))  # noqa: B023

    def test_no_call_is_taken_for_another(self):
        """Each of many in turn, twice, against what Python alone gives."""
        base = [torch.randn(2, 24, 4, 32).bfloat16() for _ in range(3)]
        cases = []
        for text in TEXTS:
            numbers = [3] if "#0" in text else []
            for change in (lambda x: x, lambda x: x[..., :16], lambda x: x[:, 4:], lambda x: x.half(), lambda x: x[:1], lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)):
                cases.append(([change(x) for x in base], numbers, text))
        cases.append((base, [4], "{'window':('#0',0,)}"))
        lengths = torch.tensor([5, 20]).int()
        with torch.no_grad():
            wanted = [ops.decode_cold(*qkv, [], numbers, text) for qkv, numbers, text in cases]
            for _ in range(3):
                for (qkv, numbers, text), o in zip(cases, wanted):
                    self.same([ops.decode(*qkv, [], numbers, text)], [o])
            for used in (lengths, lengths.flip(0).contiguous()):
                o = ops.decode_cold(*base, [used], [], "{'used_kv':'$0'}")
                self.same([ops.decode(*base, [used], [], "{'used_kv':'$0'}")], [o])
            self.same([self.known(lambda: ops.decode(*base, [lengths], [], "{'used_kv':'$0'}"))], [ops.decode_cold(*base, [lengths], [], "{'used_kv':'$0'}")])

    def test_a_page_table_and_scales(self):
        pool = [torch.randn(6, 8, 2, 16).bfloat16() for _ in range(2)]
        q = torch.randn(2, 1, 4, 16).bfloat16()
        text = "{'causal':True,'used_kv':'$0','page_table':'$1'}"
        for table in (torch.tensor([[3, 1], [0, 5]]).int(), torch.tensor([[2, 4], [5, 0]]).int()):
            parts = [torch.tensor([9, 13]).int(), table]
            o = ops.decode_cold(q, *pool, parts, [], text)
            self.same([ops.decode(q, *pool, parts, [], text)], [o])
        self.known(lambda: ops.decode(q, *pool, parts, [], text))

    def test_opcheck(self):
        """Of calls that are cold when it begins, and again. The last kind, which takes seconds, sees known ones in the first round."""
        kinds = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        for grad in (False, True):
            q, k, v = inputs(grad=grad)
            for of_round in (kinds, kinds[:3]):
                torch.library.opcheck(ops.forward.default, (q, k, v, [], [], "{'causal':True}"), test_utils=of_round)
        with torch.no_grad():
            for of_round in (kinds, kinds[:3]):
                torch.library.opcheck(ops.decode.default, (q.detach(), k.detach(), v.detach(), [], [], "{}"), test_utils=of_round)
                torch.library.opcheck(ops.run_forward.default, (q.detach(), k.detach(), v.detach(), [], [], "{}"), test_utils=of_round)

    def test_nothing_is_left_of_tensors(self):
        q, k, v = inputs()
        lengths = torch.tensor([5, 20]).int()
        for parts, text in (([], "{}"), ([lengths], "{'used_kv':'$0'}")):
            with torch.no_grad():
                for _ in range(3):
                    o, lse = ops.run_forward(q, k, v, parts, [], text)
                    found = ops.run_backward(q, k, v, o, lse, o, lse, parts, [], text, [False] * len(parts))
                    o2 = ops.decode(q, k, v, parts, [], text)
            there = [weakref.ref(each) for each in (o, lse, o2, *found)]
            del o, lse, o2, found
            gc.collect()
            self.assertEqual([each() for each in there], [None] * len(there))
        there = [weakref.ref(each) for each in (q, k, v, lengths)]
        del q, k, v, lengths, parts
        attnforge.plan_cache.clear()
        gc.collect()
        self.assertEqual([each() for each in there], [None] * 4)

    def test_what_overlaps_is_refused_after_calls_that_did_not(self):
        memory = torch.randn(4, 2, 20, 4, 16).bfloat16()
        q, k, v, out = memory
        for _ in range(2):
            ops.forward_out(q, k, v, [], [], "{}", out, None)
        with self.assertRaisesRegex(RuntimeError, "attnforge.InvalidError: out shares memory with v"):
            ops.forward_out(q, k, v, [], [], "{}", v, None)

    def test_failures_say_what_python_says(self):
        q, k, v = inputs()
        with self.assertRaisesRegex(RuntimeError, r"attnforge.InvalidError: .*\(2, 20, 3, 16\)"):
            ops.decode(q, k[:, :, :3], v[:, :, :3], [], [], "{}")
        self.assertIsInstance(torch_shim.failure(), attnforge.InvalidError)
        self.assertIsNone(torch_shim.failure())

    def test_forgotten_calls_are_made_anew(self):
        q, k, v = inputs()
        for _ in range(2):
            ops.decode(q, k, v, [], [], "{}")
        plan = weakref.ref(native._held.copy().pop()) if hasattr(attnforge._plans.Plan, "__weakref__") else None
        attnforge.plan_cache.clear()
        self.assertFalse(native._held)
        self.assertTrue(plan is None or plan() is None)
        self.known(lambda: ops.decode(q, k, v, [], [], "{}"), 0)
        self.known(lambda: ops.decode(q, k, v, [], [], "{}"))

    def test_deterministic_algorithms_are_asked_for_in_each_call(self):
        q, k, v = inputs()
        with torch.no_grad():
            o, lse = ops.run_forward(q, k, v, [], [], "{}")
            for _ in range(2):
                ops.run_backward(q, k, v, o, lse, o, None, [], [], "{}", [])
            torch.use_deterministic_algorithms(True)
            self.addCleanup(torch.use_deterministic_algorithms, False)
            del cpu_kernels.runs[:]
            self.known(lambda: ops.run_backward(q, k, v, o, lse, o, None, [], [], "{}", []), 0)
            self.assertIn("deterministic", cpu_kernels.runs[-1])

    def test_threads(self):
        q, k, v = inputs((1, 8, 2, 16))
        wanted = ops.decode(q, k, v, [], [], "{}")
        wrong = []

        def calls():
            for i in range(100):
                if not torch.equal(ops.decode(q, k, v, [], [], "{}"), wanted):
                    wrong.append(i)

        def clears():
            for _ in range(50):
                attnforge.plan_cache.clear()

        threads = [threading.Thread(target=each) for each in (calls, calls, calls, clears)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(wrong, [])


class CallsTest(OnCpu):
    """attention() and attention_backward(), with and without torch.compile."""

    def test_training_is_as_without(self):
        for options in ({"causal": True}, {"return_lse": True, "window": (3, 0)}, {"layout": "bhsd"}):
            tensors = inputs(grad=True)

            def step():
                made = attnforge.attention(*tensors, **options)
                o = made[0] if type(made) is tuple else made
                loss = o.float().square().sum() + (made[1].square().sum() if type(made) is tuple else 0)
                return [o, *torch.autograd.grad(loss, tensors)]

            wanted = step()
            step()
            self.same(self.known(step, 2), wanted)

    def test_backward_by_hand(self):
        q, k, v = inputs()
        o, lse = attnforge.attention(q, k, v, causal=True, return_lse=True)
        dout = torch.randn_like(o)
        wanted = attnforge.attention_backward(q, k, v, o, lse, dout, causal=True)
        attnforge.attention_backward(q, k, v, o, lse, dout, causal=True)
        self.same(self.known(lambda: attnforge.attention_backward(q, k, v, o, lse, dout, causal=True)), wanted)
        with self.assertRaises(attnforge.InvalidError):
            attnforge.attention_backward(q, k, v, o, lse[:1], dout, causal=True)

    def test_one_graph_without_steps_of_python(self):
        def block(q, k, v):
            return attnforge.attention(q * 2, k, v, causal=True) * 3

        compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
        tensors = inputs(grad=True)

        def step(function):
            o = function(*tensors)
            return [o, *torch.autograd.grad(o.float().square().sum(), tensors)]

        wanted = step(block)
        step(compiled)
        self.same(self.known(lambda: step(compiled), 2), wanted)

    def test_second_derivatives_are_refused(self):
        q, k, v = inputs(grad=True)
        for _ in range(3):
            o = attnforge.attention(q, k, v)
            (dq,) = torch.autograd.grad(o.float().square().sum(), [q], create_graph=True)
            with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
                dq.sum().backward()

    def test_tensors_written_to_in_between_are_refused(self):
        q, k, v = inputs(grad=True)
        for _ in range(3):
            o = attnforge.attention(q, k, v)
            with torch.no_grad():
                k.add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                o.sum().backward()


class NativeTest(OnCpu):
    """attention(), attention_backward() and append_kv() of tensors like earlier ones, without a step of Python."""

    def python_alone(self, function):
        with mock.patch.object(fast, "native", lambda *_: None):
            return function()

    def hot(self, function, calls=1):
        """What a third call gives, which is known by then."""
        function(), function()
        return self.known(function, calls)

    def test_results_are_those_of_python(self):
        q, k, v = inputs()
        lse, lengths = torch.empty(2, 4, 20), torch.tensor([5, 20]).int()
        for options in (
            {}, {"causal": True, "softcap": 2.0}, {"return_lse": True}, {"window": (3, 0)}, {"layout": "bhsd"}, {"used_kv": lengths},
            {"sinks": torch.randn(4)}, {"out": torch.empty_like(q)}, {"out": (torch.empty_like(q), lse), "return_lse": True},
            {"out": torch.empty_like(q), "used_kv": lengths}, {"cu_seqlens": torch.tensor([0, 3, 20]).int(), "max_seqlen": 20},
        ):  # fmt: skip
            of = (q[0], k[0], v[0]) if "cu_seqlens" in options else (q, k, v)
            with self.subTest(options=list(options)):
                made = self.hot(lambda: attnforge.attention(*of, **options))
                self.assertTrue("out" not in options or made is options["out"])
                made = made if type(made) is tuple else (made,)
                made = [each.clone() for each in made]
                wanted = self.python_alone(lambda: attnforge.attention(*of, **options))
                self.same(made, wanted if type(wanted) is tuple else (wanted,))

    def test_masks_and_args(self):
        q, k, v = inputs((2, 24, 4, 16))
        whole, kept = torch.randn(3, 2, 4, 24, 24).bfloat16(), torch.rand(3, 2, 4, 24, 24) > 0.3
        slopes, score = torch.rand(3, 4), "s + slopes[head] * (k - q)"
        with_slopes = [{"score": score, "args": {"slopes": each}} for each in slopes]
        masks = whole, kept, whole[:, 0, :1], kept[:, 0], whole[:, 0, 0], whole.float()
        for name, cases in (
            *((f"{of[0].dtype} {tuple(of[0].shape)}", [{"attn_mask": each, "causal": True} for each in of]) for of in masks),
            ("slopes", with_slopes),
            ("both", [{**with_slopes[i], "attn_mask": whole[i]} for i in range(3)]),
            ("numbers", [{"score": "s * by", "args": {"by": by}} for by in (0.5, 2.0, 3)]),
        ):
            with self.subTest(name):
                calls = [lambda options=options: attnforge.attention(q, k, v, **options) for options in cases]
                wanted = [self.python_alone(call) for call in calls]
                for made, o in zip([self.hot(call) for call in calls], wanted):  # not the first one's memory nor numbers
                    self.same([made], [o])
                self.assertFalse(torch.equal(*wanted[:2]))

    def test_block_masks(self):
        """Masks of the same words, each by itself, which nothing keeps; one with a text, and what is no mask, are left to Python."""
        make = attnforge.BlockMask
        masks = [make.from_bsr([0, 1, 2], columns, 16, 32) for columns in ([0, 1], [1, 0])]
        q, k, v = inputs((2, 32, 4, 16))
        calls = [lambda mask=mask: attnforge.attention(q, k, v, block_mask=mask) for mask in masks]
        steps = [self.trained_step(rows=32, dout=q, block_mask=mask) for mask in masks]
        for kind, count in ((calls, 1), (steps, 2)):
            wanted = [self.python_alone(call) for call in kind]
            for made, x in zip([self.hot(call, count) for call in kind], wanted):
                self.same(made if count == 2 else [made], x if count == 2 else [x])
            self.assertFalse(torch.equal(*(x[0] for x in wanted)))
        for wrong in (masks[0].number, object()):
            with self.assertRaisesRegex(attnforge.InvalidError, "must be an attnforge.BlockMask"):
                attnforge.attention(q, k, v, block_mask=wrong)
        with self.assertRaises((TypeError, attnforge.InvalidError)):  # what the shim compares is no option of a caller's
            attnforge.attention(q, k, v, **by_number({"block_mask": masks[0]}))
        with_text = make.from_bsr([0, 1, 2], [0, 1], 16, 32, partial=[1, 1])
        with_text.mask, with_text.args = "k < head + 12", None
        call = lambda: attnforge.attention(q, k, v, block_mask=with_text)  # noqa: E731
        self.same([self.hot(call, 0)], [self.python_alone(call)])
        there = [weakref.ref(mask) for mask in masks]
        del masks, calls, steps, kind, wanted, made, x
        gc.collect()
        self.assertEqual([each() for each in there], [None] * 2)

    def test_a_copy_of_a_block_mask_lives_without_it(self):
        mask, (q, k, v) = attnforge.BlockMask.from_bsr([0, 1, 2], [1, 0], 16, 32), inputs((2, 32, 4, 16))
        wanted = self.python_alone(lambda: attnforge.attention(q, k, v, block_mask=mask))
        copies = copy.copy(mask), copy.deepcopy({"of a module": mask})["of a module"]
        del mask
        gc.collect()
        for each in copies:
            self.same([self.hot(lambda each=each: attnforge.attention(q, k, v, block_mask=each))], [wanted])

    def test_a_package_that_is_imported_again_knows_no_call_of_before(self):
        """Numbers of block masks begin anew, and plans of before may be gone."""
        mask, (q, k, v) = attnforge.BlockMask.from_bsr([0, 1, 2], [1, 0], 16, 32), inputs((2, 32, 4, 16))
        calls = [lambda options=options: attnforge.attention(q, k, v, **options) for options in ({}, {"block_mask": mask})]
        [self.hot(call) for call in calls]
        with mock.patch.object(native, "_shim", None), mock.patch.object(native.plan_cache, "on_clear", []):
            native.load()
        [self.known(call, 0) for call in calls]

    def test_calls_without_a_block_mask_are_not_asked_for_its_number(self):
        """Each line of a known call costs."""
        q, k, v = inputs()
        o, lse = attnforge.attention(q, k, v, return_lse=True)
        for module, call in (
            ("_attention", lambda: attnforge.attention(q, k, v, causal=True)),
            ("_gradients.backward", lambda: attnforge.attention_backward(q, k, v, o, lse, q)),
        ):
            self.hot(call)
            with mock.patch(f"attnforge.{module}.by_number", None):
                self.known(call)

    def test_a_mask_that_is_copied_is_left_to_python(self):
        q, k, v = inputs((2, 23, 4, 16))
        for mask in (torch.randn(23, 23).bfloat16(), (torch.rand(23, 46) > 0.3)[:, ::2]):
            call = lambda mask=mask: attnforge.attention(q, k, v, attn_mask=mask)  # noqa: E731
            wanted = self.python_alone(call)
            self.same([self.hot(call, 0)], [wanted])

    def test_no_call_is_taken_for_another(self):
        """Calls in turn, three times, each against what Python alone gives."""
        base = torch.randn(3, 2, 24, 4, 32).bfloat16()
        changes = [
            lambda x: x, lambda x: x[..., :16], lambda x: x[:, 4:], lambda x: x.half(), lambda x: x.float(), lambda x: x[:1], torch._neg_view,
            lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), lambda x: x.unflatten(1, (2, 12))[:, 1], lambda x: x[:, :, :, 1:25],
            lambda x: torch.nn.Parameter(x, requires_grad=False), lambda x: x.clone().as_subclass(Subclass),
        ]  # fmt: skip
        cases = [([change(x) for x in base], {}) for change in changes]
        with torch.inference_mode():
            cases.append(([x.clone() for x in base], {}))
        for options in ({"causal": True}, {"causal": 1}, {"window": (3, 0)}, {"window": (0, 3)}, {"softcap": 1.0}, {"softcap": 2.0},
                        {"softmax_scale": 1}, {"softmax_scale": 2.0}, {"sinks": torch.zeros(4)}, {"sinks": torch.ones(4)}):  # fmt: skip
            cases.append((list(base), options))

        def run(tensors, options):
            try:
                return attnforge.attention(*tensors, **options)
            except attnforge.InvalidError as error:
                return str(error)

        wanted = [self.python_alone(lambda: run(*case)) for case in cases]
        for _ in range(4):
            for case, o in zip(cases, wanted):
                self.assertEqual(type(got := run(*case)), type(o))
                self.same([got], [o]) if isinstance(o, torch.Tensor) else self.assertEqual(got, o)

    def test_what_torch_does_with_tensors_is_seen_in_each_call(self):
        q, k, v = inputs()
        call = lambda q=q: attnforge.attention(q, k, v, causal=True)  # noqa: E731
        wanted = self.hot(call)
        with self.subTest("gradients"):
            trained = q.clone().requires_grad_()
            self.assertIsNotNone(self.hot(lambda: call(trained)).grad_fn)
            with torch.no_grad():
                self.assertIsNone(self.known(lambda: call(trained)).grad_fn)
            self.assertIsNone(self.known(call).grad_fn)
        with self.subTest("gradients under a transform"):
            under = lambda: torch.func.vmap(lambda x: x * call(trained))(torch.ones(2).bfloat16())  # noqa: E731
            self.same(under(), self.python_alone(under))
        with self.subTest("tangents"), torch.autograd.forward_ad.dual_level():
            self.known(lambda: call(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))), 0)
        with self.subTest("vmap"):
            mapped = torch.func.vmap(lambda x: attnforge.attention(x, k, v, causal=True))(torch.stack([q, q]))
            self.same(mapped, [wanted, wanted])
        with self.subTest("autocast"):
            wide = [x.float() for x in (q, k, v)]
            attend = lambda: attnforge.attention(*wide).dtype  # noqa: E731
            [self.assertEqual(attend(), torch.float32) for _ in range(3)]
            with mock.patch.object(torch, "is_autocast_enabled", lambda *_: True), mock.patch.object(
                torch, "get_autocast_dtype", lambda *_: torch.bfloat16
            ):
                [self.assertEqual(attend(), torch.bfloat16) for _ in range(3)]
        with self.subTest("inference mode"), torch.inference_mode():
            self.same([self.known(call)], [wanted])

    def test_gradients(self):
        dout = torch.randn(2, 20, 4, 16).bfloat16()
        for options in ({}, {"causal": True, "softcap": 2.0}, {"layout": "bhsd"}):
            tensors = inputs(grad=True)

            def step():
                return torch.autograd.grad(attnforge.attention(*tensors, **options), tensors, dout)

            made = self.hot(step, 2)
            self.same(made, self.python_alone(step))
            with self.subTest("in deterministic order"):
                torch.use_deterministic_algorithms(True)
                self.addCleanup(torch.use_deterministic_algorithms, False)
                self.hot(step, 2)
                self.assertIn("deterministic", cpu_kernels.runs[-1])
                torch.use_deterministic_algorithms(False)
                self.known(step, 2)
                self.assertNotIn("deterministic", cpu_kernels.runs[-1])

    def trained_step(self, change=lambda x: x, rows=24, dout=None, packed=False, **options):
        """A function that gives o and the gradients of q, k, v and of whatever in options requires grad."""
        shape = (rows, 4, 16) if packed else (2, rows, 4, 16)
        tensors = [change(torch.randn(shape).bfloat16()).requires_grad_() for _ in range(3)]
        others = [each for value in options.values() for each in (value.values() if type(value) is dict else (value,))]
        tensors += [each for each in others if isinstance(each, torch.Tensor) and each.requires_grad]
        dout = torch.randn(shape).bfloat16() if dout is None else dout
        dlse = torch.randn(*shape[:-3], 4, rows)

        def step():
            made = attnforge.attention(*tensors[:3], **options)
            made = made if type(made) is tuple else (made,)
            return [made[0].detach(), *torch.autograd.grad(made, tensors, (dout, dlse)[: len(made)])]

        return step

    SCORE = "s + slope[head] * (k - q)"

    def kinds_of_steps(self):
        """Options of training calls with tensors of their own, by names."""
        g = lambda x: x.requires_grad_()  # noqa: E731
        slope, document, mask = torch.rand(4), torch.tensor([0] * 9 + [1] * 15).int(), torch.randn(2, 4, 24, 24)
        used, of_q = torch.tensor([7, 24]).int(), torch.tensor([24, 5]).int()
        packed = {"packed": True, "cu_seqlens": torch.tensor([0, 5, 20]).int(), "max_seqlen": 24}
        score = {"score": self.SCORE, "args": {"slope": slope}}
        return {
            "args": score,
            "args with gradients": {"score": self.SCORE, "args": {"slope": g(slope.clone())}},
            "args of 16 bits with gradients": {"score": self.SCORE, "args": {"slope": g(slope.bfloat16())}},
            "args with gradients, of lse too": {"score": self.SCORE, "args": {"slope": g(slope.clone())}, "return_lse": True},
            "numbers": {"score": "s * by", "args": {"by": 0.5}},
            "mask": {"mask": "document[q] == document[k]", "args": {"document": document}, "causal": True},
            "attn_mask": {"attn_mask": mask}, "attn_mask of 16 bits": {"attn_mask": mask.bfloat16()},
            "attn_mask of booleans": {"attn_mask": mask > 0}, "attn_mask that is broadcast": {"attn_mask": mask[0, 0].bfloat16()},
            "attn_mask that is copied": {"attn_mask": torch.randn(24, 48)[:, ::2]},
            "attn_mask with gradients": {"attn_mask": g(mask.clone()), "causal": True},
            "attn_mask of 16 bits with gradients": {"attn_mask": g(mask.bfloat16())},
            "attn_mask that is broadcast, with gradients": {"attn_mask": g(mask[:1, 0].bfloat16())},
            "attn_mask that is copied, with gradients": {"attn_mask": g(torch.randn(24, 48)[:, ::2])},
            "attn_mask and args, with gradients": {"attn_mask": g(mask.clone()), "score": self.SCORE, "args": {"slope": g(slope.clone())}},
            "used_kv": {"used_kv": used}, "used_kv alone of a pair": {"used_kv": (None, used)},
            "used_q and used_kv": {"used_kv": (of_q, used), "return_lse": True}, "used_q": {"used_kv": (of_q, None), "layout": "bshd"},
            "used_kv and attn_mask": {"used_kv": used, "attn_mask": g(mask.clone())},
            "sinks": {"sinks": slope}, "sinks with gradients": {"sinks": g(slope.clone())},
            "all": {"sinks": g(slope.clone()), "used_kv": (of_q, used), "score": self.SCORE, "args": {"slope": g(slope.clone())}},
            "packed, args": {**packed, **score}, "packed, args with gradients": {**packed, "score": self.SCORE, "args": {"slope": g(slope.clone())}},
            "packed, sinks with gradients": {**packed, "sinks": g(slope.clone())},
        }  # fmt: skip

    def test_steps_with_other_tensors_need_no_python(self):
        for name, options in self.kinds_of_steps().items():
            with self.subTest(name):
                step = self.trained_step(**options)
                wanted = self.python_alone(step)
                self.same(self.hot(step, 2), wanted)
                if "used" in name:
                    of_q, of_kv = options["used_kv"] if type(options["used_kv"]) is tuple else (None, options["used_kv"])
                    for each, lengths in zip(wanted, (of_q, of_q, of_kv, of_kv)):
                        for sequence, length in enumerate(() if lengths is None else lengths.tolist()):
                            self.assertTrue((each[sequence, length:] == 0).all() and (each[sequence, :length] != 0).any())

    def test_steps_read_the_tensors_of_each_call(self):
        for name, options in self.kinds_of_steps().items():
            with self.subTest(name):
                step = self.trained_step(**options)
                before = self.hot(step, 2)
                inside = [value.values() if type(value) is dict else value if type(value) is tuple else (value,) for value in options.values()]
                with torch.no_grad():
                    for each in (each for values in inside for each in values):
                        if isinstance(each, torch.Tensor) and each is not options.get("cu_seqlens"):
                            each.copy_(each.flip(*range(each.dim())))
                made = self.known(step, 2)
                self.same(made, self.python_alone(step))
                self.assertTrue(name == "numbers" or not all(map(torch.equal, made, before)))

    def test_no_step_with_other_tensors_is_taken_for_another(self):
        """Calls in turn, four times, each against what Python alone gives."""
        mask, slope, used = torch.randn(2, 4, 24, 24).bfloat16(), torch.rand(4), torch.tensor([7, 24]).int()
        g = lambda x: x.clone().requires_grad_()  # noqa: E731
        odd = lambda x: torch.cat([x.flatten()[:2], x.flatten()])[2:].view_as(x)  # noqa: E731
        heads_first = lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)  # noqa: E731
        args = lambda slope, **more: {"score": self.SCORE, "args": {"slope": slope, **more}}  # noqa: E731
        cases = [self.trained_step(**kind) for kind in (
            *({"attn_mask": each} for each in (
                mask, g(mask), mask.float(), g(mask.float()), mask.half(), mask[:1], mask[:, :1], mask[0, 0], g(mask[0, 0]), mask[:, :, :1],
                mask[0, 0] > 0, odd(mask), mask.transpose(2, 3), mask.flip(0), mask[:1].expand(2, -1, -1, -1), g(mask[:1]).expand(2, -1, -1, -1),
            )),
            {"attn_mask": mask, "causal": True}, {"attn_mask": mask, "change": odd}, {"attn_mask": mask, "change": heads_first},
            {"attn_mask": mask, "dout": heads_first(mask.transpose(1, 2)[..., :16])},
            {"attn_mask": mask, "dout": torch.ones(()).bfloat16().expand(2, 24, 4, 16)},
            args(slope), args(g(slope)), args(slope.bfloat16()), args(g(slope.half())), args(slope, other=1), args(slope, other=1.0),
            args(slope.flip(0)), *({"score": "s * by", "args": {"by": by}} for by in (0.5, 2.0, 3, True)),
            {"used_kv": used}, {"used_kv": (used, None)}, {"used_kv": (None, used)}, {"used_kv": (used, used)}, {"used_kv": used.flip(0)},
            {"sinks": slope}, {"sinks": g(slope)}, {"sinks": slope, "used_kv": used}, {"sinks": g(slope), "deterministic": True},
        )]  # fmt: skip
        wanted = [(self.python_alone(step), cpu_kernels.runs[-2:]) for step in cases]
        for _ in range(4):
            for step, (made, problems) in zip(cases, wanted):
                self.same(step(), made)
                self.assertEqual(cpu_kernels.runs[-2:], problems)

    def test_numbers_that_change_with_each_step_are_those_of_each(self):
        q, k, v = inputs(grad=True)
        step = lambda by: torch.autograd.grad(attnforge.attention(q, k, v, score="s * by", args={"by": by}), (q, k, v), q.detach())  # noqa: E731
        wanted = {}
        for by in (0.5, 2.0, 3.0):
            attnforge.plan_cache.clear()
            wanted[by] = self.python_alone(lambda: step(by))  # noqa: B023
        for by in (0.5, 0.5, 2.0, 0.5, 3.0, 2.0, 2.0, 2.0, 0.5, 3.0):
            self.same(step(by), wanted[by])
        self.known(lambda: step(2.0), 2)

    def test_more_gradients_than_the_shim_holds_are_left_to_python(self):
        slopes = {f"slope{i}": torch.rand(4).requires_grad_() for i in range(7)}
        for count in (5, 6, 7):
            args = dict(list(slopes.items())[:count])
            step = self.trained_step(score="s + (k - q) * (" + " + ".join(f"{name}[head]" for name in args) + ")", args=args)
            wanted = self.python_alone(step)
            self.same(self.hot(step, 2 if count < 6 else 1), wanted)

    def test_steps_with_other_tensors_that_are_wrong_are_refused(self):
        q, k, v = inputs((2, 24, 4, 16), grad=True)
        mask, slope, used = torch.randn(24, 24), torch.rand(8), torch.tensor([7, 24]).int()

        def call(mask=None, slope=None, used=None, **more):
            args = {} if slope is None else {"score": self.SCORE, "args": {"slope": slope}}
            return attnforge.attention(q, k, v, attn_mask=mask, used_kv=used, **args, **more)

        for good in ({"mask": mask}, {"slope": slope}, {"used": used}, {"mask": mask.clone().requires_grad_()}):
            self.hot(lambda: torch.autograd.grad(call(**good), q, v.detach()), 2)  # noqa: B023
        for wrong in (
            {"mask": mask[:23]}, {"mask": mask.double()}, {"slope": slope[::2]}, {"slope": slope.double()}, {"used": used.long()}, {"used": used[:1]},
            {"mask": mask, "rope": (slope, slope)}, {"sinks": slope},
        ):  # fmt: skip
            with self.subTest(list(wrong)), self.assertRaises((attnforge.InvalidError, attnforge.UnsupportedError)) as raised:
                call(**wrong)
            with self.assertRaises(type(raised.exception)) as alone:
                self.python_alone(lambda: call(**wrong))  # noqa: B023
            self.assertEqual(str(raised.exception), str(alone.exception))

    def test_steps_with_other_tensors_keep_what_autograd_checks(self):
        q, k, v = inputs((2, 24, 4, 16), grad=True)
        mask, slope, used = torch.randn(24, 24).requires_grad_(), torch.rand(4).requires_grad_(), torch.tensor([7, 24]).int()
        score = {"score": self.SCORE, "args": {"slope": slope}}
        for each, options in ((mask, {"attn_mask": mask}), (slope, score), (used, {"used_kv": used}), (slope, {"sinks": slope})):
            step = lambda **more: attnforge.attention(q, k, v, **options, **more)  # noqa: B023, E731
            self.hot(lambda: torch.autograd.grad(step(), q, v.detach()), 2)  # noqa: B023
            o = step()
            with torch.no_grad():
                each.add_(0)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                o.sum().backward()
            (dq,) = torch.autograd.grad(step().float().sum(), [q], create_graph=True)
            with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
                dq.sum().backward()
            hooked = lambda: torch.autograd.grad(step(return_lse=True)[1].sum(), q)  # noqa: B023, E731
            self.same(self.python_alone(hooked), [hooked() for _ in range(3)][-1])

    def packed_step(self, ends, keys=None, rows=24, rows_kv=None, dtype=torch.bfloat16, change=lambda x: x, longest=24, **options):
        """A function that gives o and the gradients, beside lse where options ask for it."""
        shapes = (rows, 4, 16), (rows_kv or rows, 2, 16), (rows_kv or rows, 2, 16)
        q, k, v = (change(torch.randn(shape).to(dtype)).requires_grad_() for shape in shapes)
        dout = torch.randn(rows, 4, 16).to(dtype)
        ends = torch.tensor(ends).int()
        of_both = ends if keys is None else (ends, torch.tensor(keys).int())

        def step():
            made = attnforge.attention(q, k, v, causal=True, cu_seqlens=of_both, max_seqlen=longest, **options)
            made = made if options else (made,)
            return [*(each.detach() for each in made), *torch.autograd.grad(made[0], (q, k, v), dout)]

        return step

    def test_packed_steps_of_other_lengths_and_rows_need_no_python(self):
        """Of rows that share a plan; what follows from their number follows in each call."""
        kinds = {"o": ({}, None), "lse": ({"return_lse": True}, None), "keys of their own": ({}, [0, 2, 19])}
        for name, (options, keys) in kinds.items():
            self.hot(self.packed_step([0, 5, 20], keys, **options), 2)
            for ends, rows in (([0, 7, 23], 24), ([0, 1, 18], 18), ([0, 20, 31], 40), ([0, 0, 17], 63)):
                with self.subTest(name, ends=ends, rows=rows):
                    step = self.packed_step(ends, keys, rows, keys and rows + 1, **options)
                    made = self.known(step, 2)
                    self.same(made, self.python_alone(step))
                    for each, end in zip((made[0], *made[-3:]), (*ends[-1:] * 2, *(keys or ends)[-1:] * 2)):
                        self.assertTrue((each[end:] == 0).all() and (each[:end] != 0).any())
                    self.assertTrue(name != "lse" or (made[1][:, ends[-1] :] == 0).all())

    def test_no_packed_step_is_taken_for_another(self):
        wide = lambda x: torch.cat([x, x], 1)[:, : x.shape[1]]  # noqa: E731
        odd = lambda x: torch.cat([x.flatten()[:2], x.flatten()])[2:].view_as(x)  # noqa: E731
        heads_first = lambda x: x.transpose(0, 1).contiguous().transpose(0, 1)  # noqa: E731
        cases = [self.packed_step([0, 5, 17], **kind) for kind in (
            {}, {"rows": 30}, {"rows": 65}, {"rows": 17, "rows_kv": 40, "keys": [0, 8, 33]}, {"rows": 40, "rows_kv": 17, "keys": [0, 5, 12]},
            {"dtype": torch.float16}, {"dtype": torch.float32}, {"change": wide}, {"change": odd}, {"change": heads_first},
            {"change": heads_first, "rows": 30}, {"longest": 20}, {"longest": 300}, {"keys": [0, 5, 17]}, {"return_lse": True},
        )] + [self.packed_step(ends) for ends in ([0, 20], [0, 2, 4, 20], [0, 0, 0])]  # fmt: skip
        wanted = [(self.python_alone(step), cpu_kernels.runs[-2:]) for step in cases]
        for _ in range(4):
            for step, (made, problems) in zip(cases, wanted):
                self.same(step(), made)
                self.assertEqual(cpu_kernels.runs[-2:], problems)

    def test_packed_calls_that_are_wrong_are_refused(self):
        q, k, v = torch.randn(3, 24, 4, 16).bfloat16()
        packed = {"cu_seqlens": torch.tensor([0, 5, 20]).int(), "max_seqlen": 24}
        call = lambda *qkv, **more: attnforge.attention(*qkv, **{**packed, **more})  # noqa: E731
        o, lse = self.hot(lambda: call(q, k, v, return_lse=True))
        back = lambda dout, lse=lse, **more: attnforge.attention_backward(q, k, v, o, lse, dout, **{**packed, **more})  # noqa: E731
        self.hot(lambda: back(q)), self.hot(lambda: call(q, k, v))
        for refused in (
            lambda: call(q, k, v[1:]), lambda: call(q, k[1:], v), lambda: call(q, k, v, cu_seqlens=packed["cu_seqlens"].long()),
            lambda: call(q, k, v, cu_seqlens=packed["cu_seqlens"][::2]), lambda: back(q[1:]), lambda: back(q.half()), lambda: back(q, lse[:, 1:]),
            lambda: back(q, lse.t().contiguous().t()), lambda: back(q, cu_seqlens=packed["cu_seqlens"].long()),
        ):  # fmt: skip
            with self.assertRaises(attnforge.InvalidError):
                refused()
        apart = torch.zeros(4, 30)[:, :24].copy_(lse)
        for other in (apart, lse, apart):  # of another stride than rows
            self.same(self.hot(lambda: back(q, other)), self.python_alone(lambda: back(q, other)))  # noqa: B023

    def test_the_shim_rounds_rows_as_problems_do(self):
        ends = torch.tensor([0, 1]).int()
        for rows in (1, 2, 16, 17, 63, 64, 65, 128, 129, 1000, 1024, 1025, 1280, 1281, 1536, 1537, 2048, 2049, 2560, 5000, 9000) * 2:
            q = torch.randn(rows, 1, 8).bfloat16()
            self.hot(lambda: attnforge.attention(q, q, q, cu_seqlens=ends, max_seqlen=8192))  # noqa: B023
            self.assertIn(f"tokens_q={packed_bounds(1, 8192, rows)[1]} ", cpu_kernels.runs[-1] + " ")

    def test_bounds_of_rows_are_those_of_each_call(self):
        ends, seen, run = torch.tensor([0, 5, 20]).int(), [], cpu_kernels.run

        def watched(plan, struct, lengths):
            seen.append((lengths.tokens_q, lengths.tokens_kv))
            run(plan, struct, lengths)

        with mock.patch.object(cpu_kernels, "run", watched):
            for rows in (61, 60, 50, 33, 64):
                q, k = torch.randn(rows, 2, 16).bfloat16(), torch.randn(rows - 10, 2, 16).bfloat16()
                for _ in range(2):
                    o, lse = attnforge.attention(q, k, k, cu_seqlens=(ends, ends), max_seqlen=(30, 25), return_lse=True)
                    attnforge.attention_backward(q, k, k, o, lse, q, cu_seqlens=(ends, ends), max_seqlen=(30, 25))
                    self.assertEqual(seen[-2:], [(min(rows, 60), min(rows - 10, 50))] * 2)
            q, out = torch.randn(2, 60, 2, 16).bfloat16()
            for rows in (50, 49, 40, 50):  # of keys, beside out
                k = torch.randn(rows, 2, 16).bfloat16()
                self.hot(lambda: attnforge.attention(q, k, k, out=out, cu_seqlens=(ends, ends), max_seqlen=(30, 25)))  # noqa: B023
                self.assertEqual(seen[-1], (60, rows))

    def test_many_numbers_of_rows_are_few_calls(self):
        for rows in range(17, 64):
            self.packed_step([0, 8, 17], rows=rows)()
        self.assertLess(len(attnforge.plan_cache), 5)
        self.known(self.packed_step([0, 8, 17], rows=39), 2)
        attnforge.plan_cache.clear()
        self.known(self.packed_step([0, 8, 17], rows=39), 0)

    def test_packed_steps_that_are_compiled(self):
        ends = torch.tensor([0, 5, 20]).int()

        def block(q, k, v):
            return attnforge.attention(q * 2, k, v, causal=True, cu_seqlens=ends, max_seqlen=24) * 3

        compiled = torch.compile(block, backend="aot_eager", fullgraph=True, dynamic=True)
        for rows in (24, 25, 40, 24):
            tensors = inputs((rows, 4, 16), grad=True)

            def step(function):
                o = function(*tensors)  # noqa: B023
                return [o, *torch.autograd.grad(o.float().square().sum(), tensors)]  # noqa: B023

            self.same(step(compiled), self.python_alone(lambda: step(block)))  # noqa: B023
        self.known(lambda: step(compiled), 2)

    def test_a_packed_step_keeps_what_autograd_checks(self):
        q, k, v = inputs((24, 4, 16), grad=True)
        ends = torch.tensor([0, 5, 20]).int()
        for _ in range(3):
            o = attnforge.attention(q, k, v, cu_seqlens=ends, max_seqlen=24)
            ends[1] += 1
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                o.sum().backward()
            o, lse = attnforge.attention(q, k, v, cu_seqlens=(ends, ends), max_seqlen=24, return_lse=True)
            (dq,) = torch.autograd.grad(o.float().sum() + lse.sum(), [q], create_graph=True)
            with self.assertRaisesRegex(attnforge.UnsupportedError, "no second one"):
                dq.sum().backward()

    def test_backward_by_hand(self):
        q, k, v = inputs()
        slope, used = torch.rand(4), torch.tensor([7, 20]).int()
        others = {"score": self.SCORE, "args": {"slope": slope}}, {"sinks": slope}, {"used_kv": (used, used)}, {"sinks": slope, "used_kv": used}
        o, lse = attnforge.attention(q, k, v, causal=True, return_lse=True)
        for options in (*others, {}):
            for dlse in (None, torch.randn(2, 4, 20)):
                call = lambda: attnforge.attention_backward(q, k, v, o, lse, o, dlse=dlse, causal=True, **options)  # noqa: B023, E731
                self.same(self.hot(call), self.python_alone(call))
        q.requires_grad_()
        with self.assertRaisesRegex(attnforge.InvalidError, "q requires grad"):
            call()

    def test_a_cache(self):
        def steps():
            torch.manual_seed(2)
            cache = attnforge.KvCache(3, 64, heads_kv=2, head_dim=16, page_size=8, layers=2, device="cpu")
            with mock.patch.object(cache, "_upload", lambda data, columns: torch.frombuffer(bytearray(data), dtype=torch.int32).view(-1, columns)):
                made = []
                for step in range(8):
                    for layer in range(2):
                        k, v = torch.randn(2, 2, 1, 2, 16).bfloat16()
                        cache.append(k, v, ["a", "b"] if step % 3 else ["b", "a"], layer=layer)
                        made.append(cache.attend(torch.randn(2, 1, 4, 16).bfloat16(), layer=layer))
            return made

        wanted, before = self.python_alone(steps), native.runs()
        self.same(steps(), wanted)
        self.assertGreater(native.runs() - before, 20)

    def test_append_kv_with_a_rope(self):
        k, v, q, rope = *torch.randn(3, 2, 3, 2, 16).bfloat16(), tuple(torch.randn(2, 20, 8))
        pools, used, out = torch.zeros(2, 2, 20, 2, 16).bfloat16(), torch.tensor([1, 4]).int(), torch.empty_like(q)
        call = lambda **more: attnforge.append_kv(k, v, *pools, used, rope=rope, q=q, **more)  # noqa: E731
        wanted = self.python_alone(call)
        self.same([self.hot(call)], [wanted])
        self.assertIs(self.hot(lambda: call(q_out=out)), out)
        self.same([out], [wanted])
        self.assertIsNone(self.hot(lambda: attnforge.append_kv(k, v, *pools, used)))
        pools = [torch.zeros(2, 20, 2, 16, dtype=torch.int8) for _ in range(2)]
        scales = [torch.zeros(2, 20, 2) for _ in range(2)]
        narrow = lambda: attnforge.append_kv(k, v, *pools, used, k_scale=scales[0], v_scale=scales[1])  # noqa: E731
        self.python_alone(narrow)
        wanted = [each.clone() for each in (*pools, *scales)]
        [each.zero_() for each in (*pools, *scales)]
        self.hot(narrow)
        self.same((*pools, *scales), wanted)

    def test_outputs_that_overlap_are_refused(self):
        q, k, v, out = torch.randn(4, 2, 20, 4, 16).bfloat16()
        self.hot(lambda: attnforge.attention(q, k, v, out=out))
        with self.assertRaisesRegex(attnforge.InvalidError, "out shares memory with v"):
            attnforge.attention(q, k, v, out=v)

    def test_nothing_is_left_of_tensors(self):
        q, k, v = inputs()
        call = lambda: attnforge.attention(q, k, v, return_lse=True)  # noqa: E731
        there = [weakref.ref(each) for each in self.hot(call)]
        there += [weakref.ref(each) for each in self.hot(lambda: attnforge.attention_backward(q, k, v, *call(), q), 2)]
        self.assertEqual([each() for each in there], [None] * 5)

        softcap, window = float("2.5"), (int("1000"), 0)
        counted = q, softcap, window, window[0], torch.Tensor
        before = [sys.getrefcount(each) for each in counted]
        for _ in range(300):
            attnforge.attention(q, k, v, softcap=softcap, window=window)
        after = [sys.getrefcount(each) for each in counted]
        self.assertTrue(all(abs(x - y) < 50 for x, y in zip(before, after)), (before, after))

    def test_forgotten_calls_are_made_anew(self):
        q, k, v = inputs(grad=True)
        call = lambda: attnforge.attention(q, k, v)  # noqa: E731
        self.hot(call)
        attnforge.plan_cache.clear()
        self.assertFalse(native._held)
        self.known(call, 0)
        self.hot(call)

    def test_what_is_remembered_does_not_grow_without_bound(self):
        before = native.runs()
        self.addCleanup(lambda: self.assertGreater(native.runs() - before, 8))
        with mock.patch.object(attnforge.plan_cache, "limit", 3):
            for rows in range(1, 7):
                tensors = inputs((1, rows, 2, 16), grad=True)
                step = lambda: torch.autograd.grad(attnforge.attention(*tensors), tensors, tensors[0].detach())  # noqa: B023, E731
                made = [step() for _ in range(5)]
                self.same(made[-1], self.python_alone(step))
                self.assertLessEqual(len(native._held), 3)
                self.assertLessEqual(len(autograd._numbered), 3)

    def test_threads(self):
        q, k, v = inputs((1, 8, 2, 16))
        wanted, wrong = attnforge.attention(q, k, v), []

        def calls():
            for _ in range(100):
                if not torch.equal(attnforge.attention(q, k, v), wanted):
                    wrong.append(1)

        threads = [threading.Thread(target=each) for each in (calls, calls, calls, lambda: [attnforge.plan_cache.clear() for _ in range(50)])]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(wrong, [])

    def test_the_alignment_of_each_tensor_counts(self):
        """Which plan runs follows from q, k, v and o alone."""

        def at(tensor, element):
            memory = tensor.new_empty(tensor.numel() + 16)
            memory = memory[-(memory.data_ptr() % 16) // memory.element_size() % 8 :]
            return memory[element : element + tensor.numel()].view_as(tensor).copy_(tensor)

        q, k, v = inputs()
        used, lse, o = torch.tensor([5, 20]).int(), torch.randn(2, 4, 20), torch.randn_like(q)
        run = {
            "used_kv": (lambda q, used: attnforge.attention(q, k, v, used_kv=used), used),
            "lse": (lambda q, lse: attnforge.attention_backward(q, k, v, o, lse, o), lse),
        }
        for name, (function, other) in run.items():
            odd = at(other, 1)
            for _ in range(3):
                function(q, odd)
            self.assertNotIn("alignment=", cpu_kernels.runs[-1], name)
            for _ in range(3):
                function(at(q, 2), odd)
                self.assertIn("alignment=4", cpu_kernels.runs[-1], name)
                function(at(q, 2), other)
                self.assertIn("alignment=4", cpu_kernels.runs[-1], name)
            function(q, other)
            self.assertNotIn("alignment=", cpu_kernels.runs[-1], name)

    def test_a_dict_in_itself_is_refused(self):
        args = {}
        args["a"] = args
        with self.assertRaises(attnforge.InvalidError):
            attnforge.attention(*inputs(), args=args, score="s * a")

    def test_calls_that_wait_for_the_gpu_keep_nobody_waiting(self):
        """A launch waits while the stream's queue is full: others may remember calls and forget them meanwhile."""
        out, small, stop = torch.empty(2, 20, 4, 16).bfloat16(), inputs((1, 5, 1, 16)), threading.Event()
        q, k, v = inputs()
        for _ in range(3):
            attnforge.attention(q, k, v, out=out)

        def wait():
            own = torch.empty_like(out)
            while not stop.is_set():
                attnforge.attention(q, k, v, out=own)

        with mock.patch.object(cpu_kernels, "library_run", lambda *_: time.sleep(0.02) or 0):
            threads = [threading.Thread(target=wait) for _ in range(3)]
            for thread in threads:
                thread.start()
            begin = time.monotonic()
            for _ in range(5):
                attnforge.attention(*small)
                native.forget()
            took = time.monotonic() - begin
            stop.set()
            for thread in threads:
                thread.join()
        self.assertLess(took, 3)

    def test_nothing_is_found_out_of_tensors_of_transforms_and_modes(self):
        found = []
        torch.func.grad(lambda x: (found.append(native.makes_plain_tensors(torch)), x.sum())[1])(torch.ones(2))
        with torch._subclasses.FakeTensorMode():
            found.append(native.makes_plain_tensors(torch))
        self.assertEqual([*found, native.makes_plain_tensors(torch)], [False, False, True])

    def test_a_torch_of_other_objects_is_left_to_python(self):
        keys = torch._C._dispatch_keys
        for name, change in (
            ("torch._C._dispatch_keys", lambda x: types.SimpleNamespace(raw_repr=lambda: 7)),
            ("torch._C._dispatch_keys", lambda x: types.SimpleNamespace(raw_repr=lambda: keys(x).raw_repr() ^ 1)),
            ("torch._neg_view", lambda x: x),
        ):
            with mock.patch(name, change):
                self.assertIsNone(native.open_calls(torch, "cpu"))
        for mode in (contextlib.nullcontext, torch.inference_mode, torch.no_grad):
            with mode():
                self.assertIsNotNone(native.open_calls(torch, "cpu", cpu_kernels.shim_run, cpu_kernels.shim_clear))


class DrawnTest(OnCpu):
    def test_drawn_calls_need_no_python(self):
        """Those of bench/host.py."""
        made = host.drawn_calls(torch, 40, 1, "cpu")
        names = [name for name, _ in made]
        self.assertEqual(names, [name for name, _ in host.drawn_calls(torch, 40, 1, "cpu")])
        self.assertNotEqual(names, [name for name, _ in host.drawn_calls(torch, 40, 2, "cpu")])
        trained = [f"{each} with gradients" for each in ("sinks", "args", "attn_mask")]
        for word in filter(None, (*host.DRAWN_LENGTHS, *host.DRAWN_MASKS, "causal", "window", *trained)):
            self.assertIn(word, ", ".join(names).split(", "))
        for name, call in made:
            with self.subTest(name):
                call(), call(), call()
                self.known(call, 2 if name.startswith("step") else 1)


class OpeningTest(unittest.TestCase):
    def path(self):
        return os.path.join(os.path.dirname(library_path()), "libattnforge_torch.so")

    def test_without_torch_it_names_what_is_missing(self):
        program = f"import ctypes; s = ctypes.CDLL({self.path()!r}); s.attnforge_torch_open.restype = ctypes.c_char_p; print(s.attnforge_torch_open(b'CUDA', None))"
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said, "b'aoti_torch_library_init_impl'\n")

    def test_it_can_be_turned_off(self):
        program = (
            "import sys; sys.path[:0] = sys.argv[1:]; assert 'attnforge' not in sys.modules; "
            "from attnforge.integrations import torch_kernels, torch_shim; print(torch_shim.is_open(), torch_shim.why_not())"
        )
        self.assertEqual(fresh_process.run(program, *sys.path, ATTNFORGE_TORCH_SHIM="0"), (0, "False ATTNFORGE_TORCH_SHIM is 0\n"))

    def test_a_library_that_is_not_there_is_said(self):
        self.assertTrue(hasattr(ctypes.CDLL(self.path()), "attnforge_torch_runs"))


if __name__ == "__main__":
    unittest.main()
