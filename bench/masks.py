"""Times block-sparse masks and score and mask code: attnforge beside compiled FlexAttention (torch) on the same tensors and masks.

    python3 bench/masks.py --tune full --name masks
    python3 bench/masks.py --only causal --rounds 9 --out times.csv
    python3 bench/masks.py --runs --tune none --without-flex --name mask_runs

Times are as rounds.py says. TFLOP/s are of the pairs that the mask leaves. Pairs of attnforge alone, such as a text beside the built-in
form, are in the same rounds. Masks of blocks below 128 reach FlexAttention as a function, with the block mask that it makes of that.
--runs has small problems in place of these: schedules as PiKAttention makes them, where each row of blocks keeps one run of them, beside
the same problem without a mask.
"""

import functools
import random
from typing import Callable, NamedTuple, Optional

import peer_kernels
import rounds
from varlen import log_normal

COLUMNS = "case,batch,heads,seqlen,head_dim,density,impl,ms,tflops,ratio,error,rounds,spread,late,note".split(",")
# ratio: of the implementation's time to attnforge's.
BATCH, HEADS, SEQLEN, HEAD_DIM = 2, 16, 8192, 128
WINDOW = 1024
UNMASKED = "dense"  # beside a mask, in --runs
RUN_HEADS, RUN_SHAPES, RUN_BLOCKS, SPARSITIES = 8, ((1024, 128), (1024, 256), (2048, 128), (2048, 256)), (16, 64, 128), (0.5, 0.6, 0.9)


class Case(NamedTuple):
    """One mask or score. ours: {name: keywords of attention()}, the first of which is the case; flex: functions of torch."""

    name: str
    density: float
    ours: dict
    flex_mask: Optional[Callable] = None
    flex_score: Optional[Callable] = None
    batch: int = BATCH
    heads: int = HEADS
    seqlen: int = SEQLEN
    head_dim: int = HEAD_DIM

    def flops(self):
        return 4.0 * self.batch * self.heads * self.seqlen**2 * self.head_dim * self.density


def block_case(name, present, size, attnforge, others={}, **shape):
    """Of a matrix of blocks that says which are there."""
    seqlen = len(present) * size
    mask = attnforge.BlockMask.from_bsr([0, *present.sum(1).cumsum(0).tolist()], present.nonzero()[:, 1].tolist(), size, seqlen)
    on_gpu = present.cuda()
    ours = {"attnforge": {"block_mask": mask}, **others}
    return Case(name, present.double().mean().item(), ours, lambda b, h, q, k: on_gpu[q // size, k // size], seqlen=seqlen, **shape)


def random_blocks(size, density, torch, attnforge, seed):
    rng, count = random.Random(seed), SEQLEN // size
    present = torch.tensor([[rng.random() < density or i == j for j in range(count)] for i in range(count)])
    return block_case(f"blocks of {size}, density {density}", present, size, attnforge)


def run_of_blocks(size, sparsity, seqlen, head_dim, torch, attnforge, seed):
    rng, count = random.Random(seed), seqlen // size
    kept = max(1, round((1 - sparsity) * count))
    first = torch.tensor([rng.randrange(count - kept + 1) for _ in range(count)])[:, None]
    columns = torch.arange(count)
    shape = {"batch": 1, "heads": RUN_HEADS, "head_dim": head_dim}
    name = f"runs of blocks of {size}, sparsity {sparsity}"
    return block_case(name, (columns >= first) & (columns < first + kept), size, attnforge, {UNMASKED: {}}, **shape)


def cases_of_runs(torch, attnforge, seed):
    return [
        run_of_blocks(size, sparsity, *shape, torch, attnforge, seed) for shape in RUN_SHAPES for size in RUN_BLOCKS for sparsity in SPARSITIES
    ]


def cases(torch, attnforge, seed):
    slope = torch.tensor([2.0 ** (-8.0 * (h + 1) / HEADS) for h in range(HEADS)], device="cuda")
    causal = (SEQLEN + 1) / (2 * SEQLEN)
    window = (WINDOW * SEQLEN - WINDOW * (WINDOW - 1) / 2) / SEQLEN**2

    def causal_mask(b, h, q, k):
        return q >= k

    alibi, cap = "s + slope[head] * (k - q)", "30 * tanhf(s / 30)"
    table = (
        ("dense", 1.0, {"attnforge": {}}),
        ("causal", causal, {"attnforge": {"mask": "k <= q"}, "built in": {"causal": True}, "score s": {"causal": True, "score": "s"}}, causal_mask),
        ("causal, soft cap 30", causal, {"attnforge": {"causal": True, "score": cap}, "built in": {"causal": True, "softcap": 30.0}},
         causal_mask, lambda s, b, h, q, k: 30.0 * torch.tanh(s / 30.0)),
        ("causal, ALiBi", causal, {"attnforge": {"causal": True, "score": alibi, "args": {"slope": slope}}},
         causal_mask, lambda s, b, h, q, k: s + slope[h] * (k - q)),
        ("sliding window of 1024", window, {"attnforge": {"causal": True, "window": (WINDOW - 1, 0)}, "text": {"mask": f"k <= q && q - k < {WINDOW}"}},
         lambda b, h, q, k: (q >= k) & (q - k < WINDOW)),
    )
    found = [Case(*row) for row in table]
    for size, density in ((128, 0.5), (128, 0.115), (64, 0.41), (16, 0.5), (16, 0.25), (16, 0.1)):
        found.append(random_blocks(size, density, torch, attnforge, seed))
    lengths = log_normal(2 * SEQLEN, 128, 8192, random.Random(seed))
    bounds = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).int().cuda()
    ours = {
        "attnforge": {"mask": "k <= q && document[q] == document[k]", "args": {"document": document}},
        "packed": {"causal": True, "cu_seqlens": bounds, "max_seqlen": max(lengths)},
    }
    density = sum(n * (n + 1) // 2 for n in lengths) / (2 * SEQLEN) ** 2
    of_documents = lambda b, h, q, k: (q >= k) & (document[q] == document[k])  # noqa: E731
    return [*found, Case("documents, causal", density, ours, of_documents, batch=1, seqlen=2 * SEQLEN)]


def point(case, session, torch, attnforge):
    import peer_runs

    args = session.args
    shape = case.batch, case.seqlen, case.heads, case.head_dim
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    runs, notes = {}, {}
    for name, keywords in case.ours.items():
        inputs = [x[0] for x in (q, k, v)] if "cu_seqlens" in keywords else [q, k, v]
        runs[name] = functools.partial(attnforge.attention, *inputs, **keywords)
        if args.tune != "none":
            attnforge.tune(*inputs, rigor=args.tune, **keywords)
    attnforge.plan_cache.clear()
    flex = peer_kernels.Peer("flex", "", lambda: [peer_kernels.flex_run(q, k, v, case.flex_mask, case.flex_score)])
    peer_runs.add_peers(runs, notes, [] if args.without_flex else [flex])
    reference = peer_kernels.output_of(runs["attnforge"]()).float()

    def error_of(name, run):
        result = peer_kernels.output_of(run())  # the run that makes its plan
        if name == "attnforge" or "score" in case.ours.get(name, {}):
            notes[name] = list(attnforge.plan_cache)[-1].config
        return 0.0 if name == UNMASKED else peer_kernels.relative_error(result.reshape(shape), reference.reshape(shape))

    errors = peer_kernels.drop_wrong(runs, notes, error_of, "attnforge")
    errors.pop(UNMASKED, None)  # another problem
    named = {"case": case.name, "batch": case.batch, "heads": case.heads, "seqlen": case.seqlen, "head_dim": case.head_dim}
    named["density"] = f"{case.density:.4f}"
    impls = [*case.ours, *([] if args.without_flex else ["flex"])]
    times = session.time_ms(runs)
    return rounds.table(COLUMNS, named, impls, times, errors, notes, args.rounds, rounds.tflops(case.flops()))


def main():
    parser = rounds.options(__doc__)
    parser.add_argument("--runs", action="store_true", help="small problems with a run of blocks a row")
    parser.add_argument("--only", default="", help="cases whose names have this")
    parser.add_argument("--without-flex", action="store_true", help="attnforge alone")
    args = parser.parse_args()
    session = rounds.Session(args, COLUMNS)
    import attnforge

    session.begin([])
    for case in (cases_of_runs if args.runs else cases)(session.torch, attnforge, args.seed):
        if args.only in case.name:
            session.add(point(case, session, session.torch, attnforge), case.name)


if __name__ == "__main__":
    main()
