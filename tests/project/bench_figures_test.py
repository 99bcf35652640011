#!/usr/bin/env python3
"""Tests of what bench/ computes from measured times: no torch, no GPU.

usage: ATTNFORGE_LIBRARY=libattnforge.so bench_figures_test.py ROOT
"""

import ast
import contextlib
import csv
import io
import itertools
import math
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import attnforge  # noqa: E402
import backward  # noqa: E402
import drawn  # noqa: E402
import drawn_problems  # noqa: E402
import figures  # noqa: E402
import machine  # noqa: E402
import peer_kernels  # noqa: E402
import peers  # noqa: E402
import rounds  # noqa: E402
import tables  # noqa: E402

LISTS = ("main", "odd_head_dims", "prefill")


def problems(dtype="bf16"):
    return [attnforge.Problem.parse(text) for name in LISTS for text in peers.read_list(name, dtype)]


def rows_of(times, errors=None, notes=None, problem="fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal lse"):
    """Rows as peers.py writes them, from {implementation: ms}."""
    if isinstance(problem, str):
        problem = attnforge.Problem.parse(problem)
    times = {name: (ms, 0.01, 0) for name, ms in times.items()}
    return peers.rows_of(problem, times, errors or {}, notes or {}, 21, "a config")


def rows_of_the_lists(times):
    return [row for problem in problems() for row in rows_of(times, problem=problem)]


def fake_module(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    return mock.patch.dict(sys.modules, {name: module})


class DrawnTextsTest(unittest.TestCase):
    def test_a_text_is_a_problem_as_large_as_what_was_drawn(self):
        for seed, of_models in itertools.product(range(5), (True, False)):
            for point in [*drawn_problems.decode(seed, 60, of_models), *drawn_problems.dense("forward", seed, 60, of_models)]:
                problem = attnforge.Problem.parse(drawn_problems.text_of(point))
                rows = [(point.new_tokens, keys) if isinstance(point, drawn_problems.Decode) else keys for keys in point.lengths]
                longest = [max(each) for each in zip(*rows)]
                self.assertEqual(
                    (problem.batch, problem.num_heads_q, problem.num_heads_kv, problem.head_dim, problem.seqlen_q, problem.seqlen_kv),
                    (len(rows), point.num_heads_q, point.num_heads_kv, point.head_dim, *longest),
                    problem,
                )
                if getattr(point, "packed", False):
                    self.assertEqual((problem.tokens_q, problem.tokens_kv), tuple(map(sum, zip(*rows))), problem)


class RatiosTest(unittest.TestCase):
    def test_the_best_peer_is_the_best_of_those_in_the_run(self):
        rows = rows_of({"attnforge": 1.0, "torch-cudnn": 1.2, "fa4": 0.95, "fa3": 1.01})
        self.assertEqual((rows[0]["best_peer"], rows[0]["ratio_to_best_peer"]), ("fa4", "0.950"))
        rows = rows_of({"attnforge": 1.0, "torch-flash": 2.0})
        self.assertEqual((rows[0]["best_peer"], rows[0]["ratio_to_best_peer"]), ("torch-flash", "2.000"))

    def test_without_a_peer_nothing_is_said(self):
        rows = rows_of({"attnforge": 1.0}, notes={"fa3": "ValueError: no such head dim"})
        self.assertEqual((rows[0]["best_peer"], rows[0]["ratio_to_best_peer"]), ("", ""))
        self.assertEqual((rows[1]["impl"], rows[1]["ms"], rows[1]["note"]), ("fa3", "", "ValueError: no such head dim"))
        self.assertEqual(list(figures.all_ratios(rows).values()), [{}])
        self.assertIn("nothing is said", figures.claim(figures.best_ratios(figures.all_ratios(rows))))

    def check_drawn(self, rows, name):
        """Ratios of attnforge and of its estimate are to the fastest peer of their point, if it has one."""
        rows, peers = [row for row in rows if row["impl"] != "copy"], {}
        for row in rows:
            if row["ms"] and row["impl"] not in drawn.OURS:
                peers[row["point"]] = min(float(row["ms"]), peers.get(row["point"], math.inf))
        ours = [row for row in rows if row["impl"] in drawn.OURS]
        places = [tuple(row.get(of) for of in ("point", "format", "scale", "impl")) for row in rows]
        self.assertEqual(len(set(places)), len(places), f"{name}: a point twice")
        # And how many have a peer: none of the run's serves the head_dim of 512 that a seed drew.
        known = {"drawn_decode.csv": (60, 60), "drawn_forward.csv": (40, 39), "drawn_backward.csv": (30, 30), "low_bits.csv": (4, 0)}
        points, beside = known.get(name, (4, 4))
        self.assertGreaterEqual(len({row["point"] for row in ours}), points, name)
        self.assertGreaterEqual(len(ours), 2 * points, name)
        self.assertGreaterEqual(len({row["point"] for row in ours} & set(peers)), beside, name)
        self.assertTrue(all(row["ratio_to_best_peer"] == "" for row in ours if row["point"] not in peers), name)
        for row in ours:
            if row["point"] not in peers or not row["ms"]:  # that was wrong, its note says
                continue
            self.assertAlmostEqual(float(row["ratio_to_best_peer"]), peers[row["point"]] / float(row["ms"]), delta=6e-4, msg=row["point"])

    def test_nothing_is_converted_from_another_run(self):
        self.assertFalse((ROOT / "bench/results/h200/peers_reference.csv").exists())
        for path in (ROOT / "bench/results/h200").glob("*.csv"):
            rows = figures.read_csv(path)[1]
            if "ratio_to_best_peer" not in rows[0]:
                continue
            if "point" in rows[0]:
                self.check_drawn(rows, path.name)
                continue
            self.assertEqual([column for column in rows[0] if column != "list"], figures.COLUMNS, path.name)
            # A point may be in several lists of a file.
            for name in {row.get("list") for row in rows}:
                self.check_ratios([row for row in rows if row.get("list") == name], path.name)

    def check_ratios(self, rows, name):
        found = figures.all_ratios([row for row in rows if row["impl"] != "attnforge-untuned"])
        for row in rows:
            if row["impl"] != "attnforge" or not row["ms"]:
                self.assertEqual(row["ratio_to_best_peer"], "", name)
                continue
            best, ratio = figures.best_peer(found[figures.point_of(row)])
            self.assertEqual((row["best_peer"], row["ratio_to_best_peer"]), (best or "", f"{ratio:.3f}" if ratio else ""))

    def test_a_point_where_attnforge_failed_is_no_ratio_and_stands_in_the_summary(self):
        rows = rows_of({"torch-cudnn": 1.0}, notes={"attnforge": "wrong: differs from torch-cudnn by 1.0e+00"})
        self.assertEqual((rows[0]["impl"], rows[0]["ms"]), ("attnforge", ""))
        self.assertEqual(figures.all_ratios(rows), {})
        self.assertIn("attnforge failed at head_dim 128 seqlen 4096 causal: wrong", figures.summary(rows))


class FiguresTest(unittest.TestCase):
    def test_the_lists_have_every_point_of_every_group(self):
        rows = figures.group_rows(figures.all_ratios(rows_of_the_lists({"attnforge": 1.0, "fa3": 1.5})))
        self.assertEqual([row[1] for row in rows], [f"{count} of {count}" for count in (12, 12, 12, 36, 12, 4, 3, 10)])
        self.assertEqual({row[2] for row in rows}, {"1.500"})

    def test_one_slow_point_is_the_least_and_is_not_as_fast(self):
        rows = rows_of_the_lists({"attnforge": 1.0, "fa3": 1.5})
        next(row for row in rows if row["impl"] == "fa3" and row["head_dim"] == 256)["ms"] = "0.9"
        found = figures.all_ratios(rows)
        together = figures.group_rows(found)[3]
        self.assertEqual(together[3:], ["0.900 (head_dim 256 seqlen 512 full)", "35 of 36"])
        grid = {point: ratio for point, ratio in figures.best_ratios(found).items() if figures.grid(point)}
        claim = figures.claim(grid)
        self.assertIn("at 35 of 36 points", claim)
        self.assertIn("least 0.900x (head_dim 256 seqlen 512 full)", claim)

    def test_a_peer_at_some_points_says_how_many(self):
        rows = rows_of({"attnforge": 1.0, "fa3": 1.1, "flex": 2.0}) + rows_of(
            {"attnforge": 1.0, "fa3": 1.2}, notes={"flex": "only asked for at causal"}, problem="fwd bf16 seqlen=4096 lse"
        )
        text = figures.summary(rows)
        self.assertIn("attnforge / flex: geometric mean 2.000, least 2.000, 1 points", text)
        self.assertIn("attnforge / fa3: geometric mean 1.149, least 1.100, 2 points", text)

    def test_samples_that_may_hold_time_of_the_host_are_warned_of(self):
        rows = rows_of({"attnforge": 1.0, "fa4": 1.0})
        self.assertNotIn("warning", figures.summary(rows))
        rows[1]["late"] = 3
        self.assertIn("warning: 1 rows", figures.summary(rows))

    def test_columns(self):
        rows = rows_of({"attnforge": 1.0, "fa3": 1.5}, {"attnforge": 2e-3, "fa3": 0.0}, {"attnforge": "tuned (full)"})
        self.assertEqual({tuple(row) for row in rows}, {tuple(figures.COLUMNS)})
        self.assertEqual((rows[0]["error"], rows[0]["note"], rows[0]["config"]), ("2.0e-03", "tuned (full)", "a config"))
        self.assertEqual(figures.COLUMNS[-1], "config")


class PeersTest(unittest.TestCase):
    def test_what_cannot_be_imported_is_missing_with_the_reason(self):
        with mock.patch.dict(sys.modules, {"fa3_fwd_interface": None, "flash_attn": None, "flash_attn.cute": None, "torch": None}):
            found, missing = peer_kernels.find(["fa3", "fa4", "flex", "torch-cudnn"])
        self.assertEqual(found, [])
        self.assertEqual(list(missing), ["fa3", "fa4", "flex", "torch-cudnn"])
        self.assertIn("fa3_fwd_interface", missing["fa3"])

    def test_a_package_that_breaks_while_it_is_imported_does_not_end_the_run(self):
        def broken():
            raise OSError("libcudart.so.12: cannot open\nmore")

        with mock.patch.dict(peer_kernels.LOADERS, {"fa3": broken, "fa4": lambda: ("4.0", None)}):
            found, missing = peer_kernels.find(["fa3", "fa4"])
        self.assertEqual([peer.name for peer in found], ["fa4"])
        self.assertEqual(missing, {"fa3": "OSError: libcudart.so.12: cannot open"})

    def test_a_peer_that_is_none_is_named(self):
        with self.assertRaisesRegex(SystemExit, "no peer is named fa5; there are torch-cudnn"):
            peer_kernels.find(["fa3", "fa5"])

    def test_a_peer_that_the_command_names_and_that_is_not_there_ends_the_run(self):
        def broken():
            raise ModuleNotFoundError("No module named 'cutlass.cute'")

        with mock.patch.dict(peer_kernels.LOADERS, {"fa3": lambda: ("3.0", None), "fa4": broken}):
            with self.assertRaisesRegex(SystemExit, "fa4 cannot be imported: ModuleNotFoundError.*leave it out"):
                peer_kernels.find(["fa3", "fa4"], needed=True)
            self.assertEqual([peer.name for peer in peer_kernels.find(["fa3"], needed=True)[0]], ["fa3"])

    def test_flash_attention_is_called_as_its_interface_says(self):
        problem = attnforge.Problem.parse("fwd bf16 seqlen=64 head_dim=64 causal lse")
        versions = mock.patch("importlib.metadata.version", lambda name: {"fa3-fwd": "0.0.3"}.get(name, "4"))
        fa3 = fake_module("fa3_fwd_interface", flash_attn_func=lambda q, k, v, softmax_scale=None, causal=False: (q, k, v, causal))

        def fa4_function(q, k, v, causal=False, return_lse=False):
            return (q, causal), return_lse

        cute = fake_module("flash_attn.cute", flash_attn_func=fa4_function)
        with versions, fa3, fake_module("flash_attn"), cute:
            found, missing = peer_kernels.find(["fa3", "fa4"])
            self.assertEqual(missing, {})
            self.assertEqual(found[0].version, "fa3-fwd 0.0.3")
            outputs = [run() for peer in found for run in peer.prepare(problem, "q", "k", "v")]
        self.assertEqual(outputs, [("q", "k", "v", True), ("q", True)])

    def test_masks_that_the_peers_are_not_called_for(self):
        for words in ("seqlen=64 causal window_left=127", "seqlen=64 softcap=50", "seqlen=4:64 causal"):
            with self.assertRaises(ValueError, msg=words):
                peer_kernels.refuse_other_masks(attnforge.Problem.parse(f"fwd bf16 {words}"))
        peer_kernels.refuse_other_masks(attnforge.Problem.parse("fwd bf16 seqlen=4:64 head_dim=64"))

    def test_a_wrong_peer_is_alone(self):
        right = {"attnforge", "torch-flash", "fa3"}

        def errors(names):
            return {one: {two: 0.0 if one == two else 2e-3 if {one, two} <= right else 0.7 for two in names} for one in names}

        reference, found = peer_kernels.judge(errors(["attnforge", "torch-cudnn", "torch-flash", "fa3"]))
        self.assertEqual(reference, "torch-flash", "most agree with it, though cuDNN's comes first")
        self.assertEqual([name for name, error in found.items() if error > peer_kernels.WRONG], ["torch-cudnn"])
        reference, found = peer_kernels.judge(errors(["attnforge", "torch-cudnn"]))
        self.assertEqual((reference, found["attnforge"]), ("torch-cudnn", 0.7), "one against one: the peer is believed")
        self.assertEqual(peer_kernels.judge(errors(["attnforge"])), (None, {}))

    def test_an_output_of_nan_agrees_with_none(self):
        nan = float("nan")
        errors = {
            "attnforge": {"attnforge": 0.0, "torch-cudnn": nan, "fa3": 1e-3},
            "torch-cudnn": {"attnforge": nan, "torch-cudnn": 0.0, "fa3": nan},
            "fa3": {"attnforge": 1e-3, "torch-cudnn": nan, "fa3": 0.0},
        }
        self.assertEqual(peer_kernels.judge(errors)[0], "fa3")


class ConfigsTest(unittest.TestCase):
    PROBLEM = attnforge.Problem.parse("fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal lse")
    ARGS = types.SimpleNamespace(tune="quick", family=None, choose=0)

    def choose(self, stored, plan, args=ARGS):
        """(what choose() says, the config that it leaves forced, the tunings that it asked for)"""
        forced, tunings = [], []
        with mock.patch.object(attnforge, "configure", lambda config="", policy="estimate": forced.append(config or policy * (policy != "estimate"))), mock.patch.object(
            attnforge, "tune", lambda text, **options: tunings.append((text, options["rigor"]))
        ):
            how = peers.choose(self.PROBLEM, args, stored, plan, lambda config: f"fastest with {config}")
        self.assertEqual(forced[0], "", "that of the point before goes")
        return how, forced[-1], tunings

    def test_a_stored_config_runs_without_tuning(self):
        stored = {peers.point_of(self.PROBLEM): "fwd_x block_n=64"}
        self.assertEqual(self.choose(stored, lambda: None), ("the config of --configs", "fwd_x block_n=64", []))

    def test_one_that_is_refused_today_is_tuned_and_says_so(self):
        def refuse():
            raise attnforge.InvalidError("block_n=64 is not legal")

        how, forced, tunings = self.choose({peers.point_of(self.PROBLEM): "fwd_x block_n=64"}, refuse)
        self.assertEqual(how, "tuned (quick); that of --configs is refused: InvalidError: block_n=64 is not legal")
        self.assertEqual((forced, tunings), ("", [(str(self.PROBLEM), "quick")]))

    def test_a_first_call_tunes_by_itself(self):
        made = []
        args = types.SimpleNamespace(tune="first_run", family=None, choose=0)
        how, forced, tunings = self.choose({}, lambda: made.append(1), args)
        self.assertEqual((how, forced, tunings, made), ("tuned by its first call", "first_run", [], [1]))

    def test_one_that_is_not_there_is_tuned(self):
        self.assertEqual(self.choose({}, None), ("tuned (quick)", "", [(str(self.PROBLEM), "quick")]))
        self.assertEqual(self.choose({"another": "x"}, None)[0], "tuned (quick); --configs does not have the point")

    def test_the_fastest_of_many_and_of_what_is_stored_runs(self):
        args = types.SimpleNamespace(tune="quick", family=None, choose=40)
        self.assertEqual(self.choose({}, None, args), ("the fastest of 40 configs", "fastest with None", []))
        stored = {peers.point_of(self.PROBLEM): "fwd_x"}
        self.assertEqual(self.choose(stored, None, args), ("the fastest of 40 configs and that of --configs", "fastest with fwd_x", []))

    def test_the_results_are_configs(self):
        stored = figures.stored_configs(ROOT / "bench/results/h200/hopper.csv", figures.point_of)
        self.assertEqual(set(stored), {peers.point_of(problem) for problem in problems()})

    def test_the_header_says_who_is_missing_and_where_configs_come_from(self):
        args = types.SimpleNamespace(peers="fa3,torch-cudnn,flex@seqlen=4096", tune="quick", configs="a.csv")
        lines = peers.header(args, [peer_kernels.Peer("torch-cudnn", "torch 2", None)], {"fa3": "ImportError: no"})
        self.assertIn("peer torch-cudnn: torch 2", lines)
        self.assertIn("not in the run: fa3: ImportError: no", lines)
        self.assertIn("not in the run: fa4: not asked for", lines)
        self.assertEqual(lines[-1], "configs of attnforge: those in a.csv, else tuned (quick)")
        self.assertEqual(peers.asked_peers(args.peers)["flex"], "seqlen=4096")


class BackwardConfigsTest(unittest.TestCase):
    POINT = backward.point(4096, 128, False)

    def choose(self, stored, tune="quick", refused=()):
        """(configs, notes, what was tuned) where the model chooses "guess"."""
        tuned = []

        def inspect(text, family=None, config="", **options):
            if config in refused:
                raise attnforge.InvalidError(f"{config} cannot be used")
            return {"candidates": [{"config": "guess"}]}

        fake = types.SimpleNamespace(inspect=inspect, tune=lambda text, **options: tuned.append(text), AttnforgeError=attnforge.AttnforgeError)
        args = types.SimpleNamespace(tune=tune, tune_seconds=0, configs="a.csv")
        return *backward.choose(fake, self.POINT, backward.lists("bf16")["grid"], args, stored), len(tuned)

    def test_a_stored_config_is_timed_beside_the_models_without_a_search(self):
        for tune in ("quick", "none"):
            configs, notes, tuned = self.choose("stored", tune)
            self.assertEqual((configs, tuned), ({"attnforge": "stored", figures.UNTUNED: "guess"}, 0))
            self.assertEqual(notes["attnforge"], "the config of --configs")

    def test_one_that_is_refused_or_not_there_is_tuned(self):
        configs, notes, tuned = self.choose("old", refused=("old",))
        self.assertEqual((configs["attnforge"], tuned), ("", 1))
        self.assertRegex(notes["attnforge"], r"^tuned \(quick, 0 s\); that of --configs is refused: InvalidError: old cannot be used$")
        self.assertRegex(self.choose("")[1]["attnforge"], r"^tuned \(quick, 0 s\); --configs does not have the point$")
        configs, notes, tuned = self.choose("old", "none", ("old",))
        self.assertEqual((configs, tuned), ({"attnforge": "guess"}, 0))
        self.assertIn("not tuned; that of --configs is refused", notes["attnforge"])

    def test_the_results_are_configs_of_their_last_row(self):
        path = ROOT / "bench/results/h200/backward.csv"
        stored = figures.stored_configs(path, backward.key_of)
        rows = [row for row in figures.read_csv(path)[1] if row["impl"] == "attnforge" and row["config"]]
        self.assertEqual(set(stored), {(row["list"], figures.point_of(row)) for row in rows})
        self.assertEqual(stored[rows[-1]["list"], figures.point_of(rows[-1])], rows[-1]["config"])
        known = {(name, p) for name, of in backward.lists("bf16").items() for p in of.points}
        self.assertLessEqual(set(stored), known)


class TablesTest(unittest.TestCase):
    def page(self, rows, comments):
        with mock.patch.object(tables, "read", lambda name: (comments, rows)):
            return tables.hopper()

    COMMENTS = ["NVIDIA H200, driver 1, torch 2.11, attnforge 0.1.0", "a command", "peer fa3: fa3-fwd 0.0.3"]

    def test_the_forced_kernel_says_so_in_its_first_words_and_what_cudnn_it_was_beside(self):
        text = tables.peers_main()
        self.assertTrue(text.startswith("The kernel of other GPUs, `fwd_mma_sm80`, forced on a Hopper"), text[:80])
        self.assertRegex(text.split("|")[0], r"torch-cudnn \(torch \S+ another run of it had cuDNN \d+\)")

    def test_configs_that_no_plan_tries_are_named_beside_what_a_first_call_finds(self):
        for table, name in ((tables.decode, "decode"), (tables.serving, "serving")):
            text = table()
            self.assertRegex(text, r"Configs are the fastest of \d+ .* which no plan of a user's tries")
            self.assertRegex(text, rf"With those of `first_run`, beside [^()]*fa3: .*bench/results/h\d00/{name}_first_run.csv")
        with tempfile.TemporaryDirectory() as folder:
            comments, rows = tables.read("decode.csv")
            results = pathlib.Path(folder) / "h200"
            results.mkdir()
            with mock.patch.object(tables, "RESULTS", pathlib.Path(folder)):
                text = tables.chosen_sentence(comments, "decode.csv", tables.decode_ratios)
            self.assertIn("What `first_run` finds was not measured", text)
            with open(results / "decode_first_run.csv", "w", newline="") as file:
                file.write("".join(f"# {line}\n" for line in comments))
                out = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                out.writeheader()
                out.writerows(row | ({"ms": str(2 * float(row["ms"]))} if row["impl"] == "attnforge" else {}) for row in rows)
            with mock.patch.object(tables, "RESULTS", pathlib.Path(folder)):
                text = tables.chosen_sentence(comments, "decode.csv", tables.decode_ratios)
        self.assertRegex(text, "With those of `first_run`, .*: 32:8: geometric mean 0.55x")

    def test_tables_say_what_was_in_the_run_and_what_was_not(self):
        rows = rows_of_the_lists({"attnforge": 1.0, "fa3": 0.9})
        numbers = self.page(rows, [*self.COMMENTS, "not in the run: fa4: ModuleNotFoundError: flash_attn"])
        self.assertIn("fa3 (fa3-fwd 0.0.3)", numbers)
        self.assertIn("Not in the run: fa4, torch-cudnn, torch-flash, torch-efficient, flashinfer, flex.", numbers)
        self.assertIn("faster at 0 of 36 points: geometric mean 0.900x", numbers)
        self.assertIn("Each peer by itself: 0.900x fa3 (least 0.90x).", numbers)

    def test_a_point_without_a_peer_says_so(self):
        rows = rows_of({"attnforge": 1.0, "fa3": 0.9}) + rows_of({"attnforge": 1.0}, problem="fwd bf16 seqlen=4096 head_dim=64")
        numbers = self.page(rows, self.COMMENTS)
        self.assertIn("(no peer)", numbers)



class SessionTest(unittest.TestCase):
    """The file of a driver, on a machine of which only the clock is there."""

    def session(self, path):
        with fake_module("peer_runs", seed=lambda value: None, ColdL2=lambda clean: None, Heat=lambda ms: None,
                         time_ms=lambda runs, rounds, heat, flush: {name: (2.0, 0.01, 0) for name in runs}):
            cuda = types.SimpleNamespace(empty_cache=lambda: None, get_device_name=lambda: "NVIDIA H9")
            torch = types.SimpleNamespace(__version__="9", cuda=cuda)
            with mock.patch.object(machine, "gpu", lambda: "NVIDIA H9, 1"), mock.patch.object(machine, "torch", lambda: torch), contextlib.redirect_stderr(io.StringIO()) as said:
                session = rounds.Session(types.SimpleNamespace(seed=1, heat_ms=0, name=None, out=str(path), rounds=3), ["impl", "ms", "tflops", "ratio", "note"])
                session.begin(["peer x: 1"], goes_on=path.exists())
                self.assertEqual(session.time_ms({}), {})
                times = session.time_ms({"attnforge": None, "x": None})
                rows = rounds.table(session.columns, {}, ["attnforge", "x", "y"], times, {}, {"y": "no"}, 3, rounds.tflops(4e9))
                session.add(rows, "a point")
                return said.getvalue()

    def test_rows_are_in_the_file_as_they_come_and_a_second_run_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.csv"
            said = self.session(path)
            self.assertRegex(said, "0 s, a point: attnforge 2.0, x 2.0, y -\n  y: no\n$")
            self.session(path)
            comments, rows = figures.read_csv(path)
        self.assertTrue(comments[0].startswith("NVIDIA H9, driver 1, torch 9, attnforge "))
        self.assertEqual(comments[2], "peer x: 1")
        self.assertEqual([row["impl"] for row in rows], ["attnforge", "x", "y"] * 2)
        self.assertEqual(rows[1], {"impl": "x", "ms": "2.0000", "tflops": "2.0", "ratio": "1.000", "note": ""})


class ScriptsTest(unittest.TestCase):
    """Most scripts run on a GPU alone: what one takes of another is looked for here."""

    def test_what_scripts_take_of_one_another_is_there(self):
        trees = {path.stem: ast.parse(path.read_text()) for path in (ROOT / "bench").glob("*.py")}
        names = {stem: self.names_of(tree) for stem, tree in trees.items()}
        taken = 0
        for stem, tree in trees.items():
            modules = self.modules_of(tree) & set(names)
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                    self.assertIn(node.attr, names[node.value.id], f"{stem}.py:{node.lineno} {node.value.id}.{node.attr}")
                    taken += 1
        self.assertGreater(taken, 200)

    @staticmethod
    def modules_of(tree):
        return {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names if alias.asname is None}

    @staticmethod
    def names_of(tree):
        found = set()
        for node in ast.walk(ast.Module([each for each in tree.body if not isinstance(each, (ast.FunctionDef, ast.ClassDef))], [])):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {alias.asname or alias.name for alias in node.names}
        return found | {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}


if __name__ == "__main__":
    unittest.main()
