#!/usr/bin/env python3
"""bench/drawn.py with torch on the CPU, which it takes for the GPU, an attnforge of exact math, and a FlashAttention with one wrong answer.

usage: with_torch.sh python3 bench_drawn_test.py ROOT
"""

import contextlib
import functools
import io
import math
import pathlib
import re
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch

torch.set_num_threads(1)  # the tensors are small
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import drawn  # noqa: E402
import drawn_dense  # noqa: E402
import drawn_problems  # noqa: E402
import exact  # noqa: E402
import figures  # noqa: E402
import machine  # noqa: E402
import peer_kernels  # noqa: E402
import tables  # noqa: E402


def on_cpu(function):
    return lambda *args, **named: function(*args, **(named | {"device": "cpu"} if "device" in named else named))


def attend(q, k, v, causal, window, softcap):
    """One sequence, by torch: [seqlen, heads, head_dim]."""
    seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q)) if causal else torch.ones(len(q), len(k), dtype=torch.bool)
    if window[0] >= 0:
        seen = seen.triu(len(k) - len(q) - window[0]) & (seen if causal else seen.tril(len(k) - len(q) + window[1]))
    group = q.shape[1] // k.shape[1]
    heads = [x.transpose(0, 1).float() for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))]
    s = heads[0] @ heads[1].mT / math.sqrt(q.shape[2])
    s = softcap * torch.tanh(s / softcap) if softcap else s
    return (torch.softmax(s.masked_fill(~seen, -math.inf), -1) @ heads[2]).transpose(0, 1).to(q.dtype)


def attention(q, k, v, causal=False, window=None, softcap=None, cu_seqlens=None, max_seqlen=None, return_lse=False):
    FAKE.plan_cache.append(types.SimpleNamespace(problem="problem", config="found", provenance="estimated" if softcap else "measured"))
    window = tuple(-1 if side is None else side for side in window or (-1, -1))
    if cu_seqlens is None:
        o = torch.stack([attend(*each, causal, window, softcap) for each in zip(q, k, v)])
    else:
        ends = [list(zip(each.tolist(), each.tolist()[1:])) for each in cu_seqlens]
        parts = [(q[a:b], k[c:d], v[c:d]) for (a, b), (c, d) in zip(*ends)]
        o = torch.cat([attend(*each, causal, window, softcap) for each in parts])
    return (o, None) if return_lse else o


def attention_backward(q, k, v, o, lse, dout, out=None, **options):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        return torch.autograd.grad(attention(*leaves, **options), leaves, dout)


class Cache(list):
    def put(self, key, plan):
        self.append(plan)


FAKE = types.SimpleNamespace(
    attention=attention, attention_backward=attention_backward, configure=lambda **words: None, version=lambda: "0", plan_cache=Cache(),
    AttnforgeError=RuntimeError, inspect=lambda text, **words: {"candidates": [{"config": "guessed"}]},
)  # fmt: skip
OTHER_PROCESS = """
import os

def inspect(text, **words):
    assert text == "problem" and os.environ["ATTNFORGE_CACHE"] == ":memory:"
    return {"config": "shipped"}
"""


class Flash:
    """The interface of FlashAttention-3. Under a window it is wrong."""

    @staticmethod
    def flash_attn_func(q, k, v, causal=False, window_size=(-1, -1), softcap=0.0, num_splits=1):
        return attention(q, k, v, causal, window_size, softcap) * (1.1 if window_size[0] >= 0 else 1)

    @staticmethod
    def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False, window_size=(-1, -1), softcap=0.0):
        return attention(q, k, v, causal, window_size, softcap, (cu_seqlens_q, cu_seqlens_k))


def small(points):
    """The same with few rows and heads."""
    for point in points:
        group = point.num_heads_q // point.num_heads_kv
        lengths = tuple((max(2, q // 64), max(2, kv // 64)) for q, kv in point.lengths[:2])
        window = tuple(side if side <= 0 else max(2, side // 64) for side in point.window)
        yield point._replace(num_heads_q=group, num_heads_kv=1, lengths=lengths, window=window)


class DrawnTest(unittest.TestCase):
    def run_it(self, path, kind, *words):
        peer_runs = types.SimpleNamespace(
            seed=torch.manual_seed, ColdL2=lambda clean: None, Heat=lambda ms: None, copy_tb_per_s=lambda: 1.0, add_peers=self.add_peers,
            time_ms=lambda runs, rounds, heat, flush: {name: (1.0 + 0.1 * i, 0.01, 0) for i, name in enumerate(runs)},
        )  # fmt: skip
        real = drawn_problems.dense
        loaders = {"fa3": lambda: drawn_dense.flash(Flash, "3", -1), "torch-efficient": lambda: drawn_dense.sdpa("MATH")}
        patches = (
            mock.patch.dict(sys.modules, {"attnforge": FAKE, "peer_runs": peer_runs}),
            mock.patch.multiple(torch, **{name: on_cpu(getattr(torch, name)) for name in ("randn", "tensor")}),
            mock.patch.multiple(torch.cuda, get_device_name=lambda: "H9", synchronize=lambda: None, empty_cache=lambda: None),
            mock.patch.multiple(machine, gpu=lambda: "H9, 1", torch=lambda: torch),
            mock.patch.dict(drawn.LOADERS, {kind: loaders}),
            mock.patch.object(drawn_problems, "dense", lambda *args: list(small(real(*args)))),
            mock.patch.object(sys, "argv", ["drawn.py", kind, "--out", str(path), *words]),
        )
        with contextlib.ExitStack() as stack:
            said = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            for patch in patches:
                stack.enter_context(patch)
            drawn.main()
        return said.getvalue()

    @staticmethod
    def add_peers(runs, notes, peers, *prepared):
        for peer in peers:
            try:
                runs[peer.name] = peer.prepare(*prepared)[-1]
                runs[peer.name]()
            except (ValueError, RuntimeError) as error:
                notes[peer.name] = peer_kernels.first_line(error)

    def check(self, kind, count):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            path = pathlib.Path(folder) / "a.csv"
            (pathlib.Path(folder) / "attnforge.py").write_text(OTHER_PROCESS)
            self.run_it(path, kind, "--count", str(count - 4))
            said = self.run_it(path, kind, "--count", str(count), "--go-on", "--limit-s", "0")
            self.assertRegex(said, "--limit-s 0 left [1-4] of [1-4] points out")
            said = self.run_it(path, kind, "--count", str(count), "--go-on")
            self.assertRegex(said, rf"attnforge: geometric mean \S+ the fastest peer, least .*, \d+ points\nestimate: .*\nmodel: ")
            comments, rows = figures.read_csv(path)
        with mock.patch.object(tables, "read", lambda name: (comments, rows)):
            self.assertRegex(tables.drawn(), r"\| packed rows \| \d+ \| 1.30x \| 1.300x \| 1.18x \| 1.182x \|")
            capped = {row["point"]: float(row["softcap"]) > 0 for row in rows}
            sentence = f"first_run found no winner at {sum(capped.values())} of {len(capped)} points"
            self.assertIn(sentence, said)
            self.assertIn(f"{kind}: {sentence}", tables.drawn())
        found = figures.grouped((row["point"], row) for row in rows)
        self.assertEqual(set(found), {drawn_problems.words_of(point) for point in small(drawn_problems.dense(kind, 1, count))})
        for point, each in found.items():
            by_name = {row["impl"]: row for row in each}
            self.assertLess(float(by_name["attnforge"]["error"]), 1e-2, point)
            for name, note in (("estimate", "shipped"), ("model", "guessed")):
                self.assertLess(float(by_name[name]["error"]), 1e-2, point)
                self.assertEqual(by_name[name]["note"], note)
            self.assertEqual(by_name["attnforge"]["note"], "first_run found no winner: estimated, found" if capped[point] else "found")
            windowed = "window" in point and "packed" not in point
            self.assertEqual("wrong: differs from fp32" in by_name["fa3"]["note"], windowed, point)
            self.assertEqual("torch-efficient" in by_name, windowed, "asked where no other serves")
        self.assertTrue(any("window" in point and "packed" not in point for point in found))
        self.assertTrue(any("packed" in point for point in found))

    def test_forward(self):
        self.check("forward", 30)

    def test_backward(self):
        self.check("backward", 24)


class OptionsTest(unittest.TestCase):
    def test_a_wrong_number_ends_with_a_sentence(self):
        for words, sentence in (
            (["--shard", "x"], "x is not I/N with I below N"), (["--shard", "2/2"], "2/2 is not"), (["--shard", "0/0"], "0/0 is not"),
            (["--rounds", "0"], "0 must be at least 1"), (["--count", "0"], "0 must be at least 1"),
            (["--only", "["], "[ is no regular expression"),
        ):  # fmt: skip
            said = io.StringIO()
            argv = mock.patch.object(sys, "argv", ["drawn.py", "decode", *words])
            with argv, contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
                drawn.main()
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(sentence, said.getvalue())

    def test_one_round_is_its_own_median(self):
        event = types.SimpleNamespace(record=lambda: None, elapsed_time=lambda stop: 2.0, query=lambda: False)
        with mock.patch.dict(sys.modules, {"attnforge": FAKE}):
            import peer_runs
        with mock.patch.multiple(torch.cuda, Event=lambda **words: event, synchronize=lambda: None):
            self.assertEqual(peer_runs.time_ms({"a": lambda: None}, 1, mock.Mock(ended=lambda: False), lambda: None), {"a": (2.0, 0.0, 0)})


class ExactTest(unittest.TestCase):
    def test_it_is_what_torch_computes(self):
        for rows, keys, causal, window, softcap in ((9, 9, True, (-1, -1), 0.0), (5, 12, True, (3, 0), 0.0), (7, 7, False, (2, 1), 5.0)):
            q, k, v, dout = (torch.randn(each, heads, 8) for each, heads in ((rows, 6), (keys, 2), (keys, 2), (rows, 6)))
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            o = attend(*leaves, causal, window, softcap)
            o.backward(dout)
            with mock.patch.object(exact, "MOST_SCORES", 16 * 3 * keys):  # in parts
                results = exact.exact(torch, q, k, v, None, causal, window, softcap)
                gradients = exact.exact(torch, q, k, v, dout, causal, window, softcap)
            self.assertLess(exact.error_of([o], results), 1e-5)
            self.assertLess(exact.error_of([x.grad for x in leaves], gradients), 1e-5)
            self.assertEqual([list(x.shape) for x in gradients], [[rows, 3, 8], [keys, 1, 8], [keys, 1, 8]])


class ProblemsTest(unittest.TestCase):
    def test_shards_share_those_that_only_leaves(self):
        def names(only, *shard):
            args = types.SimpleNamespace(kind="decode", seed=1, count=40, first=3, only=re.compile(only), shard=shard, any_heads=False)
            return [drawn_problems.words_of(point) for point in drawn.drawn(args)]

        every = names("", 0, 1)
        wanted = [name for name in every if "pages of 16" in name]
        self.assertEqual(len(every), 40)
        self.assertTrue(wanted and names("pages of 16", 0, 2) == wanted[::2] and names("pages of 16", 1, 2) == wanted[1::2])

    def test_a_seed_draws_the_same_and_more_of_it_goes_on(self):
        for op in ("forward", "backward"):
            points = drawn_problems.dense(op, 1, 40)
            self.assertEqual(points[:15], drawn_problems.dense(op, 1, 15))
            self.assertNotEqual(points[:15], drawn_problems.dense(op, 2, 15))
            self.assertEqual(len({drawn_problems.words_of(point) for point in points}), 40)

    def test_it_draws_what_users_have(self):
        points = drawn_problems.dense("forward", 1, 40)
        self.assertLessEqual({40, 64, 72, 80, 128, 192, 256, 512}, {point.head_dim for point in drawn_problems.dense("forward", 1, 120)})
        for what, has in (
            ("packed", lambda point: point.packed), ("soft cap", lambda point: point.softcap), ("window", lambda point: point.window[0] > 0),
            ("full", lambda point: not point.causal), ("fewer queries", lambda point: point.lengths[0][0] < point.lengths[0][1]),
            ("groups", lambda point: point.num_heads_q > point.num_heads_kv), ("head_dim_v", lambda point: point.head_dim_v != point.head_dim),
        ):  # fmt: skip
            self.assertTrue(any(map(has, points)), what)
        for point in points:
            self.assertTrue(point.packed or len(set(point.lengths)) == 1)
            self.assertEqual(point.num_heads_q % point.num_heads_kv, 0)
            self.assertLessEqual(min(drawn_problems.flops(point), drawn_problems.elements(point)), drawn_problems.MOST_FLOPS)
        self.assertTrue(all(q <= 256 for q in {point.head_dim for point in drawn_problems.dense("backward", 1, 60)}))

    def test_any_heads_are_more_than_those_of_models(self):
        for op in ("decode", "forward", "backward"):
            draws = functools.partial(*((drawn_problems.decode,) if op == "decode" else (drawn_problems.dense, op)))
            points = list(draws(1, 60, False))
            self.assertNotEqual(points[:9], list(draws(1, 9)))
            self.assertGreater(len({point.head_dim for point in points} - {each[2] for each in drawn_problems.MODELS.values()}), 10)
            self.assertGreater(len({point.num_heads_q // point.num_heads_kv for point in points}), 8)
            self.assertEqual({point.num_heads_q % point.num_heads_kv or point.head_dim % 8 for point in points}, {0})
            self.assertLessEqual(max(point.head_dim for point in points), 256)

    def test_pairs_are_those_of_the_mask(self):
        for rows, keys, window in ((7, 7, (-1, 0)), (5, 9, (2, 0)), (6, 6, (1, 2)), (4, 6, (-1, -1))):
            hidden = exact.hidden(torch, 0, rows, rows, keys, False, window, "cpu")
            self.assertEqual(drawn_problems.pairs(rows, keys, window), (~hidden).sum().item())


if __name__ == "__main__":
    unittest.main()
