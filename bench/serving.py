"""Times caches in pages beside caches in one piece and FlashAttention-3: decode, sequences of unequal lengths, a chunk of a prompt.

    python3 bench/serving.py --tune full --name serving
    python3 bench/serving.py --only ragged --seeds 1,2,3,4,5 --rounds 21 --out times.csv

"attnforge" is pages, "one piece" a padded cache with lengths on the GPU, "dense" one whose lengths the host knows. bf16, head_dim
128, pages in random order of a pool a quarter larger. Cold L2, all implementations in shuffled rounds on a heated card, medians.
"ragged" has 64 sequences whose lengths are log-normal, in caches for the longest that there may be, for each of --seeds; beside it stand
64 equal ones of as many bytes, and at the end it says how much faster these are. TB/s are of K and V read once.
"""

import argparse
import csv
import functools
import importlib
import importlib.metadata
import math
import pathlib
import random
import statistics
import sys
import warnings

import figures
import machine
import peer_kernels

HERE = pathlib.Path(__file__).resolve().parent
HEAD_DIM = 128
COLUMNS = ["case", "batch", "num_heads_q", "num_heads_kv", "seqlen_q", "keys", "longest", "page_size", "impl", "ms", "tb_per_s", "ratio", "error"]
COLUMNS += ["rounds", "spread", "late", "note"]
LONGEST = 32768  # of ragged sequences
RAGGED, EQUAL = "ragged, seed ", ", equal lengths of as many bytes"  # names of cases
DECODE = [(1, 2048), (1, 8192), (1, 65536), (8, 8192), (64, 8192), (128, 4096)]


class Case:
    """Sequences of `lengths` keys, in pages and in one piece; room for `bound` each."""

    def __init__(self, name, heads, seqlen_q, lengths, page_size, torch, bound=0):
        self.name, self.heads, self.seqlen_q, self.lengths, self.page_size = name, heads, seqlen_q, lengths, page_size
        batch, longest = len(lengths), -(-max(bound, *lengths) // page_size) * page_size
        shape = {"device": "cuda", "dtype": torch.bfloat16}
        self.q = torch.randn(batch, seqlen_q, heads[0], HEAD_DIM, **shape)
        columns = longest // page_size
        taken = [-(-length // page_size) for length in lengths]
        pages = sum(taken) * 5 // 4
        self.pools = [torch.randn(pages, page_size, heads[1], HEAD_DIM, **shape) for _ in range(2)]
        self.table = torch.full((batch, columns), -1, dtype=torch.int32)
        order = torch.randperm(pages).int()
        for row, count in enumerate(taken):
            self.table[row, :count] = order[sum(taken[:row]) : sum(taken[: row + 1])]
        self.table = self.table.cuda()
        self.used = torch.tensor(lengths, dtype=torch.int32, device="cuda")
        self.longest = longest

    def in_one_piece(self):
        rows = self.table.clamp(min=0).long()
        return [pool[rows].flatten(1, 2) for pool in self.pools]

    def bytes(self):
        return 2 * 2 * HEAD_DIM * self.heads[1] * sum(self.lengths)


def log_normal(count, least, most, seed):
    """Lengths whose logarithms are normal, and mostly within the bounds; the others are at the bounds."""
    choice = random.Random(seed)
    middle, wide = (math.log(least) + math.log(most)) / 2, (math.log(most) - math.log(least)) / 5
    return [round(min(max(math.exp(choice.gauss(middle, wide)), least), most)) for _ in range(count)]


def cases(torch, seeds):
    for heads in ((32, 8), (16, 1)):
        for batch, keys in DECODE:
            yield "decode", functools.partial(Case, "decode", heads, 1, [keys] * batch, 16, torch)
    for seed in seeds:
        lengths = log_normal(64, 256, LONGEST, seed)
        mean = round(statistics.mean(lengths))
        yield "ragged", functools.partial(Case, f"{RAGGED}{seed}", (32, 8), 1, lengths, 64, torch, LONGEST)
        yield "ragged", functools.partial(Case, f"{RAGGED}{seed}{EQUAL}", (32, 8), 1, [mean] * 64, 64, torch)
    yield "prefill", functools.partial(Case, "prefill", (32, 8), 512, [32768], 64, torch)


def said_of_ragged(times):
    """Of {(case, implementation): ms}: a line for each implementation, times of equal lengths over those of ragged ones."""
    ratios = {}
    for (case, impl), ms in times.items():
        equal = times.get((case + EQUAL, impl))
        if case.startswith(RAGGED) and equal:
            ratios.setdefault(impl, []).append(equal / ms)
    for impl, found in ratios.items():
        each = ", ".join(f"{ratio:.3f}" for ratio in found)
        yield f"{impl}: ragged lengths run at {statistics.geometric_mean(found):.3f}x the speed of equal ones ({each})"


def runs_of(case, fa3, attnforge):
    """{name: function}, each with the same result."""
    causal = case.seqlen_q > 1
    ours = functools.partial(attnforge.attention, case.q, causal=causal, used_kv=case.used)
    k, v = case.in_one_piece()
    runs = {"attnforge": functools.partial(ours, *case.pools, page_table=case.table), "one piece": functools.partial(ours, k, v)}
    if len(set(case.lengths)) == 1:
        keys = case.lengths[0]
        runs["dense"] = functools.partial(attnforge.attention, case.q, k[:, :keys], v[:, :keys], causal=causal)
    if fa3 is not None:
        paged = functools.partial(fa3.flash_attn_with_kvcache, case.q, *case.pools, cache_seqlens=case.used, page_table=case.table, causal=causal)
        runs["fa3"] = paged
        if causal:
            runs["fa3, one piece"] = functools.partial(fa3.flash_attn_func, case.q, k, v, causal=True)
    return runs


def output_of(result):
    return (result[0] if isinstance(result, (tuple, list)) else result).float()


def rows_of(case, args, fa3, flush, heat, torch, attnforge):
    import peer_runs

    runs, notes, errors = runs_of(case, fa3, attnforge), {}, {}
    reference = None
    for name, run in list(runs.items()):
        try:
            output = output_of(run())
        except Exception as error:  # a package raises what it likes where it does not serve a problem
            notes[name] = peer_kernels.first_line(error)
            del runs[name]
            continue
        if name in ("attnforge", "one piece", "dense"):
            if args.tune != "none":
                attnforge.tune(str(list(attnforge.plan_cache)[-1].problem), rigor=args.tune)
                output = output_of(run())
            notes[name] = list(attnforge.plan_cache)[-1].config
        reference = output if reference is None else reference
        errors[name] = ((output - reference).norm() / reference.norm()).item()
        if not errors[name] < peer_kernels.WRONG:
            notes[name] = "differs"
            del runs[name]
    times = peer_runs.time_ms(runs, args.rounds, heat, flush)
    for name in [*times, *(name for name in notes if name not in times)]:
        row = {"case": case.name, "batch": len(case.lengths), "num_heads_q": case.heads[0], "num_heads_kv": case.heads[1]}
        row |= {"seqlen_q": case.seqlen_q, "keys": sum(case.lengths), "longest": case.longest, "page_size": case.page_size, "impl": name}
        row["note"] = notes.get(name, "")
        if name in errors:
            row["error"] = f"{errors[name]:.1e}"
        if name in times:
            ms = times[name].ms
            row |= {"ms": f"{ms:.4f}", "tb_per_s": f"{case.bytes() / ms / 1e9:.2f}", "ratio": f"{ms / times['attnforge'].ms:.3f}"}
            row |= {"rounds": args.rounds, "spread": f"{times[name].spread:.3f}", "late": times[name].late}
        yield {column: row.get(column, "") for column in COLUMNS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="of decode, ragged, prefill")
    parser.add_argument("--tune", default="full", choices=("none", "quick", "full", "exhaustive"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--heat-ms", type=float, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of tensors")
    parser.add_argument("--seeds", default="1,2,3", help="of ragged lengths (default: %(default)s)")
    parser.add_argument("--out", help="CSV file; default: standard output")
    parser.add_argument("--name", help="instead of --out: bench/results/<gpu>/NAME.csv")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE.parent / "python"))
    torch = machine.torch()
    import attnforge
    import peer_runs

    warnings.filterwarnings("ignore")
    peer_runs.seed(args.seed)
    try:
        fa3 = importlib.import_module("fa3_fwd_interface")
        peer = f"peer fa3: fa3-fwd {importlib.metadata.version('fa3-fwd')}, keys split as it thinks best"
    except ImportError as error:
        fa3, peer = None, f"not in the run: fa3: {error}"
    flush, heat = peer_runs.ColdL2(), peer_runs.Heat(args.heat_ms)
    gpu, driver = peer_runs.machine()
    path = figures.result_path(gpu, args.name) if args.name else args.out
    file = open(path, "w", newline="") if path else sys.stdout
    file.write(f"# {gpu}, driver {driver}, torch {torch.__version__}, attnforge {attnforge.version()}\n")
    file.write(f"# python3 bench/serving.py {' '.join(sys.argv[1:])}\n# {peer}\n")
    file.write(f"# a copy of 1 GiB: {peer_runs.copy_tb_per_s():.2f} TB/s, read and written bytes together\n")
    out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    out.writeheader()
    ms_of = {}
    for name, make in cases(torch, [int(seed) for seed in args.seeds.split(",")]):
        if args.only and args.only != name:
            continue
        attnforge.plan_cache.clear()
        case = make()
        rows = list(rows_of(case, args, fa3, flush, heat, torch, attnforge))
        out.writerows(rows)
        file.flush()
        ms_of |= {(case.name, row["impl"]): float(row["ms"]) for row in rows if row["ms"]}
        times = ", ".join(f"{row['impl']} {row['ms'] or row['note']}" for row in rows)
        print(f"{case.name} {len(case.lengths)} x {case.longest}, {case.heads[0]}:{case.heads[1]}: {times}", file=sys.stderr)
        del case
        torch.cuda.empty_cache()
    for line in said_of_ragged(ms_of):
        file.write(f"# {line}\n")
        print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
