"""What a call of attention() costs the host, beside PyTorch's own. Needs torch and a GPU; alone or from bench/host.py.

    python3 bench/host_python.py [--package python] [--out FILE.csv]      another checkout's python/ folder compares two versions

The problem is so small that the GPU is never the slower side, and its queue never full: what is timed is the call.
"""

import argparse
import pathlib
import statistics
import sys
import time

import machine

CALLS, ROUNDS = 200, 60  # calls in a row before the queue drains; medians over rounds


def per_call_us(torch, function):
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            function()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(times)


def python_rows():
    """[(what, limit, measured)]."""
    import torch

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
        for _, function in cases.values():
            per_call_us(torch, function)  # warms clocks, allocators and caches
        measured = {name: per_call_us(torch, function) for name, (_, function) in cases.items()}
    return [(f"Python call: {name}", limit, f"{measured[name]:.1f} us") for name, (limit, _) in cases.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", default=pathlib.Path(__file__).resolve().parents[1] / "python")
    parser.add_argument("--out", help="CSV file too")
    arguments = parser.parse_args()
    machine.torch()
    sys.path.insert(0, str(arguments.package))
    measured_rows = python_rows()
    for what, limit, measured in measured_rows:
        print(f"{what:60} {limit:9} {measured}")
    if arguments.out:
        machine.table(arguments.out, ("what", "limit", "measured"), machine.torch_and_versions())[1].writerows(measured_rows)


if __name__ == "__main__":
    main()
