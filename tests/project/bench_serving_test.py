#!/usr/bin/env python3
"""Tests of how bench/serving.py calls its peers, chooses among their options and tells what it measured: no torch, no GPU.

usage: bench_serving_test.py ROOT
"""

import contextlib
import io
import pathlib
import sys
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "bench")]

import choice  # noqa: E402
import peer_kernels  # noqa: E402
import serving  # noqa: E402
import serving_peers  # noqa: E402
import tables  # noqa: E402


class Tensor:
    """Says what was done to it."""

    def __init__(self, text):
        self.text, self.dtype, self.device, self.shape = text, "bf16", "cuda", (2, 1, 32, 128)

    def __getitem__(self, index):
        return Tensor(f"{self.text}{index}")

    def clamp(self, min):
        return f"{self.text} of at least {min}"

    def flatten(self, first, last):
        return Tensor(f"{self.text} flat")

    def view_as(self, other):
        return Tensor(f"{self.text} like {other.text}")


def case_of(lengths, seqlen_q=1, page_size=16, table="table"):
    pages = max(serving_peers.pages_taken(lengths, page_size))
    return types.SimpleNamespace(
        name="decode", heads=(32, 8), seqlen_q=seqlen_q, lengths=lengths, page_size=page_size, longest=pages * page_size, causal=seqlen_q > 1,
        q=Tensor("q"), pools=[Tensor("k pool"), Tensor("v pool")], one_piece=[Tensor("k"), Tensor("v")], used="used",
        table=Tensor("table") if table == "table" else table, bytes=lambda: 2**30, scales=None)


@contextlib.contextmanager
def modules(**given):
    """Packages with these members, and no other of those that are asked for; each is version 9."""
    found = {"flash_attn_interface": None, "fa3_fwd_interface": None, "flashinfer": None, "torch": None}
    for name, members in given.items():
        found[name] = types.ModuleType(name)
        vars(found[name]).update(members)
    names = {"flash_attn_interface": ["a-build-of-fa3"]}
    with mock.patch.dict(sys.modules, found), mock.patch("importlib.metadata.version", lambda name: "9"), mock.patch(
        "importlib.metadata.packages_distributions", lambda: names
    ):
        yield


def called(name):
    """A function that returns its name and arguments."""
    return lambda *args, **options: (name, [each.text if isinstance(each, Tensor) else each for each in args], options)


FA3 = {name: called(name) for name in ("flash_attn_with_kvcache", "flash_attn_func", "get_scheduler_metadata")}


class Fa3Test(unittest.TestCase):
    def rows(self, case):
        with modules(flash_attn_interface=FA3):
            version, prepare = serving_peers.flash_attention_3()
            self.assertEqual(version, "a-build-of-fa3 9")
            return {row: {option: make()() for option, make in options.items()} for row, options in prepare(case).items()}

    def test_pages_and_lengths_are_those_of_the_case(self):
        rows = self.rows(case_of([40, 17]))
        name, tensors, options = rows["fa3"]["one call"]
        self.assertEqual((name, tensors), ("flash_attn_with_kvcache", ["q", "k pool", "v pool"]))
        self.assertEqual(options, {"cache_seqlens": "used", "causal": False, "page_table": "table of at least 0"})
        ahead = rows["fa3"]["planned ahead"][2]
        name, sizes, how = ahead.pop("scheduler_metadata")
        self.assertEqual(ahead, options, "the same call but for what is known ahead")
        self.assertEqual((name, sizes), ("get_scheduler_metadata", [2, 1, 48, 32, 8, 128, "used"]))
        self.assertEqual(how, {"qkv_dtype": "bf16", "causal": False, "page_size": 16})
        self.assertEqual(list(rows["fa3, one piece"]), ["planned ahead", "one call"], "no dense cache of unequal lengths")
        self.assertNotIn("page_size", rows["fa3, one piece"]["planned ahead"][2]["scheduler_metadata"][2])
        self.assertNotIn("page_table", rows["fa3, one piece"]["one call"][2])

    def test_equal_lengths_may_be_known_to_the_host(self):
        rows = self.rows(case_of([40, 40], seqlen_q=4))
        name, tensors, options = rows["fa3, one piece"]["lengths on the host, splits"]
        cut = (slice(None), slice(None, 40))
        self.assertEqual((name, tensors), ("flash_attn_func", ["q", f"k{cut}", f"v{cut}"]))
        self.assertEqual(options, {"causal": True, "num_splits": 0})

    def test_the_wheel_without_pages_serves_where_no_other_build_is(self):
        with modules(fa3_fwd_interface=FA3):
            found, missing = peer_kernels.find(["fa3", "flashinfer"], serving_peers.LOADERS)
        self.assertEqual([peer.version for peer in found], ["fa3-fwd 9"])
        lines = peer_kernels.who(found, missing, ["fa3", "flashinfer"], serving_peers.LOADERS)
        self.assertEqual(lines[0], "peer fa3: fa3-fwd 9")
        self.assertRegex(lines[1], "^not in the run: flashinfer: ModuleNotFoundError: .*torch")
        self.assertEqual(peer_kernels.who([], {}, [], serving_peers.LOADERS)[1], "not in the run: flashinfer: not asked for")


class Numbers(list):
    def __mul__(self, factor):
        return [each * factor for each in self]


class FlashInferTest(unittest.TestCase):
    def prepared(self, case):
        plans = []

        class Wrapper:
            def __init__(self, workspace, layout, use_tensor_cores=None, backend=None):
                self.of = layout, backend or use_tensor_cores

            def plan(self, *args, **options):
                plans.append((*self.of, args, options))

            def run(self, q, caches):
                return Tensor(f"{q.text} {[each.text for each in caches]}")

        torch = {"tensor": lambda values, dtype: values, "zeros": lambda *size, **options: size, "int32": 0, "uint8": 1,
                 "cat": lambda rows: [page for row in rows for page in row]}
        torch["arange"] = lambda count, dtype: Numbers(range(count))
        both = {f"Batch{kind}WithPagedKVCacheWrapper": Wrapper for kind in ("Decode", "Prefill")}
        with modules(flashinfer=both, torch=torch):
            version, prepare = serving_peers.flashinfer()
            self.assertEqual(version, "flashinfer 9")
            return serving_peers.rows_of(peer_kernels.Peer("flashinfer", version, prepare), case), plans

    def test_the_table_becomes_a_list_of_pages(self):
        (rows, without), plans = self.prepared(case_of([33, 16], table=[[7, 3, 9], [5, -1, -1]]))
        self.assertEqual(without, {})
        outputs = {option: make()().text for option, make in rows["flashinfer"].items()}
        self.assertEqual(list(outputs), ["tensor cores", "CUDA cores"])
        self.assertEqual(outputs["CUDA cores"], "q flat ['k pool', 'v pool'] like q")
        self.assertEqual([plan[:2] for plan in plans], [("NHD", True), ("NHD", False)])
        self.assertEqual(plans[0][2], ([0, 3, 4], [7, 3, 9, 5], [1, 16], 32, 8, 128, 16))

    def test_several_new_tokens_are_a_prefill(self):
        (rows, without), plans = self.prepared(case_of([64, 20], seqlen_q=8, table=[[7, 3, 9, 1], [5, 2, -1, -1]]))
        self.assertEqual((list(rows["flashinfer"]), without), (["prefill"], {}))
        self.assertEqual(rows["flashinfer"]["prefill"]()().text, "q flat ['k pool', 'v pool'] like q")
        (layout, backend, args, options), = plans
        self.assertEqual((layout, backend, args[:2], options["causal"]), ("NHD", "fa2", ([0, 8, 16], [0, 4, 6]), True))

    def test_other_head_dims_are_not_its(self):
        case = case_of([64])
        case.q.shape = (1, 1, 32, 96)
        (rows, without), _ = self.prepared(case)
        self.assertEqual(rows, {})
        self.assertIn("only called for head dims 64, 128 and 256", without["flashinfer"])


class ChooseTest(unittest.TestCase):
    def choose(self, options):
        """Of {option: (relative error or exception, time)}."""
        times = {}

        def make(option):
            error, time = options[option]

            def run():
                if isinstance(error, Exception):
                    raise error
                return error

            times[run] = time
            return lambda: run

        found = serving_peers.choose({option: make(option) for option in options}, lambda error: error, lambda runs: min(runs, key=times.get))
        return found[0] and times[found[0]], *found[1:]

    def test_the_fastest_of_those_that_are_right(self):
        options = {"slow": (1e-3, 3.0), "fast": (2e-3, 2.0), "wrong": (0.5, 1.0), "none": (ValueError("group 16\nmore"), 0.5)}
        time, note, error = self.choose(options)
        self.assertEqual((time, error), (2.0, 2e-3))
        self.assertEqual(note, "fast; not wrong: wrong: differs from attnforge by 5.0e-01; not none: ValueError: group 16")

    def test_without_one_the_reasons_stand_in_its_place(self):
        run, note, error = self.choose({"a": (float("nan"), 1.0), "b": (RuntimeError("no pages"), 1.0)})
        self.assertEqual((run, error), (None, None))
        self.assertEqual(note, "not a: wrong: differs from attnforge by nan; not b: RuntimeError: no pages")


    def test_what_serves_once_alone_is_refused(self):
        errors = iter((1e-3, 0.7))
        run, note, _ = serving_peers.choose({"planned ahead": lambda: lambda: next(errors)}, lambda error: error, lambda runs: runs[0])
        self.assertEqual((run, note), (None, "not planned ahead: wrong: differs from attnforge by 7.0e-01"))


class SettleTest(unittest.TestCase):
    def settle(self, config, refused=()):
        """(config that runs, what was tuned, what stays configured)"""
        class Refused(Exception):
            pass

        state, tuned = {"config": ""}, []
        ours = types.SimpleNamespace(AttnforgeError=Refused, plan_cache=[], configure=lambda config, family: state.update(config=config))
        ours.tune = lambda problem, rigor: tuned.append((problem, rigor))

        def run():
            if state["config"] in refused:
                raise Refused("not legal")
            ours.plan_cache.append(types.SimpleNamespace(config=state["config"] or f"tuned {len(tuned)}", problem="a problem"))
            return "o"

        with contextlib.redirect_stderr(io.StringIO()):
            plan, output = serving.settle(run, config, "quick", ours)
        self.assertEqual(output, "o")
        return plan.config, tuned, state["config"]

    def test_a_config_of_an_earlier_run_is_not_tuned_and_does_not_stay(self):
        self.assertEqual(self.settle("fwd_x"), ("fwd_x", [], ""))

    def test_none_and_a_refused_one_are_tuned(self):
        self.assertEqual(self.settle(None), ("tuned 1", [("a problem", "quick")], ""))
        self.assertEqual(self.settle("fwd_x", refused=["fwd_x"]), ("tuned 1", [("a problem", "quick")], ""))


class ChoicesTest(unittest.TestCase):
    def test_of_each_family_tile_splits_and_stages_the_models_first(self):
        def candidate(us, family, block_n, num_splits, stages, q_in_regs=0):
            text = f"{family} block_n={block_n} stages={stages} q_in_regs={q_in_regs} num_splits={num_splits}"
            return {"estimate_us": us, "config": text}

        listed = [candidate(10, "a", 64, 2, 3), candidate(11, "a", 64, 2, 3, 1), candidate(12, "a", 64, 4, 3), candidate(13, "b", 64, 2, 3),
                  candidate(14, "a", 64, 2, 2), candidate(19, "a", 96, 2, 3), candidate(21, "b", 96, 1, 3)]
        found = [listed[i]["config"] for i in (0, 2, 3, 4, 5)]  # the last is twice as slow as the first
        self.assertEqual(choice.choices(listed, 9), [*found, listed[1]["config"]])
        self.assertEqual(choice.choices(listed, 2), found[:2])


class CasesTest(unittest.TestCase):
    def test_only(self):
        titles = [(group, title) for group, title, _ in serving.cases(None, [1, 2])]
        self.assertEqual(len(titles), 12 + 4 + 1)

        def count(only):
            return sum(serving.asked(only, *each) for each in titles)

        self.assertEqual([count(only) for only in ("", "decode", "decode@64 x 8192", "decode@16:1,prefill", "ragged@seed 2")], [17, 12, 2, 7, 2])
        # A title whole, as the help has it.
        self.assertEqual([count(only) for only in ("decode@64 x 8192, 32:8", "decode@64 x 8192, 32:8,prefill", "decode, prefill")], [1, 2, 13])

    def test_every_case_has_its_configs_in_the_results(self):
        stored = serving.stored_configs(ROOT / "bench/results/h200/serving.csv")
        rows = tables.read("serving.csv")[1]
        self.assertEqual(len(stored), sum(row["impl"] in serving.OURS for row in rows), "no row twice")
        self.assertIn(("decode", "8", "32", "8", "1", "65536", "8192", "16", "one piece"), stored)


class ToldTest(unittest.TestCase):
    def rows(self, times, case="decode", lengths=(2048,)):
        of_case = case_of(list(lengths))
        named = dict(zip(serving.NAMED_BY, (case, len(lengths), 32, 8, 1, sum(lengths), max(lengths), 16)))
        of_times = {name: (ms, 0.01, 0) for name, ms in times.items()}
        return serving.table_of(of_case, named, of_times, {"flashinfer": "tensor cores", "dense": "refused"}, {"attnforge": 0.0}, 11)

    def test_rows(self):
        rows = self.rows({"attnforge": 0.5, "flashinfer": 0.6})
        self.assertEqual([list(row) for row in rows], [serving.COLUMNS] * 3)
        self.assertEqual([row["impl"] for row in rows], ["attnforge", "flashinfer", "dense"])
        self.assertEqual((rows[1]["ms"], rows[1]["ratio"], rows[1]["tb_per_s"], rows[1]["note"]), ("0.6000", "1.200", "1.79", "tensor cores"))
        self.assertEqual((rows[2]["ms"], rows[2]["ratio"], rows[2]["note"]), ("", "", "refused"))
        self.assertEqual(self.rows({"flashinfer": 0.6})[0]["ratio"], "", "nothing to be relative to")

    TIMES = {"attnforge": 1.0, "one piece": 0.98, "fa3": 1.3, "flashinfer": 1.2, "fa3, one piece": 0.9}

    def test_the_fastest_peer_in_pages_is_of_each_point(self):
        rows = self.rows(self.TIMES) + self.rows({"attnforge": 1.0, "fa3": 1.1, "flashinfer": 1.5}, lengths=(4096,))
        lines = list(serving.said_of_peers(rows))
        self.assertEqual(lines[0], "decode 32:8: attnforge in pages at 1.149x the speed of the fastest peer in pages, least 1.100x, 2 points")
        self.assertIn("decode 32:8: attnforge in pages at 0.900x the speed of fa3, one piece, least 0.900x, 1 points", lines)
        self.assertEqual(list(serving.said_of_peers(self.rows({"fa3": 1.0}))), [])
        self.assertEqual(len(list(serving.said_of_peers(self.rows({"attnforge": 1.0, "one piece": 1.0})))), 1, "no peer, no line of peers")

    def test_ragged_and_equal_lengths_are_not_one_mean(self):
        rows = self.rows(self.TIMES, "ragged, seed 1") + self.rows(self.TIMES, f"ragged, seed 1{serving.EQUAL}")
        self.assertEqual({line.split(":")[0] for line in serving.said_of_peers(rows)}, {"ragged 32", "equal lengths 32"})

    def test_the_table_has_the_peers_that_were_there(self):
        comments = ["NVIDIA H200, driver 1", "a command", "peer fa3: fa3 3.0", "not in the run: flashinfer: no"]
        rows = self.rows({name: ms for name, ms in self.TIMES.items() if name != "flashinfer"})
        with mock.patch.object(tables, "read", lambda name: (comments, rows)):
            text = tables.serving()
        self.assertIn("Of the fastest peer in pages, decode 32:8: geometric mean 1.30x, least 1.300x.", text)
        self.assertIn("peer fa3: fa3 3.0.", text)
        self.assertIn("| pages, us | one piece, us | FA3, pages, us | FA3, one piece, us | fastest peer in pages / pages |", text)
        self.assertIn("| 1000.0 | 980.0 | 1300.0 | 900.0 | 1.30x |", text)
        self.assertNotIn("FlashInfer", text)
        rows = self.rows({"attnforge": 1.0, "one piece": 0.98})
        with mock.patch.object(tables, "read", lambda name: (comments, rows)):
            self.assertNotIn("fastest", tables.serving())


class Plans:
    """A plan cache: what was put last is last."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.plans = {}

    def __iter__(self):
        return iter(self.plans.values())

    def put(self, key, plan):
        self.plans.pop(key, None)
        self.plans[key] = plan


class ChosenTest(unittest.TestCase):
    def fastest(self, times, refused=(), stored=None, not_listed=()):
        """What choice.chosen() finds where {(run, config): ms} are the times and all runs have the same candidates."""
        plans, asked, ran = Plans(), {"config": ""}, []
        attnforge = types.SimpleNamespace(plan_cache=plans, AttnforgeError=ValueError)
        attnforge.configure = lambda config, family: asked.update(config=config)
        configs = [config for config in dict.fromkeys(config for _, config in times) if config not in not_listed]
        attnforge.inspect = lambda problem, compile: {"candidates": [{"config": config, "estimate_us": 1} for config in configs]}

        def run_of(name):
            def run():
                if (name, asked["config"]) in refused:
                    raise ValueError("refused")
                if asked["config"] or not list(plans):
                    plans.put(("cuda:0", name), types.SimpleNamespace(problem=name, config=asked["config"]))
                ran.append((name, list(plans)[-1].config))

            return run

        def time_ms(runs, rounds, heat, flush):
            found = {}
            for config, run in runs.items():
                run()
                found[config] = types.SimpleNamespace(ms=times[ran[-1]])
                self.assertEqual(ran[-1][1], config)
            return found

        runs = {name: run_of(name) for name in dict.fromkeys(name for name, _ in times)}
        with mock.patch.dict(sys.modules, {"peer_runs": types.SimpleNamespace(time_ms=time_ms)}), mock.patch.object(choice, "FINALISTS", 1), contextlib.redirect_stderr(io.StringIO()):
            return choice.chosen(runs, stored or {}, "cuda:0", 10, None, None, attnforge)

    def config(self, splits):
        return f"fwd_mma_sm80 block_n=64 num_splits={splits}"

    def test_each_run_has_its_fastest(self):
        one, two = self.config(1), self.config(2)
        times = {("pages", one): 3, ("pages", two): 2, ("one piece", one): 1, ("one piece", two): 2}
        self.assertEqual(self.fastest(times), {"pages": two, "one piece": one})

    def test_what_won_for_one_is_in_the_final_of_all(self):
        one, two = self.config(1), self.config(2)
        lucky = iter([2, 3])  # pages with `two`: first a lucky time, then its own

        class Times(dict):
            def __getitem__(self, key):
                return next(lucky) if key == ("pages", two) else dict.__getitem__(self, key)

        times = Times({("pages", one): 2.5, ("pages", two): 0, ("one piece", one): 1, ("one piece", two): 2})
        self.assertEqual(self.fastest(times), {"pages": one, "one piece": one})

    def test_that_of_an_earlier_run_is_tried_too(self):
        one, far = self.config(1), self.config(99)
        times = {("pages", one): 3, ("pages", far): 2}
        self.assertEqual(self.fastest(times, stored={"pages": far}, not_listed=[far]), {"pages": far})
        self.assertEqual(self.fastest(times, stored={"pages": far}, not_listed=[far], refused={("pages", far)}), {"pages": one})

    def test_a_run_that_refuses_all_or_has_no_plan_is_left_out(self):
        one = self.config(1)
        times = {("pages", one): 3, ("one piece", one): 1}
        self.assertEqual(self.fastest(times, refused={("pages", one)}), {"one piece": one})
        self.assertEqual(self.fastest(times, refused={("pages", one), ("pages", "")}), {"one piece": one})


if __name__ == "__main__":
    unittest.main()
