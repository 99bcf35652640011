"""Times backward passes: attnforge, tuned and not, and every peer that can be imported, in one process on the same tensors.

    python3 bench/backward.py --name backward                       # all lists; what the file has already is left out
    python3 bench/backward.py --list grid --only "d128 causal" --tune quick --out backward.csv
    python3 bench/backward.py --list deterministic,gqa --points 0:6 --out backward.csv
    python3 bench/backward.py --configs bench/results/h200/backward.csv --tune none --out again.csv   # no searches
    python3 bench/backward.py --dry-run                              # the points, by number; needs no GPU
    python3 bench/backward.py --summary backward.csv                 # the means, of times taken earlier

Times are as rounds.py says, from the first to the last kernel of a backward pass, all steps. TFLOP/s count 2.5 times the forward's
products. `error` is the largest of those of dq, dk and dv of one head (and its group), relative to fp32; what is wrong is not timed, and
its row says so. Rows are written as soon as a point is measured; an existing file is gone on with. peer_kernels.py has the peers.
"""

import functools
import pathlib
import re
import statistics
import sys
import time
from typing import NamedTuple, Optional

import choice
import exact
import figures
import machine
import peer_kernels
import rounds
from peer_kernels import first_line

WRONG = 2e-2  # relative error from which gradients are not those of the point
TOKENS, HIDDEN = 16384, 2048


# ---- Points ----


def point(seqlen, head_dim, causal, heads=None, dtype="bf16"):
    heads = heads or (HIDDEN // head_dim,) * 2
    return figures.Point(dtype, TOKENS // seqlen, *heads, seqlen, seqlen, head_dim, head_dim, int(causal))


def grid(head_dims, dtype):
    seqlens = (512, 1024, 2048, 4096, 8192, 16384)
    return [point(s, d, c, dtype=dtype) for d in head_dims for c in (False, True) for s in seqlens]


class List(NamedTuple):
    """Points, what attnforge is asked for there, and the peers."""

    points: list
    peers: list
    deterministic: bool = False
    family: Optional[str] = None


def lists(dtype):
    usual = ["torch-cudnn", "torch-flash", "fa3", "fa4"]
    gqa = [point(s, 128, c, (64, 8), dtype) for c in (False, True) for s in (2048, 4096, 8192, 16384)]
    odd = [point(4096, d, c, dtype=dtype) for d in (48, 72, 80, 96, 112, 160, 192) for c in (False, True)]
    return {
        "grid": List(grid((64, 128, 256), dtype), usual),
        "deterministic": List(grid((64, 128), dtype), ["fa3-deterministic", "fa4-deterministic"], deterministic=True),
        "gqa": List(gqa, usual),
        "odd_head_dims": List(odd, usual),
        "sm80": List(grid((64, 128, 256), dtype), ["torch-flash"], family="bwd_mma_sm80"),
    }


def label_of(p):
    heads = f"{p.num_heads_q}:{p.num_heads_kv}" if p.num_heads_q != p.num_heads_kv else f"{p.num_heads_q}"
    return f"d{p.head_dim} {'causal' if p.causal else 'full'} s{p.seqlen_q} b{p.batch} h{heads}"


def text_of(p, deterministic=False):
    """The problem of attnforge."""
    return figures.problem_text(p, "bwd", *["deterministic"] * deterministic)


def chosen(args):
    """[(list's name, point)] in order, those that --list, --only and --points ask for."""
    known = lists(args.dtype)
    unknown = [name for name in args.list.split(",") if name not in known]
    if unknown:
        raise SystemExit(f"no list is named {', '.join(unknown)}; there are {', '.join(known)}")
    found = [(name, p) for name in args.list.split(",") for p in known[name].points]
    if args.only:
        found = [(name, p) for name, p in found if args.only.search(f"{name} {label_of(p)}")]
    if args.points:
        match = re.fullmatch(r"(\d*)(:?)(\d*)", args.points)
        if not match:
            raise SystemExit(f"--points {args.points} must be N, or BEGIN:END, of what --dry-run numbers")
        begin = int(match[1] or 0)
        found = found[begin : (int(match[3]) if match[3] else None) if match[2] else begin + 1]
    return found


# ---- One point ----


def rows_of(name, p, times, errors, notes, count, configs):
    """The rows of a point, attnforge's first: of {impl: (ms, spread, late)}, {impl: error}, {impl: note} and {impl: config}."""
    return rounds.rows_of_point({"list": name}, p, times, errors, notes, count, 2.5 * rounds.flops(p), configs)


def choose(attnforge, p, which, args, stored=""):
    """({impl: config, "" for that of a plan}, {impl: how it came about}). stored: the config of --configs; "": it has none."""
    text = text_of(p, which.deterministic)
    configs, notes, why = {"attnforge": stored}, {"attnforge": "the config of --configs"}, ""
    guess = attnforge.inspect(text, family=which.family, compile=False, max_candidates=1)["candidates"]
    if stored:
        try:
            attnforge.inspect(text, config=stored, compile=False, max_candidates=1)
        except attnforge.AttnforgeError as error:
            why, stored = f"; that of --configs is refused: {first_line(error)}", ""
    elif args.configs:
        why = "; --configs does not have the point"
    if args.tune == "none" and not stored:
        return {"attnforge": guess[0]["config"] if guess else ""}, {"attnforge": f"not tuned{why}"}
    if guess:
        configs[figures.UNTUNED] = guess[0]["config"]
        notes[figures.UNTUNED] = "the model's choice"
    if not stored:
        start = time.monotonic()
        attnforge.tune(text, rigor=args.tune, family=which.family, time_limit_s=args.tune_seconds)
        configs["attnforge"], notes["attnforge"] = "", f"tuned ({args.tune}, {time.monotonic() - start:.0f} s){why}"
    return configs, notes


def measure(name, p, session, stored, peers):
    """The rows of a point."""
    import attnforge
    import peer_runs
    import torch

    args = session.args
    which = lists(args.dtype)[name]
    shapes = [(p.seqlen_q, p.num_heads_q, p.head_dim)] + [(p.seqlen_kv, p.num_heads_kv, p.head_dim)] * 2
    dtype = peer_runs.DTYPES[p.dtype]
    q, k, v, dout = (torch.randn(p.batch, *shape, device="cuda", dtype=dtype) for shape in (*shapes, shapes[0]))
    wanted = exact.exact(torch, *(x[0] for x in (q, k, v, dout)), bool(p.causal))
    configs, notes = choose(attnforge, p, which, args, stored.get((name, p), ""))
    o, lse = attnforge.attention(q, k, v, causal=bool(p.causal), return_lse=True)
    options = {"causal": bool(p.causal), "deterministic": which.deterministic, "out": tuple(map(torch.empty_like, (q, k, v)))}
    ours = functools.partial(attnforge.attention_backward, q, k, v, o, lse, dout, **options)
    runs, taken = {}, {}
    for impl, config in configs.items():
        try:
            plan, _ = choice.with_config(ours, config, attnforge, which.family or "")
            runs[impl], taken[impl] = choice.with_plan(ours, plan, q.device.index, attnforge), plan.config
        except attnforge.AttnforgeError as error:
            notes[impl] = first_line(error)
    peer_runs.add_peers(runs, notes, [peer for peer in peers if peer.name in which.peers], p, q, k, v, dout)
    errors = peer_kernels.drop_wrong(runs, notes, lambda _, run: exact.error_of([x[0] for x in run()], wanted), "fp32", WRONG)
    return rows_of(name, p, session.time_ms(runs), errors, notes, args.rounds, taken)


# ---- The file ----


def key_of(row):
    """Of a list and a point, as chosen() has them."""
    return row["list"], figures.point_of(row)


def done_in(path):
    """{(list, point)} that a file has times of attnforge for. Raises SystemExit if it is another kind of file."""
    if not path or not pathlib.Path(path).exists() or not pathlib.Path(path).stat().st_size:
        return None
    rows = figures.read_csv(path)[1]
    if rows and list(rows[0]) != ["list", *figures.COLUMNS]:
        raise SystemExit(f"{path} has other columns than this writes; give another --out")
    return {key_of(row) for row in rows if row["impl"] == "attnforge" and row["ms"]}


def summary(rows):
    """Geometric means and least of attnforge's speed relative to the best peer of each point, and of the untuned one's to its own."""
    lines = []
    for (name, dim), of_dim in figures.grouped(((row["list"], row["head_dim"]), row) for row in rows).items():
        best, untuned, _ = figures.best_and_untuned(of_dim)
        said = [
            f" {kind} {statistics.geometric_mean(each):.3f}x over {len(each)}, least {min(each):.3f}x"
            for kind, each in (("best peer", best.values()), ("untuned to tuned", untuned))
            if each
        ]
        lines.append(f"{name}, head_dim {dim}:{';'.join(said)}")
    return "\n".join(lines)


def run(args):
    session = rounds.Session(args, ["list", *figures.COLUMNS])
    import attnforge

    torch = session.torch
    torch.backends.cuda.matmul.allow_tf32 = False
    already = None if args.again else done_in(session.path)
    stored = figures.stored_configs(args.configs, key_of)
    points = [each for each in chosen(args) if each not in (already or ())]
    known = lists(args.dtype)
    names = list(dict.fromkeys(peer for name, _ in points for peer in known[name].peers))
    if args.peers is not None:
        asked = [name for name in args.peers.split(",") if name]
        names = [name for name in asked if name in names or name not in peer_kernels.BACKWARD]
    peers, missing = peer_kernels.find(names, peer_kernels.BACKWARD, needed=args.peers is not None)
    goes_on = done_in(session.path) is not None
    session.begin([*peer_kernels.who(peers, missing, (), ()), figures.configs_line(args)], goes_on)
    for i, (name, p) in enumerate(points):
        try:
            of_point = measure(name, p, session, stored, peers)
        except RuntimeError as error:  # of attnforge, or memory ran out
            torch.cuda.synchronize()  # ends this where the GPU's context is broken: nothing after it would be true
            of_point = rows_of(name, p, {}, {}, {"attnforge": first_line(error)}, args.rounds, {})
        attnforge.plan_cache.clear()
        session.add(of_point, f"{i + 1} of {len(points)}, {name} {label_of(p)}")
    return session.rows


def main():
    parser = rounds.options(__doc__, "configs", "dtype", "summary", rounds=15)
    parser.add_argument("--list", default=",".join(lists("bf16")), help="separated by commas; default: %(default)s")
    parser.add_argument("--only", type=machine.regex, metavar="REGEX", help='only points whose line of --dry-run has it, as "d128 causal s(512|1024) "')
    parser.add_argument("--points", metavar="BEGIN:END", help="only these of what is left, by the numbers of --dry-run")
    parser.add_argument("--peers", help=f"only these, of {', '.join(peer_kernels.BACKWARD)}; \"\": none")
    parser.add_argument("--tune-seconds", type=float, default=0, help="the most for a point; 0: no limit")
    parser.add_argument("--again", action="store_true", help="points that the file has already, too")
    parser.add_argument("--dry-run", action="store_true", help="measure nothing, print the points")
    args = parser.parse_args()
    if args.dry_run:
        for i, (name, p) in enumerate(chosen(args)):
            print(f"{i:3} {name} {label_of(p)}: {text_of(p, lists(args.dtype)[name].deterministic)}")
        return
    rows = figures.read_csv(args.summary)[1] if args.summary else run(args)
    print(summary(rows), file=sys.stdout if args.summary else sys.stderr)


if __name__ == "__main__":
    main()
