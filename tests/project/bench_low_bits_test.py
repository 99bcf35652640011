#!/usr/bin/env python3
"""bench/low_bits.py with torch on the CPU, which it takes for the GPU, an attnforge of exact math, and peers of which some fail.

usage: with_torch.sh python3 bench_low_bits_test.py ROOT
"""

import contextlib
import io
import math
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch

torch.set_num_threads(1)  # the tensors are small
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

from attnforge import quantize_kv  # noqa: E402

import bits  # noqa: E402
import drawn  # noqa: E402
import drawn_problems  # noqa: E402
import figures  # noqa: E402
import low_bits  # noqa: E402
import machine  # noqa: E402
import peer_kernels  # noqa: E402
import tables  # noqa: E402

POINTS = [
    drawn_problems.Decode("", 8, 2, 64, 1, (40, 40), 16), drawn_problems.Decode("", 8, 2, 64, 1, (37, 37), 0),
    drawn_problems.Decode("A model", 4, 2, 64, 3, (50, 17, 9, 33, 40), 16),
]  # fmt: skip


def values_of(x, scale):
    """What attention() takes numbers and scales for, [..., heads, head_dim]."""
    x = bits.halves_of(x) if x.dtype == torch.uint8 else x
    if scale is None:
        return x.float()
    if scale.dim() <= 1:
        return x.float() * scale.unsqueeze(-1)
    columns = scale.unsqueeze(-1) if scale.dim() < x.dim() else scale.repeat_interleave(x.shape[-1] // scale.shape[-1], -1)
    return x.float() * columns


def attention(q, k, v, causal=False, used_kv=None, page_table=None, k_scale=None, v_scale=None):
    FAKE.plan_cache.append(types.SimpleNamespace(problem="problem", config="found", provenance="measured"))
    k, v = values_of(k, k_scale), values_of(v, v_scale)
    if page_table is not None:
        k, v = (x[page_table.clamp(min=0).long()].flatten(1, 2) for x in (k, v))
    rows, keys = q.shape[1], k.shape[1]
    used = torch.full((len(q),), keys) if used_kv is None else used_kv
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    s = torch.einsum("bqhd,bkhd->bhqk", q.float(), k) / math.sqrt(q.shape[-1])
    last = used[:, None] - rows + torch.arange(rows) if causal else used[:, None].expand(-1, rows) - 1
    s = s.masked_fill(torch.arange(keys) > last[:, None, :, None], -math.inf)
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(s, -1), v).to(torch.bfloat16)


class Cache(list):
    def put(self, key, plan):
        self.append(plan)


FAKE = types.SimpleNamespace(
    attention=attention, configure=lambda **words: None, version=lambda: "0", plan_cache=Cache(), AttnforgeError=RuntimeError,
    inspect=lambda text, **words: {"candidates": [{"config": "guessed"}]}, quantize_kv=quantize_kv,
)  # fmt: skip
OTHER_PROCESS = "def inspect(text, **words):\n    return {'config': 'shipped'}\n"


class Flash:
    """The interface of FlashAttention-3, of e4m3."""

    @staticmethod
    def get_scheduler_metadata(*sizes, qkv_dtype, **words):
        assert qkv_dtype == torch.float8_e4m3fn
        return "planned"

    @staticmethod
    def flash_attn_with_kvcache(q, k, v, cache_seqlens, causal, q_descale, k_descale, v_descale, page_table=None, scheduler_metadata=None):
        assert {x.dtype for x in (q, k, v)} == {torch.float8_e4m3fn} and q_descale.shape == (len(q), k.shape[2])
        return attention(q.float() * q_descale[0, 0], k, v, causal, cache_seqlens, page_table, k_descale[0, :1], v_descale[0, :1])

    @staticmethod
    def flash_attn_func(q, k, v, causal, num_splits=1, **scales):
        return Flash.flash_attn_with_kvcache(q, k, v, torch.full((len(q),), k.shape[1]), causal, **scales)


def xqa(q, pools, workspace, table, used, longest, bmm1_scale, bmm2_scale, kv_layout, out, q_len_per_req=1, mask=None):
    if q_len_per_req > 1:
        raise RuntimeError("was not built")
    scale = torch.tensor([bmm1_scale * math.sqrt(q.shape[-1])])
    out.copy_(attention(q[:, None], *pools, False, used.int(), table, scale, torch.tensor([bmm2_scale]))[:, 0])


class Wrapper:
    """FlashInfer's decode on tensor cores."""

    def __init__(self, workspace, layout, use_tensor_cores):
        if not use_tensor_cores:
            raise RuntimeError("was not built")

    def plan(self, starts, pages, last, heads, heads_kv, head_dim, page_size, q_data_type, kv_data_type):
        assert (q_data_type, kv_data_type) == (torch.bfloat16, torch.float8_e4m3fn)
        rows = [pages[begin:end] for begin, end in zip(starts, starts[1:])]
        self.table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        self.used = torch.tensor([(len(row) - 1) * page_size + count for row, count in zip(rows, last.tolist())])

    def run(self, q, caches, k_scale, v_scale):
        return attention(q[:, None], *caches, False, self.used, self.table, torch.tensor([k_scale]), torch.tensor([v_scale]))[:, 0]


def on_cpu(function):
    return lambda *args, **named: function(*args, **(named | {"device": "cpu"} if "device" in named else named))


class LowBitsTest(unittest.TestCase):
    def run_it(self, path, kind, *words):
        """What it says, of POINTS in place of its own."""
        peer_runs = types.SimpleNamespace(
            seed=torch.manual_seed, ColdL2=lambda clean: None, Heat=lambda ms: None, copy_tb_per_s=lambda: 1.0, fastest=lambda runs: runs[0],
            time_ms=lambda runs, rounds, heat, flush: {name: (1.0 + 0.1 * i, 0.01, 0) for i, name in enumerate(runs)},
        )  # fmt: skip
        packages = types.ModuleType("flashinfer"), types.ModuleType("flashinfer.decode")
        packages[0].BatchDecodeWithPagedKVCacheWrapper = Wrapper
        packages[1].xqa_batch_decode_with_kv_cache = xqa
        (pathlib.Path(path).parent / "attnforge.py").write_text(OTHER_PROCESS)
        patches = (
            mock.patch.dict(sys.modules, {"attnforge": FAKE, "peer_runs": peer_runs, "flashinfer": packages[0], "flashinfer.decode": packages[1]}),
            mock.patch.multiple(torch, **{name: on_cpu(getattr(torch, name)) for name in ("randn", "tensor")}),
            mock.patch.multiple(torch.cuda, get_device_name=lambda: "H9", synchronize=lambda: None, empty_cache=lambda: None),
            mock.patch.object(torch.Tensor, "cuda", lambda x: x),
            mock.patch.multiple(machine, gpu=lambda: "H9, 1", torch=lambda: torch),
            mock.patch.multiple(peer_kernels, fa3_package=lambda: (Flash, "3"), flashinfer_package=lambda: (packages[0], "9")),
            mock.patch.multiple(low_bits, LISTED=POINTS[:2], BESIDE_PEERS=POINTS[:2], COPIED=1 << 10),
            mock.patch.object(drawn_problems, "decode", lambda seed, count: iter(POINTS[2:][:count])),
            mock.patch.object(sys, "path", [str(pathlib.Path(path).parent), *sys.path]),
            mock.patch.object(sys, "argv", ["low_bits.py", kind, "--out", str(path), *words]),
        )
        with contextlib.ExitStack() as stack:
            said = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            for patch in patches:
                stack.enter_context(patch)
            low_bits.main()
        return said.getvalue()

    def rows(self, kind, *words):
        """({(point, "format scale", impl): row}, what it said)."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.csv"
            said = self.run_it(path, kind, *words)
            rows = figures.read_csv(path)[1]
        names = [(row["point"], f"{row['format']} {row['scale']}".strip(), row["impl"]) for row in rows]
        self.assertEqual(len(set(names)), len(rows))
        return dict(zip(names, rows)), said

    def test_each_format_beside_bf16(self):
        rows, said = self.rows("listed")
        for point in map(drawn_problems.words_of, POINTS[:2]):
            for name in low_bits.FORMATS["listed"]:
                for impl in ("attnforge", "estimate"):
                    row = rows[point, name, impl]
                    self.assertLess(float(row["error"]), 1e-2, (point, name))
                    self.assertEqual(float(row["speed"]), round(float(rows[point, "bf16", "attnforge"]["ms"]) / float(row["ms"]), 3))
                    self.assertEqual(row["note"], {"attnforge": "found", "estimate": "shipped"}[impl])
        paged = drawn_problems.words_of(POINTS[0])
        count = 2 * 80 * 2  # K and V, keys, heads
        for name, wanted in (
            ("bf16", 128 * count), ("int8 token", 68 * count), ("int8 head", 64 * count + 16), ("e4m3 tensor", 64 * count + 8),
            ("int4 token", 36 * count), ("int4 group32", 40 * count),
        ):  # fmt: skip
            self.assertEqual(int(rows[paged, name, "attnforge"]["bytes"]), wanted, name)
            copied = rows[paged, "copy", "copy"]
            share = wanted / float(rows[paged, name, "attnforge"]["ms"]) / (int(copied["bytes"]) / float(copied["ms"]))
            self.assertAlmostEqual(float(rows[paged, name, "attnforge"]["of_copy"]), share, delta=1e-3 * (1 + share))
        self.assertRegex(said, r"int4 group32 attnforge: \S+x attnforge in bf16, least \S+x, 2 points")

    def test_peers_read_one_cache_and_their_failures_are_notes(self):
        rows, said = self.rows("peers", "--count", "1")
        equal, whole, several = map(drawn_problems.words_of, POINTS)
        self.assertEqual({point for point, *_ in rows}, {equal, whole, several})
        for point, name in (
            (equal, "fa3"), (equal, "xqa"), (equal, "flashinfer"), (equal, "sdpa"), (whole, "fa3, one piece"), (whole, "sdpa, one piece"),
        ):  # fmt: skip
            row = rows[point, "e4m3 tensor", name]
            self.assertLess(float(row["error"]), 0.1, (point, name, row["note"]))
            self.assertEqual((bool(row["ms"]), int(row["bytes"])), (True, 2 * 2 * 64 * (80 if point == equal else 74) + 8))
        self.assertIn("q in e4m3, planned ahead", rows[equal, "e4m3 tensor", "fa3"]["note"])
        self.assertIn("was not built", rows[several, "e4m3 tensor", "xqa"]["note"])
        self.assertEqual(rows[several, "e4m3 tensor", "xqa"]["ms"], "")
        self.assertIn("only called for one new token", rows[several, "e4m3 tensor", "sdpa"]["note"])
        self.assertIn("not CUDA cores: RuntimeError: was not built", rows[equal, "e4m3 tensor", "flashinfer"]["note"])
        self.assertIn("peer fa3: 3", said)
        for name in low_bits.FORMATS["peers"]:
            best = rows[equal, name, "attnforge"]
            of_peers = [row for (point, _, impl), row in rows.items() if point == equal and impl in ("fa3", "flashinfer", "xqa", "sdpa")]
            fastest = min(of_peers, key=lambda row: float(row["ms"]))
            self.assertEqual(best["best_peer"], fastest["impl"])
            self.assertEqual(best["ratio_to_best_peer"], f"{float(fastest['ms']) / float(best['ms']):.3f}")

    def test_a_peer_with_another_scale_is_wrong(self):
        def without_scales(q, k, v, cache_seqlens, page_table=None, **words):
            return attention(q, k, v, used_kv=cache_seqlens, page_table=page_table)

        with mock.patch.object(Flash, "flash_attn_with_kvcache", without_scales):
            rows, _ = self.rows("peers", "--count", "1", "--peers", "fa3", "--formats", "int8 token")
        row = rows[drawn_problems.words_of(POINTS[0]), "e4m3 tensor", "fa3"]
        self.assertEqual(row["ms"], "")
        self.assertIn("wrong: differs from fp32", row["note"])

    def test_a_refused_format_is_a_note(self):
        def refuses(q, k, v, **words):
            if k.dtype == torch.float8_e5m2:
                raise ValueError("no kernel")
            return attention(q, k, v, **words)

        with mock.patch.object(FAKE, "attention", refuses), self.assertRaisesRegex(SystemExit, "without a time of attnforge: .*e5m2 token"):
            self.rows("listed", "--formats", "bf16,e5m2 token")

    def test_a_run_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.csv"
            self.run_it(path, "listed", "--only", "one piece", "--formats", "bf16")
            before = path.read_text()
            self.assertIn("--limit-s 0 left 1 of 1 points out", self.run_it(path, "listed", "--formats", "bf16", "--go-on", "--limit-s", "0"))
            self.run_it(path, "listed", "--formats", "bf16", "--go-on")
            self.assertTrue(path.read_text().startswith(before))
            self.assertEqual(len({row["point"] for row in figures.read_csv(path)[1]}), 2)

    def test_a_table_of_what_was_measured(self):
        self.assertNotIn("bf16", tables.low_bits() if not list((ROOT / "bench/results/h200").glob("low_bits*.csv")) else "")
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(tables, "RESULTS", pathlib.Path(folder)):
            self.assertEqual(tables.low_bits(), "")
            (pathlib.Path(folder) / "h200").mkdir()
            self.run_it(pathlib.Path(folder) / "h200" / "low_bits.csv", "listed", "--formats", "bf16,int8 token")
            self.run_it(pathlib.Path(folder) / "h200" / "low_bits_peers.csv", "peers", "--count", "1", "--formats", "int8 token")
            text = tables.low_bits()
        self.assertRegex(text, r"\| int8 token \|  \|  \| 0\.83x, 0\.83x \|")
        self.assertRegex(text, "on e4m3: int8 token: geometric mean .*, least .*, 3 points")

    def test_its_own_points(self):
        self.assertEqual((len(low_bits.LISTED), len(low_bits.BESIDE_PEERS)), (10, 12))
        self.assertEqual(len(set(low_bits.BESIDE_PEERS)), 12)
        args = types.SimpleNamespace(kind="peers", seed=3, count=4, first=0, only=machine.regex(""), shard=(0, 1))
        self.assertEqual(low_bits.points_of(args), [*low_bits.BESIDE_PEERS, *drawn_problems.decode(3, 4)])


if __name__ == "__main__":
    unittest.main()
