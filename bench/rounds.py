"""What the drivers of this folder share: options, a GPU made ready, the CSV file with its header, and the cells of a row.

A time is the median over rounds, on the GPU's own clock. A round has one sample of each implementation, in shuffled order, on a heated card
and random normal inputs, each on a cold L2: a buffer larger than it is cleared before.
"""

import argparse
import csv
import os
import re
import sys
import time
import warnings

import figures
import machine

TUNES = ("none", "first_run", "quick", "full", "exhaustive")


def shard(text):
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text} is not I/N with I below N, as 0/4")
    return int(found[1]), int(found[2])


SHARED = {
    "configs": {"metavar": "FILE.csv", "help": "attnforge's configs are those of this earlier run; tune what it lacks"},
    "choose": {"type": int, "default": 0, "metavar": "N", "help": "instead of tuning: the fastest of N configs and that of --configs, on a point's own lengths"},
    "dtype": {"default": "bf16", "choices": ("bf16", "fp16")},
    "family": {"help": "tune only this kernel family; in a database (ATTNFORGE_CACHE) that knows no other it then runs"},
    "shard": {"type": shard, "default": "0/1", "metavar": "I/N", "help": "each N-th point from number I on: a process for each of N GPUs"},
    "summary": {"metavar": "FILE.csv", "help": "measure nothing, print the means of a file"},
}


def options(doc, *shared, rounds=21, heat_ms=100, tune="quick", first_run=False, seed_of="tensors"):
    """A parser of the options of every driver, and some of SHARED; `doc` is the script's. tune: None: without
    --tune. first_run: --tune has it."""
    parser = machine.options(doc)
    said = "first_run: as a user's first call does" if first_run else None
    if tune is not None:
        parser.add_argument("--tune", default=tune, choices=[each for each in TUNES if first_run or each != "first_run"], help=said)
    parser.add_argument("--rounds", type=machine.positive, default=rounds)
    parser.add_argument("--heat-ms", type=float, default=heat_ms, help="of a peer's kernel before each round")
    parser.add_argument("--seed", type=int, default=1, help=f"of {seed_of}")
    parser.add_argument("--name", help="instead of --out: bench/results/<gpu>/NAME.csv")
    for name in shared:
        parser.add_argument(f"--{name}", **SHARED[name])
    return parser


class Session:
    """The GPU at hand, and the rows that are measured on it."""

    def __init__(self, args, columns, suffix=""):
        """Ends with one line where torch or a GPU is missing. suffix: of --name."""
        torch = machine.torch()
        import peer_runs

        warnings.filterwarnings("ignore")
        peer_runs.seed(args.seed)
        self.args, self.columns, self.torch, self.rows = args, columns, torch, []
        self.flush, self.heat = peer_runs.ColdL2(getattr(args, "clean_l2", False)), peer_runs.Heat(args.heat_ms)
        self.about = machine.about(torch)
        self.path = figures.result_path(torch.cuda.get_device_name(), args.name + suffix) if args.name else args.out

    def say(self, line):
        self.file.write(f"# {line}\n")
        print(line, file=sys.stderr)

    def begin(self, lines, goes_on=False):
        """Opens the file, after what reads an earlier run of the same name. goes_on: after the rows that it has."""
        self.file = open(self.path, "a" if goes_on else "w", newline="") if self.path else sys.stdout
        for line in [self.about, machine.command(), *lines]:
            self.say(line)
        self.out = csv.DictWriter(self.file, self.columns, lineterminator="\n")
        if not goes_on:
            self.out.writeheader()
        self.start = time.monotonic()

    def add(self, rows, title, value="tflops"):
        """Writes the rows of a point, and says them: of each implementation `value`, and why one has no time."""
        self.out.writerows(rows)
        self.file.flush()
        if self.path:
            os.fsync(self.file.fileno())
        self.rows += rows
        text = ", ".join(f"{row['impl']} {row[value] or '-'}" for row in rows)
        if rows[0].get("best_peer"):
            text += f"; {rows[0]['ratio_to_best_peer']}x {rows[0]['best_peer']}"
        print(f"{time.monotonic() - self.start:.0f} s, {title}: {text}", file=sys.stderr, flush=True)
        for row in rows:
            if "ms" in row and row["note"] and not row["ms"]:
                print(f"  {row['impl']}: {row['note']}", file=sys.stderr, flush=True)
        self.torch.cuda.empty_cache()  # attnforge's tuner allocates from the driver

    def time_ms(self, runs):
        """{name: (ms, spread, late)}"""
        import peer_runs

        return peer_runs.time_ms(runs, self.args.rounds, self.heat, self.flush) if runs else {}


def flops(p):
    """Of the visible pairs, as attnforge counts: causal is a little more than half."""
    rows, keys = p.seqlen_q, p.seqlen_kv
    pairs = sum(min(keys, max(0, i + keys - rows + 1)) for i in range(rows)) if p.causal else rows * keys
    return 2.0 * p.batch * p.num_heads_q * pairs * (p.head_dim + p.head_dim_v)


def beside_best(times, but=()):
    """The cells of attnforge's row that tell of the fastest peer. Ratios are of the times as they are written, so that whoever reads
    the file finds the same."""
    if "attnforge" not in times:
        return {}
    best, ratio = figures.best_peer(figures.ratios({name: float(f"{time[0]:.4f}") for name, time in times.items() if name not in but}))
    return {"best_peer": best, "ratio_to_best_peer": f"{ratio:.3f}"} if best else {}


def table(columns, named, impls, times, errors, notes, rounds, work, more={}):
    """Rows of `columns`: cells that all have, and of each implementation what of {impl: (ms, spread, late)}, {impl: error}, {impl: note}
    and {impl: more cells} there is. work(ms): cells of how much was done in that time."""
    rows = []
    for impl in dict.fromkeys(impls):
        row = {**named, "impl": impl, "note": notes.get(impl, ""), **more.get(impl, {})}
        if impl in errors:
            row["error"] = f"{errors[impl]:.1e}"
        if impl in times:
            ms, spread, late = times[impl]
            row |= {"ms": f"{ms:.4f}", "rounds": rounds, "spread": f"{spread:.3f}", "late": late, **work(ms)}
            if "attnforge" in times:
                row["ratio"] = f"{ms / times['attnforge'][0]:.3f}"
        rows.append({column: row.get(column, "") for column in columns})
    return rows


def rows_of_point(before, point, times, errors, notes, count, work, configs):
    """Rows of the columns of `before` and figures.COLUMNS, attnforge's first: of {impl: (ms, spread, late)}, {impl: error}, {impl: note} and
    {impl: config}. work: floating point operations."""
    more = {impl: {"config": config} for impl, config in configs.items()}
    more["attnforge"] = more.get("attnforge", {}) | beside_best(times, [figures.UNTUNED])
    impls = ["attnforge", *times, *notes]
    return table([*before, *figures.COLUMNS], before | point._asdict(), impls, times, errors, notes, count, tflops(work), more)


def tflops(count):
    """work() of table(): so many floating point operations."""
    return lambda ms: {"tflops": f"{count / ms / 1e9:.1f}"}
