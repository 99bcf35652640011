"""Writes the tables of README.md and docs/ from the CSV files of bench/results.

    python3 bench/tables.py           # rewrites what stands between the <!-- table ... --> marks
    python3 bench/tables.py --check   # fails when a page does not say what the results say
"""

import argparse
import collections
import functools
import pathlib
import re
import statistics

import figures
import peer_kernels
import serving_peers

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/h200"


def read(name):
    """(header comments, rows as dicts) of a CSV file."""
    return figures.read_csv(RESULTS / name)


def markdown(header, rows):
    lines = ["| " + " | ".join(map(str, header)) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def source(comments, name, gpu="h200"):
    return f"{comments[0]}. `{comments[1]}`, all numbers in bench/results/{gpu}/{name}."


def versions(comments, rows):
    """[("fa3", "fa3-fwd 0.0.3"), ...] of the peers that have a time in the run; files of earlier versions name torch alone."""
    timed = {row["impl"] for row in rows if row["ms"]}
    known = dict(line.removeprefix("peer ").split(": ", 1) for line in comments if line.startswith("peer "))
    torch = comments[0].split(", ")[2]
    names = dict.fromkeys(row["impl"] for row in rows if row["impl"] != "attnforge")
    return [(name, known.get(name) or by_torch(name, torch)) for name in names if name in timed]


def by_torch(name, torch):
    """The version of a peer of which a file names the torch alone, and what another run of the same torch had."""
    comments = read("hopper.csv")[0] if (RESULTS / "hopper.csv").exists() else []
    known = next((line.split(f"{torch}, ")[1] for line in comments if line.startswith(f"peer {name}: {torch}, ")), "")
    return f"{torch}; another run of it had {known}" if known else torch


def absent(comments, rows):
    """{name: why} of the peers that were not in the run."""
    lines = [line.removeprefix("not in the run: ").split(": ", 1) for line in comments if line.startswith("not in the run: ")]
    known = {name for name, _ in versions(comments, rows)} | {line[0] for line in lines}
    found = dict(lines) | {row["impl"]: row["note"] for row in rows if row["impl"] not in known | {"attnforge"}} | {
        name: "not asked for" for name in peer_kernels.DEFAULT if name not in known | {row["impl"] for row in rows}
    }
    return {name: why.replace("|", "/") for name, why in found.items()}


def peers_sentence(comments, rows):
    """Who was timed, and who was not."""
    timed = "; ".join(f"{name} ({version})" for name, version in versions(comments, rows))
    missing = absent(comments, rows)
    text = f"Timed in the same shuffled rounds: {timed or 'no peer'}."
    return f"{text} Not in the run: {', '.join(missing)}." if missing else text


def hopper_peers():
    """The peers in the run, their versions and at how many points; and why the others were not."""
    name = "hopper.csv"
    if not (RESULTS / name).exists():
        return ""
    comments, rows = read(name)
    found = figures.all_ratios(rows)
    counts = collections.Counter(peer for known in found.values() for peer in known)
    errors = collections.defaultdict(list)
    for row in rows:
        if row["error"]:
            errors[row["impl"]].append(float(row["error"]))
    table = [
        [f"`{peer}`", version, f"{counts[peer]} of {len(found)}", f"{max(errors[peer]):.1e}" if errors[peer] else ""]
        for peer, version in [("attnforge", comments[0].split()[-1]), *versions(comments, rows)]
    ]
    table[0][2] = f"{len(found)}"
    table += [[f"`{peer}`", f"not in the run: {why}", "0", ""] for peer, why in absent(comments, rows).items()]
    return "\n\n".join([markdown(["peer", "version", "points", "largest `error`"], table), source(comments, name)])


def peers_main():
    name = "peers_main.csv"
    comments, rows = read(name)
    points = ours_and_flash(rows)
    lengths = sorted({key[2] for key in points})
    table = []
    for dim, causal in sorted({key[:2] for key in points}):
        cells = [points[dim, causal, length] for length in lengths]
        mask = "causal" if causal else "full"
        table.append([f"{dim} {mask}"] + [f"{tflops:.0f} ({ratio:.2f}x)" for tflops, ratio in cells])
    return "\n\n".join(
        [
            "The kernel of other GPUs, `fwd_mma_sm80`, forced on a Hopper, where plans take another at these sizes: it uses no instruction that"
            " Hopper alone has, cuDNN does. Forward, bf16, 16384 tokens, hidden size 2048: TFLOP/s, and in brackets the speed relative to"
            f" PyTorch's FlashAttention-2 in the same run. {means_sentence(rows)} {peers_sentence(comments, rows)}",
            markdown(["head_dim \\ seqlen"] + lengths, table),
            source(comments, name),
        ]
    )


def ours_and_flash(rows):
    """{(head_dim, causal, seqlen): (TFLOP/s, speed relative to PyTorch's FlashAttention-2)}"""
    found = figures.all_ratios(rows)
    tflops = {figures.point_of(row): float(row["tflops"]) for row in rows if row["impl"] == "attnforge"}
    return {(p.head_dim, p.causal, p.seqlen_q): (tflops[p], known["torch-flash"]) for p, known in found.items()}


def means_sentence(rows):
    """attnforge relative to each peer of the run."""
    parts = []
    for name, each in figures.per_peer(rows).items():
        parts.append(f"{statistics.geometric_mean(each):.2f}x {name} ({min(each):.2f}x to {max(each):.2f}x)")
    return f"Geometric means of attnforge's speed: {', '.join(parts)}."


def peers_odd():
    name = "peers_odd_head_dims.csv"
    comments, rows = read(name)
    points = ours_and_flash(rows)
    table = []
    for dim in sorted({key[0] for key in points}):
        table.append([dim] + ["{:.0f} ({:.2f}x)".format(*points[dim, causal, 4096]) for causal in (0, 1)])
    return "\n\n".join(
        [
            "Head dims that others pad, seqlen 4096, 16384 tokens: TFLOP/s, and in brackets relative to PyTorch's"
            f" FlashAttention-2. {means_sentence(rows)} {peers_sentence(comments, rows)}",
            markdown(["head_dim", "full", "causal"], table),
            source(comments, name),
        ]
    )


def varlen():
    """Packed sequences of several distributions of lengths, beside the peers' kernels for them and beside equal sequences."""
    name = "varlen.csv"
    if not (RESULTS / name).exists():
        return ""
    comments, rows = read(name)
    known = dict(line.removeprefix("peer ").split(": ", 1) for line in comments if line.startswith("peer "))
    by_point = collections.defaultdict(dict)
    for row in rows:
        by_point[row["distribution"], row["causal"]][row["impl"]] = row
    ratios = {impl: [float(row["ratio"]) for row in rows if row["impl"] == impl and row["ratio"]] for impl in ("dense", *known)}
    means = [
        f"{statistics.geometric_mean(each):.3f}x {known.get(impl, 'its own dense kernel on equal sequences of the same work')},"
        f" least {min(each):.3f}x"
        for impl, each in ratios.items()
        if each
    ]
    table = []
    for (distribution, causal), impls in by_point.items():
        ours = impls["attnforge"]
        others = [f"{row['ratio']}x" if (row := impls.get(impl)) and row["ratio"] else "" for impl in ("dense", *known)]
        label = f"{distribution.replace('_', ' ')}, {ours['sequences']} up to {ours['longest']}"
        table.append([label, "causal" if causal == "1" else "full", ours["tflops"].split(".")[0], *others])
    first = rows[0]
    return "\n\n".join(
        [
            f"Packed sequences, {first['tokens']} tokens, {first['heads']} heads of {first['head_dim']}: TFLOP/s, and the speed relative"
            f" to others in the same run. Geometric means: {'; '.join(means)}.",
            markdown(["lengths", "mask", "attnforge", "dense", *known], table),
            source(comments, name),
        ]
    )


def backward_ratios(rows, select):
    """({point: {peer: attnforge's speed relative to it}}, the same beside attnforge's untuned self) of selected rows."""
    chosen = [row for row in rows if select(row)]
    own = ("attnforge", "attnforge-untuned")
    peers = figures.all_ratios([row for row in chosen if row["impl"] != own[1]])
    return peers, figures.all_ratios([row for row in chosen if row["impl"] in own])


LISTS = {"sm80": "bwd_mma_sm80, forced"}  # names for readers, where a list's own says too little


def backward(gpu="h200"):
    """The grid by head dim, mask and length; means of every list of bench/backward.py, on that GPU."""
    path = RESULTS.parent / gpu / "backward.csv"
    if not path.exists():
        return ""
    comments, rows = read(path)
    found = {}  # of the grid: a point measured again counts as it was last
    for row in rows:
        if row["list"] == "grid" and row["impl"] == "attnforge" and row["ms"]:
            found[int(row["head_dim"]), int(row["causal"]), int(row["seqlen_q"])] = row
    lengths = sorted({seqlen for _, _, seqlen in found})
    cells = []
    for dim, causal in sorted({key[:2] for key in found}):
        texts = []
        for seqlen in lengths:
            row = found.get((dim, causal, seqlen))
            ratio = f" ({float(row['ratio_to_best_peer']):.2f}x)" if row and row["ratio_to_best_peer"] else ""
            texts.append(f"{row['tflops'].split('.')[0]}{ratio}" if row else "")
        cells.append([f"{dim} {'causal' if causal else 'full'}", *texts])
    means = []
    for of_list in dict.fromkeys(row["list"] for row in rows):
        dims = sorted({int(row["head_dim"]) for row in rows if row["list"] == of_list})
        for some in [dims] if len(dims) > 3 or of_list == "deterministic" else [[dim] for dim in dims]:
            ratios, own = backward_ratios(rows, lambda row: row["list"] == of_list and int(row["head_dim"]) in some)
            best = list(figures.best_ratios(ratios).values())
            untuned = [1 / each["attnforge-untuned"] for each in own.values() if "attnforge-untuned" in each]
            texts = [f"{statistics.geometric_mean(each):.3f}x, least {min(each):.3f}x" if each else "" for each in (best, untuned)]
            means.append([LISTS.get(of_list, of_list.replace("_", " ")), ", ".join(map(str, some)), len(ratios), *texts])
    commands = [line for line in dict.fromkeys(comments) if line.startswith("python3 bench/backward.py")]
    more = f" (and {len(commands) - 1} more runs)" if len(commands) > 1 else ""
    known = dict(line.removeprefix("peer ").split(": ", 1) for line in comments if line.startswith("peer "))
    timed = [f"{peer} ({version})" for peer, version in known.items() if any(row["impl"] == peer and row["ms"] for row in rows)]
    parts = ["Backward passes, bf16, 16384 tokens, hidden size 2048: TFLOP/s by 2.5 times the forward's products, in brackets the speed relative "
             f"to the fastest of the others at that point in the same run: {'; '.join(timed) or 'none'}."]
    if cells:
        parts.append(markdown(["head_dim", *lengths], cells))
    parts.append(markdown(["list", "head_dim", "points", "relative to the fastest peer", "untuned relative to tuned"], means))
    parts.append(f"{comments[0]}. `{commands[0]}`{more}, all numbers in {path.relative_to(ROOT)}.")
    return "\n\n".join(parts)


def label_of(point):
    dims = f"{point.head_dim}" if point.head_dim == point.head_dim_v else f"{point.head_dim}:{point.head_dim_v}"
    heads = "" if point.num_heads_q == point.num_heads_kv else f", heads {point.num_heads_q}:{point.num_heads_kv}"
    return f"{dims} {'causal' if point.causal else 'full'}{heads}"


def in_table_order(points):
    return sorted(points, key=lambda p: (p.head_dim, p.head_dim_v, p.num_heads_q, p.causal, p.seqlen_q))


def hopper():
    name = "hopper.csv"
    if not (RESULTS / name).exists():
        return ""
    comments, rows = read(name)
    tflops = {figures.point_of(row): float(row["tflops"]) for row in rows if row["impl"] == "attnforge" and row["ms"]}
    found = figures.all_ratios(rows)
    best = figures.best_ratios(found)
    lengths = sorted({point.seqlen_q for point in tflops})
    cells = collections.defaultdict(dict)
    for point in in_table_order(tflops):
        ratio = f"{best[point]:.2f}x" if point in best else "no peer"
        cells[label_of(point)][point.seqlen_q] = f"{tflops[point]:.0f} ({ratio})"
    table = [[label] + [row.get(length, "") for length in lengths] for label, row in cells.items()]
    main = {point: ratio for point, ratio in best.items() if figures.grid(point)}
    return "\n\n".join(
        [
            "Forward on Hopper, bf16: TFLOP/s, and in brackets the speed relative to the fastest peer in the same run.",
            peers_sentence(comments, rows),
            f"Head dims 64, 128 and 256, 16384 tokens: {figures.claim(main)}",
            f"All: {figures.claim(best)}",
            markdown(["head_dim \\ seqlen"] + lengths, table),
            source(comments, name),
        ]
    )


def hopper_groups():
    """Each group of points against each peer by itself, and against the fastest."""
    name = "hopper.csv"
    if not (RESULTS / name).exists():
        return ""
    comments, rows = read(name)
    found = figures.all_ratios(rows)
    peers = [peer for peer, _ in versions(comments, rows)]
    table = []
    for group, belongs in figures.GROUPS.items():
        points = {point: known for point, known in found.items() if belongs(point)}
        if points:
            columns = [[known[peer] for known in points.values() if peer in known] for peer in peers]
            columns.insert(0, list(figures.best_ratios(points).values()))
            table.append([f"{group} ({len(points)})"] + [mean_and_least(each, len(points)) for each in columns])
    winners = collections.Counter(figures.best_peer(known)[0] for known in found.values() if known)
    fastest = ", ".join(f"{peer} at {count}" for peer, count in winners.most_common())
    late = sum(int(row["late"] or 0) > 0 for row in rows)
    warning = [f"{late} rows have samples that may hold time of the host (column `late`)."] if late else []
    return "\n\n".join(
        [
            "attnforge's speed relative to the fastest peer at each point, and to each peer: geometric mean, in brackets the"
            " least, and the number of points where a peer has fewer than the group."
            f" Fastest peer: {fastest or 'none'}. {peers_sentence(comments, rows)}",
            markdown(["bf16 (points)", "fastest peer"] + peers, table),
            *warning,
            source(comments, name),
        ]
    )


def mean_and_least(ratios, points):
    if not ratios:
        return "no peer"
    count = "" if len(ratios) == points else f", {len(ratios)} points"
    return f"{statistics.geometric_mean(ratios):.3f}x ({min(ratios):.2f}x{count})"


def host():
    comments, rows = read("host.csv")
    table = [[row["what"], row["limit"], row["measured"]] for row in rows]
    return "\n\n".join([markdown(["host cost", "goal", "measured"], table), source(comments, "host.csv")])


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


MASK_FORMS = {"causal": "mask text", "causal, soft cap 30": "score text", "causal, ALiBi": "score text",
              "sliding window of 1024": "window", "documents, causal": "mask text"}
OTHER_FORMS = {"built in": "built in", "text": "mask text", "packed": "packed sequences"}


def masks():
    """Masks and user code beside FlexAttention in one run, beside the same problem in another form, and in a later run without it."""
    name, later_name, small_name = "masks.csv", "masks_texts.csv", "masks_small.csv"
    runs = [collections.defaultdict(dict) for _ in range(2)]
    for of_run, file in zip(runs, (name, later_name)):
        for row in read(file)[1]:
            of_run[row["case"]][row["impl"]] = row
    first, later = runs
    table, ratios = [], []
    for case in dict.fromkeys([*first, *later]):
        # Of two runs the one with FlexAttention in it, of two of those the later.
        run = later[case] if "flex" in later[case] or case not in first else first[case]
        ours, flex = run["attnforge"], run.get("flex")
        if flex:
            ratios.append(float(flex["ms"]) / float(ours["ms"]))
        again = later[case].get("attnforge") if run is first[case] else None
        forms = []
        for impl, words in OTHER_FORMS.items():
            form_run = next((r[case] for r in (later, first) if impl in r[case]), None)
            if form_run:
                own = form_run[impl]
                relative = float(own["ms"]) / float(form_run["attnforge"]["ms"])
                forms.append(f"{words}: {float(own['tflops']):.0f} ({relative:.2f}x)")
        form = MASK_FORMS.get(case, "block mask" if case.startswith("blocks") else "")
        table.append(
            [case, form, f"{float(ours['density']):.0%}", f"{float(ours['tflops']):.0f}", f"{float(flex['tflops']):.0f}" if flex else "",
             f"{ratios[-1]:.2f}x" if flex else "", f"{float(again['tflops']):.0f}" if again else "", ", ".join(forms)]
        )
    comments, later_comments = read(name)[0], read(later_name)[0]
    return "\n\n".join(
        [
            "Masks and code of the user's, bf16, batch 2, 16 heads of 128, 8192 tokens (documents: 16384 of one sequence): TFLOP/s of the"
            " pairs that the mask keeps, and the speed relative to FlexAttention, compiled by torch with its"
            " Triton backend and max-autotune, in the same run: geometric mean"
            f" {statistics.geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x. \"Later run\" is attnforge without FlexAttention,"
            " timed again with later code. The last column has the same problem written in another way. Its brackets are this row's speed"
            " relative to that: where they are below 1, the other way is the one to use.",
            markdown(["mask or score", "written as", "pairs kept", "attnforge", "FlexAttention", "speed-up", "later run", "written otherwise"], table),
            small_masks(small_name),
            f"{source(comments, name)} {source(later_comments, later_name)}",
        ]
    )


def small_masks(name):
    """Where lists cost more than they save."""
    rows = read(name)[1]
    dense, masked = {}, []
    for row in rows:
        words = dict(word.split("=") for word in row["problem"].split()[2:])
        size = words["seqlen_q"], words["head_dim"]
        if "blocks" in words:
            masked.append((size, words["blocks"].split(":")[0], float(words["density"]), float(row["time_us"])))
        else:
            dense[size] = float(row["time_us"])
    slower = [each for each in masked if each[3] >= dense[each[0]]]
    words = [f"{int(count)} tokens, head_dim {dim}, blocks of {block}, density {density:g}: {us:.1f} for {dense[(count, dim)]:.1f} us"
             for (count, dim), block, density, us in slower if block != "16"]
    of_16 = [each for each in slower if each[1] == "16"]
    densities = ", ".join(f"{x:g}" for x in sorted({each[2] for each in of_16}, reverse=True))
    return (
        f"Small problems (8 heads, {' and '.join(sorted({size[0] for size in dense}, key=int))} tokens, head dims"
        f" {' and '.join(sorted({size[1] for size in dense}, key=int))}; random blocks of 16, 64 and 128 with densities"
        f" {', '.join(f'{x:g}' for x in sorted({each[2] for each in masked}, reverse=True))}; untuned): {len(masked) - len(slower)} of"
        f" {len(masked)} are faster than the same problem without a mask. Not so {len(of_16)} with blocks of 16 (densities {densities}),"
        f" as rows of a tile see different ones, and, since a row of few blocks may have nearly all, {len(words)}:"
        f" {'; '.join(words)}. All numbers in bench/results/h200/{name}."
    )


def mask_runs():
    """Small problems where each row of blocks keeps a run of them, beside all families without a mask."""
    comments, rows = read("mask_runs.csv")
    family_comments, families = read("dense_families.csv")
    times, dense = {}, collections.defaultdict(list)
    for row in rows:
        size = row["seqlen"], row["head_dim"]
        if row["impl"] == "dense":
            dense[size].append(float(row["ms"]) * 1e3)
            continue
        block, sparsity = re.search(r"of (\d+), sparsity ([\d.]+)", row["case"]).groups()
        times[(*size, block, sparsity)] = float(row["ms"]) * 1e3
    blocks, sparsities = (list(dict.fromkeys(key[i] for key in times)) for i in (2, 3))
    table, unmasked = [], []
    for size, of_size in dense.items():
        us = statistics.median(of_size)
        rows_and_heads = int(size[0]) * int(rows[0]["heads"])
        table.append([*size, "none", f"{us:.1f} ({us * 1e3 / rows_and_heads:.2f})", "", ""])
        for block in blocks:
            cells = [times[(*size, block, sparsity)] for sparsity in sparsities]
            table.append([*size, block, *(f"{cell:.1f} ({cell * 1e3 / rows_and_heads:.2f}){' slower' if cell >= us else ''}" for cell in cells)])
        of_families = [(row["family"], float(row["time_us"])) for row in families if (row["seqlen"], row["head_dim"]) == size]
        unmasked.append([*size, *(f"{us:.1f}" for _, us in of_families)])
    names = list(dict.fromkeys(row["family"] for row in families))
    return "\n\n".join(
        [
            "Schedules as PiKAttention makes them, where each row of blocks keeps one run of them: us, in brackets ns per token and head;"
            " 8 heads, bf16, untuned, in the same rounds as the problem without a mask.",
            markdown(["tokens", "head_dim", "blocks of", *(f"sparsity {sparsity}" for sparsity in sparsities)], table),
            "Without a mask, by each family, us:",
            markdown(["tokens", "head_dim", *(f"`{name}`" for name in names)], unmasked),
            f"{source(comments, 'mask_runs.csv')} {source(family_comments, 'dense_families.csv')}",
        ]
    )


def chosen_sentence(comments, name, ratios_of):
    """Whose configs were tried at each point, and what a first call finds, where that was measured."""
    number = re.search(r"--choose (\d+)", comments[1])
    if not number:
        return []
    text = (f"Configs are the fastest of {number[1]} (or of an earlier run) on a point's own lengths, which no plan of a user's tries: "
            "these are times of kernels, not of a search.")
    first = name.replace(".csv", "_first_run.csv")
    gpu = next((each for each in ("h200", "h100") if (RESULTS.parent / each / first).exists()), None)
    if gpu is None:
        return [f"{text} What `first_run` finds was not measured in a run of its own."]
    of_comments, rows = figures.read_csv(RESULTS.parent / gpu / first)
    means = "; ".join(f"{group}: geometric mean {statistics.geometric_mean(each):.2f}x, least {min(each):.3f}x" for group, each in ratios_of(rows).items())
    peers = ", ".join(line.removeprefix("peer ") for line in of_comments if line.startswith("peer "))
    return [f"{text} With those of `first_run`, beside {peers}: {means} ({source(of_comments, first, gpu)})."]


def decode_ratios(rows):
    """{heads: the fastest peer's time relative to attnforge's at each point}"""
    points, ratios = collections.defaultdict(dict), collections.defaultdict(list)
    for row in rows:
        if row["ms"]:
            points[tuple(row[column] for column in ("num_heads_q", "num_heads_kv", "batch", "seqlen_kv", "head_dim"))][row["impl"]] = row
    for (heads, heads_kv, *_), of_point in points.items():
        theirs = [float(row["ms"]) for impl, row in of_point.items() if impl != "attnforge"]
        if "attnforge" in of_point and theirs:
            ratios[f"{heads}:{heads_kv}"].append(min(theirs) / float(of_point["attnforge"]["ms"]))
    return ratios


def decode():
    """One query against a long cache: times, and what of the memory's bandwidth they are."""
    name = "decode.csv"
    comments, rows = read(name)
    points = collections.defaultdict(dict)
    for row in rows:
        if row["ms"]:
            points[tuple(row[column] for column in ("num_heads_q", "num_heads_kv", "batch", "seqlen_kv", "head_dim"))][row["impl"]] = row
    peers = list(dict.fromkeys(row["impl"] for row in rows if row["impl"] != "attnforge"))
    table = []
    for (heads, heads_kv, batch, keys, head_dim), of_point in points.items():
        ours = of_point["attnforge"]
        cache_bytes = 2 * 2 * int(batch) * int(heads_kv) * int(keys) * int(head_dim)
        ratio = min(float(of_point[peer]["ms"]) for peer in peers if peer in of_point) / float(ours["ms"])
        theirs = [f"{1e3 * float(of_point[peer]['ms']):.1f}" if peer in of_point else "" for peer in peers]
        table.append([f"{heads}:{heads_kv}", batch, keys, f"{1e3 * float(ours['ms']):.1f}", f"{cache_bytes / float(ours['ms']) / 1e9:.2f}",
                      *theirs, f"{ratio:.2f}x"])
    means = "; ".join(f"{heads}: geometric mean {statistics.geometric_mean(each):.2f}x, least {min(each):.3f}x" for heads, each in decode_ratios(rows).items())
    header = ["heads", "batch", "keys", "attnforge, us", "TB/s of the cache", *[f"{peer}, us" for peer in peers], "fastest peer / attnforge"]
    return "\n\n".join([f"Of the fastest peer at each point, {means}. {peers_sentence(comments, rows)}", *chosen_sentence(comments, name, decode_ratios), markdown(header, table), source(comments, name)])


SERVING_COLUMNS = {
    "attnforge": "pages, us",
    "one piece": "one piece, us",
    "dense": "dense, us",
    "fa3": "FA3, pages, us",
    "flashinfer": "FlashInfer, pages, us",
    "fa3, one piece": "FA3, one piece, us",
}


def serving_ratios(rows):
    """{case: attnforge's speed on pages relative to the fastest peer's at each point}"""
    ratios = collections.defaultdict(list)
    for (case, heads, heads_kv, *_), of_point in serving_peers.points_of(rows).items():
        best, ratio = serving_peers.best_in_pages(of_point)
        if best:
            ratios[f"{case} {heads}:{heads_kv}" if case == "decode" else case].append(ratio)
    return ratios


def serving():
    """Caches in pages beside those in one piece, and beside whoever else was in the run."""
    comments, rows = read("serving.csv")
    points, ratios = serving_peers.points_of(rows), serving_ratios(rows)
    names = [name for name in SERVING_COLUMNS if any(name in of_point for of_point in points.values())]
    table = []
    for point, of_point in points.items():
        case, heads, heads_kv, batch, queries, keys, page_size = point
        times = [f"{1e3 * float(of_point[name]['ms']):.1f}" if name in of_point else "" for name in names]
        best, ratio = serving_peers.best_in_pages(of_point)
        table.append([case, f"{heads}:{heads_kv}", batch, queries, keys, page_size, *times, f"{ratio:.2f}x" if best else ""])
    header = ["case", "heads", "sequences", "queries of each", "keys of all", "page_size", *(SERVING_COLUMNS[name] for name in names)]
    header.append("fastest peer in pages / pages")
    parts = []
    if ratios:
        means = [f"{group}: geometric mean {statistics.geometric_mean(each):.2f}x, least {min(each):.3f}x" for group, each in ratios.items()]
        parts.append(f"Of the fastest peer in pages, {'; '.join(means)}.")
        parts += chosen_sentence(comments, "serving.csv", serving_ratios)
        parts.append(f"{'; '.join(line for line in comments if line.startswith('peer '))}.")
    else:  # no column without a number
        header, table = header[:-1], [row[:-1] for row in table]
    return "\n\n".join([*parts, markdown(header, table), source(comments, "serving.csv")])


STRATEGIES = ("standard", "variable_block", "split_head_dims")


def strategies():
    """Ways to deal with a head dim, in us, and relative to exact head dims."""
    times = collections.defaultdict(dict)
    rows = read("strategies.csv")[1]
    for row in rows:
        asked = row["asked"].replace("split_k", "split_head_dims")  # the name of older rows
        times[int(row["head_dim"])][asked] = (float(row["time_us"]), float(row["padding_waste"]))
    table = []
    for dim, found in sorted(times.items()):
        exact, zeros = found["variable_block"]
        each = [f"{us:.0f}" + (f" ({us / exact:.2f}x)" if us != exact else "") for us, _ in (found[name] for name in STRATEGIES)]
        table.append([dim, f"{zeros:.1%}", *each])
    return "\n\n".join([markdown(["head_dim", "zeros in padded products", *STRATEGIES], table), in_results(rows, "strategies.csv")])


def head_dims():
    """Exact head dims beside the next power of two as a problem of its own."""
    rows = read("head_dims.csv")[1]
    times = {int(row["head_dim"]): float(row["time_us"]) for row in rows}
    table = []
    for dim, us in sorted(times.items()):
        power = 1 << (dim - 1).bit_length()
        if power != dim:
            table.append([dim, f"{us:.0f}", f"{power}: {times[power]:.0f}", f"{1 - us / times[power]:.1%}"])
    header = ["head_dim", "us", "next power of two: us", "share of its time that exact head dims save"]
    return "\n\n".join([markdown(header, table), in_results(rows, "head_dims.csv")])


def in_results(rows, name):
    return f"{rows[0]['gpu']}, {rows[0]['date'][:10]}, all numbers in bench/results/h200/{name}."


# A table without its file is empty.
README_TABLES = {
    "hopper": hopper,
    "peers_main": peers_main,
    "varlen": varlen,
    "masks": masks,
    "host": host,
    "first_run": first_run,
}
PAGES = {
    "README.md": README_TABLES,
    "docs/HOPPER.md": {"hopper_groups": hopper_groups},
    "docs/MEASURING.md": {"hopper_peers": hopper_peers, "mask_runs": mask_runs, "decode": decode, "serving": serving},
    "docs/TRAINING.md": {"backward_h100": functools.partial(backward, "h100"), "backward": backward},
    "docs/LADDER.md": {"ladder": ladder, "lineage": lineage},
    "docs/HEAD_DIMS.md": {"strategies": strategies, "head_dims": head_dims, "peers_odd": peers_odd},
}


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a page differs")
    check = parser.parse_args().check
    for page, tables in PAGES.items():
        old = (ROOT / page).read_text()
        new = render(page, old, tables)
        if not check:
            (ROOT / page).write_text(new)
        elif new != old:
            raise SystemExit(f"{page} differs from bench/results; run python3 bench/tables.py")


if __name__ == "__main__":
    main()
