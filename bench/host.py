"""What attnforge costs the host: plans and launches (bench_plan), compiles (compile_time.py), calls from Python beside PyTorch's own.

    python3 bench/host.py --bin build/release/bin --out bench/results/h200/host.csv
    python3 bench/host.py --calls [--package OTHER/python]      calls alone; another checkout's package compares two versions
    python3 bench/host.py --calls --drawn 12 --seed 7           and of 12 drawn calls: packed, used_kv, args, attn_mask, sinks, window

Calls are of a problem so small that the GPU is never the slower side, and its queue never full: what is timed is the call.
"""

import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

import compile_time
import machine

DRAWN_SCORE = "s + slope[head] * (k - q)"
DRAWN_LENGTHS = "", "packed", "used_kv", "used_q and used_kv"
DRAWN_MASKS = "", "args", "args of a mask", "attn_mask", "attn_mask of booleans"
NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
CALLS, ROUNDS = 200, 60  # calls in a row before the queue drains; medians over rounds
COMPILED = (
    "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal",
    "fwd bf16 batch=8 num_heads=32 seqlen=2048 head_dim=64 lse",
    "fwd bf16 batch=2 num_heads=8 seqlen=8192 head_dim=256 causal",
    "fwd bf16 batch=4 num_heads=25 seqlen=4096 head_dim=80 causal window_left=511 softcap=50",
)


def benchmarks(program):
    """{name: nanoseconds}, medians over repetitions."""
    print(f"runs {pathlib.Path(program).name}", file=sys.stderr, flush=True)
    command = [program, "--benchmark_format=json", "--benchmark_repetitions=3"]
    found = {}
    for row in json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)["benchmarks"]:
        if row.get("error_occurred"):
            raise SystemExit(f"{row['name']} failed: {row['error_message']}")
        if row["run_type"] == "iteration":
            found.setdefault(row["name"].split("/iterations")[0], []).append(row["real_time"] * NS[row["time_unit"]])
    return {name: statistics.median(times) for name, times in found.items()}


def plan_rows(program):
    plan = benchmarks(program)
    fresh = "plan from SQLite in a fresh process, machine code included, beyond driver start"
    return [
        ("plan found in the same process", "<= 1 us", f"{plan['plan/in_memory']:.0f} ns"),
        ("plan for a new length in a tuned bucket", "<= 5 us", f"{plan['plan/new_length_in_bucket'] / 1e3:.2f} us"),
        (fresh, "<= 5 ms", f"{plan['plan/from_database_in_fresh_process'] / 1e6:.2f} ms"),
        ("Plan::run over a bare cuLaunchKernelEx", "<= 1 us", f"{(plan['launch/plan_run'] - plan['launch/bare']) / 1e3:.2f} us"),
    ]


def compile_rows():
    print("compiles", file=sys.stderr, flush=True)
    for problem in COMPILED:
        ms = statistics.median(compile_time.compile_ms(problem, family="fwd_mma_sm80") for _ in range(3))
        yield f"NVRTC compile, one core, no cache: {problem}", "<= 400 ms", f"{ms:.0f} ms"
    for family in ("fwd_wgmma_sm90a", "bwd_wgmma_sm90a", "bwd_mma_sm80"):
        times = [compile_time.compile_ms(problem, config=config) for problem, config in compile_time.winners(family)]
        goal = "<= 700 ms" if family.startswith("fwd") else ""
        yield f"NVRTC compile of {family}, {len(times)} winners, median", goal, f"{statistics.median(times):.0f} ms"
        yield f"NVRTC compile of {family}, {len(times)} winners, worst", "<= 1200 ms", f"{max(times):.0f} ms"


def per_call_us(torch, function):
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            function()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(times)


def call_rows(torch, drawn, seed):
    import attnforge

    functional = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(1, 16, 2, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    o = torch.empty_like(q)
    ends = torch.tensor([0, 7, 16], device="cuda", dtype=torch.int32)
    packed = [x[0] for x in (q, k, v)]
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    cases = {
        "with out": ("<= 8 us", lambda: attnforge.attention(q, k, v, out=o)),
        "without out": ("<= 12 us", lambda: attnforge.attention(q, k, v)),
        "causal, with lse, without out": ("", lambda: attnforge.attention(q, k, v, causal=True, return_lse=True)),
        "packed, without out": ("", lambda: attnforge.attention(*packed, cu_seqlens=ends, max_seqlen=9)),
        "torch's scaled_dot_product_attention": ("", lambda: functional(*turned)),
        "torch.empty_like": ("", lambda: torch.empty_like(q)),
    }
    with torch.no_grad():
        rows = timed(torch, cases)
    rows += timed(torch, training(torch, functional)) + timed(torch, decoding(torch))
    attnforge.configure(policy="estimate")  # the kernel is not what is timed
    drawn = enumerate(drawn_calls(torch, drawn, seed), 1)
    return rows + timed(torch, {f"drawn {i}: {name}": ("", call) for i, (name, call) in drawn})


def drawn_calls(torch, count, seed, device="cuda"):
    """[(name, a function that makes a small call, with gradients its backward too)] of drawn options: lengths, masks, windows and sinks."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    return [_drawn_call(torch, draw, device) for _ in range(count)]


def _drawn_call(torch, draw, device):
    lengths, causal, window, sinks = draw.choice(DRAWN_LENGTHS), draw.random() < 0.5, draw.random() < 0.3, draw.random() < 0.3
    mask = draw.choice(DRAWN_MASKS[:3] if lengths == "packed" else DRAWN_MASKS)
    of_inputs, of_others = draw.random() < 0.7, draw.random() < 0.5  # which have gradients
    words = ["step" if of_inputs else "call", lengths, "causal" * causal, "window" * window]
    options = {"causal": causal, "window": (4, 0 if causal else 4) if window else None}

    def floats(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device=device, dtype=dtype)

    def other(word, tensor):
        trained = of_inputs and of_others and tensor.is_floating_point()
        words.append(f"{word} with gradients" if trained else word)
        return tensor.requires_grad_(trained)

    def counts(*numbers):
        return torch.tensor(numbers, device=device, dtype=torch.int32)

    if lengths == "packed":
        options.update(cu_seqlens=counts(0, 7, 16), max_seqlen=9)
    elif lengths:
        options.update(used_kv=counts(9) if lengths == "used_kv" else (counts(11), counts(9)))
    if mask == "args":
        options.update(score=DRAWN_SCORE, args={"slope": other(mask, floats(2, dtype=torch.float32))})
    elif mask == "args of a mask":
        options.update(mask="document[q] == document[k]", args={"document": other(mask, counts(*[0] * 7, *[1] * 9))})
    elif mask:
        values = floats(2, 16, 16)
        options.update(attn_mask=other(mask, values > 0 if "booleans" in mask else values))
    if sinks:
        options.update(sinks=other("sinks", floats(2, dtype=torch.float32)))
    shape = (16, 2, 64) if lengths == "packed" else (1, 16, 2, 64)
    tensors = [floats(*shape).requires_grad_(of_inputs) for _ in range(3)]
    return ", ".join(filter(None, words)), _timed_call(tensors, floats(*shape), options)


def _timed_call(tensors, dout, options):
    import attnforge

    if not tensors[0].requires_grad:
        return lambda: attnforge.attention(*tensors, **options)
    others = [each for value in options.values() for each in (value.values() if isinstance(value, dict) else [value])]
    trained = [*tensors, *(each for each in others if getattr(each, "requires_grad", False))]

    def step():
        for x in trained:
            x.grad = None
        attnforge.attention(*tensors, **options).backward(dout)

    return step


def timed(torch, cases):
    """Rows of {name: (limit, function)}; a first round of all warms clocks, allocators and caches."""
    for _, function in cases.values():
        per_call_us(torch, function)
    return [(f"Python call: {name}", limit, f"{per_call_us(torch, function):.1f} us") for name, (limit, function) in cases.items()]


def training(torch, functional):
    """Cases of gradients, ours and those of PyTorch's own attention."""
    import attnforge

    q, k, v = (torch.randn(1, 16, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    turned = [x.detach().transpose(1, 2).requires_grad_() for x in (q, k, v)]
    dout = torch.randn_like(q)
    plain = [x.detach() for x in (q, k, v)]
    o, lse = attnforge.attention(*plain, return_lse=True)
    gradients = [torch.empty_like(x) for x in plain]

    def step(inputs, forward, gradient):
        for x in inputs:
            x.grad = None
        forward(*inputs).backward(gradient)

    return {
        "with tensors that require grad": ("<= 25 us", lambda: attnforge.attention(q, k, v)),
        "attention_backward with out": ("<= 15 us", lambda: attnforge.attention_backward(*plain, o, lse, dout, out=gradients)),
        "attention_backward": ("<= 15 us", lambda: attnforge.attention_backward(*plain, o, lse, dout)),
        "attention and its backward": ("<= 60 us", lambda: step((q, k, v), attnforge.attention, dout)),
        "torch's scaled_dot_product_attention and its backward": ("", lambda: step(turned, functional, dout.transpose(1, 2))),
    }


def decoding(torch):
    """Cases of a step of KvCache: append() and attend() of each layer."""
    import attnforge

    def step(cache, layer, tensors):
        cache.append(tensors[1], tensors[2], layer=layer)
        cache.attend(tensors[0], layer=layer)

    def case(layers):
        cache = attnforge.KvCache(1, 1 << 16, 2, 64, layers=layers)  # short, so that the GPU is never slower
        tensors = [torch.randn(1, 1, heads, 64, device="cuda", dtype=torch.bfloat16) for heads in (4, 2, 2)]
        return lambda: [step(cache, layer, tensors) for layer in range(layers)]

    return {"KvCache step, one layer": ("<= 40 us", case(1)), "KvCache step, nine layers": ("<= 200 us", case(9))}


def main():
    parser = machine.options(__doc__)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--calls", action="store_true", help="only calls from Python; needs torch")
    parser.add_argument("--package", help="the python/ folder of another checkout")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="time N drawn calls as well, with and without gradients")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn; default: 1")
    parser.epilog = "example: python3 bench/host.py --calls --drawn 12 --seed 7"
    args = parser.parse_args()
    gpu = machine.gpu()
    folder = pathlib.Path(args.bin).resolve()
    machine.package(args.package, folder.parent / "lib/libattnforge.so")
    rows = [] if args.calls else [*plan_rows(machine.program(folder / "bench_plan")), *compile_rows()]
    try:
        rows += call_rows(machine.torch(), args.drawn, args.seed)
    except SystemExit as missing:
        if args.calls:
            raise
        print(f"calls from Python are not timed: {missing}", file=sys.stderr)
    machine.table(args.out, ["what", "limit", "measured"], f"{gpu}, {machine.cpu()}")[1].writerows(rows)


if __name__ == "__main__":
    main()
