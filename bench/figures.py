"""What a run of bench/peers.py says: attnforge's speed relative to the peers timed beside it, and means over points.

Only times of the same run are compared: clocks and power differ from day to day, and kernels react to them differently.
"""

import collections
import csv
import pathlib
import statistics

Point = collections.namedtuple(
    "Point", "dtype batch num_heads_q num_heads_kv seqlen_q seqlen_kv head_dim head_dim_v causal"
)


# Of peers.py, and after "list" of backward.py. error: relative, to the output of one peer, or of gradients to fp32. late: samples that may
# hold time of the host. note: why there is no time, or of attnforge how its config came about.
COLUMNS = ["impl", *Point._fields, *"ms,tflops,ratio_to_best_peer,best_peer,error,rounds,spread,late,note,config".split(",")]
UNTUNED = "attnforge-untuned"  # with its model's first choice, a row of backward.py
NO_WINNER = "first_run found no winner"  # begins the note of attnforge in a row of drawn.py whose time is of another choice
RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def read_csv(path):
    """(header comments, rows as dicts) of a CSV file."""
    lines = pathlib.Path(path).read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ")]
    rows = [line for line in lines if line and not line.startswith("#")]
    return comments, list(csv.DictReader(rows))


def result_path(gpu, name):
    """bench/results/<gpu>/<name>.csv, in a folder that is there."""
    folder = RESULTS / gpu.lower().removeprefix("nvidia ").replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.csv"


def stored_configs(path, key):
    """{key(row): config} of the rows of attnforge in a file of peers.py or backward.py: of a key that comes again the last. No path: none."""
    rows = read_csv(path)[1] if path else []
    return {key(row): row["config"] for row in rows if row["impl"] == "attnforge" and row["config"]}


def configs_line(args):
    """What a file's header says of attnforge's configs."""
    if getattr(args, "choose", 0):
        return f"configs of attnforge: the fastest of {args.choose}{f' and those in {args.configs}' if args.configs else ''}"
    tuned = "not tuned" if args.tune == "none" else f"tuned ({args.tune})"
    return f"configs of attnforge: {f'those in {args.configs}, else ' if args.configs else ''}{tuned}"


def point_of(row):
    return Point(row["dtype"], *(int(row[name]) for name in Point._fields[1:]))


def without_winner(rows):
    """A line that says at how many points first_run found no winner; none if it always did."""
    points = {row["point"]: row["note"].startswith(NO_WINNER) for row in rows if row["impl"] == "attnforge" and row["ms"]}
    if any(points.values()):
        yield f"{NO_WINNER} at {sum(points.values())} of {len(points)} points: its time there is that of a choice like estimate's"


def problem_text(point, op, *words):
    """attnforge's problem of a point, with these words besides."""
    text = f"{op} {point.dtype} batch={point.batch} num_heads={point.num_heads_q}:{point.num_heads_kv}"
    text += f" seqlen={point.seqlen_q}:{point.seqlen_kv} head_dim={point.head_dim}:{point.head_dim_v}"
    return " ".join([text, *["causal"] * point.causal, *words])


def problem_of(row, *forward_words):
    """attnforge's problem of a row of peers.py, which was asked with these words, or of backward.py."""
    op = row["config"][:3]
    return problem_text(point_of(row), op, *(forward_words if op == "fwd" else ["deterministic"] * (row.get("list") == "deterministic")))


def times(rows, key=point_of):
    """{key(row): {implementation: ms}}; rows without a time, of peers that do not serve a point, are left out."""
    found = collections.defaultdict(dict)
    for row in rows:
        if row["ms"]:
            found[key(row)][row["impl"]] = float(row["ms"])
    return found


def ratios(ms):
    """{peer: attnforge's speed relative to it} at a point."""
    return {name: other / ms["attnforge"] for name, other in ms.items() if name != "attnforge"}


def best_peer(found):
    """(the fastest peer at a point, attnforge's speed relative to it); (None, None) where there is none."""
    best = min(found, key=found.get, default=None)
    return best, found.get(best)


def all_ratios(rows, key=point_of):
    """{point: ratios()} of the rows of a CSV of bench/peers.py, or another with points of key(row)."""
    return {point: ratios(ms) for point, ms in times(rows, key).items() if "attnforge" in ms}


def best_ratios(found):
    """{point: attnforge's speed relative to the fastest peer there}, of the points that have a peer."""
    return {point: best_peer(known)[1] for point, known in found.items() if known}


def best_and_untuned(rows):
    """(best_ratios(), the untuned attnforge's speed relative to the tuned one's at each point that has it, how many points) of backward.py's rows."""
    found = all_ratios(rows)
    best = best_ratios({point: {name: ratio for name, ratio in known.items() if name != UNTUNED} for point, known in found.items()})
    return best, [1 / known[UNTUNED] for known in found.values() if UNTUNED in known], len(found)


def grouped(pairs):
    """{group: [value, ...]} of (group, value), in their order."""
    found = collections.defaultdict(list)
    for group, value in pairs:
        found[group].append(value)
    return found


def per_peer(found):
    """{peer: [attnforge's speed relative to it, at each point that it has]} of {point: ratios()}."""
    return grouped(pair for known in found.values() for pair in known.items())


def mean_and_least(each, mean=".2f", least=".3f"):
    """What is said of ratios; mean, least: how these are written."""
    return f"geometric mean {statistics.geometric_mean(each):{mean}}x, least {min(each):{least}}x"


def peers_in(comments):
    """{peer: version} of a file's header."""
    return dict(line.removeprefix("peer ").split(": ", 1) for line in comments if line.startswith("peer "))


# ---- Groups of points ----


def grid(p):
    """The FlashAttention-3 paper's: 16384 tokens, hidden size 2048."""
    return p.batch * p.seqlen_q == 16384 and p.num_heads_q == p.num_heads_kv == 2048 // p.head_dim and p.head_dim in (64, 128, 256)


def odd(p, head_dims):
    return p.seqlen_q == 4096 and p.head_dim == p.head_dim_v and p.head_dim in head_dims


GROUPS = {
    "head_dim 64": lambda p: grid(p) and p.head_dim == 64,
    "head_dim 128": lambda p: grid(p) and p.head_dim == 128,
    "head_dim 256": lambda p: grid(p) and p.head_dim == 256,
    "head_dim 64, 128, 256 together": grid,
    "head_dim 40, 48, 72, 80, 112, 160": lambda p: odd(p, (40, 48, 72, 80, 112, 160)),
    "head_dim 96, 192": lambda p: odd(p, (96, 192)),
    "head_dim 192:128, causal": lambda p: (p.head_dim, p.head_dim_v) == (192, 128),
    "head_dim 128, 64 heads on 8": lambda p: p.num_heads_q == 8 * p.num_heads_kv and p.head_dim == 128,
}
GROUP_COLUMNS = ("points", "with a peer", "geometric mean", "least", "as fast or faster")


def where(point):
    return f"head_dim {point.head_dim} seqlen {point.seqlen_q} {'causal' if point.causal else 'full'}"


def group_rows(found):
    """Rows of GROUP_COLUMNS from {point: ratios()}, each against the fastest peer at each point."""
    rows = []
    for name, belongs in GROUPS.items():
        of_group = {point: known for point, known in found.items() if belongs(point)}
        best, cells = best_ratios(of_group), [""] * 3
        if best:
            worst, faster = min(best, key=best.get), sum(ratio >= 1 for ratio in best.values())
            mean = statistics.geometric_mean(best.values())
            cells = [f"{mean:.3f}", f"{best[worst]:.3f} ({where(worst)})", f"{faster} of {len(best)}"]
        if of_group:
            rows.append([name, f"{len(best)} of {len(of_group)}", *cells])
    return rows


def claim(best):
    """What {point: ratio to the fastest peer} allows to say, as a sentence."""
    if not best:
        return "There was no peer beside it, so nothing is said about its speed relative to others."
    faster = sum(ratio >= 1 for ratio in best.values())
    at = f"{'each' if faster == len(best) else faster} of {len(best)} points"
    how = f"{mean_and_least(best.values(), '.3f')} ({where(min(best, key=best.get))})"
    return f"attnforge is as fast as the fastest of them or faster at {at}: {how}."


def summary(rows):
    """The means of every dtype in the rows as text."""
    lines = []
    for dtype in sorted({row["dtype"] for row in rows}):
        of_dtype = [row for row in rows if row["dtype"] == dtype]
        table = [GROUP_COLUMNS, *group_rows(all_ratios(of_dtype))]
        widths = [max(len(row[i]) for row in table) for i in range(len(GROUP_COLUMNS))]
        lines.append(f"{dtype}: attnforge relative to the fastest peer in the run at each point")
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        for name, each in per_peer(all_ratios(of_dtype)).items():
            mean, least = statistics.geometric_mean(each), min(each)
            lines.append(f"attnforge / {name}: geometric mean {mean:.3f}, least {least:.3f}, {len(each)} points")
    late = sum(bool(row.get("late")) and int(row["late"]) > 0 for row in rows)
    if late:
        lines.append(f"warning: {late} rows have samples that may hold time of the host (column late): heat longer")
    failed = [row for row in rows if row["impl"] == "attnforge" and not row["ms"]]
    lines += [f"attnforge failed at {where(point_of(row))}: {row['note']}" for row in failed]
    return "\n".join(lines)
