#!/usr/bin/env python3
"""Tests of what bench/ computes from measured times: no torch, no GPU.

usage: ATTNFORGE_LIBRARY=libattnforge.so bench_figures_test.py ROOT
"""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import attnforge  # noqa: E402
import figures  # noqa: E402
import peers  # noqa: E402

LISTS = ("main", "odd_head_dims", "prefill")
REFERENCE = figures.times(figures.read_csv(figures.REFERENCE)[1])


def problems(dtype="bf16"):
    return [attnforge.Problem.parse(text) for name in LISTS for text in peers.read_list(name, dtype)]


def rows_with_cudnn_of_the_reference(dtype, speed):
    """Rows as peers.py writes them if attnforge were `speed` times cuDNN, and cuDNN as fast as 1 ms."""
    times = {"attnforge": (1 / speed, 0.01), "torch-flash": (2.0, 0.01), "torch-cudnn": (1.0, 0.01)}
    return [row for problem in problems(dtype) for row in peers.rows_of(problem, times, REFERENCE, 21, "a config")]


class RatiosTest(unittest.TestCase):
    def test_other_kernels_come_through_cudnn(self):
        found = figures.ratios(
            {"attnforge": 0.20, "torch-cudnn": 0.18, "torch-flash": 0.25},
            {"torch-cudnn": 0.1765, "fa3": 0.2097, "thunderkittens": 0.2326},
        )
        self.assertAlmostEqual(found["torch-cudnn"], 0.9)
        self.assertAlmostEqual(found["torch-flash"], 1.25)
        self.assertAlmostEqual(found["fa3"], 0.9 * 0.2097 / 0.1765)
        self.assertAlmostEqual(found["thunderkittens"], 0.9 * 0.2326 / 0.1765)
        self.assertAlmostEqual(figures.best_peer(found), 0.9)  # cuDNN is the fastest, FlashAttention-2 is no peer
        self.assertAlmostEqual(figures.best_peer(found, ("fa3",)), found["fa3"])

    def test_without_cudnn_they_are_not_known(self):
        found = figures.ratios({"attnforge": 1.0, "torch-flash": 2.0}, {"torch-cudnn": 1.0, "fa3": 1.0})
        self.assertEqual(found, {"torch-flash": 2.0})
        self.assertIsNone(figures.best_peer(found))

    def test_a_point_that_the_reference_lacks(self):
        self.assertEqual(figures.ratios({"attnforge": 1.0, "torch-cudnn": 1.5}, {}), {"torch-cudnn": 1.5})


class FiguresTest(unittest.TestCase):
    def test_the_lists_have_every_point_of_every_figure(self):
        found = figures.all_ratios(rows_with_cudnn_of_the_reference("bf16", 1.5))
        rows = figures.figure_rows(found, "bf16")
        self.assertEqual([row[1] for row in rows], [f"{figure.count} of {figure.count}" for figure in figures.FIGURES])
        self.assertEqual({row[-1] for row in rows}, {"yes"})
        self.assertEqual(rows[6][3], "1.500")  # head_dim 192:128 against cuDNN

    def test_fp16_has_a_reference_for_half_of_the_grid(self):
        found = figures.all_ratios(rows_with_cudnn_of_the_reference("fp16", 1.5))
        rows = figures.figure_rows(found, "fp16")
        self.assertEqual((rows[0][1], rows[0][-1]), ("18 of 36", "so far"))
        self.assertEqual((rows[6][1], rows[6][-1]), ("3 of 3", "yes"))

    def test_one_slow_point_misses_a_figure(self):
        rows = rows_with_cudnn_of_the_reference("bf16", 1.5)
        slow = next(row for row in rows if row["impl"] == "attnforge" and row["head_dim"] == 256)
        slow["ms"] = "2.0"
        first = figures.figure_rows(figures.all_ratios(rows), "bf16")[0]
        self.assertEqual(first[-1], "no")
        self.assertIn("head_dim 256 seqlen 512 full", first[5])
        self.assertGreater(float(first[3]), 1.06)

    def test_columns_and_summary(self):
        rows = rows_with_cudnn_of_the_reference("bf16", 1.5)
        for row in rows:
            self.assertLessEqual(set(row), set(peers.COLUMNS))
        self.assertEqual(rows[0]["ratio_to_torch_cudnn"], "1.500")
        self.assertEqual(rows[0]["ratio_to_fa3"], f"{1.5 * 0.2097 / 0.1765:.3f}")
        self.assertEqual(rows[0]["ratio_to_best_peer"], "1.500")
        self.assertIn("36 of 36", figures.summary(rows))


if __name__ == "__main__":
    unittest.main()
