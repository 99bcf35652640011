"""Writes the tables of docs/NUMBERS.md and the main result in README.md from the CSV files of bench/results.

    python3 bench/tables.py           # rewrites what stands between the <!-- table ... --> marks
    python3 bench/tables.py --check   # fails when a page does not say what the results say
"""

import collections
import pathlib
import re
import statistics
import sys

import figures
import peer_kernels
import serving_peers

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = figures.RESULTS
sys.path.append(str(ROOT / "tools"))

import written  # noqa: E402

MASKS = ("full", "causal")


def read(name, gpu="h200"):
    """(header comments, rows as dicts) of a CSV file."""
    return figures.read_csv(RESULTS / gpu / name)


def page(*parts):
    """Paragraphs and tables."""
    return "\n\n".join(filter(None, parts))


def markdown(header, rows):
    lines = ["| " + " | ".join(map(str, header)) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def source(comments, name, gpu="h200"):
    """The GPU, and the file that has every number, the machine, the versions and the command."""
    return f"{comments[0].split(',')[0]}: bench/results/{gpu}/{name}."


def versions(comments, rows):
    """{"fa3": "fa3-fwd 0.0.3", ...} of the peers that have a time in the run; files of earlier versions name torch alone."""
    known, torch = figures.peers_in(comments), comments[0].split(", ")[2]
    timed = dict.fromkeys(row["impl"] for row in rows if row["ms"] and row["impl"] != "attnforge")
    return {name: known.get(name) or by_torch(name, torch) for name in timed}


def by_torch(name, torch):
    """The version of a peer of which a file names the torch alone, and what another run of the same torch had."""
    version = figures.peers_in(read("hopper.csv")[0]).get(name, "")
    return f"{torch}; another run of it had {version.removeprefix(f'{torch}, ')}" if version.startswith(f"{torch}, ") else torch


def timed_sentence(comments, rows):
    """Who was timed."""
    timed = "; ".join(f"{name} ({version})" for name, version in versions(comments, rows).items())
    return f"Timed in the same shuffled rounds: {timed or 'no peer'}"


def missing_sentence(comments, rows):
    """Who was not."""
    said = [line.split(": ")[1] for line in comments if line.startswith("not in the run: ")]
    timed = {"attnforge", *versions(comments, rows)}
    missing = [name for name in dict.fromkeys([*said, *(row["impl"] for row in rows), *peer_kernels.DEFAULT]) if name not in timed]
    return f" Not in the run: {', '.join(missing)}." if missing else ""


def each_peer(found):
    """The speed relative to each peer by itself, over the points that it has."""
    return ", ".join(f"{statistics.geometric_mean(each):.3f}x {peer} (least {min(each):.2f}x)" for peer, each in figures.per_peer(found).items())


def peers_main():
    name = "peers_main.csv"
    comments, rows = read(name)
    found = figures.all_ratios(rows)
    tflops = tflops_of(rows)
    cells = collections.defaultdict(dict)
    for p in sorted(found, key=lambda p: (p.head_dim, p.causal)):
        cells[f"{p.head_dim} {MASKS[p.causal]}"][p.seqlen_q] = f"{tflops[p]:.0f} ({found[p]['torch-flash']:.2f}x)"
    means = [
        f"{statistics.geometric_mean(each):.2f}x {peer} ({min(each):.2f}x to {max(each):.2f}x)" for peer, each in figures.per_peer(found).items()
    ]
    return page(
        "The kernel of other GPUs, `fwd_mma_sm80`, forced on a Hopper, where plans take another at these sizes: it uses no instruction that"
        " Hopper alone has, cuDNN does. Forward, bf16, 16384 tokens, hidden size 2048: TFLOP/s, and in brackets the speed relative to"
        f" PyTorch's FlashAttention-2 in the same run. Geometric means of attnforge's speed: {', '.join(means)}."
        f" {timed_sentence(comments, rows)}.",
        by_length("head_dim \\ seqlen", cells),
        source(comments, name),
    )


def tflops_of(rows):
    """{point: TFLOP/s} of attnforge."""
    return {figures.point_of(row): float(row["tflops"]) for row in rows if row["impl"] == "attnforge" and row["ms"]}


def by_length(corner, cells):
    """A table of {row: {seqlen: text}}."""
    lengths = sorted({length for row in cells.values() for length in row})
    return markdown([corner, *lengths], [[label, *(row.get(length, "") for length in lengths)] for label, row in cells.items()])


def varlen():
    """Packed sequences of several distributions of lengths, beside the peers' kernels for them and beside equal sequences."""
    name = "varlen.csv"
    comments, rows = read(name)
    known = {"dense": "its own dense kernel on equal sequences of the same work", **figures.peers_in(comments)}
    ratios = figures.grouped((row["impl"], float(row["ratio"])) for row in rows if row["impl"] in known and row["ratio"])
    means = [f"{statistics.geometric_mean(each):.3f}x {known[impl]}, least {min(each):.3f}x" for impl, each in ratios.items()]
    of_others = {(row["distribution"], row["causal"], row["impl"]): f"{row['ratio']}x" for row in rows if row["ratio"]}
    table = []
    for row in rows:
        if row["impl"] == "attnforge":
            label = f"{row['distribution'].replace('_', ' ')}, {row['sequences']} up to {row['longest']}"
            others = [of_others.get((row["distribution"], row["causal"], impl), "") for impl in known]
            table.append([label, MASKS[int(row["causal"])], row["tflops"].split(".")[0], *others])
    first = rows[0]
    return page(
        f"Packed sequences, {first['tokens']} tokens, {first['heads']} heads of {first['head_dim']}: TFLOP/s, and the speed relative"
        f" to others in the same run. Geometric means: {'; '.join(means)}.",
        markdown(["lengths", "mask", "attnforge", *known], table),
        source(comments, name),
    )


LISTS = {"sm80": "bwd_mma_sm80, forced"}  # names for readers, where a list's own says too little


def backward_cells(rows):
    """{row: {length: text}} of the grid. A point measured again counts as it was last."""
    cells = collections.defaultdict(dict)
    of_grid = [row for row in rows if row["list"] == "grid" and row["impl"] == "attnforge" and row["ms"]]
    for row in sorted(of_grid, key=lambda row: (int(row["head_dim"]), row["causal"])):
        ratio = f" ({float(row['ratio_to_best_peer']):.2f}x)" if row["ratio_to_best_peer"] else ""
        cells[f"{row['head_dim']} {MASKS[int(row['causal'])]}"][int(row["seqlen_q"])] = f"{row['tflops'].split('.')[0]}{ratio}"
    return cells


def backward_means(rows):
    """A row for each list, and for each head dim of those that have few."""
    means = []
    for of_list, each_row in figures.grouped((row["list"], row) for row in rows).items():
        dims = sorted({int(row["head_dim"]) for row in each_row})
        for some in [dims] if len(dims) > 3 or of_list == "deterministic" else [[dim] for dim in dims]:
            best, untuned, count = figures.best_and_untuned([row for row in each_row if int(row["head_dim"]) in some])
            texts = [
                figures.mean_and_least(each, ".3f").removeprefix("geometric mean ") if each else "" for each in (list(best.values()), untuned)
            ]
            means.append([LISTS.get(of_list, of_list.replace("_", " ")), ", ".join(map(str, some)), count, *texts])
    return means


def backward():
    """The grid by head dim, mask and length; means of every list of bench/backward.py."""
    name, gpu = "backward.csv", "h100"
    comments, rows = read(name, gpu)
    timed = [f"{peer} ({version})" for peer, version in figures.peers_in(comments).items() if any(row["impl"] == peer and row["ms"] for row in rows)]
    return page(
        "Backward passes, bf16, 16384 tokens, hidden size 2048: TFLOP/s by 2.5 times the forward's products, in brackets the speed relative "
        f"to the fastest of the others at that point in the same run: {'; '.join(timed) or 'none'}.",
        by_length("head_dim", backward_cells(rows)),
        markdown(["list", "head_dim", "points", "relative to the fastest peer", "untuned relative to tuned"], backward_means(rows)),
        source(comments, name, gpu),
    )


def label_of(point):
    dims = f"{point.head_dim}" if point.head_dim == point.head_dim_v else f"{point.head_dim}:{point.head_dim_v}"
    heads = "" if point.num_heads_q == point.num_heads_kv else f", heads {point.num_heads_q}:{point.num_heads_kv}"
    return f"{dims} {MASKS[point.causal]}{heads}"


def hopper():
    name = "hopper.csv"
    comments, rows = read(name)
    tflops, found = tflops_of(rows), figures.all_ratios(rows)
    best = figures.best_ratios(found)
    cells, others = collections.defaultdict(dict), collections.defaultdict(dict)
    for point in sorted(tflops, key=lambda p: (p.head_dim, p.head_dim_v, p.num_heads_q, p.causal, p.seqlen_q)):
        cell = f"{tflops[point]:.0f} ({f'{best[point]:.2f}x' if point in best else 'no peer'})"
        if figures.odd(point, (40, 48, 72, 80, 96, 112, 160, 192)):
            others[point.head_dim][point.causal] = cell
        else:
            cells[label_of(point)][point.seqlen_q] = cell
    more = [[dim, row.get(0, ""), row.get(1, "")] for dim, row in others.items()]
    return page(
        "Forward on Hopper, bf16: TFLOP/s, and in brackets the speed relative to the fastest peer in the same run.",
        f"{timed_sentence(comments, rows)}.{missing_sentence(comments, rows)}",
        f"Head dims 64, 128 and 256, 16384 tokens: {figures.claim({point: ratio for point, ratio in best.items() if figures.grid(point)})}",
        f"All: {figures.claim(best)} Each peer by itself: {each_peer(found) or 'none'}.",
        by_length("head_dim \\ seqlen", cells),
        markdown(["head_dim, seqlen 4096", *MASKS], more) if more else "",
        source(comments, name),
    )


def host():
    comments, rows = read("host.csv")
    single = [row for row in rows if row["what"].startswith("NVRTC compile, one core")]
    table = [[row["what"], row["limit"], row["measured"]] for row in rows if row not in single]
    if single:
        times = sorted(int(row["measured"].split()[0]) for row in single)
        table.insert(4, [f"NVRTC compile, one core, no cache, {len(single)} problems", single[0]["limit"], f"{times[0]} to {times[-1]} ms"])
    return page(markdown(["host cost", "goal", "measured"], table), source(comments, "host.csv"))


def first_run():
    name = "first_run.csv"
    comments, rows = read(name)
    seconds, loss, gain = ([float(row[column]) for row in rows] for column in ("first_run_s", "loss", "gain"))
    space, fleet = [int(row["space"]) for row in rows], read("fleet.csv")[1]
    of_fleet = ", ".join(f"{float(row['seconds']):.0f} s on {row['gpus']} ({row['cores']} cores)" for row in fleet)
    return (
        f"Tuning on a first run, {len(rows)} problems of {min(space)} to {max(space)} configs:"
        f" {min(seconds):.1f} to {max(seconds):.1f} s, at most {max(loss):.1%} slower than the best of all configs,"
        f" {min(gain):.2f}x to {max(gain):.2f}x as fast as untuned. {source(comments, name)}"
        f" `tune --rigor quick` of {fleet[0]['problems']} drawn serving shapes, on GPUs: {of_fleet} (`fleet.csv`)."
    )


MASK_FORMS = {"causal": "mask text", "causal, soft cap 30": "score text", "causal, ALiBi": "score text",
              "sliding window of 1024": "window", "documents, causal": "mask text"}
OTHER_FORMS = {"built in": "built in", "text": "mask text", "packed": "packed sequences"}


def flex_ratios(rows):
    """{case: attnforge's speed relative to FlexAttention}"""
    found = figures.all_ratios(rows, lambda row: row["case"])
    return {case: known["flex"] for case, known in found.items() if "flex" in known}


def masks():
    """Masks and user code beside FlexAttention in one run, and beside the same problem in another form."""
    names = ("masks.csv", "masks_texts.csv")
    runs = [figures.grouped((row["case"], row) for row in read(name)[1]) for name in names]
    table, speedups = [], []
    for case in dict.fromkeys(case for run in runs for case in run):
        of_runs = [{row["impl"]: row for row in run[case]} for run in reversed(runs) if case in run]  # the later first
        impls = next((impls for impls in of_runs if "flex" in impls), of_runs[0])
        ours, flex = impls["attnforge"], impls.get("flex")
        if flex:
            speedups.append(float(flex["ms"]) / float(ours["ms"]))
        forms = []
        for impl, words in OTHER_FORMS.items():
            other = next((impls for impls in of_runs if impl in impls), None)
            if other:
                relative = float(other[impl]["ms"]) / float(other["attnforge"]["ms"])
                forms.append(f"{words}: {float(other[impl]['tflops']):.0f} ({relative:.2f}x)")
        form = MASK_FORMS.get(case, "block mask" if case.startswith("blocks") else "")
        beside = [f"{float(flex['tflops']):.0f}", f"{speedups[-1]:.2f}x"] if flex else ["", ""]
        table.append([case, form, f"{float(ours['density']):.0%}", f"{float(ours['tflops']):.0f}", *beside, ", ".join(forms)])
    return page(
        "Masks and code of the user's, bf16, batch 2, 16 heads of 128, 8192 tokens (documents: 16384 of one sequence): TFLOP/s of the"
        " pairs that the mask keeps, and the speed relative to FlexAttention, compiled by torch with its"
        f" Triton backend and max-autotune, in the same run: {figures.mean_and_least(speedups, least='.2f')}."
        " Last column: the same problem written in another way, in brackets this row's speed relative to that.",
        markdown(["mask or score", "written as", "pairs kept", "attnforge", "FlexAttention", "speed-up", "written otherwise"], table),
        small_masks("masks_small.csv"),
        " ".join(source(read(name)[0], name) for name in names),
    )


def small_masks(name):
    """Where lists cost more than they save."""
    dense, masked = {}, []
    for row in read(name)[1]:
        words = dict(word.split("=") for word in row["problem"].split()[2:])
        size, time_us = (words["seqlen_q"], words["head_dim"]), float(row["time_us"])
        if "blocks" in words:
            masked.append((size, words["blocks"].split(":")[0], time_us))
        else:
            dense[size] = time_us
    slower = [block for size, block, time_us in masked if time_us >= dense[size]]
    of_16 = slower.count("16")
    return (
        f"Small problems (8 heads, 1024 and 2048 tokens, head dims 128 and 256, random blocks, untuned): {len(masked) - len(slower)} of {len(masked)}"
        f" are faster than without a mask; not so {of_16} with blocks of 16 and {len(slower) - of_16} others: bench/results/h200/{name}."
    )


def means_of(ratios):
    return "; ".join(f"{group}: {figures.mean_and_least(each)}" for group, each in ratios.items())


def chosen_sentence(comments, name, ratios_of):
    """Whose configs were tried at each point, and what a first call finds, where that was measured."""
    number = re.search(r"--choose (\d+)", comments[1])
    if not number:
        return ""
    text = f"Configs are the fastest of {number[1]} (or of an earlier run) on a point's own lengths, which no plan of a user's tries."
    first = name.replace(".csv", "_first_run.csv")
    gpu = next((each for each in ("h200", "h100") if (RESULTS / each / first).exists()), None)
    if gpu is None:
        return f"{text} What `first_run` finds was not measured in a run of its own."
    of_comments, rows = figures.read_csv(RESULTS / gpu / first)
    peers = ", ".join(f"{peer}: {version}" for peer, version in figures.peers_in(of_comments).items())
    return f"{text} With those of `first_run`, beside {peers}: {means_of(ratios_of(rows))} ({source(of_comments, first, gpu)[:-1]})."


def decode_ratios(rows):
    """{heads: attnforge's speed relative to the fastest peer's at each point}"""
    best = figures.best_ratios(figures.all_ratios(rows))
    return figures.grouped((f"{p.num_heads_q}:{p.num_heads_kv}", ratio) for p, ratio in best.items())


def us_of(ms, names):
    return [f"{1e3 * ms[name]:.1f}" if name in ms else "" for name in names]


def decode():
    """One query against a long cache: times, and what of the memory's bandwidth they are."""
    name = "decode.csv"
    comments, rows = read(name)
    peers = list(dict.fromkeys(row["impl"] for row in rows if row["impl"] != "attnforge"))
    best = figures.best_ratios(figures.all_ratios(rows))
    table = []
    for p, ms in figures.times(rows).items():
        cache_bytes = 2 * 2 * p.batch * p.num_heads_kv * p.seqlen_kv * p.head_dim
        ours, *theirs = us_of(ms, ["attnforge", *peers])
        bandwidth = f"{cache_bytes / ms['attnforge'] / 1e9:.2f}"
        table.append([f"{p.num_heads_q}:{p.num_heads_kv}", p.batch, p.seqlen_kv, ours, bandwidth, *theirs, f"{best[p]:.2f}x"])
    header = ["heads", "batch", "keys", "attnforge, us", "TB/s of the cache", *[f"{peer}, us" for peer in peers], "fastest peer / attnforge"]
    return page(
        f"Of the fastest peer at each point, {means_of(decode_ratios(rows))}. {timed_sentence(comments, rows)}.",
        chosen_sentence(comments, name, decode_ratios),
        markdown(header, table),
        source(comments, name),
    )


def kind_of_drawn(row):
    """The line of a table that a row of bench/drawn.py belongs to."""
    if "page_size" in row:
        new = "1 new token" if row["seqlen_q"] == "1" else "2 to 8 new tokens"
        return f"{'pages' if row['page_size'] != '0' else 'one piece'}, {new}"
    if row["packed"] == "1":
        return "packed rows"
    if row["window_left"] != "-1" or float(row["softcap"]):
        return "windows and soft caps"
    if row["queries"] != row["keys"]:
        return "more or fewer keys than queries"
    return MASKS[int(row["causal"])]


def drawn_ratios(rows, impl):
    """{kind of point: speed of `impl` relative to the fastest peer's at each}"""
    return figures.grouped((kind_of_drawn(row), float(row["ratio_to_best_peer"])) for row in rows if row["impl"] == impl and row["ratio_to_best_peer"])


def drawn():
    """Problems that a seed drew: what a first call finds, and what plans take before one."""
    cells = lambda ratios: [f"{statistics.geometric_mean(ratios):.2f}x", f"{min(ratios):.3f}x"] if ratios else ["", ""]
    files = {what: read(f"drawn_{what}.csv")[1] for what in ("decode", "forward", "backward")}
    files |= {f"{what}, any heads": read(f"drawn_any_{what}.csv")[1] for what in ("decode", "forward")}
    names = {"attnforge": "`first_run`", "estimate": "untuned"}
    table = []
    for what, rows in files.items():
        found = [drawn_ratios(rows, impl) for impl in names]
        found = [{**(each if what == "decode" else {}), what: [ratio for ratios in each.values() for ratio in ratios]} for each in found]
        table += [[kind, len(ratios), *(cell for each in found for cell in cells(each.get(kind)))] for kind, ratios in found[0].items()]
    header = ["", "points", *(cell for name in names.values() for cell in (name, "least"))]
    said = [f"{what}: {line}." for what, rows in files.items() for line in figures.without_winner(rows)]
    return page(markdown(header, table), *said)


def low_bits():
    """Caches of fewer bits beside bf16, and beside whoever reads e4m3; nothing before they are measured."""
    names = [name for name in ("low_bits.csv", "low_bits_peers.csv") if (RESULTS / "h200" / name).exists()]
    files = {name: read(name) for name in names}
    rows, beside = (files.get(name, ([], []))[1] for name in ("low_bits.csv", "low_bits_peers.csv"))
    name_of = lambda row: " ".join(filter(None, (row["format"], row["scale"])))
    ours = lambda rows, column: [(name_of(row), row) for row in rows if row["impl"] == "attnforge" and row[column]]
    found, grid = figures.grouped(pair for pair in ours(rows, "speed") if pair[0] != "bf16"), "32:8 head_dim 128, 64 x 8192, 1 new, pages of 16"
    at = {name: row for name, row in ours(rows, "ms") if row["point"] == grid}
    table = []
    for name, each in found.items():
        speeds = [float(row["speed"]) for row in each]
        there = [f"{1000 * float(at[name]['ms']):.0f}", at[name]["of_copy"]] if name in at else ["", ""]
        table.append([name, *there, f"{statistics.geometric_mean(speeds):.2f}x, {min(speeds):.2f}x"])
    parts = [markdown(["format", "64 x 8192 in pages, us", "of a copy", "mean and least speed beside bf16"], table)] if table else []
    ratios = figures.grouped((name, float(row["ratio_to_best_peer"])) for name, row in ours(beside, "ratio_to_best_peer"))
    said = [f"{name}: {figures.mean_and_least(each)}, {len(each)} points" for name, each in ratios.items()]
    parts += [f"Beside the fastest peer on e4m3: {'; '.join(said)}."] if said else []
    return page(*parts, *(source(comments, name) for name, (comments, _) in files.items()))


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
    best = figures.best_ratios(serving_peers.ratios_in_pages(rows))
    return figures.grouped((f"{case} {heads}:{heads_kv}" if case == "decode" else case, ratio) for (case, heads, heads_kv, *_), ratio in best.items())


def serving():
    """Caches in pages beside those in one piece, and beside whoever else was in the run."""
    comments, rows = read("serving.csv")
    points, ratios = figures.times(rows, serving_peers.point_of), serving_ratios(rows)
    best = figures.best_ratios(serving_peers.ratios_in_pages(rows))
    names = [name for name in SERVING_COLUMNS if any(name in ms for ms in points.values())]
    table = []
    for point, ms in points.items():
        case, heads, heads_kv, batch, queries, keys, page_size = point
        last = [f"{best[point]:.2f}x" if point in best else ""] if ratios else []  # no column without a number
        table.append([case, f"{heads}:{heads_kv}", f"{batch} x {queries}", keys, page_size, *us_of(ms, names), *last])
    header = ["case", "heads", "sequences x queries", "keys of all", "page_size", *(SERVING_COLUMNS[name] for name in names)]
    parts = []
    if ratios:
        header.append("fastest peer in pages / pages")
        means = means_of({group: each for group, each in ratios.items() if len(each) > 1 or len(ratios) == 1})
        parts = [f"Of the fastest peer in pages, {means}.", chosen_sentence(comments, "serving.csv", serving_ratios)]
        parts.append(f"{'; '.join(line for line in comments if line.startswith('peer '))}.")
    return page(*parts, markdown(header, table), source(comments, "serving.csv"))


def of_drawn(what):
    """attnforge's speed relative to the fastest peer's at each drawn point."""
    return [ratio for each in drawn_ratios(read(f"drawn_{what}.csv")[1], "attnforge").values() for ratio in each]


def speed():
    """The main result in one sentence."""
    listed = list(figures.best_ratios(figures.all_ratios(read("hopper.csv")[1])).values())
    said = lambda ratios, points: f"{statistics.geometric_mean(ratios):.2f}x over {len(ratios)} {points} (least {min(ratios):.3f}x)"
    return (
        f"Of the fastest peer's speed in the same run on an H200: forward {said(listed, 'listed points')} and {said(of_drawn('forward'), 'drawn ones')},"
        f" decode {said(of_drawn('decode'), 'drawn ones')}, gradients {said(of_drawn('backward'), 'drawn ones')}."
    )


def headline():
    """What README.md says of speed: a row for each kind of problem, made of the tables of docs/NUMBERS.md."""
    best = figures.best_ratios(figures.all_ratios(read("hopper.csv")[1]))
    old = figures.per_peer(figures.all_ratios(read("peers_main.csv")[1]))
    of_grid = [row for row in read("backward.csv", "h100")[1] if row["list"] == "grid"]
    table = [
        ["forward, head dims 64, 128, 256", "the fastest of cuDNN 9.19, FlashAttention-3 and 4", [ratio for point, ratio in best.items() if figures.grid(point)]],
        ["forward, other head dims, and 64 heads on 8", "the same, and FlashAttention-2", [ratio for point, ratio in best.items() if not figures.grid(point)]],
        ["packed sequences", "FlashAttention-3", [float(row["ratio"]) for row in read("varlen.csv")[1] if row["impl"] == "fa3" and row["ratio"]]],
        ["masks and score code", "FlexAttention (Triton)", list(flex_ratios(read("masks.csv")[1]).values())],
        ["forward, drawn problems, tuned by `first_run`", "the fastest of cuDNN, FlashAttention-3 and 4", of_drawn("forward")],
        ["decode, drawn problems, the same", "the fastest of FlashAttention-3, FlashInfer, XQA, cuDNN", of_drawn("decode")],
        ["gradients, drawn problems, the same", "the fastest of cuDNN, FlashAttention-4", of_drawn("backward")],
        ["gradients, head dims 64, 128, 256 (H100)", "the fastest of cuDNN, FlashAttention-2 and 4", list(figures.best_and_untuned(of_grid)[0].values())],
        ["`fwd_mma_sm80`, the kernel of other GPUs, forced", "FlashAttention-2", old["torch-flash"]],
        ["the same", "cuDNN", old["torch-cudnn"]],
        ["after tuning on a first run, at most 8 s", "attnforge untuned", [float(row["gain"]) for row in read("first_run.csv")[1]]],
    ]
    cells = [[what, beside, len(each), f"{statistics.geometric_mean(each):.2f}x", f"{min(each):.3f}x"] for what, beside, each in table]
    return markdown(["bf16, an H200", "beside, in the same run", "points", "speed, geometric mean", "least"], cells)


PAGES = {
    "README.md": {"speed": speed, "headline": headline},
    "docs/NUMBERS.md": {
        "hopper": hopper,
        "peers_main": peers_main,
        "varlen": varlen,
        "masks": masks,
        "decode": decode,
        "drawn": drawn,
        "serving": serving,
        "backward": backward,
        "first_run": first_run,
        "host": host,
    },
    "docs/BITS.md": {"low_bits": low_bits},
}


def render(page, text, tables):
    """The text with these tables between their marks."""
    made, shown = re.subn(r"(<!-- table (\w+) -->\n).*?(?=<!-- end -->)", lambda mark: f"{mark[1]}\n{tables[mark[2]]()}\n\n", text, flags=re.S)
    if shown != len(tables):
        raise SystemExit(f"{page} has marks around {shown} tables, not around {', '.join(tables)}")
    return made


def pages():
    """{path: text} of the pages."""
    return {ROOT / page: render(page, (ROOT / page).read_text(), tables) for page, tables in PAGES.items()}


if __name__ == "__main__":
    sys.exit(written.main(__doc__, pages, lambda path: f"{path.relative_to(ROOT)} differs from bench/results; run python3 bench/tables.py"))
