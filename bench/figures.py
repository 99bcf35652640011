"""What a Hopper kernel is judged by: its speed relative to kernels that are not in the same run, and the means over points.

A run has torch-cudnn beside attnforge. bench/results/h200/peers_reference.csv has cuDNN beside FlashAttention-3 ("fa3") and
ThunderKittens, measured once. attnforge / fa3 = (attnforge / cuDNN of the run) * (cuDNN / fa3 of the reference): clocks and
power, which differ from day to day, cancel in each of the two.
"""

import collections
import csv
import pathlib
import statistics

REFERENCE = pathlib.Path(__file__).resolve().parent / "results/h200/peers_reference.csv"
Point = collections.namedtuple(
    "Point", "dtype batch num_heads_q num_heads_kv seqlen_q seqlen_kv head_dim head_dim_v causal"
)


def read_csv(path):
    """(header comments, rows as dicts) of a CSV file."""
    lines = pathlib.Path(path).read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ")]
    rows = [line for line in lines if line and not line.startswith("#")]
    return comments, list(csv.DictReader(rows))


def point_of(row):
    return Point(row["dtype"], *(int(row[name]) for name in Point._fields[1:]))


def times(rows):
    """{point: {implementation: ms}}"""
    found = collections.defaultdict(dict)
    for row in rows:
        found[point_of(row)][row["impl"]] = float(row["ms"])
    return found


def ratios(ms, reference_ms):
    """{peer: attnforge's speed relative to it} at a point, from the times of the run and those of the reference.

    torch-* are of the run. fa3 and thunderkittens come through cuDNN and are missing where it or they are.
    """
    found = {name: other / ms["attnforge"] for name, other in ms.items() if name.startswith("torch-")}
    if "torch-cudnn" in ms and "torch-cudnn" in reference_ms:
        for name in ("fa3", "thunderkittens"):
            if name in reference_ms:
                found[name] = found["torch-cudnn"] * reference_ms[name] / reference_ms["torch-cudnn"]
    return found


def best_peer(found, peers=("fa3", "thunderkittens", "torch-cudnn")):
    """The ratio to the fastest of `peers`; None where none is known."""
    return min((found[name] for name in peers if name in found), default=None)


def all_ratios(rows):
    """{point: ratios()} of the rows of a CSV of bench/peers.py."""
    reference = times(read_csv(REFERENCE)[1])
    return {
        point: ratios(ms, reference.get(point, {})) for point, ms in times(rows).items() if "attnforge" in ms
    }


# ---- The figures of the Hopper kernel ----

Figure = collections.namedtuple("Figure", "what points count peers mean least", defaults=(None,))
# `count` points of which points() is true, against the fastest of `peers`: the geometric mean and the least asked for. The
# first of `peers` must be known for a point to count.

CUDNN, FA3_OR_CUDNN = ("torch-cudnn",), ("fa3", "torch-cudnn")
BEST = ("fa3", "torch-cudnn", "thunderkittens")


def grid(p):
    """The FlashAttention-3 paper's: 16384 tokens, hidden size 2048."""
    return p.batch * p.seqlen_q == 16384 and p.num_heads_q == p.num_heads_kv == 2048 // p.head_dim and p.head_dim in (64, 128, 256)


def odd(p, head_dims):
    return p.seqlen_q == 4096 and p.head_dim == p.head_dim_v and p.head_dim in head_dims


def long_128(p, causal):
    return grid(p) and p.head_dim == 128 and p.seqlen_q >= 2048 and p.causal == causal


PADDED = (40, 48, 72, 80, 112, 160)
FIGURES = (
    Figure("head_dim 64, 128, 256: best peer", grid, 36, BEST, 1.06, 0.97),
    Figure("head_dim 64: FA3, cuDNN", lambda p: grid(p) and p.head_dim == 64, 12, FA3_OR_CUDNN, 1.05),
    Figure("head_dim 128, seqlen >= 2048, full: FA3", lambda p: long_128(p, 0), 4, ("fa3",), 1.02),
    Figure("head_dim 128, seqlen >= 2048, causal: FA3", lambda p: long_128(p, 1), 4, ("fa3",), 1.01),
    Figure("head_dim 40, 48, 72, 80, 112, 160: FA3, cuDNN", lambda p: odd(p, PADDED), 12, FA3_OR_CUDNN, 1.10, 1.0),
    Figure("head_dim 96, 192: FA3, cuDNN", lambda p: odd(p, (96, 192)), 4, FA3_OR_CUDNN, 1.0),
    Figure("head_dim 192:128, causal: cuDNN", lambda p: (p.head_dim, p.head_dim_v) == (192, 128), 3, CUDNN, 1.08),
    Figure("64 heads on 8, head_dim 128: FA3, cuDNN", lambda p: p.num_heads_q == 8 * p.num_heads_kv, 10, FA3_OR_CUDNN, 1.02),
)
FIGURE_COLUMNS = ("figure", "points", "asked", "geometric mean", "asked at least", "least", "reached")


def figure_rows(found, dtype):
    """Rows of FIGURE_COLUMNS, from {point: ratios()}: what is asked and what is reached."""
    rows = []
    for figure in FIGURES:
        values = {}
        for point, known in found.items():
            if point.dtype == dtype and figure.points(point) and figure.peers[0] in known:
                values[point] = best_peer(known, figure.peers)
        row = [figure.what, f"{len(values)} of {figure.count}", f"{figure.mean:.2f}"]
        if not values:
            rows.append(row + ["", f"{figure.least:.2f}" if figure.least else "", "", ""])
            continue
        mean = statistics.geometric_mean(values.values())
        worst = min(values, key=values.get)
        where = f"head_dim {worst.head_dim} seqlen {worst.seqlen_q} {'causal' if worst.causal else 'full'}"
        missed = mean < figure.mean or values[worst] < (figure.least or 0)
        verdict = "no" if missed else "yes" if len(values) == figure.count else "so far"
        rows.append(
            row
            + [f"{mean:.3f}", f"{figure.least:.2f}" if figure.least else "", f"{values[worst]:.3f} ({where})", verdict]
        )
    return rows


def summary(rows):
    """The figures of every dtype in the rows as text; attnforge relative to the fastest of the peers named."""
    found = all_ratios(rows)
    lines = []
    for dtype in sorted({point.dtype for point in found}):
        table = [FIGURE_COLUMNS, *figure_rows(found, dtype)]
        widths = [max(len(row[i]) for row in table) for i in range(len(FIGURE_COLUMNS))]
        lines.append(f"{dtype}: attnforge relative to the fastest of the peers named")
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
    return "\n".join(lines)
