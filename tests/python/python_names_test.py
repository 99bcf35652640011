#!/usr/bin/env python3
"""What a newcomer types: names of other libraries, layouts of others, texts in the place of fields; each is answered by the right word.

usage: ATTNFORGE_LIBRARY=libattnforge.so python_names_test.py PACKAGE_FOLDER [unittest arguments]
The first libcuda.so.1 must be the one of tests/support/fake_driver/fake_driver.cpp.
"""

import os
import pathlib
import re
import sys
import unittest
import warnings

sys.path.insert(0, os.path.abspath(sys.argv.pop(1)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attnforge  # noqa: E402
from attnforge import _names, _options  # noqa: E402
from fake_torch import Torch  # noqa: E402

torch = sys.modules["torch"] = Torch()
DOCUMENT = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/COMING_FROM.md"


def call(q, k=None, **options):
    q, k = torch.Tensor(q), torch.Tensor(k or q)
    return attnforge.attention(q, k, k, **options)


class NamesTest(unittest.TestCase):
    def test_names_of_others_are_answered_by_ours(self):
        right = {
            "is_causal": "causal=",
            "scale": "softmax_scale=",
            "dropout_p": "dropout is not implemented",
            "window_size": r"window=\(left, right\)",
            "cu_seqlens_q": r"cu_seqlens=.*\(of q, of k\)",
            "block_table": "page_table=",
            "cache_seqlens": "used_kv=",
            "score_mod": "integrations.flex",
            "attn_bias": "attn_mask=",
            "q_descale": "q_scale=",
        }
        tensors = [torch.Tensor((2, 64, 4, 64)) for _ in range(6)]
        for name, word in right.items():
            with self.subTest(name=name):
                for function, count in ((attnforge.attention, 3), (attnforge.attention_backward, 6), (attnforge.tune, 3)):
                    with self.assertRaisesRegex(TypeError, f"argument '{name}'; here: .*{word}.*COMING_FROM.*There are causal, window"):
                        function(*tensors[:count], **{name: None})

    def test_no_name_of_others_is_one_of_ours(self):
        self.assertEqual(set(_names.OTHERS) & set(_options.Options._fields), set())
        for text in _names.OTHERS.values():  # and what they are told is there
            for word in re.findall(r"\b(\w+)=(?!=)", text):
                self.assertIn(word, (*_options.Options._fields, "attn_mask"), text)

    def test_names_that_are_nearly_right(self):
        for name, meant in (("casual", "causal"), ("soft_max_scale", "softmax_scale"), ("windows", "window"), ("layouts", "layout")):
            with self.assertRaisesRegex(TypeError, f"argument '{name}'; did you mean {meant}[?] There are causal, "):
                call((2, 64, 4, 64), **{name: None})
        with self.assertRaisesRegex(TypeError, "argument 'colour'; there are causal, window"):
            call((2, 64, 4, 64), colour=1)

    def test_the_document_and_the_errors_name_the_same_words(self):
        """Of each table's row the first cell has names of others, the second one what is there instead."""
        told = {}
        for line in DOCUMENT.read_text().splitlines():
            cells = line.strip("| ").split(" | ")
            if line.startswith("| ") and len(cells) > 1:
                for name in set(re.findall(r"`(\w+)=?", cells[0])) & set(_names.OTHERS):
                    told[name] = f"{told.get(name, '')} {cells[1]}"
        self.assertGreater(len(told), 28)
        for name, here in told.items():
            if "not implemented" in _names.OTHERS[name]:
                self.assertIn("not implemented", here, name)
            else:
                ours = set(re.findall(r"\b(\w+)=(?!=)", _names.OTHERS[name]))
                self.assertTrue(ours <= set(re.findall(r"\w+", here)), f"{name}: {ours}, but the document has {here}")


class LayoutTest(unittest.TestCase):
    def setUp(self):
        _names._warned = False
        attnforge.plan_cache.clear()

    def warned(self, q, k=None, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(q, k, **options)
        return [each for each in caught if "bhsd" in str(each.message)]

    def test_heads_where_rows_should_be_warn_once(self):
        (warning,) = self.warned((2, 8, 1024, 64))
        self.assertRegex(str(warning.message), r"q \(2, 8, 1024, 64\).*1024 and 1024 heads.*layout=\"bhsd\"")
        self.assertEqual(warning.filename, __file__, "it points to the call")
        self.assertEqual(self.warned((2, 8, 2048, 64)), [])

    def test_what_may_well_be_meant_does_not(self):
        for q, k in (((2, 1024, 8, 64), None), ((1, 16, 128, 64), None), ((64, 1, 32, 64), (64, 4096, 8, 64)), ((1, 256, 256, 64), None)):
            self.assertEqual(self.warned(q, k), [], q)
        self.assertEqual(self.warned((2, 8, 1024, 64), layout="bhsd"), [])

    def test_heads_that_do_not_divide_say_it_too(self):
        with self.assertRaisesRegex(attnforge.InvalidError, r"100 heads, which is no multiple of the 4096 of k.*layout=\"bhsd\""):
            call((1, 8, 100, 64), (1, 8, 4096, 64))
        with self.assertRaises(attnforge.InvalidError) as caught:
            call((1, 128, 6, 64), (1, 100, 4, 64))
        self.assertNotIn("bhsd", str(caught.exception))


class MessagesTest(unittest.TestCase):
    def test_shapes_are_named_before_a_gpu_that_is_missing(self):
        on_cpu = {"device": ("cpu", None)}
        bad, good = torch.Tensor((64, 4, 64), **on_cpu), torch.Tensor((2, 64, 4, 64), **on_cpu)
        with self.assertRaisesRegex(attnforge.InvalidError, r"q has shape \(64, 4, 64\); attention needs four dimensions"):
            attnforge.attention(bad, good, good)
        with self.assertRaisesRegex(attnforge.InvalidError, "q is on .*cpu.*; attention needs CUDA tensors"):
            attnforge.attention(good, good, good)
        with self.assertRaisesRegex(attnforge.InvalidError, "four dimensions"):
            attnforge.attention_backward(bad, good, good, good, good, good)

    def test_types_are_called_as_in_python(self):
        with self.assertRaisesRegex(attnforge.InvalidError, "^causal is a str; it must be True or False"):
            call((2, 64, 4, 64), causal="yes")
        with self.assertRaisesRegex(attnforge.InvalidError, "^layout is None; it must be one of bshd, bhsd"):
            call((2, 64, 4, 64), layout=None)

    def test_a_text_is_no_problem_but_can_be_read(self):
        with self.assertRaisesRegex(attnforge.InvalidError, r"Problem\('fwd bf16'\).*Problem.parse\(\)"):
            attnforge.Problem("fwd bf16")
        self.assertEqual(attnforge.Problem.parse("fwd bf16 causal").causal, True)

    def test_has_a_version(self):
        self.assertEqual(attnforge.__version__, attnforge.version())
        with self.assertRaises(AttributeError):
            attnforge.__author__


if __name__ == "__main__":
    unittest.main()
