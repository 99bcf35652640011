"""How long append_kv() takes beside a copy of the same bytes, in microseconds of the GPU.

    python3 bench/append.py --out bench/results/h200/append.csv
    python3 bench/append.py --sequences 64 --tokens 1,64

New rows of bf16 go to pages of 16 and of 64 rows, and to a cache in one piece; with --caches int8:token and the like they are quantised
on the way, and the copy is that of the rows in bf16 all the same; with a rope k and q of 32 heads are rotated; with lengths these move on, so that each launch writes rows of the cache that were not in the L2, and so does each copy then. A row of the table
is the median of rounds, each of a CUDA graph of many launches one after another, so that a launch has its gap to the next one, and appends
and copies take turns. Needs a GPU and torch.
"""

import itertools
import statistics

import machine

LAUNCHES = 50  # of a graph


def graph_of(torch, launch):
    """A captured graph of LAUNCHES calls, after one outside of it."""
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            launch()
    return graph


def time_us(torch, graph):
    import peer_runs

    begin, end = peer_runs.timed(graph.replay)
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / LAUNCHES


def pools_of(torch, cache, rows, dim):
    """(pools of k and v, scales as append_kv() takes them)."""
    if cache == "bf16":
        return [torch.empty(*rows, dim, dtype=torch.bfloat16, device="cuda") for _ in range(2)], {}
    dtype, scale = cache.split(":")
    from attnforge import quantize_kv

    numbers, scales = quantize_kv(torch.zeros(1, dim, device="cuda"), dtype, scale)
    pools = [torch.empty(*rows, *numbers.shape[1:], dtype=numbers.dtype, device="cuda") for _ in range(2)]
    return pools, {name: torch.empty(*rows, *scales.shape[1:], device="cuda") for name in ("k_scale", "v_scale")}


def main():
    parser = machine.options(__doc__)
    parser.add_argument("--sequences", default="1,8,64,256", help="numbers of them (default: %(default)s)")
    parser.add_argument("--tokens", default="1,64", help="new rows of each sequence (default: %(default)s)")
    parser.add_argument("--heads-kv", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--caches", default="bf16", help="bf16, or formats and scales of quantize_kv(): int8:token,int4:group64 (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()

    torch = machine.torch()
    import attnforge

    bf16, heads, dim = {"dtype": torch.bfloat16, "device": "cuda"}, args.heads_kv, args.head_dim
    columns = "sequences,tokens,cache,rope,lengths,append_us,copy_us,append_over_copy".split(",")
    file, rows = machine.table(args.out, columns, machine.about(torch))
    for batch, tokens in itertools.product(map(int, args.sequences.split(",")), map(int, args.tokens.split(","))):
        moved_on = 2 * LAUNCHES * tokens  # more than lengths move on in a round
        bound = 8192 + -(-moved_on // 1024) * 1024
        angles = torch.randn(bound, dim // 2, device="cuda")
        tables = angles.cos(), angles.sin()
        k, v, q = (torch.randn(batch, tokens, count, dim, **bf16) for count in (heads, heads, 4 * heads))
        used = torch.randint(4096, bound - moved_on, (batch,), dtype=torch.int32, device="cuda")
        for page_size, cache in itertools.product((16, 64, 0), args.caches.split(",")):
            columns = bound // page_size if page_size else 0
            pages, inner = (batch * columns, page_size) if page_size else (batch, bound)
            pools, of_rows = pools_of(torch, cache, (pages, inner, heads), dim)
            table = torch.randperm(pages, device="cuda").to(torch.int32).view(batch, columns) if page_size else None
            for rope, moves in itertools.product((False, True), repeat=2):
                lengths = used.clone()
                options = {**of_rows, **({"rope": tables, "q": q, "q_out": q} if rope else {}), **({"used_kv_after": lengths} if moves else {})}

                def append():
                    attnforge.append_kv(k, v, *pools, lengths, table, **options)

                moved = torch.cat([x.flatten() for x in ((k, v, q) if rope else (k, v))])
                step = k.numel() + v.numel() if moves else 0
                begins = itertools.count(step=step)
                room = moved.new_empty(moved.numel() + LAUNCHES * step)

                def copy():
                    begin = next(begins)
                    room[begin : begin + moved.numel()].copy_(moved)

                graphs = graph_of(torch, append), graph_of(torch, copy)
                samples = [[], []]
                for _ in range(args.rounds):
                    lengths.copy_(used)
                    for graph, times in zip(graphs, samples):
                        times.append(time_us(torch, graph))
                append_us, copy_us = map(statistics.median, samples)
                kind = (f"pages of {page_size}" if page_size else "one piece") + ("" if cache == "bf16" else f" of {cache}")
                words = [batch, tokens, kind, int(rope), int(moves), f"{append_us:.2f}", f"{copy_us:.2f}", f"{append_us / copy_us:.2f}"]
                rows.writerow(words)
                file.flush()


if __name__ == "__main__":
    main()
