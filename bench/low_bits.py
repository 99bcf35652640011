"""Times decode over caches of 8 and 4 bits: each format beside attnforge's own bf16, or beside peers on a cache of e4m3.

    python3 bench/low_bits.py listed --name low_bits
    python3 bench/low_bits.py peers --seed 64 --count 20 --limit-s 500 --go-on --name low_bits_peers      # again until it has all
    python3 bench/low_bits.py listed --formats "bf16,int8 token,int4 group64" --only "pages of 16" --out times.csv
    python3 bench/low_bits.py peers --peers flashinfer,xqa --formats "e4m3 tensor" --rounds 7 --out times.csv

"listed" has 32 query heads on 8 and one new token, five grids of batch and keys, in pages of 16 and in one piece; "peers" twelve decode
steps in pages, then --count drawn ones (drawn_problems.py). "attnforge" is policy first_run, "estimate" what drawn.py calls so.
All formats and peers of a point are in the same shuffled rounds, as rounds.py says: cold L2, a heated card, medians; so is "copy", a plain
copy of as many bytes as the largest listed cache in bf16.
Peers have one scale for K and one for V, with q in bf16: FlashInfer (FA2) and XQA; "sdpa" is PyTorch, which turns the cache into bf16 in
each call. FlashAttention-3 takes q in e4m3 alone: it is quantised in no time, and the error is judged accordingly. Outputs are
compared, before anything is timed, with fp32 attention on what the stored numbers stand for: the last sequences, first head of K.
"""

import argparse
import copy
import math
import statistics

import bits
import drawn
import drawn_problems
import exact
import figures
import peer_kernels
import rounds
import serving_peers

COLUMNS = [
    *"point,model,num_heads_q,num_heads_kv,head_dim,batch,seqlen_q,keys,longest,page_size,format,scale,impl,ms,speed".split(","),
    *"bytes,tb_per_s,of_copy,ratio,best_peer,ratio_to_best_peer,error,rounds,spread,late,note".split(","),
]
# speed: that of attnforge in bf16 is 1. bytes: numbers and scales that must be read. of_copy: tb_per_s over that of the copy, which reads and
# writes. ratio: the time over that of attnforge in the same format. keys: of all sequences.
OURS = drawn.OURS[:2]
FORMATS = {
    "listed": ["bf16", "int8 token", "int8 head", "e4m3 token", "e4m3 tensor", "e5m2 token", "int4 token", "int4 group64", "int4 group32"],
    "peers": ["int8 token", "e4m3 token", "e4m3 tensor"],
}
OF_PEERS = "e4m3 tensor"  # the cache that peers read
WRONG, WRONG_OF_8_BITS = 1e-2, 0.1  # relative errors: of attnforge, and of peers, some of which round q or probabilities to 8 bits
LARGEST = {"int8": 127.0, "e4m3": 448.0}
GRIDS = [(64, 8192), (128, 4096), (1, 8192), (8, 8192), (1, 65536)]
COPIED = 2 * 2 * 128 * 8 * 64 * 8192  # bytes
AT_ONCE = 1 << 28  # elements that are quantised
JUDGED = 4  # sequences


def decode(num_heads_q, num_heads_kv, batch, keys, page_size, new_tokens=1):
    return drawn_problems.Decode("", num_heads_q, num_heads_kv, 128, new_tokens, (keys,) * batch, page_size)


LISTED = [decode(32, 8, *grid, page_size) for page_size in (16, 0) for grid in GRIDS]
BESIDE_PEERS = [
    *LISTED[: len(GRIDS)], decode(64, 8, 32, 4096, 16), decode(28, 4, 40, 3000, 16), decode(16, 1, 64, 8192, 16), decode(40, 8, 96, 2000, 16),
    decode(32, 8, 64, 8192, 64), decode(128, 8, 16, 16384, 64), decode(32, 8, 32, 4096, 16, new_tokens=4),
]  # fmt: skip


# ---- A cache of a format ----


def bytes_of(x):
    """The same memory, of a dtype that every operation knows."""
    return x.view(bits.torch.uint8) if x.element_size() == 1 else x


def quantised(x, dtype, scale, attnforge):
    """(numbers, scales) of [pages or sequences, rows, heads, head_dim]; scale: also head or tensor, which have one for all rows."""
    torch, parts = bits.torch, x.split(max(1, AT_ONCE // x[0].numel()))
    if scale not in ("head", "tensor"):
        made = [attnforge.quantize_kv(part, dtype, scale) for part in parts]
        of_heads = torch.cat([scales.transpose(1, 2) for _, scales in made])  # in memory as quantize_kv() has them
        return torch.cat([bytes_of(numbers) for numbers, _ in made]).view(made[0][0].dtype), of_heads.transpose(1, 2)
    scales = x.abs().amax((0, 1, 3) if scale == "head" else (0, 1, 2, 3)).float().reshape(-1) / LARGEST[dtype]
    of_8_bits = (lambda values: values.round().to(torch.int8)) if dtype == "int8" else (lambda values: values.to(torch.float8_e4m3fn))
    made = [of_8_bits(part.float() / scales.unsqueeze(-1)) for part in parts]
    return torch.cat([bytes_of(numbers) for numbers in made]).view(made[0].dtype), scales


class Case(drawn.Decode):
    """A decode step whose cache can have any format."""

    def cache_of(self, name, attnforge):
        """([k, v], {scales by attention()'s names}) of a format."""
        dtype, _, scale = name.partition(" ")
        if dtype == "bf16":
            return self.cache, {}
        (k, k_scale), (v, v_scale) = (quantised(x, dtype, scale, attnforge) for x in self.cache)
        return [k, v], {"k_scale": k_scale, "v_scale": v_scale}

    def rows(self, x, sequence):
        """[keys, ...] of a tensor of the cache."""
        if not self.point.page_size:
            return x[sequence, : self.lengths[sequence]]
        taken = serving_peers.pages_taken(self.lengths, self.page_size)[sequence]
        pages = bytes_of(x)[self.table[sequence, :taken].long()].flatten(0, 1)
        return pages[: self.lengths[sequence]].view(x.dtype)

    def judge(self, name, cache, scales):
        """error_of(output) for a cache of a format."""
        sequences = range(len(self.lengths))[-JUDGED:]

        def decoded(x, scale, sequence):
            """[keys, 1, head_dim]"""
            numbers = self.rows(x, sequence)[:, :1]
            numbers = bits.halves_of(numbers) if name.startswith("int4") else numbers
            if scale is None or scale.dim() == 1:
                return numbers.float() * (1 if scale is None else scale[0])
            of_rows = self.rows(scale, sequence)[:, :1].reshape(len(numbers), 1, -1)
            return numbers.float() * of_rows.repeat_interleave(self.point.head_dim // of_rows.shape[-1], -1)

        def wanted(sequence):
            k, v = (decoded(x, scales.get(f"{of}_scale"), sequence) for of, x in zip("kv", cache))
            return exact.exact(bits.torch, self.q[sequence, :, : self.heads[0] // self.heads[1]], k, v, causal=self.causal)

        exactly = {sequence: wanted(sequence) for sequence in sequences}
        return lambda output: max(exact.error_of([peer_kernels.output_of(output)[sequence]], of) for sequence, of in exactly.items())

    def bytes_read(self, cache, scales):
        """Numbers and scales, once."""
        of = lambda x: x.numel() if x.dim() == 1 else sum(self.lengths) * math.prod(x.shape[2:])
        return sum(x.element_size() * of(x) for x in (*cache, *scales.values()))

    def for_peers(self, cache, scales):
        """The same with a cache of e4m3 in place of bf16."""
        other = copy.copy(self)
        other.scales = tuple(scales[name].item() for name in ("k_scale", "v_scale"))
        if self.point.page_size:
            other.pools = cache
            vars(other).pop("one_piece", None)  # made of pools
        else:
            other.one_piece = cache
        return other


LOADERS = serving_peers.LOADERS | {"sdpa": serving_peers.sdpa_of_8_bits}


# ---- The rows of a point ----


def prepare(name, case, ours, peers, estimate, attnforge):
    """({impl: function}, {impl: note}, {impl: error}, bytes that are read) of a format: of OURS if `ours`, and of peers."""
    import peer_runs

    runs, notes, errors = {}, {}, {}
    cache, scales = case.cache_of(name, attnforge)
    error_of = case.judge(name, cache, scales)
    if ours:
        runs, notes = drawn.settle(case.call(attnforge, cache, **scales), case.q.device.index, estimate, attnforge, OURS)
        errors = peer_kernels.drop_wrong(runs, notes, lambda _, run: error_of(run()), "fp32", WRONG)
    if peers:
        judged = {"wrong": WRONG_OF_8_BITS, "beside": "fp32"}
        in_pages = bool(case.point.page_size)
        serving_peers.add(peers, case.for_peers(cache, scales), error_of, peer_runs.fastest, runs, notes, errors, in_pages, **judged)
        notes |= {impl: f"q in e4m3, {note}" for impl, note in notes.items() if impl in runs and impl.startswith("fa3")}
    return runs, notes, errors, case.bytes_read(cache, scales)


def measure(point, session, formats, peers, estimate, attnforge):
    """{format: its rows} of a point; peers are in the rows of OF_PEERS."""
    case, torch, made = Case(point, session.torch), session.torch, {}
    for name in dict.fromkeys([*formats, *[OF_PEERS] * bool(peers)]):
        try:
            made[name] = prepare(name, case, name in formats, peers if name == OF_PEERS else [], estimate, attnforge)
        except (RuntimeError, ValueError) as error:  # of attnforge, or memory ran out
            torch.cuda.synchronize()  # ends this where the GPU's context is broken: nothing after it would be true
            made[name] = {}, {"attnforge": peer_kernels.first_line(error)}, {}, 0
    source = torch.empty(COPIED, dtype=torch.uint8, device=case.q.device)
    target = torch.empty_like(source)
    made["copy"] = {"copy": lambda: target.copy_(source)}, {}, {}, 2 * COPIED
    times = session.time_ms({(name, impl): run for name, (runs, *_) in made.items() for impl, run in runs.items()})
    of_peers = {impl: time for (name, impl), time in times.items() if name == OF_PEERS and impl not in OURS}
    copied, bf16 = 2 * COPIED / times["copy", "copy"][0], times.get(("bf16", "attnforge"))

    def rows_of(name):
        runs, notes, errors, count = made[name]
        dtype, _, scale = name.partition(" ")
        of_name = {impl: times[name, impl] for impl in runs}
        speed = lambda ms: {"speed": f"{bf16[0] / ms:.3f}"} if bf16 else {}
        work = lambda ms: {"bytes": count, "tb_per_s": f"{count / ms / 1e9:.3f}", "of_copy": f"{count / ms / copied:.3f}", **speed(ms)}
        more = {impl: rounds.beside_best({"attnforge": of_name[impl], **of_peers}) for impl in OURS if impl in of_name}
        named = {"point": case.name, "model": point.model, **case.named(), "format": dtype, "scale": scale}
        return rounds.table(COLUMNS, named, [*of_name, *notes], of_name, errors, notes, session.args.rounds, work, more)

    return {name: rows_of(name) for name in made}


def said_of(rows):
    """A line for each format and policy: its speed beside bf16's, the fastest peer's and a copy's, over the points."""
    for column, beside in (("speed", "attnforge in bf16"), ("ratio_to_best_peer", "the fastest peer"), ("of_copy", "a copy's bandwidth")):
        pairs = [((row["format"], row["scale"], row["impl"]), float(row[column])) for row in rows if row["impl"] in OURS and row[column]]
        for key, each in figures.grouped(pairs).items():
            yield f"{' '.join(filter(None, key))}: {statistics.geometric_mean(each):.3f}x {beside}, least {min(each):.3f}x, {len(each)} points"


def points_of(args):
    """Those that --first, --only and --shard leave."""
    return drawn.left(LISTED if args.kind == "listed" else [*BESIDE_PEERS, *drawn_problems.decode(args.seed, args.count)], args)


def main():
    parser = drawn.options(__doc__, count=20)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(line for line in __doc__.splitlines() if line.startswith("    python3"))
    parser.add_argument("kind", choices=tuple(FORMATS), help="what is timed; listed has no peers")
    parser.add_argument("--formats", help="these and no others, separated by commas: " + ", ".join(FORMATS["listed"]))
    args = parser.parse_args()
    formats = args.formats.split(",") if args.formats else FORMATS[args.kind]
    if unknown := set(formats) - set(FORMATS["listed"]):
        parser.error(f"--formats {','.join(sorted(unknown))}: there are {', '.join(FORMATS['listed'])}")
    session = rounds.Session(args, COLUMNS)
    import attnforge

    bits.load()
    peers, known = drawn.begin(session, LOADERS if args.kind == "peers" else {})
    estimate, failed = drawn.estimator(), []
    for point in drawn.go_through(points_of(args), known, session):
        title = drawn_problems.words_of(point)
        try:
            found = measure(point, session, formats, peers, estimate, attnforge)
        except RuntimeError as error:
            session.torch.cuda.synchronize()
            note = {"attnforge": peer_kernels.first_line(error)}
            found = {"": rounds.table(COLUMNS, {"point": title, "model": point.model}, ["attnforge"], {}, {}, note, 0, None)}
        for name, rows in found.items():
            session.add(rows, f"{title}, {name}", "ms")
            failed += [f"{title}, {name}" for row in rows if row["impl"] == "attnforge" and not row["ms"]]
    for line in said_of(session.rows):
        session.say(line)
    if failed:
        raise SystemExit(f"without a time of attnforge: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
