#!/usr/bin/env python3
"""Tests of what bench/ computes from measured times: no torch, no GPU.

usage: ATTNFORGE_LIBRARY=libattnforge.so bench_figures_test.py ROOT
"""

import contextlib
import csv
import io
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import attnforge  # noqa: E402
import figures  # noqa: E402
import lineage  # noqa: E402
import lineage_points  # noqa: E402
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


class LineageTest(unittest.TestCase):
    POINTS = lineage_points.read_points()

    def point(self, project, words=""):
        return next(each for each in self.POINTS if each.project == project and words in each.problem)

    def test_every_project_has_points_that_attnforge_reads(self):
        projects = {point.project for point in self.POINTS}
        named = {"progression", "ladder", "FlashSDPA-Mini", "attention-kernel-cuda", "PiKAttention", "ThunderKittens"}
        self.assertLessEqual(named, projects)
        for point in self.POINTS:
            if point.project != "tf32":  # a word that not every attnforge has
                attnforge.Problem.parse(point.problem)

    def test_ratios_of_the_progression_are_what_it_published(self):
        ratios = [lineage_points.theirs_ratio(point.published) for point in self.POINTS if point.project == "progression"]
        self.assertEqual([f"{ratio:.2f}" for ratio in ratios], ["0.23", "0.19", "0.18", "0.17", "0.17", "0.15"])

    def test_verdicts(self):
        point = self.point("progression", "seqlen=512 ")
        for ratio, verdict in ((1.65, "PASS"), (1.64, "MISS")):
            found = {"ms": 0.5, "ratio": ratio, "peer": "torch-flash", "peer_ms": 0.5 * ratio}
            self.assertEqual(lineage_points.row_of(point, found)["verdict"], verdict)
        self.assertEqual(lineage_points.row_of(point, {"note": "no GPU"})["verdict"], "MISS", "not measured is not reached")
        both = self.point("fp32", "head_dim=64")
        self.assertEqual(lineage_points.row_of(both, {"ratio": 2.0, "max_diff": 2e-6})["verdict"], "MISS")
        self.assertEqual(lineage_points.row_of(both, {"ratio": 2.0, "max_diff": 9e-7})["verdict"], "PASS")
        vec = next(each for each in self.POINTS if each.asked.get("family") == "fwd_flash_vec")
        self.assertEqual(lineage_points.row_of(vec, {"tflops": 20.0, "workspace_bytes": 0})["verdict"], "PASS")
        self.assertEqual(lineage_points.row_of(vec, {"tflops": 20.0, "workspace_bytes": 1 << 20})["verdict"], "MISS")
        self.assertEqual(lineage_points.row_of(self.point("PiKAttention"), {"ratio": 0.1})["verdict"], "", "nothing is asked")

    def test_summary_has_theirs_and_ours(self):
        found = {"ms": 0.125, "family": "fwd_x", "tflops": 400.0, "ns_per_token_head": 0.5, "ratio": 2.0, "peer": "torch-flash"}
        rows = [lineage_points.row_of(self.point("progression"), found | {"peer_ms": 0.25})]
        rows.append(lineage_points.row_of(self.point("ladder"), {"note": "no kernel family"}))
        text = lineage_points.summary(rows)
        for part in ("7.307 ms on RTX 3090, 0.230x of torch", "0.125 ms fwd_x", "2.00x", "PASS", "no kernel family", "MISS"):
            self.assertIn(part, text)
        self.assertTrue(text.endswith("1 of 2 figures reached"))

    def test_a_point_that_fails_is_a_row_and_rows_are_written_as_they_come(self):
        points = lineage_points.of_projects(self.POINTS, "ladder,progression")
        self.assertEqual(len(points), 12)
        file, written = io.StringIO(), []

        def measure_at(point):
            written.append(file.getvalue().count("\n"))
            if point.asked.get("family") == "fwd_wmma":
                raise attnforge.InvalidError("no kernel family is named \"fwd_wmma\"\nmore")
            if point.project == "progression":
                raise SystemExit("attnforge differs from PyTorch")
            return {"ms": 1.0, "tflops": 1000.0, "workspace_bytes": 0, "family": point.asked["family"]}

        with contextlib.redirect_stderr(io.StringIO()):
            rows = lineage.run_points(points, measure_at, file)
        self.assertEqual(written, list(range(1, 13)))
        notes = [row["note"] for row in rows]
        self.assertEqual(notes.count("attnforge differs from PyTorch"), 6)
        self.assertEqual(notes.count('no kernel family is named "fwd_wmma"'), 1)
        self.assertEqual([row["verdict"] for row in rows].count("PASS"), 5)
        read = list(csv.DictReader(io.StringIO(file.getvalue())))
        self.assertEqual(lineage_points.summary(read), lineage_points.summary(rows), "a file's table is the run's")

    def test_a_project_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(SystemExit, "no project is named cake; there are progression"):
            lineage_points.of_projects(self.POINTS, "ladder,cake")

    def test_a_bad_line_is_named(self):
        with self.assertRaisesRegex(ValueError, "speed"):
            lineage_points.words("speed=3", lineage_points.ASKED, "x:1")


if __name__ == "__main__":
    unittest.main()
