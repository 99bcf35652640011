"""Writes the tables of README.md and docs/LADDER.md from the CSV files of bench/results.

    python3 bench/tables.py           # rewrites what stands between the <!-- table ... --> marks
    python3 bench/tables.py --check   # fails when a page does not say what the results say
"""

import collections
import pathlib
import statistics
import sys

import figures

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/h200"


def read(name):
    """(header comments, rows as dicts) of a CSV file."""
    return figures.read_csv(RESULTS / name)


def markdown(header, rows):
    lines = ["| " + " | ".join(map(str, header)) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def source(comments, name):
    return f"{comments[0]}. `{comments[1]}`, all numbers in bench/results/h200/{name}."


def ours_and_ratio(rows):
    return {
        (int(row["head_dim"]), int(row["causal"]), int(row["seqlen_q"])): (
            float(row["tflops"]),
            float(row["ratio_to_torch_flash"]),
        )
        for row in rows
        if row["impl"] == "attnforge"
    }


def cudnn_sentence(rows):
    """How fast cuDNN was in the same run."""
    columns = list(rows[0])
    problem = columns[1 : columns.index("ms")]
    ms = collections.defaultdict(dict)
    for row in rows:
        ms[tuple(row[column] for column in problem)][row["impl"]] = float(row["ms"])
    factors = [each["attnforge"] / each["torch-cudnn"] for each in ms.values()]
    mean = statistics.geometric_mean(factors)
    return f"cuDNN is {min(factors):.2f} to {max(factors):.2f} times as fast as attnforge here (geometric mean {mean:.2f})."


def peers_main():
    name = "peers_main.csv"
    comments, rows = read(name)
    points = ours_and_ratio(rows)
    lengths = sorted({key[2] for key in points})
    table = []
    for dim, causal in sorted({key[:2] for key in points}):
        cells = [points[dim, causal, length] for length in lengths]
        mask = "causal" if causal else "full"
        table.append([f"{dim} {mask}"] + [f"{tflops:.0f} ({ratio:.2f}x)" for tflops, ratio in cells])
    ratios = [ratio for _, ratio in points.values()]
    return "\n\n".join(
        [
            "Forward, bf16, 16384 tokens, hidden size 2048: TFLOP/s, and in brackets the speed relative to PyTorch's"
            f" FlashAttention-2 in the same run. Geometric mean {statistics.geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x."
            f" {cudnn_sentence(rows)}",
            markdown(["head_dim \\ seqlen"] + lengths, table),
            source(comments, name),
        ]
    )


def peers_odd():
    name = "peers_odd_head_dims.csv"
    comments, rows = read(name)
    points = ours_and_ratio(rows)
    table = []
    for dim in sorted({key[0] for key in points}):
        table.append([dim] + ["{:.0f} ({:.2f}x)".format(*points[dim, causal, 4096]) for causal in (0, 1)])
    ratios = [ratio for _, ratio in points.values()]
    return "\n\n".join(
        [
            "Head dims that others pad, seqlen 4096, 16384 tokens: TFLOP/s, and in brackets relative to PyTorch's"
            f" FlashAttention-2. Geometric mean {statistics.geometric_mean(ratios):.2f}x. {cudnn_sentence(rows)}",
            markdown(["head_dim", "full", "causal"], table),
            source(comments, name),
        ]
    )


def main_mean(ratios):
    """As `./dev bench hopper` prints it with the other means."""
    return statistics.geometric_mean(
        figures.best_peer(found)
        for point, found in ratios.items()
        if point.head_dim in (64, 128, 256) and point.head_dim_v == point.head_dim and point.num_heads_q == point.num_heads_kv
    )


def hopper():
    name = "hopper.csv"
    if not (RESULTS / name).exists():
        return ""
    comments, rows = read(name)
    tflops = {figures.point_of(row): float(row["tflops"]) for row in rows if row["impl"] == "attnforge"}
    ratios = figures.all_ratios(rows)
    lengths = sorted({point.seqlen_q for point in tflops})
    cells = collections.defaultdict(dict)
    for point in sorted(tflops, key=lambda p: (p.head_dim, p.head_dim_v, p.num_heads_q, p.causal)):
        dims = f"{point.head_dim}" if point.head_dim == point.head_dim_v else f"{point.head_dim}:{point.head_dim_v}"
        heads = "" if point.num_heads_q == point.num_heads_kv else f", heads {point.num_heads_q}:{point.num_heads_kv}"
        best = figures.best_peer(ratios[point])
        ratio = f" ({best:.2f}x)" if best else ""
        cells[f"{dims} {'causal' if point.causal else 'full'}{heads}"][point.seqlen_q] = f"{tflops[point]:.0f}{ratio}"
    table = [[label] + [row.get(length, "") for length in lengths] for label, row in cells.items()]
    return "\n\n".join(
        [
            "Forward on Hopper, bf16: TFLOP/s, and in brackets the speed relative to the best of FlashAttention-3, ThunderKittens"
            " and cuDNN (head_dim 192:128: cuDNN alone). cuDNN ran in the same rounds; the two others are converted through it.",
            markdown(["head_dim \\ seqlen"] + lengths, table),
            f"Geometric mean of the head dims 64, 128 and 256: {main_mean(ratios):.2f}x.",
            source(comments, name),
        ]
    )


def host():
    name = "host.csv"
    comments, rows = read(name)
    table = [[row["what"], row["limit"], row["measured"]] for row in rows]
    return "\n\n".join([markdown(["host cost", "goal", "measured"], table), source(comments, name)])


def first_run():
    name = "first_run.csv"
    comments, rows = read(name)
    table = [
        [row["problem"], row["space"], f"{float(row['first_run_s']):.1f} s", f"{float(row['loss']):.1%}", f"{float(row['gain']):.2f}x"]
        for row in rows
    ]
    header = ["problem", "configs", "tuning on first run", "slower than the best of all configs", "faster than untuned"]
    return "\n\n".join([markdown(header, table), source(comments, name)])


def counters_of(rows):
    """{family: {counter: value}}: sums over its launches, per cents weighted by their times."""
    sums = ("time_us", "instructions_1e6", "l2_bytes_1e9", "dram_bytes_1e9")
    launches = collections.defaultdict(list)
    for row in rows:
        launches[row["family"]].append({name: float(row[name]) for name in row if name not in ("family", "kernel") and row[name]})
    found = {}
    for family, each in launches.items():
        time = sum(launch["time_us"] for launch in each)
        found[family] = {
            name: sum(launch.get(name, 0) * (1 if name in sums else launch["time_us"] / time) for launch in each)
            for name in each[0]
        }
    return found


def ladder():
    name, counters_name = "lineage.csv", "counters.csv"
    if not (RESULTS / name).exists() or not (RESULTS / counters_name).exists():
        return ""
    comments, rows = read(name)
    steps = [row for row in rows if row["project"] == "ladder" and row["tflops"]]
    counter_comments, counter_rows = read(counters_name)
    counters = counters_of(counter_rows)
    table, before = [], None
    for row in steps:
        tflops, c = float(row["tflops"]), counters.get(row["family"], {})
        gain = f"{tflops / before:.1f}x" if before else ""
        before = tflops
        percent = [f"{c[name]:.0f}" if name in c else "" for name in ("issue", "fma", "exponential", "tensor", "shared_memory")]
        counts = [f"{c[name] / scale:.1f}" if name in c else "" for name, scale in (("instructions_1e6", 1e3), ("dram_bytes_1e9", 1))]
        table.append([f"`{row['family']}`", f"{tflops:.3g}", gain, f"{float(row['ratio']):.2f}x", *counts, *percent])
    header = ["family", "TFLOP/s", "step", "of PyTorch's flash", "1e9 instructions", "GB of DRAM", "issue %", "FMA %",
              "exponential %", "tensor %", "shared memory %"]
    return "\n\n".join([markdown(header, table), source(comments, name), source(counter_comments, counters_name)])


def error_of(row):
    if not row["max_diff"] or not row["peer_max_diff"]:
        return ""
    return f"{float(row['max_diff']):.1e} ({float(row['peer_max_diff']):.1e})"


def lineage():
    name = "lineage.csv"
    if not (RESULTS / name).exists():
        return ""
    comments, rows = read(name)
    table = []
    for row in rows:
        if row["project"] == "ladder" or not row["ratio"]:
            continue
        theirs = f"{float(row['theirs_ms']):.3g} ms, {row['gpu']}" if row["theirs_ms"] else ""
        table.append(
            [row["project"], row["problem"].removeprefix("fwd "), theirs, f"{float(row['peer_ms']):.3g} ms ({row['peer']})",
             f"{float(row['ms']):.3g} ms (`{row['family']}`)", f"{float(row['ratio']):.2f}x", f"{float(row['ns_per_token_head']):.3g}",
             error_of(row)]
        )
    header = ["project", "problem", "theirs", "PyTorch here", "attnforge here", "attnforge / PyTorch", "ns/token/head",
              "largest error (PyTorch's)"]
    return "\n\n".join([markdown(header, table), source(comments, name)])


# A table without its file is empty.
README_TABLES = {"hopper": hopper, "peers_main": peers_main, "peers_odd": peers_odd, "host": host, "first_run": first_run}
PAGES = {"README.md": README_TABLES, "docs/LADDER.md": {"ladder": ladder, "lineage": lineage}}


def render(page, text, tables):
    out, inside = [], None
    seen = collections.Counter()
    for line in text.splitlines():
        if line.startswith("<!-- table "):
            inside = line.split()[2]
            seen[inside] += 1
            table = tables[inside]()
            out += [line, "", table, ""] if table else [line]
        elif line == "<!-- end -->":
            inside = None
            out.append(line)
        elif inside is None:
            out.append(line)
    if inside is not None:
        raise SystemExit(f"{page}: the table {inside} has no <!-- end -->")
    missing = set(tables) - set(seen)
    if missing:
        raise SystemExit(f"{page} shows no table {', '.join(sorted(missing))}")
    return "\n".join(out) + "\n"


def main():
    for page, tables in PAGES.items():
        old = (ROOT / page).read_text()
        new = render(page, old, tables)
        if "--check" not in sys.argv[1:]:
            (ROOT / page).write_text(new)
        elif new != old:
            raise SystemExit(f"{page} differs from bench/results; run python3 bench/tables.py")


main()
