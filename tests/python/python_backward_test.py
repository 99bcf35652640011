#!/usr/bin/env python3
"""attention_backward(), and attention() of tensors that require grad, with tensors that look like torch's: what is refused and why, and
what reaches the driver.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_backward_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp.
"""

import contextlib
import ctypes
import os
import re
import sys
import types
import unittest
import warnings
from unittest import mock

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attnforge  # noqa: E402
from attnforge import _c, _library, _plans, _tools  # noqa: E402
from attnforge._calls import fast as _fast  # noqa: E402
from attnforge._gradients import autograd, backward  # noqa: E402
from fake_torch import Torch  # noqa: E402

torch = sys.modules["torch"] = Torch()
SHAPE = (2, 64, 4, 64)


class BackwardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = ctypes.CDLL("libcuda.so.1")

    def setUp(self):
        self.driver.fake_reset()
        attnforge.plan_cache.clear()
        torch.grad_enabled, torch.autocast_dtype = False, None
        self.addCleanup(setattr, torch, "grad_enabled", False)
        self.addCleanup(setattr, torch, "autocast_dtype", None)
        self.q, self.k, self.v, self.o, self.dout = (torch.Tensor(SHAPE) for _ in range(5))
        self.lse = torch.Tensor((2, 4, 64), "float32")

    def backward(self, **options):
        given = {"o": self.o, "lse": self.lse, "dout": self.dout, **options}
        return attnforge.attention_backward(self.q, self.k, self.v, given.pop("o"), given.pop("lse"), given.pop("dout"), **given)

    def refused(self, text, error=attnforge.InvalidError, **options):
        launches = self.driver.fake_launches()
        with self.assertRaisesRegex(error, text):
            self.backward(**options)
        self.assertEqual(self.driver.fake_launches(), launches, "nothing is launched")

    def problem(self):
        return str(list(attnforge.plan_cache)[-1].problem)

    def recorded(self, seen):
        """Notes the structs of runs that attention_backward() enqueues."""

        def run(_plan, tensors, *_):
            struct = _c.Tensors.from_buffer_copy(tensors._obj)
            seen.append((struct, _c.Gradients.from_buffer_copy(_c.Gradients.from_address(struct.gradients))))
            if struct.lengths:
                seen.append(_c.Lengths.from_buffer_copy(_c.Lengths.from_address(struct.lengths)))

        stack = contextlib.ExitStack()
        stack.enter_context(mock.patch.object(_plans.Plan, "run", run))
        stack.enter_context(mock.patch.object(backward.BackwardCall, "run", lambda *_: None))  # the long way
        return stack


class FastTest(BackwardTest):
    """The third call like another one is a look-up, which gives the library what the long way does."""

    def structs(self, **options):
        """(_c.Tensors, _c.Gradients) of a call of each way."""
        seen, made = [], []
        with self.recorded(seen):
            self.backward(**options)
        for _ in range(2):
            self.backward(**options)

        def run(_handle, tensors, *_):
            struct = _c.Tensors.from_buffer_copy(tensors)
            made.append((struct, _c.Gradients.from_buffer_copy(_c.Gradients.from_address(struct.gradients))))
            return 0

        with mock.patch.object(_fast.fast, "run", run):
            self.backward(**options)
        self.assertEqual((len(seen), len(made)), (1, 1), "the fast way was gone once")
        return seen[0], made[0]

    def assert_equal_structs(self, one, other, but):
        for name, _ in one._fields_:
            if name not in but:
                self.assertEqual(bytes(_bytes_of(getattr(one, name))), bytes(_bytes_of(getattr(other, name))), name)

    def test_gives_what_the_long_way_gives(self):
        strided = torch.Tensor(SHAPE, strides=(64 * 512, 512, 128, 1))
        dlse = torch.Tensor((2, 4, 64), "float32", strides=(1024, 256, 1))
        for options in ({}, {"causal": True, "dlse": dlse}, {"out": tuple(torch.Tensor(SHAPE) for _ in range(3)), "o": strided}):
            with self.subTest(options=list(options)):
                attnforge.plan_cache.clear()
                (tensors, gradients), (fast, fast_gradients) = self.structs(**options)
                self.assert_equal_structs(tensors, fast, ("gradients",))
                self.assert_equal_structs(gradients, fast_gradients, () if "out" in options else ("dq", "dk", "dv"))
                for name in ("dq", "dk", "dv"):
                    one, other = getattr(gradients, name), getattr(fast_gradients, name)
                    self.assertEqual((one.stride_batch, one.stride_row, one.stride_head), (other.stride_batch, other.stride_row, other.stride_head))
                self.assertEqual((fast.struct_size, fast_gradients.struct_size), (ctypes.sizeof(fast), ctypes.sizeof(fast_gradients)))

    def test_other_addresses_and_shared_memory_go_the_long_way(self):
        for _ in range(3):
            self.backward()
        plans = len(attnforge.plan_cache)
        self.q = torch.Tensor(SHAPE, address=self.q.data_ptr() + 2)
        self.backward()
        self.assertEqual(len(attnforge.plan_cache), plans + 1, "a plan of its own for addresses of another alignment")
        out = tuple(torch.Tensor(SHAPE) for _ in range(3))
        for _ in range(3):
            self.backward(out=out)
        shared = (torch.Tensor(SHAPE, address=self.k.data_ptr()), *out[1:])
        self.refused("dq of out shares memory with k", out=shared)

    def test_a_refusal_of_the_library_is_said(self):
        for _ in range(3):
            self.backward()
        with mock.patch.object(_fast.fast, "run", lambda *_: 1), self.assertRaises(attnforge.AttnforgeError):
            self.backward()

    def test_cleared_plans_are_made_anew(self):
        for _ in range(3):
            self.backward()
        attnforge.plan_cache.clear()
        self.backward()
        self.assertEqual(len(attnforge.plan_cache), 1)

    def test_a_plan_from_before_a_clear_is_not_for_calls_after_it(self):
        self.backward()
        plan_of, old = backward.plan_of, []

        def late(*arguments):
            """Another thread changes the configuration and makes this call, between this one's plan and its run."""
            old.append(plan_of(*arguments))
            with mock.patch.object(backward, "plan_of", plan_of):
                attnforge.configure(family="bwd_naive")
                self.backward()
            return old[0]

        self.addCleanup(attnforge.configure, family="")
        with mock.patch.object(backward, "plan_of", late), mock.patch.object(backward.BackwardCall, "run", lambda *_: None):
            self.backward()
        seen = []
        with mock.patch.object(_fast.fast, "run", lambda handle, *_: seen.append(handle) or 0):
            self.backward()
        self.assertEqual((len(seen), seen[0] is old[0].handle), (1, False))


def _bytes_of(value):
    return bytes(value) if isinstance(value, ctypes.Structure) else repr(value).encode()


class CallTest(BackwardTest):
    def test_new_gradients_are_like_the_inputs(self):
        self.k = torch.Tensor((2, 80, 2, 64))
        self.v = torch.Tensor((2, 80, 2, 32))
        self.o, self.dout = (torch.Tensor((2, 64, 4, 32)) for _ in range(2))
        gradients = self.backward(causal=True)
        self.assertEqual([(x.shape, x.dtype) for x in gradients], [(x.shape, "bfloat16") for x in (self.q, self.k, self.v)])
        self.assertGreaterEqual(self.driver.fake_launches(), 1)
        wanted = "bwd bf16 batch=2 num_heads=4:2 seqlen=64:80 head_dim=64:32 causal"
        self.assertEqual(self.problem(), str(attnforge.Problem.parse(wanted)))
        self.assertEqual([x.dtype for x in self.backward(fp32_gradients=True)][:1], ["float32"])
        self.assertIn("gradients=fp32", self.problem())

    def test_the_argument_has_every_tensor_at_its_place(self):
        out = tuple(torch.Tensor(SHAPE, strides=(64 * 512, 512, 128, 1)) for _ in range(3))
        dlse = torch.Tensor((2, 4, 64), "float32", strides=(1024, 256, 1))
        seen = []
        with self.recorded(seen):
            self.assertEqual(self.backward(out=out, dlse=dlse), out)
        (struct, gradients), = seen
        for name in "qkvo":
            tensor = getattr(struct, name)
            got = tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head
            self.assertEqual(got, (getattr(self, name).data_ptr(), 64 * 256, 256, 64))
        self.assertEqual((struct.lse.data, struct.lse.stride_batch, struct.lse.stride_head), (self.lse.data_ptr(), 256, 64))
        self.assertEqual(gradients.dout.data, self.dout.data_ptr())
        for name, tensor in zip(("dq", "dk", "dv"), out):
            got = getattr(gradients, name)
            self.assertEqual((got.data, got.stride_batch, got.stride_row, got.stride_head), (tensor.data_ptr(), 64 * 512, 512, 128))
        self.assertEqual((gradients.dlse.data, gradients.dlse.stride_batch, gradients.dlse.stride_head), (dlse.data_ptr(), 1024, 256))
        self.assertEqual(gradients.struct_size, ctypes.sizeof(gradients))
        self.assertRegex(self.problem(), " dlse$")

    def test_heads_first(self):
        seen = []
        with self.recorded(seen):
            self.backward(layout="bhsd", lse=torch.Tensor((2, 64, 4), "float32"))
        tensor = seen[0][1].dq
        self.assertEqual((tensor.stride_batch, tensor.stride_row, tensor.stride_head), (64 * 256, 64, 256))

    def test_packed_sequences(self):
        self.q, self.o, self.dout = (torch.Tensor((100, 4, 64)) for _ in range(3))
        self.k, self.v = (torch.Tensor((60, 4, 64)) for _ in range(2))
        lse, ends = torch.Tensor((4, 100), "float32"), (torch.Tensor((4,), "int32"), torch.Tensor((4,), "int32"))
        seen, cleared, torch.zeroed = [], [], []

        def clear(_context, arrays, count, stream):
            cleared.extend((x.data, x.begin, x.rows, x.row_bytes, x.pieces) for x in (_c.Rest * count).from_buffer_copy(arrays))
            return 0

        with self.recorded(seen), mock.patch("attnforge._calls.rest.lib", lambda: types.SimpleNamespace(attnforge_clear_rest=clear)):
            gradients = self.backward(lse=lse, cu_seqlens=ends, max_seqlen=(40, 17))
            self.backward(lse=lse, cu_seqlens=ends, max_seqlen=(40, 17), out=tuple(map(torch.Tensor.clone, gradients)))
        wanted = [(x.data_ptr(), of.data_ptr() + 3 * 4, x.shape[0], 4 * 64 * 2, 1) for x, of in zip(gradients, (ends[0], ends[1], ends[1]))]
        self.assertEqual(cleared, wanted, "rows after the last sequence are 0 in new arrays, and in those alone")
        self.assertEqual(torch.zeroed, [], "and no other is cleared")
        (struct, _), lengths = seen[:2]
        got = lengths.q, lengths.kv, lengths.tokens_q, lengths.tokens_kv
        self.assertEqual(got, (ends[0].data_ptr(), ends[1].data_ptr(), 100, 51))
        self.assertEqual((struct.lse.stride_batch, struct.lse.stride_head, struct.q.stride_batch), (0, 100, 0))
        self.assertIn("bwd bf16 batch=3", self.problem())

    def test_gradients_of_sinks(self):
        sinks, seen = torch.Tensor((4,), "float32"), []
        with self.recorded(seen):
            gradients = self.backward(sinks=sinks)
        self.assertEqual((gradients[3].shape, gradients[3].dtype), ((4,), "float32"))
        self.assertEqual((seen[0][0].sinks, seen[0][1].dsinks), (sinks.data_ptr(), gradients[3].data_ptr()))
        self.assertRegex(self.problem(), " sinks$")
        out = tuple(torch.Tensor(SHAPE) for _ in range(3))
        self.refused("out must be four arrays, .dq, dk, dv, dsinks.", sinks=sinks, out=out)
        self.refused("out must be three arrays", out=(*out, sinks))
        self.refused("dsinks of out shares memory with sinks", sinks=sinks, out=(*out, sinks))
        self.refused("dsinks of out is fp32 .3,.*a number for each query head", sinks=sinks, out=(*out, torch.Tensor((3,), "float32")))
        self.refused("sinks is fp32 .8,.*a logit for each query head", sinks=torch.Tensor((8,), "float32"))
        # Rows without keys have a part in them, too.
        self.k, self.v = (torch.Tensor((2, 0, 4, 64)) for _ in range(2))
        with self.recorded(seen):
            self.backward(sinks=sinks)
        self.assertEqual(len(seen), 2)

    def test_words(self):
        out = tuple(torch.Tensor(SHAPE, "float32") for _ in range(3))
        self.backward(out=out, accumulate=True, deterministic=True, window=(7, None), softcap=3.0)
        self.assertRegex(self.problem(), "window_left=7 .*softcap=3 .*deterministic accumulate gradients=fp32")
        self.refused("accumulate=True adds to out, which is None", accumulate=True)
        self.refused("accumulate is a str", accumulate="yes", out=out)
        self.refused("deterministic=2 must be True or False", deterministic=2)

    def test_the_second_call_makes_no_plan(self):
        self.backward()
        with mock.patch.object(_plans, "Plan", side_effect=AssertionError("a second plan")):
            self.backward()

    def test_arrays_that_do_not_fit_are_refused_by_name(self):
        of = torch.Tensor
        self.refused("o has shape .2, 64, 4, 32.", o=of((2, 64, 4, 32)))
        self.refused("dout has shape", dout=of((2, 63, 4, 64)))
        self.refused("dout is fp16 and o is bf16", dout=of(SHAPE, "float16"))
        self.refused("the last dimension of dout has stride 2", dout=of(SHAPE, strides=(32768, 512, 128, 2)))
        self.refused("lse is fp32 .2, 64, 4. .*must be fp32 .2, 4, 64.", lse=of((2, 64, 4), "float32"))
        self.refused("lse is bf16", lse=of((2, 4, 64)))
        self.refused("dlse is fp32 .2, 4, 63.", dlse=of((2, 4, 63), "float32"))
        self.refused("out must be three arrays", out=(self.o, self.o))
        self.refused("dk of out is bf16 .2, 64, 2, 64.", out=(of(SHAPE), of((2, 64, 2, 64)), of(SHAPE)))
        self.refused("dv of out is fp32 .* or all three fp32", out=(of(SHAPE), of(SHAPE), of(SHAPE, "float32")))
        self.refused("dq of out is bf16 .* it must be fp32", out=tuple(of(SHAPE) for _ in range(3)), fp32_gradients=True)
        self.refused("dq of out has strides .* elements of it lie at one place", out=(of(SHAPE, strides=(0, 256, 64, 1)), of(SHAPE), of(SHAPE)))
        self.refused("dq of out shares memory with q", out=(self.q, of(SHAPE), of(SHAPE)))
        same = of(SHAPE)
        self.refused("dk of out shares memory with dv", out=(of(SHAPE), same, same))
        self.refused("dv of out shares memory with lse", out=(of(SHAPE), of(SHAPE), of(SHAPE, address=self.lse.data_ptr())))
        self.refused("o is on cpu", o=of(SHAPE, device=("cpu", None)))

    def test_gradients_between_the_rows_of_one_tensor(self):
        """dq, dk and dv as a projection's gradient has them, in one tensor."""
        packed = torch.Tensor((2, 64, 3, 4, 64))
        step = 2 * 4 * 64
        out = tuple(torch.Tensor(SHAPE, strides=(64 * 768, 768, 64, 1), address=packed.data_ptr() + i * step) for i in range(3))
        self.backward(out=out)

    def test_what_requires_grad_is_not_detached(self):
        torch.grad_enabled = True
        self.dout.requires_grad = True
        self.refused("dout requires grad, and no gradient goes through it here")

    def test_rows_that_do_not_count_stay_where_q_or_k_has_no_element(self):
        """Kernels write rows that count, and no array is cleared as a whole."""
        begins = torch.Tensor((3,), "int32")
        for rows_q, rows_kv in ((0, 100), (100, 0), (0, 0)):
            self.q, self.o, self.dout = (torch.Tensor((rows_q, 4, 64)) for _ in range(3))
            self.k, self.v = (torch.Tensor((rows_kv, 4, 64)) for _ in range(2))
            longest = 50 if rows_q else 0, 50 if rows_kv else 0
            options = {"lse": torch.Tensor((4, rows_q), "float32"), "cu_seqlens": (begins, begins), "max_seqlen": longest}
            for accumulate in (False, True):
                torch.zeroed, launches, seen = [], self.driver.fake_launches(), []
                out = tuple(torch.Tensor((rows, 4, 64)) for rows in (rows_q, rows_kv, rows_kv))
                self.backward(**options, out=out, accumulate=accumulate)
                self.assertEqual(torch.zeroed, [])
                self.assertEqual(self.driver.fake_launches() > launches, rows_q + rows_kv > 0)
                with self.recorded(seen):
                    self.backward(**options, out=out, accumulate=accumulate)
                (_, gradients), _ = seen
                self.assertEqual((gradients.dq.data, gradients.dk.data, gradients.dv.data), tuple(x.data_ptr() for x in out))
        # Sequences of one length, and used lengths.
        self.q, self.o, self.dout = (torch.Tensor((2, 0, 4, 64)) for _ in range(3))
        self.k, self.v = (torch.Tensor(SHAPE) for _ in range(2))
        for used in (None, torch.Tensor((2,), "int32")):
            torch.zeroed, launches = [], self.driver.fake_launches()
            self.backward(lse=torch.Tensor((2, 4, 0), "float32"), used_kv=used, out=(torch.Tensor((2, 0, 4, 64)), torch.Tensor(SHAPE), torch.Tensor(SHAPE)))
            self.assertEqual(torch.zeroed, [])
            self.assertGreater(self.driver.fake_launches(), launches)

    def test_slow_dtypes_warn_once(self):
        self.q, self.k, self.v, self.o, self.dout = (torch.Tensor(SHAPE, "float32") for _ in range(5))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                self.backward()
        (warning,) = caught
        self.assertIs(warning.category, attnforge.PerformanceWarning)
        self.assertRegex(str(warning.message), "gradients run bwd_naive")

    def test_a_family_of_the_forward_is_not_asked_for_gradients(self):
        try:
            attnforge.configure(family="fwd_naive")
            self.backward()
            attnforge.configure(family="bwd_naive")
            self.backward()
            self.assertEqual([plan.family for plan in attnforge.plan_cache], ["bwd_naive"])
            attnforge.attention(self.q, self.k, self.v)
            config = list(attnforge.plan_cache)[0].config
            attnforge.configure(family="", config=config)
            self.backward()
            self.assertEqual([plan.config for plan in attnforge.plan_cache], [config])
        finally:
            attnforge.configure(family="", config="")


class AutogradTest(BackwardTest):
    """The function of autograd, over one that only notes what it would do."""

    def setUp(self):
        super().setUp()
        torch.grad_enabled = True
        self.q.requires_grad = True

    def attend(self, **options):
        return attnforge.attention(self.q, self.k, self.v, **options)

    def test_one_forward_run_with_lse_and_one_backward_run(self):
        o = self.attend(causal=True)
        self.assertEqual((o.shape, o.requires_grad), (SHAPE, True))
        self.assertRegex(self.problem(), "^fwd .* lse$")
        seen = []
        with self.recorded(seen):
            gradients = o.backward(self.dout)
        self.assertEqual([x is not None for x in gradients], [False, True, False, False])
        self.assertEqual((seen[0][0].o.data, seen[0][1].dout.data), (o.data_ptr(), self.dout.data_ptr()))
        self.assertRegex(self.problem(), "^bwd bf16 .* causal$")
        self.assertEqual(self.attend(return_lse=True)[1].shape, (2, 4, 64))

    def test_a_call_like_an_earlier_one_is_not_looked_at_again(self):
        for _ in range(2):
            self.attend(causal=True, return_lse=True)
        with mock.patch.object(autograd, "view_inputs", side_effect=AssertionError("looked at")):
            o, lse = self.attend(causal=True, return_lse=True)
            self.assertEqual((o.requires_grad, lse.shape), (True, (2, 4, 64)))
            for other in ({"causal": False}, {"window": 5}, {"deterministic": True}, {"sinks": torch.Tensor((4,), "float32")}):
                with self.subTest(other), self.assertRaisesRegex(AssertionError, "looked at"):
                    self.attend(**{"causal": True, "return_lse": True, **other})
            attnforge.plan_cache.clear()
            with self.assertRaisesRegex(AssertionError, "looked at"):
                self.attend(causal=True, return_lse=True)
        seen = []
        with self.recorded(seen):
            o.backward(self.dout)
        self.assertEqual(seen[0][1].dout.data, self.dout.data_ptr())

    def test_tensors_without_memory_are_refused_as_ever_after_calls_like_theirs(self):
        for _ in range(2):
            self.attend()
        self.k = torch.Tensor(SHAPE, address="none")
        with self.assertRaisesRegex(attnforge.InvalidError, "k has no memory"):
            self.attend()
        self.q.get_device = mock.Mock(side_effect=RuntimeError("nested tensors have no sizes"))
        self.q.is_nested = True
        with self.assertRaisesRegex(attnforge.InvalidError, "q is a tensor of layout nested"):
            self.attend()

    def test_what_tune_asks_for_is_what_gradients_ask_for(self):
        sinks = torch.Tensor((4,), "float32")
        sinks.requires_grad = True
        cases = (
            ({"causal": True}, False),
            ({"window": 9, "softcap": 20.0, "deterministic": True}, False),
            ({"return_lse": True}, True),
            ({"sinks": sinks}, False),
            ({"used_kv": torch.Tensor((2,), "int32")}, False),
        )
        for options, of_lse in cases:
            with self.subTest(options):
                o = self.attend(**options)
                with self.recorded([]):
                    (o[0] if of_lse else o).backward(self.dout, *([self.lse] if of_lse else []))
                problem = list(attnforge.plan_cache)[-1].problem
                self.assertEqual(problem.op, "bwd")
                with torch.no_grad():
                    self.assertEqual(backward.problem_of_backward(self.q, self.k, self.v, **options), (problem, 0))
        with self.assertRaisesRegex(attnforge.InvalidError, "backward: belongs into the problem's text"):
            attnforge.tune("bwd bf16 seqlen=64", backward=True)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'time_limit'"):
            attnforge.tune("bwd bf16 seqlen=64", time_limit=30)

    def test_of_lse(self):
        o, _ = self.attend(return_lse=True)
        with self.recorded([]):
            o.backward(self.dout, self.lse)
            self.assertRegex(self.problem(), " dlse$")
            torch.zeroed = []
            o.backward(None, self.lse)
            self.assertEqual(len(torch.zeroed), 1, "a gradient of o of zeros")
            self.assertEqual(o.backward(None, None), (None,) * 4)

    def test_gradients_that_kernels_cannot_read_are_copied(self):
        o = self.attend()
        for dout in (
            torch.Tensor(SHAPE, strides=(0, 0, 0, 0)),
            torch.Tensor(SHAPE, strides=(0, 256, 64, 1)),
            torch.Tensor(SHAPE, address=self.dout.data_ptr() + 2),
            torch.Tensor(SHAPE, strides=(64 * 260, 260, 65, 1)),
        ):
            seen = []
            with self.recorded(seen):
                o.backward(dout)
            got = seen[0][1].dout
            self.assertNotEqual(got.data, dout.data_ptr())
            self.assertEqual((got.stride_batch, got.stride_row, got.stride_head), (64 * 256, 256, 64))

    def test_calls_without_gradients_name_the_reason(self):
        table = torch.Tensor((64, 32), "float32")
        bias = torch.Tensor((64,), "float32")
        bias.requires_grad = True
        unsupported, invalid = attnforge.UnsupportedError, attnforge.InvalidError
        cases = (
            (unsupported, "a call with rope has no gradients: rotate q and k before it", {"rope": (table, table)}),
            (invalid, "block_mask is of seqlen", {"block_mask": attnforge.BlockMask.random(0.5, 64, 128)}),
            (unsupported, "an array that mask alone reads has no gradient", {"mask": "bias[q] > 0", "args": {"bias": bias}}),
            (unsupported, "a call with page_table has no gradients", {"page_table": table}),
            (invalid, "out= does not go with gradients", {"out": self.o}),
            (invalid, "gradients run on torch's current stream", {"stream": 0x77}),
            (invalid, "deterministic is a str", {"deterministic": "no"}),
        )
        for error, text, options in cases:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                self.attend(**options)
            self.assertEqual(self.driver.fake_launches(), 0, "nothing is launched")
        self.attend(stream=0)

    def test_a_problem_that_no_kernel_serves_names_the_reason(self):
        def query(context, handle):
            return 2

        self.assertIsInstance(_library.error_of(2, ""), attnforge.UnsupportedError)
        backward._served.clear()
        self.addCleanup(backward._served.clear)
        text = "q requires grad, but no kernel computes the gradients of this call: .*; call it under torch.no_grad"
        with mock.patch.object(_library.lib(), "attnforge_query", query), self.assertRaisesRegex(attnforge.UnsupportedError, text):
            self.attend()
        self.assertEqual(self.driver.fake_launches(), 0)

    def test_sinks(self):
        sinks = torch.Tensor((4,), "float32")
        sinks.requires_grad = True
        o, seen = self.attend(sinks=sinks), []
        with self.recorded(seen):
            gradients = o.backward(self.dout)
        (struct, of), = seen
        dsinks = [each for each in gradients if each is not None][-1]
        self.assertEqual((dsinks.shape, dsinks.dtype), ((4,), "float32"))
        self.assertEqual((struct.sinks, of.dsinks), (sinks.data_ptr(), dsinks.data_ptr()))
        sinks.requires_grad = False
        o = self.attend(sinks=sinks)
        with self.recorded(seen):
            o.backward(self.dout)
        self.assertEqual((seen[1][0].sinks, seen[1][1].dsinks), (None, None), "other gradients do not depend on them")
        ends = torch.Tensor((3,), "int32")
        self.q, self.k, self.v = (torch.Tensor((100, 4, 64)) for _ in range(3))
        sinks.requires_grad = True
        self.attend(sinks=sinks, cu_seqlens=ends, max_seqlen=64)

    def test_rows_that_do_not_count_are_0_in_outputs_with_gradients(self):
        used, of_q = torch.Tensor((2,), "int32"), torch.Tensor((2,), "int32")
        for lengths, begin in ((used, None), ((None, used), None), ((of_q, used), of_q.data_ptr())):
            torch.zeroed, seen = [], []
            o, lse = self.attend(used_kv=lengths, return_lse=True)
            self.assertEqual(torch.zeroed, [o.data_ptr(), lse.data_ptr()] if begin else [], "all rows count where no lengths of q say other")
            with self.recorded(seen):
                gradients = o.backward(self.dout)
            self.assertIn(gradients[1].data_ptr(), torch.zeroed)
            self.assertEqual((seen[1].q, seen[1].kv), (begin, used.data_ptr()))

    def test_autocast(self):
        self.q, self.k = torch.Tensor(SHAPE, "float32"), torch.Tensor(SHAPE, "float32")
        self.q.requires_grad = True
        torch.autocast_dtype = "float16"
        for _ in range(3):
            self.assertEqual(self.attend().dtype, "float16")
        torch.grad_enabled = False
        for _ in range(3):
            self.assertEqual(self.attend().dtype, "float16")
        self.assertTrue(all(" fp16 " in str(plan.problem) for plan in attnforge.plan_cache))
        self.v = torch.Tensor(SHAPE, "float32")
        self.attend(tf32=True)
        self.assertRegex(self.problem(), " fp32 .*tf32")


class DocumentTest(BackwardTest):
    """The programs of docs/TRAINING.md as they stand there."""

    def setUp(self):
        super().setUp()
        torch.grad_enabled = True
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "TRAINING.md")
        with open(page) as file:
            self.programs = re.findall(r"^```python\n(.*?)^```$", file.read(), flags=re.M | re.S)
        self.names = {name: getattr(self, name) for name in ("q", "k", "v", "dout", "lse")}
        self.names.update(torch=torch, dlse=torch.Tensor((2, 4, 64), "float32"))

    def test_gradients(self):
        self.q.requires_grad = True
        exec(self.programs[0], self.names)
        problems = [str(plan.problem).split(None, 1)[0] + " " + str(plan.problem).rpartition(" ")[2] for plan in attnforge.plan_cache]
        self.assertEqual(problems, ["fwd lse", "bwd causal", "bwd dlse"])
        self.assertIn("causal deterministic dlse", self.problem())

    def test_tuning(self):
        tuned = []
        with mock.patch.object(attnforge, "tune", lambda *arrays, **options: tuned.append(_tools.problem_to_tune(arrays, **options)[0].op)):
            exec(self.programs[0].splitlines()[0] + "\n" + self.programs[1], self.names)
        self.assertEqual(tuned, ["fwd", "bwd"])

    def test_a_ring(self):
        exec(self.programs[0].splitlines()[0] + "\n" + self.programs[2], self.names)
        seen = []
        with self.recorded(seen), torch.no_grad():
            dq, gradients = self.names["ring_backward"](self.q, [(self.k, self.v)] * 3, self.o, self.lse, self.dout)
        self.assertEqual([struct.dq.data for _, struct in seen], [dq.data_ptr()] * 3)
        self.assertEqual([struct.dk.data for _, struct in seen], [dk.data_ptr() for dk, _ in gradients])
        self.assertIn("accumulate gradients=fp32", self.problem())


if __name__ == "__main__":
    unittest.main()
