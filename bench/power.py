"""What a run costs in joules where the card is at its power limit, for attnforge and its peers.

    python3 bench/power.py --configs bench/results/h200/hopper.csv --peers fa3 --out bench/results/h200/power.csv \
        "fwd bf16 batch=2 num_heads=8 seqlen=8192 head_dim=256 causal lse"

Each is run without a pause for --seconds, in turn, twice, with warm L2: times are those of a card as hot as it gets, and at the
limit they are in proportion to the joules. "products" are as many operations as the problem has, in the tiles of attnforge's
config, by a kernel that does nothing else (products.cuh): a bound from below. The last rows are cuBLAS's product of two matrices.
"""

import argparse
import collections
import csv
import math
import pathlib
import statistics
import sys
import threading
import time

import figures
import machine
import peer_kernels
import peers

WARM_SECONDS, ROUNDS, RUNS_AT_ONCE, MATRIX = 0.3, 2, 20, 8192

Cost = collections.namedtuple("Cost", "us joules watts sm_mhz throttle_reasons")
COLUMNS = ["problem", "impl", *Cost._fields]


class Meter:
    """The GPU's own counter of energy, and its clock meanwhile (NVML)."""

    def __init__(self):
        import pynvml

        pynvml.nvmlInit()
        self.nvml, self.gpu = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)

    def joules(self):
        return self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.gpu) / 1e3

    def watch(self, stop, clocks, reasons):
        while not stop.is_set():
            clocks.append(self.nvml.nvmlDeviceGetClockInfo(self.gpu, self.nvml.NVML_CLOCK_SM))
            reasons.add(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.gpu))
            time.sleep(0.01)


def repeat(run, seconds):
    """(how often it ran, in how many seconds)"""
    import torch

    start, runs = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for _ in range(RUNS_AT_ONCE):
            run()
        torch.cuda.synchronize()
        runs += RUNS_AT_ONCE
    return runs, time.monotonic() - start


def cost_of(run, meter, seconds):
    repeat(run, WARM_SECONDS)
    stop, clocks, reasons = threading.Event(), [], set()
    watcher = threading.Thread(target=meter.watch, args=(stop, clocks, reasons))
    watcher.start()
    try:
        before = meter.joules()
        runs, took = repeat(run, seconds)
        joules = meter.joules() - before
    finally:
        stop.set()
        watcher.join()
    said = "|".join(f"{reason:#x}" for reason in sorted(reasons))
    return Cost(took / runs * 1e6, joules / runs, joules / took, statistics.mean(clocks), said)


def products_of(problem, config):
    """A function that multiplies as the problem's kernel of fwd_wgmma_sm90a does, and does nothing else."""
    import attnforge
    import torch

    kernel = attnforge.inspect(problem, config=config or None, family="fwd_wgmma_sm90a", max_candidates=1)
    tiles, launch = kernel["tiles"], kernel["launches"][0]
    threads, sms = launch["block"][0] - 128, launch["grid"][0]  # the producer's warpgroup has no products
    products = pathlib.Path(__file__).with_name("products.cuh").read_text()
    source = f"""{kernel["source"].split("struct Pieces")[0]}
{products}
extern "C" __global__ void __launch_bounds__({threads}, 1)
products(const u32* numbers, const u32* probabilities, float* out, int tiles) {{
  Products<kConfig>::run(numbers, probabilities, out, tiles);
}}
"""
    run = torch.cuda._compile_kernel(source, "products", compute_capability="90a", nvcc_options=["--std=c++20", "-default-device"])
    run.set_shared_memory_config(launch["smem_bytes"])
    numbers = torch.randn(launch["smem_bytes"] // 2, device="cuda", dtype=torch.bfloat16)
    scores = torch.randn(tiles["block_n"] // 2 * threads, device="cuda")
    probabilities = torch.exp(scores - scores.max()).to(torch.bfloat16)
    out = torch.empty(sms * threads, device="cuda")
    of_tile = 2 * tiles["block_m"] * tiles["block_n"] * (problem.head_dim + problem.head_dim_v)
    share = math.ceil(kernel["flops"] / of_tile / sms)
    return lambda: run((sms, 1, 1), (threads, 1, 1), [numbers, probabilities, out, share], launch["smem_bytes"])


def runs_of(text, stored, found):
    """{name: a function that runs it} of attnforge, with its config of --configs, the peers that serve the problem, and products."""
    import attnforge
    import peer_runs

    problem = attnforge.Problem.parse(text)
    config = stored.get(peers.point_of(problem), "")
    attnforge.configure(config=config)
    runs, notes = peer_runs.implementations(problem, *peer_runs.tensors(problem), found)
    for name, note in notes.items():
        print(f"{text}: {name}: {note}", file=sys.stderr)
    return {**runs, "products": products_of(problem, config)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", nargs="+")
    parser.add_argument("--configs", metavar="FILE.csv", help="attnforge's configs are those of this earlier run of peers.py")
    parser.add_argument("--peers", default="fa3")
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--out", help="CSV file; default: standard output")
    args = parser.parse_args()
    torch, gpu, meter = machine.torch(), machine.gpu(), Meter()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    asked = args.peers.split(",")
    found, missing = peer_kernels.find(asked, needed=True)
    stored = figures.stored_configs(args.configs, figures.point_of)
    file = open(args.out, "w", newline="", buffering=1) if args.out else sys.stdout
    file.write(f"# {gpu}\n# {machine.command()}\n")
    for line in peer_kernels.who(found, missing, asked, asked):
        file.write(f"# {line}\n")
    out = csv.writer(file, lineterminator="\n")
    out.writerow(COLUMNS)
    left, right = (torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = {f"bf16 product of {MATRIX} x {MATRIX} x {MATRIX}": {"cublas": lambda: left @ right}}
    for text in [*args.problem, *product]:
        runs = product.get(text) or runs_of(text, stored, found)
        for _ in range(ROUNDS):
            for name, run in runs.items():
                cost = cost_of(run, meter, args.seconds)
                measured = f"{cost.us:.1f}", f"{cost.joules:.4f}", f"{cost.watts:.0f}", f"{cost.sm_mhz:.0f}", cost.throttle_reasons
                out.writerow([text, name, *measured])
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
