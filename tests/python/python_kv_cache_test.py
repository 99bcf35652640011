#!/usr/bin/env python3
"""KvCache without a GPU: pages of the pool, what each step uploads and launches, and what is refused.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_kv_cache_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp.
"""

import array
import ctypes
import os
import random
import re
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attnforge  # noqa: E402
from attnforge._caches import kv_cache  # noqa: E402
from attnforge._caches.kv_cache import Pages  # noqa: E402

assert "torch" not in sys.modules, "the package imports no framework"
from fake_torch import Torch  # noqa: E402

torch = sys.modules["torch"] = Torch()


def ints(content):
    return list(array.array("i", bytes(content)))


class WithoutAGpuTest(unittest.TestCase):
    def test_a_cache_says_that_torch_sees_none(self):
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            with self.assertRaisesRegex(attnforge.NoDriverError, "torch sees no GPU.*arch="):
                attnforge.KvCache(max_sequences=2, max_len=64, heads_kv=1, head_dim=64)


class PagesTest(unittest.TestCase):
    def pages_of(self, pages, sequence):
        return [page for page in pages.rows[sequence] if page >= 0]

    def test_a_sequence_gets_pages_when_its_rows_need_them(self):
        pages = Pages(num_pages=5, page_size=8, columns=3)
        pages.extend({"a": 8, "b": 8})
        self.assertEqual([list(pages.rows[name]) for name in "ab"], [[0, -1, -1], [1, -1, -1]])
        before = pages.changes
        pages.extend({"a": 1})
        self.assertEqual(list(pages.rows["a"]), [0, 2, -1])
        pages.extend({"a": 7})
        self.assertEqual((pages.lengths, pages.changes), ({"a": 16, "b": 8}, before + 1))
        self.assertEqual(ints(pages.table(["b", "a"])), [1, -1, -1, 0, 2, -1])

    def test_all_sequences_get_their_rows_or_none(self):
        pages = Pages(num_pages=3, page_size=8, columns=3)
        pages.extend({"a": 10})
        with self.assertRaisesRegex(attnforge.AttnforgeError, "1 free pages of 8 rows, and 14 more rows of 2 sequences take 1 more"):
            pages.extend({"a": 7, "b": 7})
        self.assertEqual((pages.lengths, list(pages.rows), len(pages.free)), ({"a": 10}, ["a"], 1))

    def test_pages_are_each_of_one_sequence_or_free_whatever_comes(self):
        chance, pages = random.Random(5), Pages(num_pages=40, page_size=16, columns=10)
        for _ in range(2000):
            sequence = chance.randrange(6)
            known = pages.lengths.get(sequence)
            action = chance.random()
            if known is not None and action < 0.1:
                pages.release(sequence)
            elif known is not None and action < 0.2:
                pages.trim(sequence, chance.randint(0, known))
            elif (known or 0) < 120:
                try:
                    pages.extend({sequence: chance.randint(0, 40)})
                except attnforge.AttnforgeError:
                    self.assertLess(len(pages.free), 4)
            used = [page for name in pages.rows for page in self.pages_of(pages, name)]
            self.assertEqual(sorted(used + pages.free), list(range(40)))
            for name, length in pages.lengths.items():
                self.assertEqual(len(self.pages_of(pages, name)), -(-length // 16))


class KvCacheTest(unittest.TestCase):
    HEADS, DIM = 2, 64

    @classmethod
    def setUpClass(cls):
        cls.driver = ctypes.CDLL("libcuda.so.1")

    def setUp(self):
        self.driver.fake_reset()
        torch.uploads.clear()
        torch.sums.clear()
        attnforge.plan_cache.clear()
        self.cache = self.made()

    def made(self, **options):
        return attnforge.KvCache(**{"max_sequences": 4, "max_len": 60, "heads_kv": 2, "head_dim": 64, "page_size": 16, **options})

    def rows(self, batch, rows, heads=HEADS):
        return torch.Tensor((batch, rows, heads, self.DIM))

    def append(self, batch, rows, *arguments, **options):
        return self.cache.append(self.rows(batch, rows), self.rows(batch, rows), *arguments, **options)

    def test_a_step_uploads_lengths_and_a_table_that_changed(self):
        self.assertEqual((self.cache.k.shape, self.cache.free_pages), ((1, 16, 16, 2, 64), 16))
        self.append(2, 15, "ab")
        self.assertEqual([ints(each) for each in torch.uploads], [[0, 0, 15, 15], [0, -1, -1, -1, 1, -1, -1, -1]])
        after = self.cache._after.data_ptr()
        self.append(2, 1, "ab")
        self.assertEqual((len(torch.uploads), torch.sums), (2, [(after, 1)]), "the same pages, and lengths that the GPU has")
        self.assertEqual(self.cache._before.data_ptr(), after)
        self.append(1, 1, "b")
        self.assertEqual([ints(each) for each in torch.uploads[2:]], [[16, 17], [1, 2, -1, -1]])
        self.append(2, 1, "ab")
        self.assertEqual([ints(each) for each in torch.uploads[4:]], [[16, 17, 17, 18], [0, 3, -1, -1, 1, 2, -1, -1]])
        self.cache.trim("a", 10)
        self.append(2, 1, "ab")
        self.assertEqual(ints(torch.uploads[6]), [10, 18, 11, 19], "of a sequence that was trimmed")
        self.assertEqual((self.cache.length("a"), self.cache.length("c"), self.cache.free_pages), (11, 0, 13))

    def test_appends_and_attends_by_pages(self):
        self.append(2, 15, "ab")
        self.assertEqual(self.driver.fake_launches(), 1)
        o = self.cache.attend(self.rows(2, 15, 4))
        self.assertEqual(o.shape, (2, 15, 4, 64))
        _, plan = sorted(attnforge.plan_cache, key=lambda plan: plan.problem.op)[-2:]
        wanted = "fwd bf16 batch=2 num_heads=4:2 seqlen=15:64 head_dim=64 causal lengths=used page_size=16"
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
        launches = self.driver.fake_launches()
        self.append(1, 1, "b")
        _, lse = self.cache.attend(self.rows(1, 1, 4), return_lse=True, window=(100, 0), causal=False)
        self.assertEqual(lse.shape, (1, 4, 1))
        self.assertGreater(self.driver.fake_launches(), launches + 1)

    def test_each_layer_has_a_pool_and_all_share_lengths_and_pages(self):
        self.cache = self.made(layers=2)
        seen = []
        with mock.patch.object(kv_cache, "append_kv", lambda *arguments, **options: seen.append((arguments, options))):
            with mock.patch.object(kv_cache, "attention", lambda *arguments, **options: seen.append((arguments, options))):
                for layer in range(2):
                    self.append(2, 3, layer=layer)
                    self.cache.attend(self.rows(2, 3, 4), layer)
        appends, attends = seen[::2], seen[1::2]
        pool_bytes = 16 * 16 * 2 * 64 * 2
        for i, (pool, arguments) in enumerate(zip((self.cache.k, self.cache.v) * 2, (2, 3, 2, 3))):
            self.assertEqual(appends[i // 2][0][arguments].data_ptr(), pool.data_ptr() + i // 2 * pool_bytes)
            self.assertEqual(attends[i // 2][0][arguments - 1].data_ptr(), pool.data_ptr() + i // 2 * pool_bytes)
        before, after = ({id(each) for each in (appends[0][0][4], appends[1][0][4])}, {id(each[1]["used_kv"]) for each in attends})
        self.assertEqual((len(before), len(after), before & after), (1, 1, set()))
        self.assertEqual(len(torch.uploads), 2)
        self.assertEqual(self.cache.length(0), 3)
        with self.assertRaisesRegex(attnforge.InvalidError, "layer 1 appends 8 rows of 2 sequences in a step"):
            self.append(2, 4, layer=1)

    def test_packed_rows_of_different_numbers_are_one_step(self):
        self.append(1, 20, "b")
        torch.uploads.clear()
        k = torch.Tensor((31, 2, 64))
        self.cache.append(k, k, "ab", new_rows=[30, 1])
        self.assertEqual([ints(each) for each in torch.uploads], [[0, 20, 30, 21], [0, 30, 31], [2, 3, -1, -1, 0, 1, -1, -1]])
        o = self.cache.attend(torch.Tensor((31, 4, 64)))
        self.assertEqual(o.shape, (31, 4, 64))
        _, plan = sorted(attnforge.plan_cache, key=lambda plan: plan.problem.op)[-2:]
        wanted = "fwd bf16 batch=2 num_heads=4:2 seqlen=64 head_dim=64 causal lengths=packed tokens_q=64 tokens_kv=0 page_size=16"
        self.assertEqual(str(plan.problem), str(attnforge.Problem.parse(wanted)))
        for text, rows in ((r"with new_rows it must be \[30, heads_kv", [29, 1]), ("new_rows", [32, -1]), ("new_rows", [30.5, 0.5])):
            with self.subTest(rows=rows), self.assertRaisesRegex(attnforge.InvalidError, text):
                self.cache.append(k, k, "ab", new_rows=rows)
        self.assertEqual((self.cache.length("a"), self.cache.length("b")), (30, 21))

    def test_a_rope_rotates_queries_too(self):
        tables = torch.Tensor((64, 32), "float32"), torch.Tensor((64, 32), "float32")
        q = self.rows(2, 1, 4)
        self.assertEqual(self.append(2, 1, q=q, rope=tables).shape, q.shape)

    def test_rows_of_fewer_bits_have_scales(self):
        pages = 1, 16, 16, 2
        for options, of_k, of_v, of_scales, text in (
            ({"dtype": "int8"}, ("int8", 64), ("int8", 64), ((), ()), "k=int8 v=int8 kv_scale=token"),
            ({"dtype": "int4", "scale": "group32", "head_dim_v": 40}, ("uint8", 32), ("uint8", 20), ((2,), (2,)), "k=int4 v=int4 kv_scale=group32"),
            ({"dtype": "int4", "zero": True}, ("uint8", 32), ("uint8", 32), ((1, 2), (1, 2)), "k=int4 v=int4 kv_scale=token kv_zero"),
            ({"dtype": "int4", "scale": "group32", "zero": True, "dtype_v": torch.bfloat16}, ("uint8", 32), ("bfloat16", 64), ((2, 2), None),
             "k=int4 v=bf16 kv_scale=group32 kv_zero"),
            ({"dtype": torch.float8_e4m3fn, "dtype_v": "int4"}, ("float8_e4m3fn", 64), ("uint8", 32), ((), ()), "k=e4m3 v=int4 kv_scale=token"),
            ({"dtype": torch.bfloat16, "dtype_v": "e5m2"}, ("bfloat16", 64), ("float8_e5m2", 64), (None, ()), "k=bf16 v=e5m2 kv_scale=token"),
        ):
            with self.subTest(text=text):
                attnforge.plan_cache.clear()
                cache = self.cache = self.made(**options)
                self.assertEqual([(each.dtype, tuple(each.shape)) for each in (cache.k, cache.v)], [(kind, (*pages, dim)) for kind, dim in (of_k, of_v)])
                wanted = [None if of is None else ("float32", (*pages, *of)) for of in of_scales]
                self.assertEqual([None if each is None else (each.dtype, tuple(each.shape)) for each in (cache.k_scale, cache.v_scale)], wanted)
                scales = [each for each in (cache.k_scale, cache.v_scale) if each is not None]
                self.assertTrue(all(each.stride()[2] * each.shape[2] == each.stride()[3] for each in scales), "a head's rows lie together")
                dim_v = options.get("head_dim_v", 64)
                cache.append(self.rows(2, 3), torch.Tensor((2, 3, 2, dim_v)), "ab")
                self.assertEqual(cache.attend(self.rows(2, 3, 4)).shape, (2, 3, 4, dim_v))
                append, forward = sorted((plan.problem for plan in attnforge.plan_cache), key=lambda problem: problem.op)
                k, v, scale = (word.split("=")[1] for word in text.split()[:3])
                for problem in (append, forward):
                    self.assertEqual(problem.kv_zero, text.endswith("kv_zero"))
                    self.assertEqual((problem.dtype_q, problem.dtype_k, problem.dtype_v, problem.kv_scale), ("bf16", k, v, scale))
        for text, options in (
            ("dtype='int2' must be one of int8, int4", {"dtype": "int2"}),
            ("scale='head' must be one of token", {"dtype": "int8", "scale": "head"}),
            ("head_dim=63 must be a multiple of 8 for a cache of int4: a row would end inside a byte", {"dtype": "int4", "head_dim": 63}),
            ("zero points are of int4, not of int8", {"dtype": "int8", "zero": True}),
            ("head_dim_v=12 must be a multiple of 8 for a cache of e4m3", {"dtype": "e4m3", "head_dim_v": 12}),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(attnforge.InvalidError, text):
                self.made(**options)

    def test_released_pages_are_for_others(self):
        self.cache = self.made(num_pages=2)
        self.append(1, 20, "a")
        with self.assertRaisesRegex(attnforge.AttnforgeError, "0 free pages"):
            self.append(1, 1, "b")
        self.assertEqual(self.cache.length("b"), 0)
        self.cache.release("a")
        self.append(1, 17, "b")
        self.cache.trim("b", 16)
        self.assertEqual((self.cache.length("b"), self.cache.free_pages), (16, 1))
        self.cache.trim("b", 0)
        self.assertEqual((self.cache.length("b"), self.cache.free_pages), (0, 2))

    def test_what_is_refused_changes_nothing(self):
        self.append(1, 3, "a")
        state = self.cache.length("a"), self.cache.free_pages
        wide = torch.Tensor((1, 2, 2, 128))
        for text, action in (
            ("61 rows, more than max_len=60", lambda: self.append(1, 58, "a")),
            ("2 sequences, but rows of 1", lambda: self.append(1, 1, "ab")),
            ("must be different ones", lambda: self.append(2, 1, "aa")),
            ("must be different ones", lambda: self.append(0, 1, "")),
            ("k has shape", lambda: self.cache.append(wide[0], wide[0], "a")),
            ("k_cache has shape", lambda: self.cache.append(wide, wide, "a")),
            ("k_cache has shape", lambda: self.cache.append(torch.Tensor((2, 20, 2, 128)), self.rows(2, 20), "ab")),
            ("layer=1 must be", lambda: self.append(1, 1, "a", layer=1)),
            ("no sequence 'b'", lambda: self.cache.release("b")),
            ("length=4 must be from 0 to 3", lambda: self.cache.trim("a", 4)),
            ("page_size=12 must be 1, 2, 4 or a multiple of 8", lambda: self.made(page_size=12)),
            ("max_len=0", lambda: self.made(max_len=0)),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(attnforge.InvalidError, text):
                action()
            self.assertEqual((self.cache.length("a"), self.cache.length("b"), self.cache.free_pages), (state[0], 0, state[1]))
        with self.assertRaisesRegex(attnforge.InvalidError, "append.. comes first"):
            self.made().attend(self.rows(1, 1))

    def test_a_step_on_another_stream_has_memory_of_that_stream(self):
        self.append(2, 5, "ab")
        torch.uploads.clear()
        with torch.cuda.stream(7):
            self.append(2, 1, "ab")
            self.assertEqual([ints(each) for each in torch.uploads], [[5, 5, 6, 6], [0, -1, -1, -1, 1, -1, -1, -1]])
            self.append(2, 1, "ab")
        self.assertEqual((len(torch.uploads), len(torch.sums)), (2, 1))

    def test_a_step_that_fails_before_its_rows_are_written_is_none(self):
        self.append(2, 5, "ab")
        for failing, options in (("__add__", {}), ("pin_memory", {"sequences": "ba"})):
            with mock.patch.object(torch.Tensor, failing, side_effect=RuntimeError("CUDA out of memory")):
                with self.subTest(failing=failing), self.assertRaisesRegex(RuntimeError, "out of memory"):
                    self.append(2, 1, options.get("sequences", "ab"))
            self.assertEqual((self.cache.length("a"), self.cache.length("b"), self.cache.free_pages), (5, 5, 14))
            torch.uploads.clear()
            self.append(2, 0, "ab")
            self.assertEqual(ints(torch.uploads[0]), [5, 5, 5, 5], "what the host knows")


class ServingPageTest(unittest.TestCase):
    """The programs of docs/SERVING.md and docs/BITS.md, as they stand there."""

    def test_its_python_runs(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        programs = []
        for name in ("SERVING", "BITS"):
            with open(os.path.join(root, f"docs/{name}.md")) as page:
                programs += re.findall(r"^```python\n(.*?)^```$", page.read(), flags=re.M | re.S)
        model, graph, fewer_bits = programs
        bf16 = torch.Tensor

        def made(*sizes, dtype, device):
            shape = sizes[0] if isinstance(sizes[0], tuple) else sizes
            return bf16(shape, dtype)

        driver = ctypes.CDLL("libcuda.so.1")
        driver.fake_reset()
        with mock.patch.multiple(torch, create=True, empty=made, zeros=made, full=lambda shape, _, **options: made(shape, **options)):
            names = {}
            exec(model, names)
            tables = bf16((4096, 64), "float32"), bf16((4096, 64), "float32")
            for index in range(2):
                o = names["layer"](index, bf16((2, 5, 32, 128)), bf16((2, 5, 8, 128)), bf16((2, 5, 8, 128)), "ab", tables)
                self.assertEqual(o.shape, (2, 5, 32, 128))
            names = {"attnforge": attnforge, "torch": torch}
            exec(graph, names)
            launches = driver.fake_launches()
            self.assertEqual(names["step"]().shape, (8, 1, 32, 128))
            self.assertGreater(driver.fake_launches(), launches + 1)

        def quantized(x, dtype="int8", scale="token"):
            *rows, columns = x.shape
            scales = rows if scale == "token" else (*rows, -(-columns // int(scale[5:])))
            return bf16((*rows, columns // 2), "uint8") if dtype == "int4" else bf16(x.shape, dtype), bf16(tuple(scales), "float32")

        names = {"attnforge": attnforge, "q": bf16((2, 1, 32, 128)), "lengths": bf16((2,), "int32")}
        names.update(k=bf16((2, 500, 8, 128)), v=bf16((2, 500, 8, 128)))
        with mock.patch.object(attnforge, "quantize_kv", quantized):
            exec(fewer_bits, names)
        self.assertEqual(names["o"].shape, (2, 1, 32, 128))


if __name__ == "__main__":
    unittest.main()
