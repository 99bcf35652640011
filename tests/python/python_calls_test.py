#!/usr/bin/env python3
"""Calls of attention() with tensors that look like torch's: what is refused, what is remembered, what reaches the driver.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_calls_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp.
"""

import ctypes
import inspect
import multiprocessing
import os
import random
import sys
import threading
import types
import typing
import unittest
import warnings
from unittest import mock

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attnforge  # noqa: E402
from attnforge import _arrays, _attention, _c, _checks, _formats, _library, _options, _plans  # noqa: E402
from attnforge._calls import arguments as _arguments, call as _call, fast as _fast, lengths as _lengths, overlap as _overlap, parts as _parts  # noqa: E402
from fake_torch import Torch  # noqa: E402

torch = sys.modules["torch"] = Torch()
SHAPE = (2, 64, 4, 64)


class CallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = ctypes.CDLL("libcuda.so.1")
        cls.driver.fake_last_argument.restype = cls.driver.fake_last_stream.restype = ctypes.c_void_p

    def setUp(self):
        self.driver.fake_reset()
        attnforge.plan_cache.clear()
        self.options = {}  # of every call()
        self.q, self.k, self.v, self.o = (torch.Tensor(SHAPE) for _ in range(4))
        # The first tensor ever opens the fast path, the second call finds it, the third uses it.
        for _ in range(2):
            self.call()
        self.driver.fake_reset()

    def call(self, **options):
        return attnforge.attention(self.q, self.k, self.v, **{"out": self.o, **self.options, **options})

    def refused(self, text, **options):
        launches = self.driver.fake_launches()
        with self.assertRaisesRegex(attnforge.InvalidError, text):
            self.call(**options)
        self.assertEqual(self.driver.fake_launches(), launches, "nothing is launched")


class FastPathTest(CallTest):
    def slow(self):
        """A context in which calls that need the slow path fail."""
        return mock.patch.object(_attention, "_attend", side_effect=AssertionError("the slow path was taken"))

    def test_the_second_call_of_a_kind_takes_it(self):
        cases = (
            {},
            {"out": None},
            {"out": None, "return_lse": True, "causal": True},
            {"out": (self.o, torch.Tensor((2, 4, 64), "float32")), "return_lse": True},
            {"window": (3, None), "softmax_scale": 0.5, "softcap": 20.0},
            {"rope": (torch.Tensor((64, 32), "float32"), torch.Tensor((64, 32), "float32"))},
            {"stream": 0x77},
        )
        for options in cases:
            with self.subTest(options=list(options)):
                self.call(**options)
                launches = self.driver.fake_launches()
                with self.slow():
                    self.call(**options)
                steps = 2 if "rope" in options else 1
                self.assertEqual(self.driver.fake_launches(), launches + steps)

    def test_options_are_one_list(self):
        named = list(_options.Options._fields)
        for function, without in ((attnforge.attention, ()), (attnforge.attention_backward, _options.OF_FORWARD)):
            parameters = inspect.signature(function).parameters
            self.assertEqual([name for name in parameters if name in named], [name for name in named if name not in without])
            self.assertTrue(all(parameters[name].default == _options.Options._field_defaults[name] for name in named if name not in without))
        for name in named:
            self.assertRegex(attnforge.attention.__doc__, rf"\b{name}\b")
        for call in (self.call, lambda **options: attnforge.tune(self.q, self.k, self.v, **options)):
            with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'casual'; did you mean causal[?] There are causal, window"):
                call(casual=True)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'page_table'"):
            attnforge.attention_backward(*[self.q] * 6, page_table=None)
        with self.assertRaises(TypeError):
            attnforge.attention(self.q, self.k, self.v, True)

    def test_every_option_is_in_the_key_of_a_call(self):
        values = {
            **{name: True for name, default in _options.Options._field_defaults.items() if default is False},
            **{name: 0.5 for name, kind in _options.Options.__annotations__.items() if kind == typing.Optional[float]},
            **{"window": 3, "layout": "bhsd", "max_seqlen": 9, "score": "s * 2", "mask": "k <= q"},
            **{name: torch.Tensor((3,), "int32") for name in ("cu_seqlens", "used_kv", "page_table", *_options.OF_HEADS)},
            **{name: torch.Tensor((4,), "float32") for name in ("k_scale", "v_scale", "q_scale")},
            "rope": (torch.Tensor((64, 32), "float32"), torch.Tensor((64, 32), "float32")),
            "args": {"n": 1},
        }
        self.assertEqual(set(values) | {"block_mask"}, set(_options.Options._fields))
        inputs = self.q, self.k, self.v, self.o
        keys = {_fast.fast.key_of_attention(*inputs, {}), *(_fast.fast.key_of_attention(*inputs, {name: values[name]}) for name in values)}
        self.assertEqual(len(keys), len(values) + 1)
        self.assertNotIn(None, keys)
        for name, value in (("args", {"n": object()}), ("block_mask", object()), ("window", torch.Parameter(()))):
            self.assertIsNone(_fast.fast.key_of_attention(*inputs, {name: value}), "not remembered by it")
        of_args = [{"n": 1}, {"n": 1.0}, {"m": 1}, {"n": torch.Tensor((3,), "int32")}, {"n": torch.Tensor((4,), "int32")}]
        self.assertEqual(len({_fast.fast.key_of_attention(*inputs, {"args": each}) for each in of_args}), len(of_args))
        self.assertEqual(*(_fast.fast.key_of_attention(*inputs, {"args": {"n": each}}) for each in (1, 2)))

    def test_launches_with_the_addresses_of_this_call(self):
        for _ in range(3):
            self.q = torch.Tensor(SHAPE)
            with self.slow():
                self.assertIs(self.call(), self.o)
            self.assertEqual(self.driver.fake_last_argument(), self.q.data_ptr())

    def test_the_argument_is_the_struct_of_the_header(self):
        arrays, of_heads = [], {name: 40 + i for i, name in enumerate(_options.OF_HEADS)}
        of_scales = (2, 64, 4), (2, 64, 4)
        shapes = SHAPE, SHAPE, SHAPE, SHAPE, (2, 4, 64), (70, 32), (70, 32), (3,), (3,), (2, 9), *of_scales, (2, 4), *((4,) for _ in of_heads)
        for i, shape in enumerate(shapes):
            strides = tuple(1000 * (i + 1) + j for j in range(len(shape) - 1)) + (1,)
            arrays.append(_arrays.Array(0, shape, strides, _formats.FP16, 0))
        words = _options.Words(lengths="used", of_heads=tuple(of_heads))
        options = _options.check_options(_options.Options(return_lse=True), words)
        call = _call.Call(arrays, options, 2, _arrays._protocols)  # not None: with outputs of its own, which lie apart
        words = (ctypes.c_uint64 * 2)(31, 32)
        addresses = 16, 17, 18, 19, 27, 28, 29, 30, *of_heads.values()
        argument, parts = call.argument(11, 12, 13, 14, 15, addresses, -5, block_mask=(21, 22, 23, 24, "owners"), code=words)
        struct = _c.Tensors.from_buffer_copy(argument)
        self.assertEqual(struct.struct_size, len(argument))
        for i, name in enumerate("qkvo"):
            tensor = getattr(struct, name)
            got = tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head
            self.assertEqual(got, (11 + i, *(1000 * (i + 1) + j for j in range(3))))
        self.assertEqual((struct.lse.data, struct.lse.stride_batch, struct.lse.stride_head), (15, 5000, 5001))
        rope = _c.Rope.from_address(struct.rope)
        self.assertEqual([ctypes.addressof(part) for part in parts[:2]], [struct.rope, struct.lengths])
        got = rope.struct_size, rope.cos, rope.sin, rope.rows, rope.offset
        self.assertEqual(got, (ctypes.sizeof(rope), 16, 17, 70, -5))
        lengths = _c.Lengths.from_address(struct.lengths)
        self.assertEqual((lengths.struct_size, lengths.q, lengths.kv), (ctypes.sizeof(lengths), 18, 19))
        lists = _c.BlockMaskLists.from_address(struct.block_mask)
        self.assertEqual(lists.struct_size, ctypes.sizeof(lists))
        self.assertEqual((lists.row_begin, lists.columns, lists.bits, lists.bit_blocks), (21, 22, 23, 24))
        self.assertEqual((ctypes.addressof(parts[2]), parts[3][4]), (struct.block_mask, "owners"))
        self.assertEqual((struct.code_arguments, parts[4]), (ctypes.addressof(words), words))
        self.assertEqual({name: getattr(struct, name) for name in of_heads}, of_heads)
        pages = _c.Pages.from_address(struct.pages)
        self.assertEqual((pages.struct_size, pages.table), (ctypes.sizeof(pages), 27))
        self.assertEqual((pages.stride_batch, pages.num_pages), (10000, 2))
        scales = _c.KvScales.from_address(struct.kv_scales)
        self.assertEqual((scales.struct_size, struct.parts), (ctypes.sizeof(scales), None))
        of_q = scales.q, 30, (13000, 0, 1)
        for tensor, address, strides in ((scales.k, 28, (11000, 11001, 1)), (scales.v, 29, (12000, 12001, 1)), of_q):
            self.assertEqual((tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head), (address, *strides))
        call = _call.Call([*arrays[:5], *(None for _ in _parts.NAMES)], _options.check_options(_options.Options(return_lse=True)), 2, _arrays._protocols)
        argument, parts = call.argument(11, 12, 13, 14, 15, _parts.NO_ADDRESSES)
        struct = _c.Tensors.from_buffer_copy(argument)
        self.assertEqual((struct.q.data, struct.o.stride_head, parts), (11, 4002, (None,) * 7))
        self.assertEqual((struct.rope, struct.lengths, struct.block_mask, struct.code_arguments, struct.pages), (None,) * 5)
        self.assertEqual((struct.sinks, struct.gradients, struct.kv_scales), (None, None, None))

    def test_what_differs_is_another_call(self):
        plans = len(attnforge.plan_cache)
        strided = torch.Tensor(SHAPE, strides=(64 * 512, 512, 128, 1))
        with self.assertRaisesRegex(AssertionError, "slow path"), self.slow():
            attnforge.attention(strided, self.k, self.v, out=self.o)
        attnforge.attention(strided, self.k, self.v, out=self.o)
        self.assertEqual(len(attnforge.plan_cache), plans, "other strides are the same plan")
        for dtype, index in (("float16", 0), ("bfloat16", 1)):
            others = [torch.Tensor(SHAPE, dtype, device=("cuda", index)) for _ in range(4)]
            attnforge.attention(*others[:3], out=others[3])
        self.assertEqual(len(attnforge.plan_cache), plans + 2)
        self.call(causal=True)
        self.assertEqual(len(attnforge.plan_cache), plans + 3)

    def test_alignment_is_looked_at_in_every_call(self):
        for name, at in (("q", 8), ("k", 4), ("v", 4), ("o", 8)):
            with self.subTest(name=name):
                self.setUp()
                setattr(self, name, torch.Tensor(SHAPE, address=getattr(self, name).data_ptr() + at))
                self.call()
                self.assertEqual([plan.problem.alignment_bytes for plan in attnforge.plan_cache], [16, at])

    def test_strides_of_outputs_count_for_the_alignment(self):
        self.call(out=torch.Tensor(SHAPE, strides=(64 * 260, 260, 64, 1)))
        self.assertEqual([plan.problem.alignment_bytes for plan in attnforge.plan_cache], [16, 8])

    def test_new_outputs_are_like_q(self):
        o, lse = self.call(out=None, return_lse=True)
        self.assertEqual((o.shape, o.dtype, lse.shape, lse.dtype), (SHAPE, "bfloat16", (2, 4, 64), "float32"))
        packed = torch.Tensor(SHAPE, strides=(64 * 768, 768, 64, 1))
        for _ in range(2):
            o = attnforge.attention(packed, self.k, self.v)
            self.assertTrue(o.is_contiguous())
        v = torch.Tensor((2, 64, 4, 128))
        for _ in range(2):
            self.assertEqual(attnforge.attention(self.q, self.k, v).shape, (2, 64, 4, 128))

    def test_configure_and_clear_forget_calls(self):
        attnforge.configure(family="fwd_naive")
        try:
            self.call()
            self.assertEqual([plan.family for plan in attnforge.plan_cache], ["fwd_naive"])
        finally:
            attnforge.configure(family="")
        self.call()
        self.assertEqual([plan.family for plan in attnforge.plan_cache], ["fwd_wgmma_sm90a"])

    def test_a_plan_begun_before_configure_is_not_kept_after(self):
        make = _plans.Plan

        def slow_plan(*arguments):
            plan = make(*arguments)
            attnforge.configure(family="fwd_naive")
            return plan

        attnforge.plan_cache.clear()
        try:
            with mock.patch.object(_plans, "Plan", slow_plan):
                self.call()
            self.assertEqual(len(attnforge.plan_cache), 0)
            self.call()
            self.assertEqual([plan.family for plan in attnforge.plan_cache], ["fwd_naive"])
        finally:
            attnforge.configure(family="")

    def test_threads_do_not_share_an_argument(self):
        wrong = []

        def recorded(handle, tensors, *_):
            struct = _c.Tensors.from_buffer_copy(tensors)
            if mine.expected != (struct.q.data, struct.o.data):
                wrong.append((struct.q.data, struct.o.data))
            return 0

        mine = threading.local()

        def calls():
            for _ in range(300):
                q, o = torch.Tensor(SHAPE), torch.Tensor(SHAPE)
                mine.expected = q.data_ptr(), o.data_ptr()
                attnforge.attention(q, self.k, self.v, out=o)

        with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
            threads = [threading.Thread(target=calls) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])


class BlockMaskTest(CallTest):
    def setUp(self):
        super().setUp()
        attnforge.plan_cache.clear()
        attnforge.configure(family="fwd_naive")
        self.addCleanup(attnforge.configure, family="")

    def test_is_what_it_was_made_from(self):
        mask = attnforge.BlockMask.from_bsr([0, 1, 3], [1, 0, 1], 64, 100, partial=[0, 1, 0])
        self.assertEqual((mask.blocks, mask.full, mask.partial, mask.density), (4, 2, 1, 0.75))
        self.assertEqual(mask.to_text(), " #\n+#\n")
        self.assertIn("<svg", mask.to_svg())
        self.assertEqual(mask.words, "blocks=64:64 density=0.75")
        row_begin, columns = mask.lists()
        self.assertEqual(list(memoryview(row_begin).cast("i")), [0, 1, 3])
        self.assertEqual(list(memoryview(columns).cast("i")), [2, 1, 2])
        dense = [[key <= query for key in range(40)] for query in range(40)]
        causal = attnforge.BlockMask.from_dense(dense, 16)
        self.assertEqual(causal.to_text(), "+  \n#+ \n##+\n")
        self.assertEqual(causal.lists(), attnforge.BlockMask.sliding_window(-1, 0, 16, 40).lists())
        array = types.SimpleNamespace(
            shape=(40, 40), dtype=types.SimpleNamespace(itemsize=1), tobytes=lambda: bytes(sum(dense, []))
        )
        self.assertEqual(attnforge.BlockMask.from_dense(array, 16).lists(), causal.lists(), "bytes of numpy's as they are")
        self.assertEqual(len(causal.lists()[2]) % (16 * 4), 0, "blocks of bits: 16 rows of a word")
        self.assertEqual(attnforge.BlockMask.random(0, 64, 256).to_text(), "#   \n #  \n  # \n   #\n")
        self.assertEqual(attnforge.BlockMask.random(1.0, (64, 128), (64, 256), heads=3).words, "blocks=64:128 mask_heads=3 density=1")
        self.assertEqual(attnforge.BlockMask.strided(0, 3, 16, 64).to_text(), "#  #\n## #\n# ##\n#  #\n")
        self.assertEqual(attnforge.BlockMask.global_window(16, 0, 0, 16, 48).full, 5)
        self.assertEqual(attnforge.BlockMask.documents([32, 16], 16).to_text(), "## \n## \n  #\n")

    def test_what_cannot_be_made_is_refused_at_its_position(self):
        make = attnforge.BlockMask
        cases = (
            ("indices.2. of row 1 is block column 0 after 1", lambda: make.from_bsr([0, 1, 3], [1, 1, 0], 64, 100)),
            ("partial has 1 entries; columns has 3", lambda: make.from_bsr([0, 1, 3], [1, 0, 1], 64, 100, partial=[1])),
            ("block_q=48 must be 16, 32, 64 or 128", lambda: make.random(0.5, 48, 100)),
            ("density=2 must be from 0 to 1", lambda: make.random(2.0, 64, 100)),
            ("it must be .seqlen_q, seqlen_kv.", lambda: make.from_dense([1, 2], 64)),
            ("columns must be a flat list", lambda: make.from_bsr([0, 1], ["a"], 64, 64)),
        )
        for text, action in cases:
            with self.subTest(text=text), self.assertRaisesRegex(attnforge.InvalidError, text):
                action()

    def test_reaches_the_run_with_lists_that_are_uploaded_once(self):
        mask = attnforge.BlockMask.sliding_window(20, 0, (16, 32), 64)
        seen, torch.uploads = [], []
        real = _call.Call.argument

        def recorded(call, *arguments, **of_run):
            argument, parts = real(call, *arguments, **of_run)
            struct = _c.Tensors.from_buffer_copy(argument)
            lists = _c.BlockMaskLists.from_address(struct.block_mask)
            seen.append((lists.row_begin, lists.columns, lists.bits, lists.bit_blocks))
            return argument, parts

        with mock.patch.object(_call.Call, "argument", recorded):
            for _ in range(2):
                self.call(block_mask=mask, causal=True)
        self.assertEqual(seen[0], seen[1])
        self.assertTrue(all(seen[0]))
        self.assertEqual(torch.uploads, [bytearray(data) for data in mask.lists()])
        (plan,) = attnforge.plan_cache
        wanted = "fwd bf16 batch=2 num_heads=4 seqlen=64 head_dim=64 causal blocks=16:32 mask_bits density=1"
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
        self.call(causal=True)
        self.assertEqual(len(attnforge.plan_cache), 2, "a call without a mask is another one")

    def test_of_another_shape_or_kind_is_refused(self):
        make = attnforge.BlockMask
        self.refused("block_mask is of seqlen .64, 63.; q has 64 rows and k 64", block_mask=make.random(0.5, 64, (64, 63)))
        self.refused("block_mask is a list; it must be an attnforge.BlockMask", block_mask=[1])
        self.refused("mask_heads=3 must be 1, num_heads_kv=4", block_mask=make.random(0.5, 64, 64, heads=3))
        self.refused("mask_batch=5 must be 1 or batch=2", block_mask=make.random(0.5, 64, 64, batch=5))


class BlockMaskWithCodeTest(CallTest):
    """Texts of the caller's in the partial blocks of a block mask."""

    def setUp(self):
        super().setUp()
        attnforge.plan_cache.clear()
        self.slope, self.first = torch.Tensor((4,), "float32"), torch.Tensor((2,), "int32")
        self.blocks = attnforge.BlockMask.from_bsr([0, 1], [0], 64, 64, partial=[1])
        args = {"first": self.first, "slope": self.slope, "window": -7}
        self.texts = {"mask": "k < first[batch] || q - k < window", "score": "s + slope[head]", "args": args}

    def test_both_reach_the_run(self):
        seen, torch.uploads = [], []
        real = _call.Call.argument

        def recorded(call, *arguments, **of_run):
            argument, parts = real(call, *arguments, **of_run)
            struct = _c.Tensors.from_buffer_copy(argument)
            lists = _c.BlockMaskLists.from_address(struct.block_mask)
            words = (ctypes.c_uint64 * 3).from_address(struct.code_arguments)[:]
            seen.append((bool(lists.row_begin and lists.columns), words))
            return argument, parts

        launches = self.driver.fake_launches()
        with mock.patch.object(_call.Call, "argument", recorded):
            for _ in range(2):
                self.assertIs(self.call(block_mask=self.blocks, **self.texts), self.o)
        self.assertGreaterEqual(self.driver.fake_launches(), launches + 2)
        self.assertEqual(seen, [(True, [self.first.data_ptr(), self.slope.data_ptr(), 2**32 - 7])] * 2)
        self.assertEqual(len(torch.uploads), 2, "row_begin and columns, once")
        (plan,) = attnforge.plan_cache
        problem = plan.problem
        self.assertEqual((problem.mask_block_q, problem.mask_block_kv, problem.density), (64, 64, 1.0))
        self.assertEqual((problem.score, problem.mask), (self.texts["score"], self.texts["mask"]))
        self.assertEqual(problem.args, "int* first, float* slope, int window")

    def test_each_alone_and_both_are_problems_of_their_own(self):
        for options in ({}, {"block_mask": self.blocks}, {"mask": "k <= q"}, {"block_mask": self.blocks, "mask": "k <= q"}):
            before = len(attnforge.plan_cache)
            for _ in range(2):
                self.call(**options)
            self.assertEqual(len(attnforge.plan_cache), before + 1, options)

    def test_what_tune_asks_for_is_what_a_call_asks_for(self):
        options = {"block_mask": self.blocks, "causal": True, **self.texts}
        self.call(**options)
        (plan,) = attnforge.plan_cache
        self.assertEqual(_arguments.problem_of(self.q, self.k, self.v, **options), (plan.problem, 0))

    def test_one_in_the_place_of_the_other_is_refused(self):
        self.refused("mask is an attnforge._block_mask.BlockMask; it must be a str", mask=self.blocks)
        self.refused("block_mask is a str; it must be an attnforge.BlockMask", block_mask="k <= q")


class BlockMaskFromTextTest(CallTest):
    """Blocks that the GPU finds of a text. No kernel of the fake driver computes: no block is present."""

    TEXT = "document[batch * seqlen_q + q] == document[batch * seqlen_kv + k] || k < first"

    def setUp(self):
        super().setUp()
        attnforge.plan_cache.clear()
        self.args = {"document": torch.Tensor((2, 64), "int32"), "first": 3}

    def made(self, **options):
        return attnforge.BlockMask.from_text(self.TEXT, 64, args=self.args, block=(32, 16), batch=2, **options)

    def recorded(self, seen):
        """Notes the addresses of a run's lists and arguments."""
        real = _call.Call.argument

        def argument(call, *arguments, **of_run):
            packed, parts = real(call, *arguments, **of_run)
            struct = _c.Tensors.from_buffer_copy(packed)
            lists = _c.BlockMaskLists.from_address(struct.block_mask)
            words = struct.code_arguments and (ctypes.c_uint64 * 2).from_address(struct.code_arguments)[:]
            seen.append((lists.row_begin, lists.columns, lists.bits, lists.bit_blocks, words))
            return packed, parts

        return mock.patch.object(_call.Call, "argument", argument)

    def test_is_made_on_the_gpu_of_its_arrays_and_stream(self):
        torch.streams.append(0x77)
        self.addCleanup(torch.streams.pop)
        torch.uploads = []
        launches = self.driver.fake_launches()
        mask = self.made()
        self.assertEqual(self.driver.fake_launches(), launches + 3, "states, counts, beginnings: and nothing to list")
        self.assertEqual(self.driver.fake_last_stream(), 0x77)
        self.assertEqual(torch.uploads, [], "nothing comes from the host")
        self.assertEqual((mask.device, mask.seqlen, mask.block, mask.heads, mask.batch), (0, (64, 64), (32, 16), 1, 2))
        self.assertEqual((mask.blocks, mask.full, mask.partial, mask.has_bits), (16, 0, 0, False))
        self.assertTrue(mask.words.startswith("blocks=32:16 mask_batch=2 density="))
        self.assertEqual((mask.mask, mask.args), (self.TEXT, self.args))
        self.made()
        self.assertEqual(self.driver.fake_launches(), launches + 6)

    def test_brings_its_text_and_arguments_to_the_run(self):
        mask, seen = self.made(), []
        with self.recorded(seen):
            for _ in range(2):
                self.call(block_mask=mask, causal=True)
        self.assertEqual(seen[0], seen[1])
        row_begin, columns, bits, bit_blocks, words = seen[0]
        self.assertTrue(row_begin and columns and not bits and not bit_blocks)
        self.assertEqual(words, [self.args["document"].data_ptr(), 3])
        (plan,) = attnforge.plan_cache
        self.assertEqual((plan.problem.mask, plan.problem.args), (self.TEXT, "int* document, int first"))
        self.assertEqual((plan.problem.mask_block_q, plan.problem.mask_block_kv, plan.problem.mask_batch), (32, 16, 2))
        wanted = _arguments.problem_of(self.q, self.k, self.v, block_mask=mask, causal=True)
        self.assertEqual(wanted, (plan.problem, 0))

    def test_takes_arguments_of_a_call_before_its_own(self):
        mask, seen = self.made(), []
        with self.recorded(seen):
            self.call(block_mask=mask, args={"first": 5, "slope": 2.0}, score="s * slope")
        (plan,) = attnforge.plan_cache
        self.assertEqual(plan.problem.args, "int* document, int first, float slope")
        self.assertEqual(seen[0][-1], [self.args["document"].data_ptr(), 5])

    def test_with_bits_needs_no_text_in_runs(self):
        mask, seen = self.made(bits=True), []
        self.assertIsNone(mask.mask)
        with self.recorded(seen):
            self.call(block_mask=mask)
        self.assertTrue(all(seen[0][:4]))
        (plan,) = attnforge.plan_cache
        self.assertEqual((plan.problem.mask, plan.problem.mask_bits), ("", True))

    def test_goes_away_with_its_memory(self):
        self.made()
        self.driver.fake_device_bytes.restype = ctypes.c_size_t
        before = self.driver.fake_device_bytes()
        mask = self.made(bits=True)
        self.assertGreater(self.driver.fake_device_bytes(), before)
        del mask
        self.assertEqual(self.driver.fake_device_bytes(), before)

    def test_what_cannot_be_made_is_refused(self):
        make = attnforge.BlockMask.from_text
        cases = (
            ("the mask names head; say heads=", lambda: make("k < head", 64)),
            ("the mask names batch; say batch=", lambda: make("k < batch", 64)),
            ("mask_block_q=48", lambda: make("k <= q", 64, block=48)),
            ("mask does not close the", lambda: make("(k <= q", 64)),
            ("mask is an int", lambda: make(1, 64)),
            ("on GPU 0 and the mask is on GPU 1", lambda: self.made(device=1)),
            ("has no mask text", lambda: make("", 64)),
        )
        for text, action in cases:
            with self.subTest(text=text), self.assertRaisesRegex(attnforge.InvalidError, text):
                action()
        mask = make("k <= q", 64, device=1)
        self.refused("block_mask is on GPU 1 and q is on GPU 0", block_mask=mask)


class SinksTest(CallTest):
    """A logit for each of 4 heads."""

    def setUp(self):
        super().setUp()
        attnforge.plan_cache.clear()
        self.sinks = torch.Tensor((4,), "float32")
        self.options = {"sinks": self.sinks}

    def test_the_first_call_and_those_of_the_fast_path_bring_the_logits(self):
        seen = []

        def recorded(handle, tensors, *_):
            seen.append(_c.Tensors.from_buffer_copy(tensors).sinks)
            return 0

        self.call()
        (plan,) = attnforge.plan_cache
        wanted = "fwd bf16 batch=2 num_heads=4 seqlen=64 head_dim=64 sinks"
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
        other = torch.Tensor((4,), "float32")
        with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
            self.call()
            self.call(sinks=other)
        self.assertEqual(seen, [self.sinks.data_ptr(), other.data_ptr()])
        self.call(sinks=None)
        self.assertEqual(len(attnforge.plan_cache), 2, "without sinks it is another problem")

    def test_what_are_no_logits_of_the_heads_is_refused(self):
        of = torch.Tensor
        for sinks in (of((5,), "float32"), of((4,), "bfloat16"), of((4,), "float32", strides=(2,)), of((4, 1), "float32")):
            self.refused("sinks is .* it must be contiguous float32 .4,., a logit for each query head", sinks=sinks)
        self.refused("sinks", sinks=[0.0] * 4)
        self.refused("on GPU 1; it must be", sinks=of((4,), "float32", device=("cuda", 1)))


class LengthsTest(CallTest):
    """Three packed sequences of 4 heads, or padded ones whose lengths are on the GPU."""

    def setUp(self):
        super().setUp()
        attnforge.plan_cache.clear()
        self.q, self.k, self.v, self.o = self.packed(100)
        self.ends = torch.Tensor((4,), "int32")
        self.used = torch.Tensor((2,), "int32")
        self.padded = [torch.Tensor(SHAPE) for _ in range(3)]
        self.options = {"cu_seqlens": self.ends, "max_seqlen": 40}

    @staticmethod
    def packed(tokens, tokens_kv=None):
        rows = (tokens, tokens_kv or tokens, tokens_kv or tokens, tokens)
        return [torch.Tensor((count, 4, 64)) for count in rows]

    def lengths_of_call(self, *inputs, **options):
        """The Lengths and the strides of q that the fast path passes; the second such call takes it."""
        attnforge.attention(*inputs, **options)
        seen = []

        def recorded(handle, tensors, *_):
            struct = _c.Tensors.from_buffer_copy(tensors)
            lengths = _c.Lengths.from_address(struct.lengths)
            seen.append((lengths.q, lengths.kv, lengths.tokens_q, lengths.tokens_kv))
            seen.append((struct.q.stride_batch, struct.q.stride_row, struct.q.stride_head))
            seen.append((struct.lse.stride_batch, struct.lse.stride_head))
            return 0

        with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
            attnforge.attention(*inputs, **options)
        return seen

    def test_packed_sequences_are_a_problem_of_rounded_bounds_and_a_run_of_real_totals(self):
        o, lse = self.call(out=None, causal=True, return_lse=True)
        self.assertEqual((o.shape, lse.shape, lse.dtype), ((100, 4, 64), (4, 100), "float32"))
        (plan,) = attnforge.plan_cache
        wanted = "fwd bf16 batch=3 num_heads=4 seqlen=64 head_dim=64 causal lse lengths=packed tokens=128"
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
        inputs = self.q, *self.packed(100, 60)[1:3]
        ends = self.ends, torch.Tensor((4,), "int32")
        addresses = ends[0].data_ptr(), ends[1].data_ptr()
        seen = self.lengths_of_call(*inputs, cu_seqlens=ends, max_seqlen=(40, 17), return_lse=True)
        self.assertEqual(seen, [(*addresses, 100, 51), (0, 256, 64), (0, 100)])  # of 60 rows no more than 3 * 17 are in use
        of_q = self.lengths_of_call(*self.packed(200)[:3], cu_seqlens=self.ends, max_seqlen=40)
        self.assertEqual(of_q[0][2:], (120, 120), "of 200 rows no more than 3 * 40")
        problem = list(attnforge.plan_cache)[-2].problem
        self.assertEqual((problem.seqlen_q, problem.seqlen_kv, problem.tokens_q, problem.tokens_kv), (64, 64, 128, 64))

    def test_totals_of_one_bucket_share_a_plan(self):
        for tokens, longest in ((100, 40), (128, 64), (65, 33), (100, 40)):
            q, k, v, o = self.packed(tokens)
            for _ in range(2):
                attnforge.attention(q, k, v, out=o, cu_seqlens=self.ends, max_seqlen=longest)
        self.assertEqual(len(attnforge.plan_cache), 1)
        q, k, v, o = self.packed(129)
        attnforge.attention(q, k, v, out=o, cu_seqlens=self.ends, max_seqlen=64)
        self.assertEqual(len(attnforge.plan_cache), 2)

    def test_bounds_are_on_the_grid_of_the_tuner(self):
        grid = (0, 1, 16, 64, 128, 256, 512, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120)  # of generator/problem/bucket.cpp
        for below, bound in zip(grid, grid[1:]):
            self.assertEqual([_lengths.rounded(below + 1), _lengths.rounded(bound)], [bound, bound])
        self.assertEqual(_lengths.rounded(100001), 114688)
        self.assertEqual(_lengths.packed_bounds(3, 1000, 2100), (1024, 2560))
        self.assertEqual(_lengths.packed_bounds(3, 1000, 10**6), (1024, 3072), "not more than all sequences have")

    def test_used_lengths_of_padded_tensors(self):
        address = self.used.data_ptr()
        more = torch.Tensor((2,), "int32")
        cases = ((self.used, (None, address)), ((None, self.used), (None, address)), ((more, None), (more.data_ptr(), None)))
        cases += (((more, self.used), (more.data_ptr(), address)),)
        for used, addresses in cases:
            seen = self.lengths_of_call(*self.padded, used_kv=used)
            self.assertEqual(seen[:2], [(*addresses, 0, 0), (64 * 256, 256, 64)])
        (plan,) = attnforge.plan_cache
        wanted = "fwd bf16 batch=2 num_heads=4 seqlen=64 head_dim=64 lengths=used"
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))

    def test_the_second_call_of_a_kind_takes_the_fast_path(self):
        ends = torch.Tensor((4,), "int32")
        calls = [lambda: self.call(), lambda: self.call(out=None, return_lse=True), lambda: self.call(cu_seqlens=(self.ends, ends))]
        calls += [lambda: attnforge.attention(*self.padded, used_kv=self.used)]
        for i, call in enumerate(calls):
            with self.subTest(i=i):
                call()
                launches = self.driver.fake_launches()
                with mock.patch.object(_attention, "_attend", side_effect=AssertionError("the slow path was taken")):
                    call()
                self.assertGreater(self.driver.fake_launches(), launches)

    def test_other_lengths_or_other_kinds_are_not_taken_for_each_other(self):
        self.call()
        self.refused("max_seqlen=-1 ", max_seqlen=-1)
        self.refused("cu_seqlens needs max_seqlen", max_seqlen=None)
        self.refused("max_seqlen goes with cu_seqlens", cu_seqlens=None)
        self.refused("int32", cu_seqlens=torch.Tensor((4,), "int64"))

    def test_what_is_refused_of_packed_sequences(self):
        def of(*shape, dtype="int32", **options):
            return torch.Tensor(shape, dtype, **options)

        self.refused("cu_seqlens has dtype int64.*use int32", cu_seqlens=of(4, dtype="int64"))
        self.refused("cu_seqlens has dtype bfloat16", cu_seqlens=of(4, dtype="bfloat16"))
        self.refused("cu_seqlens is on cpu", cu_seqlens=of(4, device=("cpu", None)))
        self.refused("cu_seqlens has shape .4,. .*GPU 1", cu_seqlens=of(4, device=("cuda", 1)))
        self.refused(r"cu_seqlens\[1\] is on cpu", cu_seqlens=(self.ends, of(4, device=("cpu", None))))
        self.refused("cu_seqlens has shape .5,..*the same for q and k", cu_seqlens=(self.ends, of(5)))
        for ends in (of(1), of(4, 1), of(), of(4, strides=(2,))):
            self.refused(r"it must be contiguous int32 \[batch . 1\]", cu_seqlens=ends)
        for ends in ((self.ends, None), (None, self.ends)):
            self.refused(r"cu_seqlens\[[01]\] is None, which is not a device array", cu_seqlens=ends)
        self.refused("cu_seqlens has 4 elements; it must be an int32 array", cu_seqlens=[0, 3, 7, 100])
        for longest in (-1, 1.5, "4", True, 2**40, (1, 2, 3), (4, None), torch.Tensor(())):
            self.refused("max_seqlen", max_seqlen=longest)
        self.refused("both passed", cu_seqlens=self.ends, used_kv=self.used)
        self.refused("layout='bhsd'", layout="bhsd")
        table = torch.Tensor((70, 32), "float32")
        self.refused("rope does not go with", rope=(table, table))
        self.refused("lse of out", return_lse=True, out=(self.o, torch.Tensor((100, 4), "float32")))
        self.refused("out has shape", out=torch.Tensor((99, 4, 64)))
        self.refused("out shares memory with the lengths of", cu_seqlens=of(4, address=self.o.data_ptr()))
        self.q = torch.Tensor((1, 100, 4, 64))
        self.refused(r"q has shape .1, 100, 4, 64.; attention needs \[tokens, heads, head_dim\]")

    def test_what_is_refused_of_used_lengths(self):
        self.q, self.k, self.v = self.padded
        self.o, self.options = torch.Tensor(SHAPE), {}
        self.refused("used_kv has shape .3,..*here .2,.", used_kv=torch.Tensor((3,), "int32"))
        self.refused(r"used_kv\[0\] has dtype int64", used_kv=(torch.Tensor((2,), "int64"), None))
        self.refused("used_kv is a pair without an array", used_kv=(None, None))
        self.refused("max_seqlen goes with cu_seqlens", used_kv=self.used, max_seqlen=64)
        table = torch.Tensor((70, 32), "float32")
        self.refused("rope does not go with", used_kv=self.used, rope=(table, table))

    def test_tensors_without_rows(self):
        none = torch.Tensor((0, 4, 64), address=0)
        launches = self.driver.fake_launches()
        for _ in range(2):
            o = attnforge.attention(none, self.k, self.v, cu_seqlens=self.ends, max_seqlen=40)
            self.assertEqual((o.shape, self.driver.fake_launches()), ((0, 4, 64), launches), "nothing to compute")
        for _ in range(2):
            before = self.driver.fake_launches()
            attnforge.attention(self.q, none, none, out=self.o, cu_seqlens=(self.ends, self.ends), max_seqlen=(40, 0))
            attnforge.attention(self.q, none, none, out=self.o, cu_seqlens=self.ends, max_seqlen=40)
            self.assertGreater(self.driver.fake_launches(), before + 1, "o and lse have values without keys too")

    def test_a_run_without_rows_of_keys_does_not_ask_for_all_that_there_may_be(self):
        none = torch.Tensor((0, 4, 64), address=0)
        argument, seen = _call.Call.argument, []

        def recorded(*given, **of_run):
            tensors, kept = argument(*given, **of_run)
            struct = _c.Tensors.from_buffer_copy(tensors)
            lengths = _c.Lengths.from_address(struct.lengths)
            seen.append((lengths.tokens_q, lengths.tokens_kv))
            return tensors, kept

        with mock.patch.object(_call.Call, "argument", recorded):
            attnforge.attention(self.q, none, none, cu_seqlens=(self.ends, self.ends), max_seqlen=(40, 30))
        self.assertEqual(seen, [(100, 1)])
        for rows, wanted in ((0, 1), (1, 1), (2, 2), (90, 90), (91, 90)):
            self.assertEqual(_lengths.packed_rows(3, 30, rows), wanted)
        self.assertEqual(_lengths.packed_rows(3, 0, 5), 0, "no sequence may have rows")
        self.assertEqual(_lengths.packed_bounds(3, 30, 0), (64, 1))

    def test_tune_takes_them_as_attention_does(self):
        problem, _ = _arguments.problem_of(*self.packed(100)[:3], causal=True, cu_seqlens=self.ends, max_seqlen=40)
        self.call(causal=True)
        (plan,) = attnforge.plan_cache
        self.assertEqual(problem, plan.problem)
        problem, _ = _arguments.problem_of(*self.padded, used_kv=self.used)
        self.assertEqual(problem.lengths, "used")


class ScalesTest(CallTest):
    """k and v of 8 and 4 bits, of 4 heads of 2 sequences of 64 rows."""

    SCALES = {
        "tensor": (1,), "head": (2, 4), "token": (2, 64, 4), "group32": (2, 64, 4, 2), "group64": (2, 64, 4, 1)
    }

    def setUp(self):
        super().setUp()
        attnforge.plan_cache.clear()
        self.k, self.v = torch.Tensor(SHAPE, "int8"), torch.Tensor((*SHAPE[:-1], 32), "uint8")

    def test_tune_takes_int4_with_scales_for_no_blocks(self):
        q, v = torch.Tensor((1, 4, 2, 64)), torch.Tensor((1, 4, 2, 36), "uint8")
        problem, _ = _arguments.problem_of(q, torch.Tensor((1, 4, 2, 64)), v, v_scale=torch.Tensor((1, 4, 2), "float32"))
        self.assertEqual((problem.dtype_v, problem.head_dim_v), ("int4", 72))

    def test_shapes_of_scales_say_what_shares_one(self):
        for kind, shape in self.SCALES.items():
            with self.subTest(kind=kind):
                attnforge.plan_cache.clear()
                options = {"k_scale": torch.Tensor(shape, "float32"), "v_scale": torch.Tensor(shape, "float32")}
                self.call(**options)
                (plan,) = attnforge.plan_cache
                wanted = f"fwd q=bf16 k=int8 v=int4 o=bf16 batch=2 num_heads=4 seqlen=64 head_dim=64 kv_scale={kind}"
                self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
                seen = []

                def recorded(handle, tensors, *_):
                    struct = _c.Tensors.from_buffer_copy(tensors)
                    scales = _c.KvScales.from_address(struct.kv_scales)
                    seen.append((scales.k.data, scales.k.stride_batch, scales.k.stride_row, scales.k.stride_head))
                    seen.append((struct.k.stride_row, struct.v.stride_row))
                    return 0

                with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
                    self.call(**options)
                of_each = {"tensor": (0, 0, 0), "head": (4, 0, 1), "token": (256, 4, 1), "group32": (512, 8, 2), "group64": (256, 4, 1)}
                self.assertEqual(seen, [(options["k_scale"].data_ptr(), *of_each[kind]), (256, 256)], "strides in numbers, not in bytes")

    def test_of_packed_sequences_heads_have_their_own_in_each(self):
        self.q, self.k, self.v = torch.Tensor((128, 4, 64)), torch.Tensor((128, 4, 64), "int8"), torch.Tensor((128, 4, 64), "int8")
        self.o, ends, seen = torch.Tensor((128, 4, 64)), torch.Tensor((3,), "int32"), []

        def recorded(handle, tensors, *_):
            scales = _c.KvScales.from_address(_c.Tensors.from_buffer_copy(tensors).kv_scales)
            seen.append((scales.k.stride_batch, scales.k.stride_row, scales.k.stride_head))
            return 0

        of_each = {(2, 4): (4, 0, 1), (4,): (0, 0, 1), (128, 4): (0, 4, 1), (128, 4, 2): (0, 8, 2)}
        for shape in of_each:
            options = {"k_scale": torch.Tensor(shape, "float32"), "v_scale": torch.Tensor(shape, "float32")}
            options |= {"cu_seqlens": ends, "max_seqlen": 100}
            self.call(**options)
            with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
                self.call(**options)
        self.assertEqual(seen, list(of_each.values()))

    def test_groups_longer_than_a_row_go_with_those_of_longer_rows(self):
        self.v = torch.Tensor((*SHAPE[:-1], 128), "int8")
        self.o = torch.Tensor((*SHAPE[:-1], 128))
        self.call(k_scale=torch.Tensor((2, 64, 4, 1), "float32"), v_scale=torch.Tensor((2, 64, 4, 1), "float32"))
        (plan,) = attnforge.plan_cache
        self.assertEqual(plan.problem.kv_scale, "group128", "of 64 columns, and of 128")

    def test_pairs_are_scales_and_zero_points(self):
        self.k = self.v
        for shape, words, strides in (
            ((2, 64, 4, 1, 2), "kv_scale=token kv_zero", (512, 8, 2)),
            ((2, 64, 4, 2, 2), "kv_scale=group32 kv_zero", (1024, 16, 4)),
        ):
            with self.subTest(words=words):
                attnforge.plan_cache.clear()
                options = {name: torch.Tensor(shape, "float32") for name in ("k_scale", "v_scale")}
                self.call(**options)
                (plan,) = attnforge.plan_cache
                wanted = f"fwd q=bf16 k=int4 v=int4 o=bf16 batch=2 num_heads=4 seqlen=64 head_dim=64 {words}"
                self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
                seen = []

                def recorded(handle, tensors, *_):
                    scales = _c.KvScales.from_address(_c.Tensors.from_buffer_copy(tensors).kv_scales)
                    seen.append((scales.v.stride_batch, scales.v.stride_row, scales.v.stride_head))
                    return 0

                with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
                    self.call(**options)
                self.assertEqual(seen, [strides])
        of = lambda *shape, **more: torch.Tensor(shape, "float32", **more)
        pairs = of(2, 64, 4, 1, 2)
        for words, options in (
            ("both or none must", {"k_scale": pairs, "v_scale": of(2, 64, 4)}),
            ("k_scale has shape .2, 64, 4, 3, 2.", {"k_scale": of(2, 64, 4, 3, 2), "v_scale": pairs}),
            ("contiguous there", {"k_scale": of(2, 64, 4, 2, 2, strides=(2048, 32, 8, 1, 2)), "v_scale": of(2, 64, 4, 2, 2)}),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(attnforge.InvalidError, words):
                self.call(**options)
        self.k = torch.Tensor(SHAPE, "int8")
        with self.assertRaisesRegex(attnforge.InvalidError, "k_scale has zero points, which are of uint8 .4 bits., not of int8"):
            self.call(k_scale=pairs, v_scale=pairs)

    def test_numbers_may_be_values(self):
        self.k, self.v = torch.Tensor(SHAPE, "float8_e4m3fn"), torch.Tensor(SHAPE, "float8_e5m2")
        self.call()
        (plan,) = attnforge.plan_cache
        self.assertEqual((plan.problem.dtype_k, plan.problem.dtype_v, plan.problem.kv_scale), ("e4m3", "e5m2", "none"))

    def test_queries_of_8_bits_have_scales_of_heads(self):
        self.q = self.k = self.v = torch.Tensor(SHAPE, "float8_e4m3fn")
        self.o = torch.Tensor(SHAPE)
        of = lambda *shape, **more: torch.Tensor(shape, "float32", **more)
        one = {name: of(1) for name in ("q_scale", "k_scale", "v_scale")}
        heads = {name: of(2, 4) for name in ("q_scale", "k_scale", "v_scale")}
        base = "fwd e4m3 batch=2 num_heads=4 seqlen=64 head_dim=64 "
        for options, words in (({}, ""), (one, "kv_scale=tensor"), ({**heads, "fast_sums": True}, "kv_scale=head fast_sums")):
            attnforge.plan_cache.clear()
            self.call(**options)
            (plan,) = attnforge.plan_cache
            self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(base + words)))
        seen = []

        def recorded(handle, tensors, *_):
            scales = _c.KvScales.from_address(_c.Tensors.from_buffer_copy(tensors).kv_scales)
            seen.append((scales.q.data, scales.q.stride_batch, scales.q.stride_row, scales.q.stride_head))
            return 0

        with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
            self.call(**heads, fast_sums=True)
        self.q, self.o = torch.Tensor((2, 64, 8, 64), "float8_e4m3fn"), torch.Tensor((2, 64, 8, 64))
        rows = {"q_scale": of(2, 64, 8), "k_scale": of(2, 64, 4), "v_scale": of(2, 4)}
        attnforge.plan_cache.clear()
        self.call(**rows)
        (plan,) = attnforge.plan_cache
        self.assertEqual((plan.problem.kv_scale, plan.problem.num_heads_q), ("token", 8))
        with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
            self.call(**rows)
        self.assertEqual(seen, [(heads["q_scale"].data_ptr(), 4, 0, 1), (rows["q_scale"].data_ptr(), 512, 8, 1)])
        for words, options in (
            ("v_scale has shape .2, 64, 4. on GPU 0; beside scales of rows of q and k of float8", {**rows, "v_scale": of(2, 64, 4)}),
            ("q_scale and k_scale must both be there, of one element, of heads or of rows", {**rows, "q_scale": of(2, 4)}),
            ("q_scale and k_scale must both be there", {**heads, "q_scale": of(2, 64, 8)}),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(attnforge.InvalidError, words):
                self.call(**options)
        self.q, self.o = self.k, torch.Tensor(SHAPE)
        for words, options in (
            ("q_scale is missing: q is e4m3", {**one, "q_scale": None}),
            ("q_scale has shape .3,.", {**heads, "q_scale": of(3)}),
            ("on GPU 1; it must be", {**heads, "q_scale": of(4, device=("cuda", 1))}),
            ("must both be there, of one element, of heads or of rows", {**heads, "q_scale": of(1)}),
            ("must both be there", {"q_scale": of(1)}),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(attnforge.InvalidError, words):
                self.call(**options)
        self.q = torch.Tensor(SHAPE)
        with self.assertRaisesRegex(attnforge.InvalidError, "q_scale goes with q of float8_e4m3fn, not of bfloat16; leave it out"):
            self.call(**one)

    def test_what_does_not_fit_is_refused(self):
        of = lambda *shape, **more: torch.Tensor(shape, "float32", **more)
        token = of(2, 64, 4)
        for words, options in (
            ("k_scale is missing: k is int8", {"v_scale": token}),
            (r"k_scale has shape .2, 65, 4.", {"k_scale": of(2, 65, 4), "v_scale": token}),
            (r"k_scale has shape .3, 4.", {"k_scale": of(3, 4), "v_scale": of(3, 4)}),
            ("contiguous there, on GPU 0", {"k_scale": of(2, 64, 4, 2, strides=(1024, 16, 4, 2)), "v_scale": of(2, 64, 4, 2)}),
            ("on GPU 1; it must be", {"k_scale": of(2, 64, 4, device=("cuda", 1)), "v_scale": token}),
            ("must be of one kind", {"k_scale": of(4), "v_scale": token}),
            ("k_scale has dtype int32", {"k_scale": torch.Tensor((4,), "int32"), "v_scale": token}),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(attnforge.InvalidError, words):
                self.call(**options)
        self.v = torch.Tensor(SHAPE)
        with self.assertRaisesRegex(attnforge.InvalidError, "v_scale goes with v of int8.*not of bfloat16; leave it out"):
            self.call(k_scale=token, v_scale=token)
        self.q = torch.Tensor(SHAPE, "int8")
        with self.assertRaisesRegex(attnforge.InvalidError, "q has dtype int8"):
            self.call()

    def test_rows_on_odd_bytes_are_refused_by_name(self):
        token = torch.Tensor((2, 64, 4), "float32")
        wide = torch.Tensor((*SHAPE[:-1], 64), "int8", strides=(64 * 4 * 67, 4 * 67, 67, 1))
        for words, k in ((r"of k .address 0x\w+1, strides", torch.Tensor(SHAPE, "int8", address=0x7E0000000001)), ("of k .*67, 1..;", wide)):
            self.k = k
            with self.subTest(words), self.assertRaisesRegex(attnforge.InvalidError, f"^rows begin on odd bytes, here {words}"):
                self.call(k_scale=token, v_scale=token)


class PagesTest(CallTest):
    """Two sequences whose keys lie in pages of 16."""

    WANTED = "fwd bf16 batch=2 num_heads=4 seqlen=64:48 head_dim=64 lengths=used page_size=16"

    def setUp(self):
        super().setUp()
        attnforge.plan_cache.clear()
        self.k, self.v = torch.Tensor((9, 16, 4, 64)), torch.Tensor((9, 16, 4, 64))
        self.used, self.table = torch.Tensor((2,), "int32"), torch.Tensor((2, 3), "int32", strides=(8, 1))
        self.options = {"used_kv": self.used, "page_table": self.table}

    def pages_of(self, *calls):
        seen = []

        def recorded(handle, tensors, *_):
            struct = _c.Tensors.from_buffer_copy(tensors)
            pages = _c.Pages.from_address(struct.pages)
            seen.append((pages.table, pages.stride_batch, pages.num_pages, struct.k.stride_batch, struct.k.stride_row))
            return 0

        with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
            for call in calls:
                call()
        return seen

    def test_calls_of_the_fast_path_bring_the_table(self):
        self.call()
        (plan,) = attnforge.plan_cache
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(self.WANTED)))
        other = torch.Tensor((2, 3), "int32", strides=(8, 1))
        seen = self.pages_of(self.call, lambda: self.call(page_table=other))
        of_pool = 8, 9, 16 * 256, 256
        self.assertEqual(seen, [(self.table.data_ptr(), *of_pool), (other.data_ptr(), *of_pool)])
        longer = torch.Tensor((2, 4), "int32")
        self.call(page_table=longer)
        self.assertEqual(list(attnforge.plan_cache)[-1].problem.seqlen_kv, 64)

    def test_heads_first(self):
        self.q, self.o = torch.Tensor((2, 4, 64, 64)), torch.Tensor((2, 4, 64, 64))
        self.k, self.v = torch.Tensor((9, 4, 16, 64)), torch.Tensor((9, 4, 16, 64))
        self.call(layout="bhsd")
        seen = self.pages_of(lambda: self.call(layout="bhsd"))
        self.assertEqual(seen, [(self.table.data_ptr(), 8, 9, 16 * 256, 64)])

    def test_tune_takes_them_as_attention_does(self):
        problem, _ = _arguments.problem_of(self.q, self.k, self.v, **self.options)
        self.assertEqual(str(problem), str(attnforge.Problem.parse(self.WANTED)))

    def test_queries_may_be_packed(self):
        ends = torch.Tensor((3,), "int32")
        q, o = torch.Tensor((100, 4, 64)), torch.Tensor((100, 4, 64))
        options = {"cu_seqlens": ends, "max_seqlen": 90, "used_kv": self.used, "page_table": self.table, "out": o}
        attnforge.attention(q, self.k, self.v, **options)
        (plan,) = attnforge.plan_cache
        wanted = "fwd bf16 batch=2 num_heads=4 seqlen=128:48 head_dim=64 lengths=packed tokens_q=128 tokens_kv=0 page_size=16"
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
        seen = []

        def recorded(handle, tensors, *_):
            struct = _c.Tensors.from_buffer_copy(tensors)
            lengths = _c.Lengths.from_address(struct.lengths)
            seen.append((lengths.q, lengths.kv, lengths.tokens_q, lengths.tokens_kv))
            seen.append((struct.q.stride_batch, struct.q.stride_row, struct.k.stride_batch, struct.k.stride_row, struct.o.stride_row))
            return 0

        with mock.patch.object(_fast.fast, "run", recorded), mock.patch.object(_attention, "_attend"):
            attnforge.attention(q, self.k, self.v, **options)
        self.assertEqual(seen, [(ends.data_ptr(), self.used.data_ptr(), 100, 0), (0, 256, 16 * 256, 256, 256)])
        for text, changed in (
            ("cu_seqlens is of q alone", {"cu_seqlens": (ends, ends)}),
            ("cu_seqlens is of q alone", {"used_kv": (self.used, self.used)}),
            ("page_table goes with used_kv", {"used_kv": None}),
            ("used_kv has shape .3,..*here .2,.", {"used_kv": ends}),
            ("page_table has shape .3, 3.", {"page_table": torch.Tensor((3, 3), "int32")}),
            ("cu_seqlens needs max_seqlen", {"max_seqlen": None}),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(attnforge.InvalidError, text):
                attnforge.attention(q, self.k, self.v, **{**options, **changed})

    def test_batch_invariance_is_a_word_of_the_problem(self):
        for _ in range(2):
            self.call(batch_invariant=True)
        self.call()
        texts = [str(plan.problem) for plan in attnforge.plan_cache]
        self.assertEqual(texts, [str(attnforge.Problem.parse(self.WANTED + word)) for word in (" batch_invariant", "")])
        problem, _ = _arguments.problem_of(self.q, self.k, self.v, batch_invariant=True, **self.options)
        self.assertTrue(problem.batch_invariant)
        self.refused("batch_invariant=2 must be True or False", batch_invariant=2)
        self.refused("deterministic=2 must be True or False", deterministic=2)

    def test_what_is_refused(self):
        of = torch.Tensor
        self.refused("page_table goes with used_kv", used_kv=None)
        self.refused("page_table goes with used_kv", used_kv=(self.used, None))
        self.refused("page_table has dtype int64", page_table=of((2, 3), "int64"))
        self.refused(r"page_table has shape .3, 3.*here of 2 rows", page_table=of((3, 3), "int32"))
        self.refused(r"page_table has shape .6,.; it must be", page_table=of((6,), "int32"))
        self.refused("contiguous in its last dimension", page_table=of((2, 3), "int32", strides=(6, 2)))
        self.refused("on GPU 1; it", page_table=of((2, 3), "int32", device=("cuda", 1)))
        self.v = of((8, 16, 4, 64))
        self.refused("k has 9 pages and v has 8")
        self.k, self.v = of((9, 12, 4, 64)), of((9, 12, 4, 64))
        self.refused("page_size=12")


class StreamTest(CallTest):
    def test_the_current_stream_is_asked_for_in_every_call(self):
        for number in (0x10, 0x20):
            with torch.cuda.stream(number):
                self.call()
            self.assertEqual(self.driver.fake_last_stream(), number)

    def test_outputs_are_allocated_on_the_stream_of_the_run(self):
        for _ in range(3):
            torch.empty_streams.clear()
            self.call(out=None, return_lse=True, stream=0x30)
            self.assertEqual(torch.empty_streams, [0x30, 0x30])
            self.assertEqual(self.driver.fake_last_stream(), 0x30)

    def test_scratch_is_allocated_on_the_stream_of_the_run(self):
        attnforge.configure(family="fwd_materialized")
        try:
            for stream in (0x40, 0x40, 0x50):
                torch.empty_streams.clear()
                self.call(stream=stream)
                self.assertEqual(torch.empty_streams, [stream])
        finally:
            attnforge.configure(family="")

    def test_scratch_of_a_repeated_call_is_the_current_streams(self):
        attnforge.configure(family="fwd_materialized")
        try:
            self.call()
            for number in (0x10, 0x20):
                torch.empty_streams.clear()
                launches = self.driver.fake_launches()
                with torch.cuda.stream(number), mock.patch.object(_attention, "_attend", side_effect=AssertionError):
                    self.call()
                self.assertEqual((torch.empty_streams, self.driver.fake_last_stream()), ([number], number))
                self.assertGreater(self.driver.fake_launches(), launches)
        finally:
            attnforge.configure(family="")

    def test_what_is_not_a_number_is_refused_and_does_not_end_the_process(self):
        for stream in ("x", b"x", 1.5, -1, 2**64, object(), ctypes.c_void_p(7), True):
            self.refused("stream", stream=stream)


class RefusedTest(CallTest):
    """After calls that were fine: what is remembered does not hide what is wrong now."""

    def test_last_dimensions_that_run_backwards(self):
        backwards = torch.Tensor(SHAPE, strides=(64 * 256, 256, 64, -1))
        for k, v in ((backwards, backwards), (backwards, self.v), (self.k, backwards)):
            with self.assertRaisesRegex(attnforge.InvalidError, "the last dimension of [kv] has stride -1"):
                attnforge.attention(self.q, k, v, out=self.o)
        with self.assertRaisesRegex(attnforge.InvalidError, "the last dimension of q has stride -1"):
            attnforge.attention(backwards, self.k, self.v, out=self.o)
        self.refused("the last dimension of out has stride -1", out=backwards)
        lse = torch.Tensor((2, 4, 64), "float32", strides=(256, 64, -1))
        self.refused("the lse of out .*contiguous last", out=(self.o, lse), return_lse=True)
        table, odd = torch.Tensor((70, 32), "float32"), torch.Tensor((70, 32), "float32", strides=(32, -1))
        self.refused("cos of rope .*contiguous", rope=(odd, table))
        self.refused("sin of rope .*contiguous", rope=(table, odd))

    def test_tensors_as_options(self):
        scalar = torch.Tensor(())
        for name in ("softmax_scale", "window", "softcap", "causal", "return_lse", "tf32", "rope_offset"):
            self.refused(f"{name} is a torch", **{name: scalar})
        table = torch.Tensor((70, 32), "float32")
        self.refused("rope_interleaved is a torch", rope=(table, table), rope_interleaved=scalar)
        self.refused(r"window\[1\] is a torch", window=(3, scalar))
        self.refused("no gradient goes through softmax_scale", softmax_scale=type("P", (torch.Parameter,), {"__dlpack__": 0})(()))

    def test_options_of_wrong_types_and_values(self):
        cases = {
            "window": ((5,), (1, 2, 3), "5", 2.5, -2, 2**63, {1, 2}, (None, "x")),
            "softmax_scale": (0, -1.0, float("nan"), float("inf"), "1", 1e-60, 1e60, 10**400, True, [1]),
            "softcap": (float("nan"), "1", 1e-60, True, -3.0),
            "causal": (2, "yes", None, 0.5, []),
            "layout": ("sbhd", 5, None, []),
            "return_lse": (None, "no"),
            "tf32": (3,),
            "rope": (5, (1, 2, 3)),
            "rope_offset": (2**63, 2**64, "1", 1.5),
            "out": (5, (1, 2)),
        }
        for name, values in cases.items():
            for value in values:
                with self.subTest(name=name, value=repr(value)[:20]):
                    self.refused("", **{name: value})

    def test_scalars_of_numpy_are_numbers(self):
        class Generic:
            def __init__(self, value):
                self.value = value

            def item(self):
                return self.value

        with mock.patch.dict(sys.modules, numpy=types.SimpleNamespace(generic=Generic)):
            self.assertEqual(_checks.integer("window", Generic(3), 0, 9), 3)
            self.assertEqual(_checks.number("softcap", Generic(0.5)), 0.5)
            self.assertIs(_checks.flag("causal", Generic(True)), True)

    def test_tensors_without_memory_of_their_own(self):
        spoiled = (
            ({"_address": 0}, "q is null"),
            ({"_address": "none"}, "q has no memory"),
            ({"_address": "none", "layout": "sparse_coo"}, "q is a tensor of layout sparse_coo"),
            ({"_address": "none", "is_nested": True}, "q is a tensor of layout nested"),
            ({"negative": True}, r"q\.resolve_neg"),
            ({"dtype": "float64"}, "q has dtype float64"),
        )
        for fields, text in spoiled:
            self.q = torch.Tensor(SHAPE)
            vars(self.q).update(fields)
            self.refused(text)
        for place, text in (("cpu", "q is on cpu"), ("meta", "q is on meta")):
            self.q = torch.Tensor(SHAPE, device=(place, None))
            self.refused(text)
        self.q = torch.DTensor(SHAPE)
        self.refused("q is a torch.distributed.tensor.*to_local")

    def test_the_tensor_at_fault_is_named(self):
        for name in "qkv":
            good = getattr(self, name)
            setattr(self, name, torch.Tensor(SHAPE, device=("cpu", None)))
            self.refused(f"^{name} is on cpu")
            setattr(self, name, good)
        self.refused("^out is on cpu", out=torch.Tensor(SHAPE, device=("cpu", None)))

    def test_gradients_of_outputs_of_the_callers(self):
        for name in ("q", "k", "v", "o"):
            getattr(self, name).requires_grad = True
            self.call()  # grad is off
            with mock.patch.object(torch, "grad_enabled", True):
                self.refused("^out requires grad" if name == "o" else f"^{name} requires grad, and out= does not go with gradients")
            getattr(self, name).requires_grad = False
        with mock.patch.object(torch, "grad_enabled", True):
            self.call()

    def test_forward_mode_tangents(self):
        with mock.patch.object(torch.autograd.forward_ad, "_current_level", 0):
            self.call()
            self.k.tangent = object()
            self.refused("^k has a forward-mode tangent")

    def test_outputs_over_themselves(self):
        self.refused("out .*at one place", out=torch.Tensor(SHAPE, strides=(64 * 256, 0, 64, 1)))
        self.refused("out .*at one place", out=torch.Tensor(SHAPE, strides=(64 * 256, 256, 32, 1)))
        lse = torch.Tensor((2, 4, 64), "float32", strides=(0, 64, 1))
        self.refused("the lse of out .*at one place", out=(self.o, lse), return_lse=True)

    def test_outputs_over_inputs(self):
        for name in "qkv":
            self.refused(f"out shares memory with {name}", out=getattr(self, name))
        size = 2 * 64 * 4 * 64 * 2
        for distance, shared in ((-size, False), (-size + 16, True), (size - 16, True), (size, False)):
            o = torch.Tensor(SHAPE, address=self.v.data_ptr() + distance)
            self.refused("out shares memory with v", out=o) if shared else self.call(out=o)
        lse = torch.Tensor((2, 4, 64), "float32", address=self.k.data_ptr() + 64)
        self.refused("the lse of out shares memory with k", out=(self.o, lse), return_lse=True)
        lse = torch.Tensor((2, 4, 64), "float32", address=self.o.data_ptr() + 64)
        self.refused("the lse of out shares memory with out", out=(self.o, lse), return_lse=True)

    def test_outputs_over_inputs_of_a_call_like_an_earlier_one(self):
        def lse(address=None):
            return torch.Tensor((2, 4, 64), "float32", address=address)

        for _ in range(3):
            self.call(out=(self.o, lse()), return_lse=True)
        for name in "qkvo":
            at = getattr(self, name).data_ptr() + 64
            self.refused(f"the lse of out shares memory with {name}", out=(self.o, lse(at)), return_lse=True)
        # Beside what parts bring: the rows of o, and of lse.
        self.options = {"used_kv": torch.Tensor((2,), "int32")}
        for _ in range(3):
            self.call(out=(self.o, lse()), return_lse=True)
            self.call()
        used = [torch.Tensor((2,), "int32", address=at) for at in (self.o.data_ptr() + 64, lse().data_ptr())]
        self.refused("out shares memory with the lengths", used_kv=used[0])
        self.refused(
            "the lse of out shares memory with the lengths", used_kv=used[1], out=(self.o, lse(used[1].data_ptr())), return_lse=True
        )

    def test_outputs_between_the_rows_of_an_input_are_fine(self):
        strides = (64 * 4 * 256, 4 * 256, 64, 1)
        base = torch.allocate(1 << 20)
        self.q, self.k, self.v, self.o = (torch.Tensor(SHAPE, strides=strides, address=base + 512 * i) for i in range(4))
        for _ in range(3):
            self.call()
        self.refused("out shares memory with v", out=torch.Tensor(SHAPE, strides=strides, address=base + 512 * 2 + 16))

    def test_what_a_call_remembers_of_outputs_between_rows_does_not_grow_for_ever(self):
        strides = (64 * 4 * 256, 4 * 256, 64, 1)
        base = torch.allocate(1 << 20)
        self.q, self.k, self.v = (torch.Tensor(SHAPE, strides=strides, address=base + 512 * i) for i in range(3))
        sizes = set()
        check = _call.Call.check_apart

        def counted(call, addresses):
            check(call, addresses)
            sizes.add(len(call._apart))

        with mock.patch.object(_call.Call, "check_apart", counted):
            for row in range(100):
                self.call(out=torch.Tensor(SHAPE, strides=strides, address=base + 512 * 3 + 2048 * row))
        self.assertEqual((min(sizes), max(sizes)), (1, 64))


class ForkTest(CallTest):
    """CUDA does not survive a fork, which is how multiprocessing starts its children on Linux by default."""

    def test_a_child_is_refused_in_words_and_the_parent_goes_on(self):
        text = "fwd fp16 num_heads=2 seqlen=128 head_dim=64"

        def refusals(pipe):
            said = []
            for what in (self.call, lambda: self.call(causal=True), lambda: attnforge.tune(text)):
                try:
                    what()
                    said.append("it was not refused")
                except attnforge.CudaError as error:
                    said.append(str(error))
            said.append(attnforge.inspect(text, arch="90a", compile=False)["problem"])
            pipe.send(said)

        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=refusals, args=(there,))
        child.start()
        self.assertTrue(here.poll(60), "the child says nothing")
        *refused, inspected = here.recv()
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        for said in refused:
            self.assertRegex(said, f"forked from process {os.getpid()}.*spawn")
        self.assertIn("seqlen_q=128", inspected)
        self.call()
        self.assertEqual(self.driver.fake_launches(), 1)


class StridesThatTmaCannotTakeTest(CallTest):
    def test_are_served_by_a_family_without_it(self):
        for strides in ((64 * 256, -256, 64, 1), (-64 * 256, 256, 64, 1), (2**40, 256, 64, 1)):
            for name in "qkv":
                attnforge.plan_cache.clear()
                tensors = {each: torch.Tensor(SHAPE, strides=strides if each == name else None) for each in "qkv"}
                attnforge.attention(**tensors, out=self.o)
                (plan,) = attnforge.plan_cache
                self.assertEqual((plan.problem.alignment_bytes, plan.family), (8, "fwd_mma_sm80"))
                problem, _ = _arguments.problem_of(**tensors)
                self.assertEqual(problem.alignment_bytes, 8, "tune() asks for the same")

    def test_of_outputs_and_of_single_elements_do_not_count(self):
        attnforge.plan_cache.clear()
        backwards = torch.Tensor(SHAPE, strides=(64 * 256, -256, 64, 1))
        self.call(out=backwards)
        one = torch.Tensor((2, 1, 4, 64), strides=(256, -7, 64, 1))
        attnforge.attention(one, self.k, self.v, out=torch.Tensor((2, 1, 4, 64)))
        self.assertEqual([plan.family for plan in attnforge.plan_cache], ["fwd_wgmma_sm90a"] * 2)


class AlignmentOfToolsTest(CallTest):
    """problem_of(), for tune() and the like: what a call with outputs of attnforge's asks for."""

    def test_rows_of_outputs_are_aligned_whatever_the_head_dim(self):
        for dim in (8, 24, 40, 128):
            v = torch.Tensor((2, 64, 4, dim))
            problem, _ = _arguments.problem_of(self.q, self.k, v)
            self.assertEqual(problem.alignment_bytes, 16)
            attnforge.plan_cache.clear()
            attnforge.attention(self.q, self.k, v)
            self.assertEqual([plan.problem for plan in attnforge.plan_cache], [problem])

    def test_addresses_and_strides_of_each_input_count(self):
        for name in "qkv":
            for address, strides, alignment in ((8, None, 8), (2, None, 2), (0, (64 * 260, 260, 64, 1), 8), (0, (64 * 256, 256, 66, 1), 4)):
                tensors = {each: torch.Tensor(SHAPE) for each in "qkv"}
                tensors[name] = torch.Tensor(SHAPE, strides=strides, address=self.q.data_ptr() + address)
                with self.subTest(name=name, address=address, strides=strides):
                    self.assertEqual(_arguments.problem_of(**tensors)[0].alignment_bytes, alignment)


class MergeStatesTest(CallTest):
    """merge_states(): one launch, and what it refuses."""

    def state(self, layout="bshd", dtype="bfloat16"):
        shape = (2, 5, 4, 64) if layout == "bshd" else (2, 4, 5, 64)
        return torch.Tensor(shape, dtype), torch.Tensor((2, 4, 5), "float32")

    def test_is_one_launch_of_parts_in_either_layout(self):
        for layout in ("bshd", "bhsd"):
            o, lse = zip(self.state(layout), self.state(layout), self.state(layout))
            launches = self.driver.fake_launches()
            merged, merged_lse = attnforge.merge_states(o, lse, layout=layout)
            self.assertEqual(self.driver.fake_launches(), launches + 1)
            self.assertEqual((merged.shape, merged.dtype), (o[0].shape, "bfloat16"))
            self.assertEqual((merged_lse.shape, merged_lse.dtype), ((2, 4, 5), "float32"))

    def test_a_call_like_an_earlier_one_is_not_checked_again(self):
        seen = []

        def recorded(plan, tensors, workspace, size, stream):
            struct = _c.Tensors.from_buffer_copy(tensors)
            parts = (_c.State * 2).from_address(struct.parts)
            addresses = [part.o.data for part in parts], [part.lse.data for part in parts]
            seen.append((*addresses, struct.o.data, struct.lse.data))
            seen.append((struct.struct_size, struct.q.data, struct.o.stride_head, parts[0].o.stride_row, parts[1].lse.stride_head))
            return 0

        for _ in range(2):
            attnforge.merge_states(*zip(self.state(), self.state()))
        (a, a_lse), (b, b_lse) = self.state(), self.state()
        with mock.patch.object(attnforge._merge, "lib", lambda: types.SimpleNamespace(attnforge_run=recorded)):
            with mock.patch.object(attnforge._merge, "_merge", side_effect=AssertionError("it was")):
                o, lse = attnforge.merge_states([a, b], [a_lse, b_lse])
                with self.assertRaisesRegex(AssertionError, "it was"):
                    attnforge.merge_states([a, b], [a_lse, b_lse], layout="bhsd")
        addresses = [a.data_ptr(), b.data_ptr()], [a_lse.data_ptr(), b_lse.data_ptr()]
        size = ctypes.sizeof(_c.Tensors)
        self.assertEqual(seen, [(*addresses, o.data_ptr(), lse.data_ptr()), (size, None, 64, 256, 5)])

    def test_out_says_where_the_result_goes_and_of_which_dtype(self):
        o, lse = zip(self.state(dtype="float32"), self.state(dtype="float32"))
        out = self.state()
        self.assertEqual(attnforge.merge_states(o, lse, out=out), out)
        self.assertIs(attnforge.merge_states(o, lse, out=(o[0], lse[0]))[0], o[0])

    def test_what_is_refused(self):
        (o, lse), (other, other_lse) = self.state(), self.state()
        narrow, half = torch.Tensor((2, 5, 4, 32)), torch.Tensor((2, 5, 4, 64), "float16")
        for message, arguments in (
            ("0 parts", ((), ())),
            ("33 parts", ([o] * 33, [lse] * 33)),
            ("o has 2 parts and lse has 1", ([o, other], [lse])),
            (r"lse\[1\] has shape", ([o, other], [lse, narrow])),
            (r"o\[1\] has shape", ([o, narrow], [lse, lse])),
            (r"o\[1\] is fp16; it must be bf16", ([o, half], [lse, lse])),
            (r"lse\[0\] is bf16; it must be fp32", ([o], [torch.Tensor((2, 4, 5))])),
            ("on GPU 1", ([o, torch.Tensor((2, 5, 4, 64), device=("cuda", 1))], [lse, other_lse])),
        ):
            with self.assertRaisesRegex(attnforge.InvalidError, message):
                attnforge.merge_states(*arguments)
        with self.assertRaisesRegex(attnforge.InvalidError, "layout"):
            attnforge.merge_states([o], [lse], layout="sbhd")
        with self.assertRaisesRegex(attnforge.InvalidError, "a pair"):
            attnforge.merge_states([o], [lse], out=o)


class WeightsTest(CallTest):
    """attention_weights() and key_mass(): what the library gets, and what is refused."""

    def setUp(self):
        super().setUp()
        self.q, self.k = torch.Tensor((2, 5, 4, 64)), torch.Tensor((2, 9, 2, 64))
        self.lse = torch.Tensor((2, 4, 5), "float32")

    def called(self, function, *arrays, **options):
        """The problem, structs and rows that the library gets, and the result."""
        seen, make = [], attnforge._weights.problem_of_arrays

        def recorded(context, problem, tensors, *rest):
            seen.extend((tensors._obj, *rest))
            return 0

        def made(*of):
            seen.append(make(*of))
            return seen[0]

        library = types.SimpleNamespace(attnforge_attention_weights=recorded, attnforge_key_mass=recorded)
        with mock.patch.object(attnforge._weights, "lib", lambda: library):
            with mock.patch.object(attnforge._weights, "problem_of_arrays", made):
                result = getattr(attnforge, function)(*arrays, **options)
        return (*seen, result)

    def test_are_one_launch(self):
        launches = self.driver.fake_launches()
        weights = attnforge.attention_weights(self.q, self.k, self.lse, causal=True)
        self.assertEqual((weights.shape, weights.dtype), ((2, 4, 5, 9), "float32"))
        mass = attnforge.key_mass(self.q, self.k, self.lse, causal=True)
        self.assertEqual((mass.shape, mass.dtype), ((2, 4, 9), "float32"))
        self.assertEqual(self.driver.fake_launches(), launches + 2)
        self.assertEqual(attnforge.attention_weights(self.q, self.k, self.lse, rows=[]).shape, (2, 4, 0, 9))
        self.assertEqual(self.driver.fake_launches(), launches + 2)

    def test_rows_options_and_strides_go_to_the_library(self):
        rows = torch.Tensor((3,), "int32")
        out = torch.Tensor((2, 4, 3, 9), "float32", strides=(1000, 100, 12, 1))
        problem, tensors, address, count, to, queue, result = self.called(
            "attention_weights", self.q, self.k, self.lse, rows=rows, out=out, window=(3, 0), softcap=20.0, stream=7
        )
        self.assertIs(result, out)
        self.assertEqual((problem.window_left, problem.window_right, problem.softcap, problem.seqlen_kv), (3, 0, 20.0, 9))
        self.assertEqual((address, count, queue), (rows.data_ptr(), 3, 7))
        to = to._obj
        self.assertEqual((to.data, to.stride_batch, to.stride_head, to.stride_row), (out.data_ptr(), 1000, 100, 12))
        self.assertEqual((tensors.q.data, tensors.k.data, tensors.lse.data), (self.q.data_ptr(), self.k.data_ptr(), self.lse.data_ptr()))
        self.assertEqual((tensors.q.stride_row, tensors.k.stride_head, tensors.lse.stride_head), (256, 64, 5))
        _, _, address, count, *_ = self.called("attention_weights", self.q, self.k, self.lse)
        self.assertEqual((address, count), (None, 5))
        torch.uploads = []
        _, _, address, count, *_ = self.called("attention_weights", self.q, self.k, self.lse, rows=[-1, 0])
        self.assertTrue(address)
        self.assertEqual((count, torch.uploads[-1]), (2, (-1).to_bytes(4, "little", signed=True) + bytes(4)))

    def test_sequences_have_a_batch_in_the_result(self):
        q, k, lse = torch.Tensor((30, 4, 64)), torch.Tensor((40, 2, 64)), torch.Tensor((4, 30), "float32")
        ends = torch.Tensor((4,), "int32")
        problem, *_, mass = self.called("key_mass", q, k, lse, cu_seqlens=ends, max_seqlen=(16, 20))
        self.assertEqual((mass.shape, problem.lengths, problem.seqlen_kv), ((3, 4, 20), "packed", 20))
        pool, used, table = torch.Tensor((7, 16, 2, 64)), torch.Tensor((2,), "int32"), torch.Tensor((2, 3), "int32")
        problem, tensors, *_, mass = self.called("key_mass", self.q, pool, self.lse, used_kv=used, page_table=table)
        self.assertEqual((mass.shape, problem.page_size), ((2, 4, 48), 16))
        self.assertTrue(tensors.pages and tensors.lengths)
        launches = self.driver.fake_launches()
        attnforge.attention_weights(q, k, lse, rows=[-1], cu_seqlens=ends, max_seqlen=(16, 20), causal=True)
        attnforge.key_mass(self.q, pool, self.lse, used_kv=used, page_table=table, score="s + b[k]", args={"b": torch.Tensor((9,), "float32")})
        attnforge.key_mass(self.q, self.k, self.lse, block_mask=attnforge.BlockMask.random(0.5, 16, (5, 9)))
        self.assertEqual(self.driver.fake_launches(), launches + 3)

    def test_what_is_refused(self):
        half, wide = torch.Tensor((2, 9, 2, 64), "float16"), torch.Tensor((2, 9, 2, 32))
        for message, arrays, options in (
            ("q is bf16 and k is fp16", (self.q, half, self.lse), {}),
            ("q has head_dim 64 and k has 32", (self.q, wide, self.lse), {}),
            ("lse is fp32", (self.q, self.k, torch.Tensor((2, 5, 4), "float32")), {}),
            ("rows has shape", (self.q, self.k, self.lse), {"rows": torch.Tensor((1, 3), "int32")}),
            (r"rows\[0\]", (self.q, self.k, self.lse), {"rows": [2**31]}),
            ("rows", (self.q, self.k, self.lse), {"rows": 3}),
            (r"it must be fp32 \(2, 4, 5, 9\)", (self.q, self.k, self.lse), {"out": self.lse}),
        ):
            with self.assertRaisesRegex((attnforge.InvalidError, TypeError), message):
                attnforge.attention_weights(*arrays, **options)
        for name in ("rope", "tf32", "k_scale", "return_lse"):
            with self.assertRaisesRegex(TypeError, name):
                attnforge.key_mass(self.q, self.k, self.lse, **{name: None})


class AppendKvTest(CallTest):
    """append_kv(): one launch, its argument, and what it refuses."""

    BATCH, HEADS, DIM, DIM_V = 3, 2, 64, 32

    def setUp(self):
        super().setUp()
        of, heads = torch.Tensor, self.HEADS
        self.k, self.v = of((self.BATCH, 1, heads, self.DIM)), of((self.BATCH, 1, heads, self.DIM_V))
        self.k_pool, self.v_pool = of((20, 16, heads, self.DIM)), of((20, 16, heads, self.DIM_V))
        self.used, self.table = of((self.BATCH,), "int32"), of((self.BATCH, 4), "int32")
        self.rope = of((100, 16), "float32"), of((100, 16), "float32")

    def appended(self, *arrays, **options):
        """The problem and the structs of the run, and what the call returned."""
        seen = []

        def recorded(plan, tensors, workspace, size, stream):
            struct = _c.Tensors.from_buffer_copy(tensors)
            problem = attnforge.Problem.parse(attnforge._library.lib().attnforge_plan_problem(plan).decode())
            parts = _c.Pages, _c.Rope, _c.Lengths, _c.Cache, _c.KvScales
            addresses = struct.pages, struct.rope, struct.lengths, struct.cache, struct.kv_scales
            parts = (part.from_buffer_copy(part.from_address(address)) if address else None for part, address in zip(parts, addresses))
            seen.append((problem, struct, *parts))
            return 0

        with mock.patch.object(attnforge._caches.append, "lib", lambda: types.SimpleNamespace(attnforge_run=recorded)):
            returned = attnforge.append_kv(*arrays, **options)
        names = "problem", "tensors", "pages", "rope", "lengths", "cache", "scales"
        return types.SimpleNamespace(**dict(zip(names, seen[0])), returned=returned)

    def test_is_one_launch(self):
        launches = self.driver.fake_launches()
        for _ in range(2):
            attnforge.append_kv(self.k, self.v, self.k_pool, self.v_pool, self.used, self.table)
        self.assertEqual(self.driver.fake_launches(), launches + 2)

    def test_is_ready_without_a_run_once_it_is_prepared(self):
        arrays, launches = (self.k, self.v, self.k_pool, self.v_pool, self.used, self.table), self.driver.fake_launches()
        self.assertIsNone(attnforge.prepare_append_kv(*arrays, used_kv_after=self.used))
        self.assertEqual(self.driver.fake_launches(), launches)
        with mock.patch.object(attnforge._ops, "plan_of", side_effect=AssertionError("a plan was made")):
            with self.assertRaisesRegex(AssertionError, "a plan was made"):
                attnforge.append_kv(*arrays, used_kv_after=self.used)
        with mock.patch.object(attnforge._plans, "Plan", side_effect=AssertionError("a plan was made")):
            attnforge.append_kv(*arrays, used_kv_after=self.used)
        self.assertEqual(self.driver.fake_launches(), launches + 1)
        with self.assertRaisesRegex(attnforge.InvalidError, "q goes with a rope"):
            attnforge.prepare_append_kv(*arrays, q=self.k)

    def test_rows_of_pages(self):
        q = torch.Tensor((self.BATCH, 1, 4, self.DIM))
        run = self.appended(
            self.k, self.v, self.k_pool, self.v_pool, self.used, self.table, rope=self.rope, rope_offset=7, q=q, used_kv_after=self.used
        )
        self.assertEqual(run.returned.shape, q.shape)
        text = "append bf16 batch=3 num_heads=4:2 seqlen=1:64 head_dim=64:32 page_size=16 rope=half rope_dim=32 queries lengths_after"
        self.assertEqual(run.problem, attnforge.Problem.parse(text))
        self.assertEqual((run.pages.table, run.pages.stride_batch, run.pages.num_pages), (self.table.data_ptr(), 4, 20))
        rope = run.rope
        self.assertEqual((rope.cos, rope.sin, rope.rows, rope.offset), (self.rope[0].data_ptr(), self.rope[1].data_ptr(), 100, 7))
        got = run.cache.v
        self.assertEqual((got.data, got.stride_batch, got.stride_row, got.stride_head), (self.v_pool.data_ptr(), 1024, 64, 32))
        self.assertEqual((run.tensors.q.data, run.tensors.o.data), (q.data_ptr(), run.returned.data_ptr()))
        self.assertEqual((run.lengths.kv, run.cache.lengths_after, run.lengths.q), (self.used.data_ptr(),) * 2 + (None,))

    def test_a_call_like_an_earlier_one_is_not_checked_again(self):
        q = torch.Tensor((self.BATCH, 1, 4, self.DIM))
        arrays = self.k, self.v, self.k_pool, self.v_pool, self.used, self.table
        options = {"rope": self.rope, "q": q, "used_kv_after": self.used}
        for _ in range(2):  # the first tensor ever says which torch it is
            first = self.appended(*arrays, **options)
        others = [torch.Tensor(array.shape, array.dtype) for array in arrays]
        with mock.patch.object(attnforge._caches.append, "_append", side_effect=AssertionError("it was")):
            second = self.appended(*others, **options)
            with self.assertRaisesRegex(AssertionError, "it was"):
                attnforge.append_kv(*others[:5], torch.Tensor((3, 5), "int32"), **options)
            with self.assertRaisesRegex(AssertionError, "it was"):
                attnforge.append_kv(*others, rope_interleaved=True, **options)
        places = second.tensors.k, second.tensors.v, second.cache.k, second.cache.v
        self.assertEqual([place.data for place in places], [other.data_ptr() for other in others[:4]])
        self.assertEqual((second.lengths.kv, second.pages.table), (others[4].data_ptr(), others[5].data_ptr()))
        self.assertEqual((second.cache.lengths_after, second.rope.cos), (self.used.data_ptr(), self.rope[0].data_ptr()))
        self.assertEqual(second.returned.shape, q.shape)
        self.assertEqual(second.tensors.o.data, second.returned.data_ptr())
        self.assertEqual(second.problem, first.problem)
        q.requires_grad, torch.grad_enabled = True, True
        try:
            with self.assertRaisesRegex(attnforge.InvalidError, "q requires grad"):
                attnforge.append_kv(*others, **options)
        finally:
            torch.grad_enabled = False

    def test_clear_forgets_calls(self):
        for function in (self.append_twice, self.merge_twice):
            function()
            attnforge.plan_cache.clear()
            with mock.patch.object(attnforge._caches.append, "_append", side_effect=AssertionError("it was")):
                with mock.patch.object(attnforge._merge, "_merge", side_effect=AssertionError("it was")):
                    self.assertRaisesRegex(AssertionError, "it was", function)

    def append_twice(self):
        for _ in range(2):
            attnforge.append_kv(self.k, self.v, self.k_pool, self.v_pool, self.used, self.table)

    @staticmethod
    def merge_twice():
        o, lse = torch.Tensor((2, 5, 4, 64)), torch.Tensor((2, 4, 5), "float32")
        for _ in range(2):
            attnforge.merge_states([o, o], [lse, lse])

    def test_packed_rows_go_to_a_strided_cache_as_far_as_the_tables_reach(self):
        k, v = torch.Tensor((9, 2, 64)), torch.Tensor((9, 2, 32))
        caches = torch.Tensor((3, 500, 2, 64)), torch.Tensor((3, 500, 2, 32))
        ends = torch.Tensor((4,), "int32")
        run = self.appended(k, v, *caches, self.used, cu_seqlens=ends, rope=self.rope, rope_interleaved=True)
        self.assertEqual((run.problem.batch, run.problem.tokens_q, run.problem.seqlen_kv), (3, 9, 100))
        self.assertEqual((run.problem.page_size, run.problem.rope, run.pages.table), (0, "interleaved", None))
        of_k = run.tensors.k
        self.assertEqual((of_k.stride_batch, of_k.stride_row, of_k.stride_head), (0, 128, 64))
        self.assertEqual((run.lengths.q, run.returned), (ends.data_ptr(), None))

    def test_heads_first(self):
        k, v = torch.Tensor((3, 2, 5, 64)), torch.Tensor((3, 2, 5, 32))
        pools = torch.Tensor((20, 2, 16, 64)), torch.Tensor((20, 2, 16, 32))
        run = self.appended(k, v, *pools, self.used, self.table, layout="bhsd")
        self.assertEqual((run.problem.seqlen_q, run.problem.num_heads_kv, run.problem.page_size), (5, 2, 16))
        of_k = run.cache.k
        self.assertEqual((of_k.stride_batch, of_k.stride_row, of_k.stride_head), (2048, 64, 1024))

    def test_caches_of_fewer_bits(self):
        of = torch.Tensor
        pools = of((20, 16, 2, 64), "int8"), of((20, 16, 2, 16), "uint8")
        scales = {"k_scale": of((20, 16, 2, 2), "float32"), "v_scale": of((20, 16, 2, 1), "float32")}
        arrays = self.k, self.v, *pools, self.used, self.table
        for _ in range(2):  # the second one is not looked at
            run = self.appended(*arrays, rope=self.rope, **scales)
        text = "append bf16 k=int8 v=int4 kv_scale=group32 batch=3 num_heads=2 seqlen=1:64 head_dim=64:32 page_size=16 rope=half rope_dim=32"
        self.assertEqual(run.problem, attnforge.Problem.parse(text))
        got = run.cache.v
        self.assertEqual((got.data, got.stride_batch, got.stride_row, got.stride_head), (pools[1].data_ptr(), 1024, 64, 32), "numbers of 4 bits")
        for got, wanted, strides in ((run.scales.k, scales["k_scale"], (64, 4, 2)), (run.scales.v, scales["v_scale"], (32, 2, 1))):
            self.assertEqual((got.data, got.stride_batch, got.stride_row, got.stride_head), (wanted.data_ptr(), *strides))
        pairs = {"k_scale": of((20, 16, 2, 1, 2), "float32"), "v_scale": of((20, 16, 2, 1, 2), "float32")}
        run = self.appended(self.k, self.v, of((20, 16, 2, 32), "uint8"), pools[1], self.used, self.table, **pairs)
        self.assertEqual((run.problem.dtype_k, run.problem.kv_scale, run.problem.kv_zero), ("int4", "token", True))
        self.assertEqual((run.scales.k.stride_batch, run.scales.k.stride_row, run.scales.k.stride_head), (64, 4, 2))
        heads_first = of((20, 2, 16, 64), "int8"), of((20, 2, 16, 32))
        rows = of((3, 2, 1, 64)), of((3, 2, 1, 32))
        run = self.appended(*rows, *heads_first, self.used, self.table, layout="bhsd", k_scale=of((20, 2, 16), "float32"))
        self.assertEqual((run.problem.kv_scale, run.problem.dtype_k, run.problem.dtype_v), ("token", "int8", "bf16"))
        self.assertEqual((run.scales.k.stride_batch, run.scales.k.stride_row, run.scales.k.stride_head), (32, 1, 16))
        run = self.appended(*arrays, k_scale=of((2,), "float32"), v_scale=of((2,), "float32"))
        self.assertEqual((run.problem.kv_scale, run.scales.k.stride_batch, run.scales.k.stride_head), ("head", 0, 1))
        run = self.appended(*arrays)
        self.assertEqual((run.problem.kv_scale, run.scales), ("none", None))

    def test_what_is_refused(self):
        of, launches = torch.Tensor, self.driver.fake_launches()
        good = {"k": self.k, "v": self.v, "k_cache": self.k_pool, "v_cache": self.v_pool, "used_kv": self.used, "page_table": self.table}
        int8 = {"k_cache": of((20, 16, 2, 64), "int8"), "v_cache": of((20, 16, 2, 32), "int8")}
        k_scale = of((20, 16, 2), "float32")
        for text, changed in (
            ("k has shape .* 4 dimensions", {"k": of((3, 2, 64))}),
            (r"v has shape .* it must be \(3, 1, 2, 32\)", {"v": of((3, 2, 2, 32))}),
            ("v is fp16; it must be bf16", {"v": of((3, 1, 2, 32), "float16")}),
            (r"v_cache has shape .* it must be \(20, 16, 2, 32\)", {"v_cache": of((20, 16, 2, 64))}),
            ("v_cache is on GPU 1", {"v_cache": of((20, 16, 2, 32), device=("cuda", 1))}),
            ("k_cache has a stride of 2", {"k_cache": of((20, 16, 2, 64), strides=(4096, 256, 128, 2))}),
            (r"used_kv has shape \(4,\).* int32 \(3,\)", {"used_kv": of((4,), "int32")}),
            ("used_kv has dtype int64", {"used_kv": of((3,), "int64")}),
            ("page_table has shape .2, 4.", {"page_table": of((2, 4), "int32")}),
            ("q goes with a rope", {"q": self.k}),
            ("q_out goes with q", {"q_out": self.k}),
            ("rope_offset=101 is more than the 100 rows", {"rope": self.rope, "rope_offset": 101}),
            ("head_dim_v=12", {"v": of((3, 1, 2, 12)), "v_cache": of((20, 16, 2, 12))}),
            ("page_size=12", {"k_cache": of((20, 12, 2, 64)), "v_cache": of((20, 12, 2, 32))}),
            ("layout", {"layout": "sbhd"}),
            ("k_scale goes with k of int8", {"k_scale": k_scale}),
            ("v_scale is missing: v is int8", {**int8, "k_scale": k_scale}),
            ("k_scale has shape .*it must be float32", {**int8, "k_scale": of((20, 16), "float32"), "v_scale": k_scale}),
            ("they must be of one kind", {**int8, "k_scale": k_scale, "v_scale": of((2,), "float32")}),
            (r"v_cache has shape .* it must be \(20, 16, 2, 16\)", {"v_cache": of((20, 16, 2, 32), "uint8")}),
            ("fp16 or bf16", {**int8, "k": of((3, 1, 2, 64), "float32"), "v": of((3, 1, 2, 32), "float32")}),
            ("does not go with cu_seqlens", {"layout": "bhsd", "cu_seqlens": of((4,), "int32")}),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(attnforge.InvalidError, text):
                attnforge.append_kv(**{**good, **changed})
        self.assertEqual(self.driver.fake_launches(), launches, "nothing is launched")


class CliffsTest(CallTest):
    def warnings_of(self, function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
        return [each for each in caught if each.category is attnforge.PerformanceWarning]

    def test_mixed_dtypes_warn_once_and_name_the_tensors(self):
        self.q = torch.Tensor(SHAPE, "float32")
        (warned,) = self.warnings_of(self.call)
        self.assertRegex(str(warned.message), "q is fp32, k is bf16, v is bf16.*convert")
        self.assertEqual(os.path.basename(warned.filename), os.path.basename(__file__))
        self.assertEqual(self.warnings_of(self.call), [])

    def test_odd_addresses_warn_and_name_the_tensor(self):
        self.k = torch.Tensor(SHAPE, address=self.k.data_ptr() + 2)
        (warned,) = self.warnings_of(self.call)
        self.assertRegex(str(warned.message), "here of k .address 0x[0-9a-f]+, .*clone")
        self.assertNotIn("q (address", str(warned.message))

    def test_nothing_is_said_where_nothing_is_lost_or_a_family_was_asked_for(self):
        self.assertEqual(self.warnings_of(lambda: self.call(causal=True)), [])
        single = [torch.Tensor(SHAPE, "float32") for _ in range(4)]
        self.assertEqual(self.warnings_of(lambda: attnforge.attention(*single[:3], out=single[3])), [])
        attnforge.configure(family="fwd_naive")
        try:
            self.q = torch.Tensor(SHAPE, "float32")  # a cliff, if it were not for the family
            self.assertEqual(self.warnings_of(self.call), [])
        finally:
            attnforge.configure(family="")


class OverlapTest(unittest.TestCase):
    @staticmethod
    def bytes_of(address, shape, strides, item):
        places = [address]
        for size, stride in zip(shape, strides):
            places = [place + i * stride * item for place in places for i in range(size)]
        return [place + i for place in places for i in range(item)]

    def test_agrees_with_every_byte_written_down(self):
        numbers = random.Random(7)
        found = {True: 0, False: 0}
        for _ in range(3000):
            arrays = []
            for _ in range(2):
                shape = tuple(numbers.randint(0 if numbers.random() < 0.05 else 1, 4) for _ in range(4))
                strides = tuple(numbers.choice((0, 1, 1, 2, 3, 5, 8, 16, 24, -1, -4, -16)) for _ in range(4))
                arrays.append((numbers.randint(0, 60) * 2, shape, strides, numbers.choice((2, 4))))
            a, b = (self.bytes_of(*array) for array in arrays)
            shared = not set(a).isdisjoint(b)
            found[shared] += 1
            self.assertEqual(_overlap.overlap(*arrays), shared, arrays)
            self.assertEqual(_overlap.overlaps_itself(*arrays[0][1:3]), len(set(a)) < len(a), arrays[0])
            first, end = _overlap.span(*arrays[0][1:])
            if a:
                self.assertEqual((min(a), max(a) + 1), (arrays[0][0] + first, arrays[0][0] + end))
        self.assertGreater(min(found.values()), 300)

    def test_large_and_awkward_arrays_end_soon(self):
        shape = (4096, 4096, 4096, 4096)
        array = (0, shape, (7919, 7907, 7901, 7883), 2)
        self.assertIs(_overlap.overlap(array, (1 << 50, *array[1:])), False)
        self.assertIs(_overlap.overlaps_itself(*array[1:3]), True)


class ArgumentsOfToolsTest(unittest.TestCase):
    TEXT = "fwd bf16 seqlen=64 head_dim=64"

    def test_wrong_types_and_ranges_are_ours(self):
        calls = (
            lambda: attnforge.Problem.parse(5),
            lambda: attnforge.Problem.parse(self.TEXT + "\0 causal"),
            lambda: str(attnforge.Problem(batch=2**70)),
            lambda: str(attnforge.Problem(head_dim=2**32 + 64)),
            lambda: str(attnforge.Problem(batch=2.7)),
            lambda: str(attnforge.Problem(batch="2")),
            lambda: str(attnforge.Problem(batch=torch.Tensor(()))),
            lambda: str(attnforge.Problem(softmax_scale=1e-60)),
            lambda: str(attnforge.Problem(softcap=float("nan"))),
            lambda: str(attnforge.Problem(causal=2)),
            lambda: str(attnforge.Problem(layout=None)),
            lambda: str(attnforge.Problem(layout="bshd causal")),
            lambda: str(attnforge.Problem(layout="")),
            lambda: attnforge.supported(self.TEXT, arch=86),
            lambda: attnforge.supported(self.TEXT, device="0"),
            lambda: attnforge.supported(self.TEXT, device=2**32),
            lambda: attnforge.inspect(self.TEXT, arch="86", max_candidates="x"),
            lambda: attnforge.inspect(self.TEXT, arch="86", max_candidates=2**32),
            lambda: attnforge.inspect(self.TEXT, arch="86", family=5),
            lambda: attnforge.inspect(self.TEXT, arch="86", compile="no"),
            lambda: attnforge.tune(self.TEXT, rigor=None),
            lambda: attnforge.tune(self.TEXT, seed=-1),
            lambda: attnforge.tune(self.TEXT, seed=2**32),
            lambda: attnforge.tune(self.TEXT, compile_threads=2**32 + 1),
            lambda: attnforge.tune(self.TEXT, compile_threads=-5),
            lambda: attnforge.tune(self.TEXT, time_limit_s=float("nan")),
            lambda: attnforge.tune(self.TEXT, time_limit_s="1"),
            lambda: attnforge.configure(policy=5),
            lambda: attnforge.configure(time_limit_s=-1),
            lambda: attnforge.configure(time_limit_s=float("nan")),
            lambda: attnforge.configure(no_jit="yes"),
            lambda: attnforge.configure(family=5),
        )
        for i, call in enumerate(calls):
            with self.subTest(i=i):
                self.assertRaises(attnforge.InvalidError, call)

    def test_huge_integers_do_not_fill_the_message(self):
        with self.assertRaisesRegex(attnforge.InvalidError, "an integer of 33220 bits") as caught:
            str(attnforge.Problem(batch=10**10000))
        self.assertLess(len(str(caught.exception)), 200)


class CodeTest(CallTest):
    """score=, mask= and args=."""

    def words(self, **options):
        """The words of the arguments of a call's code, and the problem of its plan."""
        seen = []
        run = _library.lib().attnforge_run

        def spy(plan, tensors, *rest):
            struct = _c.Tensors.from_buffer_copy(tensors)
            count = len(options.get("args") or ())
            seen.append(struct.code_arguments and list((ctypes.c_uint64 * count).from_address(struct.code_arguments)))
            return run(plan, tensors, *rest)

        with mock.patch.object(_library.lib(), "attnforge_run", spy):
            self.call(**options)
        return seen[0], list(attnforge.plan_cache)[-1].problem

    def test_arguments_follow_the_types_of_what_is_passed(self):
        slope, table = torch.Tensor((4,), "float32"), torch.Tensor((4, 8), "bfloat16")
        ids, valid = torch.Tensor((2, 64), "int32"), torch.Tensor((2, 64), "bool")
        args = {"slope": slope, "table": table, "ids": ids, "valid": valid, "window": -3, "scale": 0.5, "on": True}
        words, problem = self.words(score="s + slope[head]", mask="k <= q", args=args)
        self.assertEqual(problem.args, "float* slope, bf16* table, int* ids, bool* valid, int window, float scale, int on")
        self.assertEqual((problem.score, problem.mask), ("s + slope[head]", "k <= q"))
        pointers = [each.data_ptr() for each in (slope, table, ids, valid)]
        self.assertEqual(words, [*pointers, 2**32 - 3, 0x3F000000, 1])

    def test_a_large_array_says_how_many_elements_it_has(self):
        words, problem = self.words(score="s + bias[0]", args={"bias": torch.Tensor((1024, 1024), "float32")})
        self.assertEqual(problem.args, "float* bias[1048576]")
        for megabytes, words in ((1, "bool* seen"), (2, "bool* seen[2097152]")):
            _, problem = self.words(mask="seen[0]", args={"seen": torch.Tensor((megabytes << 20,), "bool")})
            self.assertEqual(problem.args, words)

    def test_calls_with_and_without_code_do_not_meet(self):
        for options in ({}, {"mask": "k <= q"}, {"mask": "k < q"}, {"score": "s"}, {}):
            self.call(**options)
        self.assertEqual(len(attnforge.plan_cache), 4)

    def test_what_is_refused(self):
        slope = torch.Tensor((4,), "float32")
        self.refused("does not close the", score="s + (k")
        self.refused("there is neither", args={"a": 1})
        self.refused("score is an int", score=1)
        self.refused("args is a .*list", score="s", args=[slope])
        self.refused("calls an argument head", score="s", args={"head": slope})
        self.refused(r"args\['a'\] is on cpu", score="s", args={"a": torch.Tensor((4,), "float32", device=("cpu", None))})
        self.refused(r"args\['a'\] has dtype", score="s", args={"a": torch.Tensor((4,), "int64")})
        self.refused("must be contiguous", score="s", args={"a": torch.Tensor((4, 4), "float32", strides=(1, 4))})
        self.refused("is on GPU 1", score="s", args={"a": torch.Tensor((4,), "float32", device=("cuda", 1))})
        self.refused("must be from", score="s", args={"a": 2**31})

    def test_ready_made_texts_are_valid_problems(self):
        slope, ids = torch.Tensor((4,), "float32"), torch.Tensor((2, 64), "int32")
        texts = attnforge.texts
        made = [texts.alibi(slope), texts.relative_bias(torch.Tensor((4, 9), "float32"), 4), texts.tanh_cap(50.0)]
        made += [texts.documents(ids), texts.prefix_lm(torch.Tensor((2,), "int32")), texts.dilated_window(8, 2)]
        for each in made:
            self.call(**each)

    def test_problems_of_code_are_read_back(self):
        problem = attnforge.Problem(score="s +\n 1", mask="k <= q", args="float* a, int b = 3")
        self.assertEqual(attnforge.Problem.parse(str(problem)), attnforge.Problem.parse(problem.words()))
        self.assertEqual(attnforge.Problem.parse(str(problem)).score, problem.score)


if __name__ == "__main__":
    unittest.main()
