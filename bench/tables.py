"""Writes the tables of docs/NUMBERS.md and the headline of README.md from the CSV files of bench/results.

    python3 bench/tables.py           # rewrites what stands between the <!-- table ... --> marks
    python3 bench/tables.py --check   # fails when a page does not say what the results say
"""

import argparse
import collections
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
    """The GPU, and the file that has every number, the machine, the versions and the command."""
    return f"{comments[0].split(',')[0]}: bench/results/{gpu}/{name}."


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
            f" PyTorch's FlashAttention-2 in the same run. {means_sentence(rows)} {peers_sentence(comments, rows).split(' Not in the run')[0]}",
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


def backward_cells(rows):
    """(lengths, a row for each head dim and mask) of the grid. A point measured again counts as it was last."""
    found = {}
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
    return lengths, cells


def backward_means(rows):
    """A row for each list, and for each head dim of those that have few."""
    means = []
    for of_list in dict.fromkeys(row["list"] for row in rows):
        dims = sorted({int(row["head_dim"]) for row in rows if row["list"] == of_list})
        for some in [dims] if len(dims) > 3 or of_list == "deterministic" else [[dim] for dim in dims]:
            ratios, own = backward_ratios(rows, lambda row: row["list"] == of_list and int(row["head_dim"]) in some)
            best = list(figures.best_ratios(ratios).values())
            untuned = [1 / each["attnforge-untuned"] for each in own.values() if "attnforge-untuned" in each]
            texts = [f"{statistics.geometric_mean(each):.3f}x, least {min(each):.3f}x" if each else "" for each in (best, untuned)]
            means.append([LISTS.get(of_list, of_list.replace("_", " ")), ", ".join(map(str, some)), len(ratios), *texts])
    return means


def backward(gpu="h100"):
    """The grid by head dim, mask and length; means of every list of bench/backward.py, on that GPU."""
    path = RESULTS.parent / gpu / "backward.csv"
    if not path.exists():
        return ""
    comments, rows = read(path)
    lengths, cells = backward_cells(rows)
    known = dict(line.removeprefix("peer ").split(": ", 1) for line in comments if line.startswith("peer "))
    timed = [f"{peer} ({version})" for peer, version in known.items() if any(row["impl"] == peer and row["ms"] for row in rows)]
    parts = ["Backward passes, bf16, 16384 tokens, hidden size 2048: TFLOP/s by 2.5 times the forward's products, in brackets the speed relative "
             f"to the fastest of the others at that point in the same run: {'; '.join(timed) or 'none'}."]
    if cells:
        parts.append(markdown(["head_dim", *lengths], cells))
    parts.append(markdown(["list", "head_dim", "points", "relative to the fastest peer", "untuned relative to tuned"], backward_means(rows)))
    parts.append(source(comments, path.name, gpu))
    return "\n\n".join(parts)


def label_of(point):
    dims = f"{point.head_dim}" if point.head_dim == point.head_dim_v else f"{point.head_dim}:{point.head_dim_v}"
    heads = "" if point.num_heads_q == point.num_heads_kv else f", heads {point.num_heads_q}:{point.num_heads_kv}"
    return f"{dims} {'causal' if point.causal else 'full'}{heads}"


def in_table_order(points):
    return sorted(points, key=lambda p: (p.head_dim, p.head_dim_v, p.num_heads_q, p.causal, p.seqlen_q))


def each_peer(found):
    """The speed relative to each peer by itself, over the points that it has."""
    ratios = collections.defaultdict(list)
    for known in found.values():
        for peer, ratio in known.items():
            ratios[peer].append(ratio)
    means = [f"{statistics.geometric_mean(each):.3f}x {peer} (least {min(each):.2f}x)" for peer, each in ratios.items()]
    return f"Each peer by itself: {', '.join(means) or 'none'}."


def hopper():
    name = "hopper.csv"
    if not (RESULTS / name).exists():
        return ""
    comments, rows = read(name)
    tflops = {figures.point_of(row): float(row["tflops"]) for row in rows if row["impl"] == "attnforge" and row["ms"]}
    found = figures.all_ratios(rows)
    best = figures.best_ratios(found)
    lengths = sorted({point.seqlen_q for point in tflops})
    cells, others = collections.defaultdict(dict), collections.defaultdict(dict)
    for point in in_table_order(tflops):
        cell = f"{tflops[point]:.0f} ({f'{best[point]:.2f}x' if point in best else 'no peer'})"
        if figures.odd(point, (40, 48, 72, 80, 96, 112, 160, 192)):
            others[point.head_dim][point.causal] = cell
        else:
            cells[label_of(point)][point.seqlen_q] = cell
    table = [[label] + [row.get(length, "") for length in lengths] for label, row in cells.items()]
    more = [[dim, row.get(0, ""), row.get(1, "")] for dim, row in others.items()]
    main = {point: ratio for point, ratio in best.items() if figures.grid(point)}
    return "\n\n".join(
        [
            "Forward on Hopper, bf16: TFLOP/s, and in brackets the speed relative to the fastest peer in the same run.",
            peers_sentence(comments, rows),
            f"Head dims 64, 128 and 256, 16384 tokens: {figures.claim(main)}",
            f"All: {figures.claim(best)} {each_peer(found)}",
            markdown(["head_dim \\ seqlen"] + lengths, table),
            *([markdown(["head_dim, seqlen 4096", "full", "causal"], more)] if more else []),
            source(comments, name),
        ]
    )


def host():
    comments, rows = read("host.csv")
    single = [row for row in rows if row["what"].startswith("NVRTC compile, one core")]
    table = [[row["what"], row["limit"], row["measured"]] for row in rows if row not in single]
    if single:
        times = sorted(int(row["measured"].split()[0]) for row in single)
        table.insert(4, [f"NVRTC compile, one core, no cache, {len(single)} problems", single[0]["limit"], f"{times[0]} to {times[-1]} ms"])
    return "\n\n".join([markdown(["host cost", "goal", "measured"], table), source(comments, "host.csv")])


def first_run():
    name = "first_run.csv"
    comments, rows = read(name)
    seconds, loss, gain = ([float(row[column]) for row in rows] for column in ("first_run_s", "loss", "gain"))
    return (
        f"Tuning on a first run, {len(rows)} problems of {min(int(row['space']) for row in rows)} to {max(int(row['space']) for row in rows)} configs:"
        f" {min(seconds):.1f} to {max(seconds):.1f} s, at most {max(loss):.1%} slower than the best of all configs,"
        f" {min(gain):.2f}x to {max(gain):.2f}x as fast as untuned. {source(comments, name)}"
    )


MASK_FORMS = {"causal": "mask text", "causal, soft cap 30": "score text", "causal, ALiBi": "score text",
              "sliding window of 1024": "window", "documents, causal": "mask text"}
OTHER_FORMS = {"built in": "built in", "text": "mask text", "packed": "packed sequences"}


def masks():
    """Masks and user code beside FlexAttention in one run, and beside the same problem in another form."""
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
             f"{ratios[-1]:.2f}x" if flex else "", ", ".join(forms)]
        )
    comments, later_comments = read(name)[0], read(later_name)[0]
    return "\n\n".join(
        [
            "Masks and code of the user's, bf16, batch 2, 16 heads of 128, 8192 tokens (documents: 16384 of one sequence): TFLOP/s of the"
            " pairs that the mask keeps, and the speed relative to FlexAttention, compiled by torch with its"
            " Triton backend and max-autotune, in the same run: geometric mean"
            f" {statistics.geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x. Last column: the same problem written in another way, in brackets this row's speed relative to that.",
            markdown(["mask or score", "written as", "pairs kept", "attnforge", "FlexAttention", "speed-up", "written otherwise"], table),
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
    of_16 = sum(each[1] == "16" for each in slower)
    return (
        f"Small problems (8 heads, 1024 and 2048 tokens, head dims 128 and 256, random blocks, untuned): {len(masked) - len(slower)} of {len(masked)}"
        f" are faster than without a mask; not so {of_16} with blocks of 16 and {len(slower) - of_16} others: bench/results/h200/{name}."
    )


def chosen_sentence(comments, name, ratios_of):
    """Whose configs were tried at each point, and what a first call finds, where that was measured."""
    number = re.search(r"--choose (\d+)", comments[1])
    if not number:
        return []
    text = f"Configs are the fastest of {number[1]} (or of an earlier run) on a point's own lengths, which no plan of a user's tries."
    first = name.replace(".csv", "_first_run.csv")
    gpu = next((each for each in ("h200", "h100") if (RESULTS.parent / each / first).exists()), None)
    if gpu is None:
        return [f"{text} What `first_run` finds was not measured in a run of its own."]
    of_comments, rows = figures.read_csv(RESULTS.parent / gpu / first)
    means = "; ".join(f"{group}: geometric mean {statistics.geometric_mean(each):.2f}x, least {min(each):.3f}x" for group, each in ratios_of(rows).items())
    peers = ", ".join(line.removeprefix("peer ") for line in of_comments if line.startswith("peer "))
    return [f"{text} With those of `first_run`, beside {peers}: {means} ({source(of_comments, first, gpu)[:-1]})."]


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
    return "\n\n".join([f"Of the fastest peer at each point, {means}. {peers_sentence(comments, rows).split(' Not in the run')[0]}", *chosen_sentence(comments, name, decode_ratios), markdown(header, table), source(comments, name)])


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
        table.append([case, f"{heads}:{heads_kv}", f"{batch} x {queries}", keys, page_size, *times, f"{ratio:.2f}x" if best else ""])
    header = ["case", "heads", "sequences x queries", "keys of all", "page_size", *(SERVING_COLUMNS[name] for name in names)]
    header.append("fastest peer in pages / pages")
    parts = []
    if ratios:
        means = [f"{group}: geometric mean {statistics.geometric_mean(each):.2f}x, least {min(each):.3f}x"
                 for group, each in ratios.items() if len(each) > 1 or len(ratios) == 1]
        parts.append(f"Of the fastest peer in pages, {'; '.join(means)}.")
        parts += chosen_sentence(comments, "serving.csv", serving_ratios)
        parts.append(f"{'; '.join(line for line in comments if line.startswith('peer '))}.")
    else:  # no column without a number
        header, table = header[:-1], [row[:-1] for row in table]
    return "\n\n".join([*parts, markdown(header, table), source(comments, "serving.csv")])


def headline():
    """What README.md says of speed: a row for each kind of problem, made of the tables of docs/NUMBERS.md."""
    best = figures.best_ratios(figures.all_ratios(read("hopper.csv")[1]))
    in_grid = [ratio for point, ratio in best.items() if figures.grid(point)]
    others = [ratio for point, ratio in best.items() if not figures.grid(point)]
    packed = [float(row["ratio"]) for row in read("varlen.csv")[1] if row["impl"] == "fa3" and row["ratio"]]
    by_case = collections.defaultdict(dict)
    for row in read("masks.csv")[1]:
        by_case[row["case"]][row["impl"]] = float(row["ms"])
    flex = [case["flex"] / case["attnforge"] for case in by_case.values() if "flex" in case]
    h100 = RESULTS.parent / "h100"
    in_pages = serving_ratios(figures.read_csv(h100 / "serving_first_run.csv")[1])
    old = figures.per_peer(read("peers_main.csv")[1])
    backward_rows = figures.read_csv(h100 / "backward.csv")[1]
    gradients = list(figures.best_ratios(backward_ratios(backward_rows, lambda row: row["list"] == "grid")[0]).values())
    untuned = [float(row["gain"]) for row in read("first_run.csv")[1]]
    table = [
        ["forward, head dims 64, 128, 256", "the fastest of cuDNN 9.19, FlashAttention-3 and 4", in_grid],
        ["forward, other head dims, and 64 heads on 8", "the same, and FlashAttention-2", others],
        ["packed sequences", "FlashAttention-3", packed],
        ["masks and score code", "FlexAttention (Triton)", flex],
        ["decode in pages, tuned by `first_run` (H100)", "FlashAttention-3", [ratio for each in in_pages.values() for ratio in each]],
        ["gradients, head dims 64, 128, 256 (H100)", "the fastest of cuDNN, FlashAttention-2 and 4", gradients],
        ["`fwd_mma_sm80`, the kernel of other GPUs, forced", "FlashAttention-2", old["torch-flash"]],
        ["the same", "cuDNN", old["torch-cudnn"]],
        ["after tuning on a first run, at most 8 s", "attnforge untuned", untuned],
    ]
    cells = [[what, beside, len(each), f"{statistics.geometric_mean(each):.2f}x", f"{min(each):.3f}x"] for what, beside, each in table]
    return markdown(["bf16, an H200", "beside, in the same run", "points", "speed, geometric mean", "least"], cells)


# A table without its file is empty.
PAGES = {
    "README.md": {"headline": headline},
    "docs/NUMBERS.md": {
        "hopper": hopper,
        "peers_main": peers_main,
        "varlen": varlen,
        "masks": masks,
        "decode": decode,
        "serving": serving,
        "backward": backward,
        "first_run": first_run,
        "host": host,
    },
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
