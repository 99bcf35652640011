"""Times block-sparse masks and score and mask code: attnforge beside compiled FlexAttention (torch) on the same tensors and masks.

    python3 bench/masks.py --tune full --name masks
    python3 bench/masks.py --only causal --rounds 9 --out times.csv
    python3 bench/masks.py --runs --tune none --without-flex --name mask_runs
    python3 bench/masks.py --texts --tune first_run --without-flex --out times.csv

Times are as rounds.py says. TFLOP/s are of the pairs that the mask leaves. Pairs of attnforge alone, such as a text beside the built-in
form, are in the same rounds. Masks of blocks below 128 reach FlexAttention as a function, with the block mask that it makes of that.
--runs has small problems in place of these: schedules as PiKAttention makes them, where each row of blocks keeps one run of them, beside
the same problem without a mask. --texts has masks as texts beside blocks that are made of the text once, and other ways to write them.
"""

import functools
import random
import statistics
from typing import Callable, NamedTuple, Optional

import exact
import peer_kernels
import rounds
from varlen import log_normal

COLUMNS = "case,batch,heads,seqlen,head_dim,density,impl,ms,tflops,ratio,error,rounds,spread,late,note".split(",")
# ratio: of the implementation's time to attnforge's.
BATCH, HEADS, SEQLEN, HEAD_DIM = 2, 16, 8192, 128
WINDOW = 1024
UNMASKED = "dense"  # beside a mask, in --runs
FROM_TEXT = "from_text"  # blocks that were made of a text once
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
    heads_kv: int = 0  # 0: as many
    keys: int = 0  # 0: as many as queries

    def flops(self):
        return 4.0 * self.batch * self.heads * self.seqlen * (self.keys or self.seqlen) * self.head_dim * self.density


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
    return [*found, documents(torch, attnforge, seed)]


def documents(torch, attnforge, seed):
    lengths = log_normal(2 * SEQLEN, 128, 8192, random.Random(seed))
    bounds = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).int().cuda()
    mask, args = "document[q] == document[k]", {"document": document}
    ours = {
        "attnforge": {"mask": f"k <= q && {mask}", "args": args},
        "packed": {"causal": True, "cu_seqlens": bounds, "max_seqlen": max(lengths)},
        FROM_TEXT: {"causal": True, "block_mask": attnforge.BlockMask.from_text(mask, 2 * SEQLEN, args=args)},
    }
    density = sum(n * (n + 1) // 2 for n in lengths) / (2 * SEQLEN) ** 2
    of_documents = lambda b, h, q, k: (q >= k) & (document[q] == document[k])  # noqa: E731
    return Case("documents, causal", density, ours, of_documents, batch=1, seqlen=2 * SEQLEN)


def cases_of_texts(torch, attnforge, seed):
    """Masks that are no windows."""

    def case(name, mask, args, seen, others={}, batch=1, seqlen=SEQLEN, keys=0, **shape):
        place = [torch.arange(count, device="cuda") for count in (batch, seqlen, keys or seqlen)]
        share = statistics.fmean(seen(b, 0, place[1][:, None], place[2]).float().mean().item() for b in place[0])
        blocks = attnforge.BlockMask.from_text(mask, seqlen, keys or seqlen, args=args or None, batch=batch if "batch" in mask else None)
        ours = {"attnforge": {"mask": mask, "args": args or None}, FROM_TEXT: {"block_mask": blocks}, **others}
        return Case(name, share, ours, seen, batch=batch, seqlen=seqlen, keys=keys, **shape)

    prefix = torch.tensor([1000, 1000], device="cuda", dtype=torch.int32)
    of_prefix = lambda b, h, q, k: (q >= k) | (k < prefix[b])  # noqa: E731
    prefix_lm, number = {"batch": 2, "heads": 12, "heads_kv": 4, "seqlen": 5000}, "k <= q || k < prefix"
    parent = [max(0, (i - 1) // 3) for i in range(64)]
    tree = torch.zeros(64, 64, dtype=torch.bool)
    for i in range(64):
        j = i
        while not tree[i, j]:
            tree[i, j] = True
            j = parent[j]
    tree = tree.cuda().contiguous()
    of_tree = lambda b, h, q, k: (k < 4096) | tree[q, (k - 4096).clamp(0)]  # noqa: E731
    label = torch.randint(0, 8, (SEQLEN,), device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).int()
    return [
        documents(torch, attnforge, seed),
        case("prefix-LM", "k <= q || k < prefix[batch]", {"prefix": prefix}, of_prefix, {"number": {"mask": number, "args": {"prefix": 1000}}}, **prefix_lm),
        case("tree of 64 after 4096 keys", "k < 4096 || tree[q * 64 + k - 4096]", {"tree": tree.view(-1)}, of_tree,
             batch=8, heads=32, heads_kv=8, seqlen=64, keys=4160),
        case("sinks and a window", "k <= q && (k < sink || q - k < reach)", {"sink": 4, "reach": WINDOW},
             lambda b, h, q, k: (q >= k) & ((k < 4) | (q - k < WINDOW))),
        case("labels in any order", "label[q] == label[k]", {"label": label}, lambda b, h, q, k: label[q] == label[k], heads=4),
        case("every third distance", "(q + k) % 3 == 0", {}, lambda b, h, q, k: (q + k) % 3 == 0, heads=4),
    ]


def point(case, session, torch, attnforge):
    import peer_runs

    args = session.args
    shape = case.batch, case.seqlen, case.heads, case.head_dim
    shape_kv = case.batch, case.keys or case.seqlen, case.heads_kv or case.heads, case.head_dim
    q, k, v = (torch.randn(each, device="cuda", dtype=torch.bfloat16) for each in (shape, shape_kv, shape_kv))
    runs, notes = {}, {}
    for name, keywords in case.ours.items():
        inputs = [x[0] for x in (q, k, v)] if "cu_seqlens" in keywords else [q, k, v]
        runs[name] = functools.partial(attnforge.attention, *inputs, **keywords)
        if args.tune not in ("none", "first_run"):
            attnforge.tune(*inputs, rigor=args.tune, **keywords)
    attnforge.plan_cache.clear()
    flex = peer_kernels.Peer("flex", "", lambda: [peer_kernels.flex_run(q, k, v, case.flex_mask, case.flex_score)])
    peer_runs.add_peers(runs, notes, [] if args.without_flex else [flex])
    reference = peer_kernels.output_of(runs["attnforge"]()).float()
    if case.flex_mask and not case.flex_score:
        seen = lambda row, key: case.flex_mask(case.batch - 1, 0, row, key)  # noqa: E731
        error = exact.error_of([reference[-1]], exact.exact(torch, q[-1], k[-1], v[-1], seen=seen))
        if not error < peer_kernels.WRONG:
            raise SystemExit(f"{case.name}: attnforge differs from fp32 by {error:.1e}")

    def error_of(name, run):
        result = peer_kernels.output_of(run())  # the run that makes its plan
        if name in case.ours:
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
    parser = rounds.options(__doc__, first_run=True)
    parser.add_argument("--texts", action="store_true", help="masks as texts, in several ways")
    parser.add_argument("--runs", action="store_true", help="small problems with a run of blocks a row")
    parser.add_argument("--only", default="", help="cases whose names have this")
    parser.add_argument("--without-flex", action="store_true", help="attnforge alone")
    args = parser.parse_args()
    session = rounds.Session(args, COLUMNS)
    import attnforge

    session.begin([])
    if args.tune == "first_run":
        attnforge.configure(policy="first_run")
    for case in (cases_of_runs if args.runs else cases_of_texts if args.texts else cases)(session.torch, attnforge, args.seed):
        if args.only in case.name:
            session.add(point(case, session, session.torch, attnforge), case.name)


if __name__ == "__main__":
    main()
