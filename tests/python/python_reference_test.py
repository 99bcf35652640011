#!/usr/bin/env python3
"""attnforge.reference(): attention() on the CPU for users' tests, beside torch's operators in fp64.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_reference_test.py PACKAGE_FOLDER [unittest arguments]
"""

import itertools
import math
import os
import sys
import unittest

try:
    import torch
except ImportError:
    print("there is no torch, skipped")
    sys.exit(77)

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attnforge  # noqa: E402
from cpu_kernels import plain  # noqa: E402


def rand(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape).to(dtype)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


class ReferenceTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.q, self.k, self.v = rand(2, 20, 4, 32), rand(2, 36, 2, 32), rand(2, 36, 2, 40)

    def same(self, got, wanted):
        self.assertEqual(got.shape, wanted.shape)
        self.assertTrue(torch.allclose(got.double(), wanted, rtol=2**-8, atol=1e-6), (got.double() - wanted).abs().max())

    def compare(self, options, **of_plain):
        q, k, v = (each.double() for each in (self.q, self.k, self.v))
        o, lse = attnforge.reference(self.q, self.k, self.v, return_lse=True, **options)
        self.assertEqual((o.dtype, lse.dtype), (torch.bfloat16, torch.float32))
        wanted, wanted_lse = plain(q, k, v, **of_plain)
        self.same(o, wanted.nan_to_num(0.0))
        self.same(lse, wanted_lse)
        self.same(attnforge.reference(self.q, self.k, self.v, **options), wanted.nan_to_num(0.0))

    def test_options_of_numbers(self):
        self.compare({})
        self.compare({"causal": True}, causal=True)
        self.compare({"window": 5}, window=5)
        self.compare({"softcap": 2.0, "softmax_scale": 0.3}, softcap=2.0, scale=0.3)
        self.compare({"sinks": torch.ones(4)}, sinks=torch.ones(4))

    def test_heads_first_and_strides(self):
        q, k, v = (each.transpose(1, 2).contiguous() for each in (self.q, self.k, self.v))
        o = attnforge.reference(q, k, v, causal=True, layout="bhsd")
        self.same(o.transpose(1, 2), plain(self.q.double(), self.k.double(), self.v.double(), causal=True)[0])
        self.assertTrue(torch.equal(o, attnforge.reference(*(x.transpose(1, 2) for x in (self.q, self.k, self.v)), causal=True, layout="bhsd")))

    def test_texts_and_masks(self):
        slope, label = torch.rand(4), ints(*[i // 7 for i in range(36)])
        i, j = torch.arange(20)[:, None], torch.arange(36)
        bias = slope.double()[:, None, None] * (j - i)
        self.compare({"score": "s + slope[head] * (k - q)", "args": {"slope": slope}}, score=lambda s: s + bias)
        seen = label[i] == label[j]
        self.compare({"mask": "label[q] == label[k]", "args": {"label": label}}, mask=seen)
        floats = torch.randn(2, 1, 20, 36)
        self.compare({"attn_mask": floats}, score=lambda s: s + floats.double())
        self.compare({"attn_mask": seen}, mask=seen)
        with self.assertRaises(attnforge.UnsupportedError):
            attnforge.reference(self.q, self.k, self.v, score="[&] { return s; }()")

    def test_nothing_is_read_beyond_an_array_of_args(self):
        o = attnforge.reference(self.q, self.k, self.v, score="s + table[1000000 * k]", args={"table": torch.zeros(1)})
        self.same(o, plain(self.q.double(), self.k.double(), self.v.double())[0])

    def test_packed_sequences(self):
        rows, keys = (3, 0, 17), (10, 6, 20)
        q, k, v = rand(20, 4, 32), rand(36, 2, 32), rand(36, 2, 32)
        ends = tuple(ints(*itertools.accumulate(each, initial=0)) for each in (rows, keys))
        o, lse = attnforge.reference(q, k, v, causal=True, cu_seqlens=ends, max_seqlen=(17, 20), return_lse=True)
        self.assertEqual(lse.shape, (4, 20))
        parts = zip(*(torch.split(x.double(), n) for x, n in ((q, rows), (k, keys), (v, keys))))
        self.same(o, torch.cat([plain(*(x[None] for x in part), causal=True)[0][0] for part in parts]))

    def test_packed_rows_that_do_not_count_and_sides_that_have_none(self):
        q, k, v = rand(9, 4, 32), rand(20, 2, 32), rand(20, 2, 40)
        options = {"cu_seqlens": (ints(0, 3), ints(0, 4)), "max_seqlen": (6, 5)}
        o, lse = attnforge.reference(q, k, v, return_lse=True, **options)
        first, of_first = attnforge.reference(q[:3], k[:4], v[:4], return_lse=True, **options)
        self.assertTrue(torch.equal(o[:3], first) and torch.equal(lse[:, :3], of_first))
        self.assertTrue(o[3:].isnan().all() and lse[:, 3:].isnan().all())
        (k4, k_scale), (v4, v_scale) = attnforge.quantize_kv(k, "int4"), attnforge.quantize_kv(v, "int4")
        o = attnforge.reference(q, k4, v4, k_scale=k_scale, v_scale=v_scale, **options)
        first = attnforge.reference(q[:3], k4[:4], v4[:4], k_scale=k_scale[:4], v_scale=v_scale[:4], **options)
        self.assertTrue(torch.equal(o[:3], first))
        o = attnforge.reference(q[:3], k[:0], v[:0], cu_seqlens=(ints(0, 3), ints(0, 0)), max_seqlen=(6, 5))
        self.assertTrue(torch.equal(o, torch.zeros(3, 4, 40, dtype=q.dtype)))
        o = attnforge.reference(q[:0], k, v, cu_seqlens=(ints(0, 0), ints(0, 20)), max_seqlen=(6, 20))
        self.assertEqual(o.shape, (0, 4, 40))

    def test_added_masks_of_any_shape(self):
        for shape in ((1, 2, 16, 1), (1, 1, 1, 5), (2, 1, 16, 5), (1, 2, 1, 7)):
            q, k = torch.randn(2, 16, 2, 32), torch.randn(2, shape[-1], 2, 32)
            mask = torch.randn(shape)
            wanted = torch.nn.functional.scaled_dot_product_attention(*(each.double().transpose(1, 2) for each in (q, k, k)), mask.double())
            self.same(attnforge.reference(q, k, k, attn_mask=mask), wanted.transpose(1, 2))

    def test_int4_with_scales_is_not_taken_for_blocks(self):
        q, v = rand(1, 4, 2, 64), torch.full((1, 4, 2, 36), 0x11, dtype=torch.uint8)  # 72 numbers, or 64 in blocks of 18 bytes
        o = attnforge.reference(q, q, v, v_scale=torch.full((1, 4, 2), 2.0))
        self.assertTrue(torch.equal(o, torch.full((1, 4, 2, 72), 2.0, dtype=q.dtype)))
        k = torch.zeros(1, 4, 2, 64, dtype=torch.int8)
        self.assertTrue(torch.equal(attnforge.reference(q, k, v), torch.ones(1, 4, 2, 72, dtype=q.dtype)))

    def test_used_lengths_and_pages(self):
        used = ints(36, 11)
        o = attnforge.reference(self.q[:, :5], self.k, self.v, causal=True, used_kv=used)
        wanted = [plain(*(x.double()[i : i + 1] for x in (self.q[:, :5], self.k[:, :n], self.v[:, :n])), causal=True)[0] for i, n in enumerate((36, 11))]
        self.same(o, torch.cat(wanted))
        table = ints(3, 0, 5, 4, 1, -1).view(2, 3)
        pools = torch.full((6, 16, 2, 32), math.nan).bfloat16(), torch.full((6, 16, 2, 40), math.nan).bfloat16()
        for pool, whole in zip(pools, (self.k, self.v)):
            for b, j in itertools.product(range(2), range(3)):
                if table[b, j] >= 0:
                    rows = whole[b, 16 * j : 16 * (j + 1)]
                    pool[table[b, j], : len(rows)] = rows
        self.assertTrue(torch.equal(attnforge.reference(self.q[:, :5], *pools, causal=True, used_kv=used, page_table=table), o))

    def test_a_rope(self):
        angle = torch.outer(torch.arange(40.0), 100 ** (-torch.arange(0, 32, 2) / 32))
        cos, sin = angle.cos(), angle.sin()

        def turned(x, first):
            rows = slice(first, first + x.shape[1])
            a, b, c, s = x[..., :16].double(), x[..., 16:].double(), cos[rows, None].double(), sin[rows, None].double()
            return torch.cat([a * c - b * s, a * s + b * c], -1)

        o = attnforge.reference(self.q, self.k, self.v, rope=(cos, sin), rope_offset=3)
        self.assertLess((o.double() - plain(turned(self.q, 19), turned(self.k, 3), self.v.double())[0]).abs().max(), 0.02)

    def test_block_masks(self):
        dense = torch.rand(20, 36) < 0.5
        mask = attnforge.BlockMask.from_dense(dense.tolist(), 16)
        self.compare({"block_mask": mask}, mask=dense)

    def test_fewer_bits(self):
        k, k_scale = attnforge.quantize_kv(self.k, "int8", "group32")
        v, v_scale = attnforge.quantize_kv(self.v, "int4", "group32")
        o = attnforge.reference(self.q, k, v, k_scale=k_scale, v_scale=v_scale)
        values = self.values_of_int4(v) * v_scale.repeat_interleave(32, -1)[..., :40].double()
        self.same(o, plain(self.q.double(), k.double() * k_scale.double(), values)[0])

    def values_of_int4(self, numbers):
        low, high = (numbers << 4).view(torch.int8) >> 4, numbers.view(torch.int8) >> 4
        return torch.stack([low, high], -1).flatten(-2).double()

    def test_zero_points(self):
        for scale, group in (("token", 64), ("group32", 32)):
            (k, k_scale), (v, v_scale) = (attnforge.quantize_kv(x + 3, "int4", scale, zero=True) for x in (self.k, self.v))
            o = attnforge.reference(self.q, k, v, k_scale=k_scale, v_scale=v_scale)
            values = []
            for numbers, pairs, dim in ((k, k_scale, 32), (v, v_scale, 40)):
                scales, zeros = pairs.double().repeat_interleave(group, -2)[..., :dim, :].unbind(-1)
                values.append(self.values_of_int4(numbers) * scales + zeros)
            self.assertLess((values[1] - (self.v + 3).double()).abs().max(), 0.51 * v_scale[..., 0].max())
            self.same(o, plain(self.q.double(), *values)[0])

    def test_blocks_of_ggml(self):
        scales = torch.rand(2, 36, 2, 1).half() + 0.5
        k_numbers, v_numbers = torch.randint(-127, 128, (2, 36, 2, 32)), torch.randint(-8, 8, (2, 36, 2, 32))
        of_scales = scales.view(torch.uint8)
        k = torch.cat([of_scales, k_numbers.to(torch.int8).view(torch.uint8)], -1)
        v = torch.cat([of_scales, ((v_numbers[..., :16] + 8) | (v_numbers[..., 16:] + 8) << 4).to(torch.uint8)], -1)
        self.assertEqual((k.shape[-1], v.shape[-1]), (34, 18))
        o = attnforge.reference(self.q, k, v, causal=True)
        self.same(o, plain(self.q.double(), k_numbers * scales.double(), v_numbers * scales.double(), causal=True)[0])

    def test_queries_of_8_bits(self):
        q, k, v = (x.to(torch.float8_e4m3fn) for x in (self.q, self.k, self.v))
        scales = {"q_scale": torch.tensor([0.5, 2.0]), "k_scale": torch.tensor([1.0, 0.25]), "v_scale": torch.tensor([3.0, 1.0])}
        o = attnforge.reference(q, k, v, causal=True, **scales)
        self.assertEqual(o.dtype, torch.bfloat16)
        of_q = scales["q_scale"].repeat_interleave(2)  # query heads share one as they share k
        values = q.double() * of_q[:, None], k.double() * scales["k_scale"][:, None], v.double() * scales["v_scale"][:, None]
        self.same(o, plain(*values, causal=True)[0])

    def test_queries_of_8_bits_whose_rows_have_scales(self):
        q, k, v = (x[:1] * torch.rand(*x[:1].shape[:-1], 1) for x in (self.q, self.k, self.v))
        wanted = plain(*(x.double() for x in (q, k, v)), causal=True)[0]
        for layout in ("bshd", "bhsd"):
            of = lambda x: x if layout == "bshd" else x.transpose(1, 2)
            given = [of(x) for x in (q, k, v)]
            q8, k8, v8, scales, _ = attnforge.quantize_qkv(*given, layout=layout, scale="token")
            self.assertEqual([scales[f"{name}_scale"].shape for name in "qk"], [x.shape[:-1] for x in given[:2]])
            o = of(attnforge.reference(q8, k8, v8, causal=True, layout=layout, **scales))
            values = [of(x.double() * scales[f"{name}_scale"].unsqueeze(-1)) for name, x in (("q", q8), ("k", k8))]
            exact = plain(*values, of(v8).double() * scales["v_scale"][:, None, :, None], causal=True)[0]
            self.same(o, exact)
            self.assertLess((exact - wanted).abs().mean() / wanted.abs().mean(), 0.1)

    def test_packed_queries_of_8_bits_whose_rows_have_scales(self):
        q, k, v = (torch.randn(rows, heads, 64) for rows, heads in ((20, 4), (36, 2), (36, 2)))
        q8, k8, v8, scales, _ = attnforge.quantize_qkv(q, k, v, scale="token")
        cu = torch.tensor([0, 9], dtype=torch.int32), torch.tensor([0, 20], dtype=torch.int32)
        o = attnforge.reference(q8, k8, v8, cu_seqlens=cu, max_seqlen=(9, 20), **scales)
        rows = {"q_scale": scales["q_scale"][None, :9], "k_scale": scales["k_scale"][None, :20], "v_scale": scales["v_scale"]}
        self.assertTrue(torch.equal(o[:9], attnforge.reference(q8[None, :9], k8[None, :20], v8[None, :20], **rows)[0]))

    def test_queries_of_8_bits_without_what_keys_share(self):
        q, k, v = torch.randn(1, 20, 4, 96), torch.randn(1, 36, 2, 96) + 4 * torch.randn(2, 96), torch.randn(1, 36, 2, 40)
        wanted, of_rows = plain(*(x.double() for x in (q, k, v)), causal=True)
        errors = {}
        for smooth_k, rotate, layout in itertools.product((False, True), (False, True), ("bshd", "bhsd")):
            given = [x if layout == "bshd" else x.transpose(1, 2) for x in (q, k, v)]
            *made, scales, shift = attnforge.quantize_qkv(*given, smooth_k, rotate, layout)
            self.assertEqual([x.shape for x in made], [x.shape for x in given])
            self.assertTrue(all(x.is_contiguous() for x in made))
            o, lse = attnforge.reference(*made, causal=True, return_lse=True, layout=layout, **scales)
            o = o if layout == "bshd" else o.transpose(1, 2)
            errors[smooth_k, rotate] = (o - wanted).abs().mean().item() / wanted.abs().mean().item()
            if smooth_k:
                self.assertLess((lse + shift / math.sqrt(96) - of_rows).abs().max(), 0.1)
        self.assertLess(max(errors[True, rotate] for rotate in (False, True)), 0.6 * errors[False, False])
        q[..., ::24] *= 8  # columns whose roundings are most of a score's
        k[..., ::24] *= 8
        wanted = plain(*(x.double() for x in (q, k, v)))[0]
        of_each = [attnforge.quantize_qkv(q, k, v, True, rotate) for rotate in (False, True)]
        plainly, rotated = ((attnforge.reference(*each[:3], **each[3]) - wanted).abs().mean() for each in of_each)
        self.assertLess(rotated, 0.6 * plainly)

    def test_packed_queries_of_8_bits(self):
        q, k, v = torch.randn(20, 4, 64), torch.randn(36, 2, 64), torch.randn(36, 2, 64)
        packed, batch = attnforge.quantize_qkv(q, k, v, True, True), attnforge.quantize_qkv(q[None], k[None], v[None], True, True)
        self.assertEqual((packed[3]["q_scale"].shape, packed[4].shape), ((2,), (4, 20)))
        for x, y in zip((*packed[:3], *packed[3].values(), packed[4]), (*batch[:3], *batch[3].values(), batch[4])):
            self.assertTrue(torch.equal(x.float(), y[0].float()))
        zeros = attnforge.quantize_qkv(q * 0, k * 0, v)
        self.assertTrue(torch.equal(zeros[0].float(), q * 0) and not zeros[3]["k_scale"].any() and zeros[4] is None)
        tiny, _, of_nan, scales, _ = attnforge.quantize_qkv(torch.full_like(q, 9.35e-43), k, v.where(v < 2, math.nan))
        self.assertTrue(tiny.float().isfinite().all(), "a scale that is no normal number")
        self.assertTrue(of_nan.float().isnan().any() and scales["v_scale"].isnan().any())
        for words, args in (("q is a list", ([1.0], k, v)), ("four dimensions", (q, k[None], v)), ("do not fit", (q[:, :3], k, v))):
            with self.subTest(words), self.assertRaisesRegex(attnforge.InvalidError, words):
                attnforge.quantize_qkv(*args)

    def test_other_dtypes(self):
        for dtype in (torch.float16, torch.float32):
            q, k, v = (rand(1, 9, 2, 16, dtype=dtype) for _ in range(3))
            self.same(attnforge.reference(q, k, v), plain(q.double(), k.double(), v.double())[0])

    def test_what_is_refused(self):
        invalid = attnforge.InvalidError
        with self.assertRaisesRegex(invalid, "four dimensions"):
            attnforge.reference(self.q[0], self.k, self.v)
        with self.assertRaisesRegex(invalid, "dtype torch.float64, which is not supported"):
            attnforge.reference(self.q.double(), self.k, self.v)
        with self.assertRaisesRegex(TypeError, "'is_causal'; here: causal="):
            attnforge.reference(self.q, self.k, self.v, is_causal=True)
        with self.assertRaisesRegex(invalid, r"lengths.q\[1\]=100"):  # which count more rows than there are
            attnforge.reference(self.q[0], self.k[0], self.v[0], cu_seqlens=ints(0, 100), max_seqlen=100)
        with self.assertRaisesRegex(invalid, "used_kv|length"):
            attnforge.reference(self.q, self.k, self.v, used_kv=ints(100, 3))
        with self.assertRaises(invalid):
            attnforge.reference(self.q, rand(6, 16, 2, 32), rand(6, 16, 2, 32), used_kv=ints(20, 3), page_table=ints(99, 1, 2, 3).view(2, 2))


if __name__ == "__main__":
    unittest.main()
