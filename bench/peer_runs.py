"""attnforge and PyTorch's attention backends on the same tensors: which of them run, whether they agree, how long they take."""

import math
import random
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import attnforge

BACKENDS = {
    "torch-flash": SDPBackend.FLASH_ATTENTION,
    "torch-cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch-math": SDPBackend.MATH,
}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def machine():
    """(name, driver) of the GPU."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return torch.cuda.get_device_name(), driver


def seed(value):
    torch.manual_seed(value)
    random.seed(value)


def tensors(problem):
    """q, k and v with mean 0 and variance 1: on a GPU limited by power, zeros would run faster."""
    shapes = (
        (problem.seqlen_q, problem.num_heads_q, problem.head_dim),
        (problem.seqlen_kv, problem.num_heads_kv, problem.head_dim),
        (problem.seqlen_kv, problem.num_heads_kv, problem.head_dim_v),
    )
    return [torch.randn(problem.batch, *shape, device="cuda", dtype=DTYPES[problem.dtype_q]) for shape in shapes]


def implementations(problem, q, k, v, peers):
    """{name: function that runs it}; a backend that refuses the problem is left out with a note."""
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    options = {"is_causal": problem.causal, "enable_gqa": problem.num_heads_q != problem.num_heads_kv}

    # Words of a problem that attention() takes as an argument of the same name where this attnforge has them.
    options_of_ours = {name: True for name in ("tf32",) if getattr(problem, name, False)}

    def ours():
        result = attnforge.attention(q, k, v, causal=problem.causal, return_lse=problem.lse, **options_of_ours)
        return result[0] if problem.lse else result

    def peer(backend):
        with sdpa_kernel(backend), torch.no_grad():
            return F.scaled_dot_product_attention(*heads_first, **options).transpose(1, 2)

    runs = {"attnforge": ours}
    for name in peers:
        try:
            peer(BACKENDS[name])
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"  {name} does not serve this: {str(error).splitlines()[0][:80]}", file=sys.stderr)
            continue
        runs[name] = lambda backend=BACKENDS[name]: peer(backend)
    return runs


def check(runs, problem):
    """All against the first peer: a wrong kernel is not timed."""
    outputs = {name: run() for name, run in runs.items()}
    reference = next((outputs[name] for name in BACKENDS if name in outputs), None)
    if reference is None:
        return
    reference = reference.float()
    for name, output in outputs.items():
        error = ((output.float() - reference).norm() / reference.norm()).item()
        if not error < 1e-2:
            raise SystemExit(f"{name} differs from PyTorch by {error:.1e} on {problem}")


class Heat:
    """Keeps the card on its power limit: a peer's kernel for so many ms before each round of samples.

    Always of one problem that takes about a ms a launch, so that the host gets ahead of the GPU here: the samples that are
    queued behind then wait for no launch.
    """

    def __init__(self, duration_ms):
        self.heads_first = [torch.randn(4, 16, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self.repeats = 0
        if duration_ms > 0:
            self.repeats = 10
            self()
            self.repeats = math.ceil(duration_ms * self.repeats / self.elapsed_ms())

    def elapsed_ms(self):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop)

    def __call__(self):
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]), torch.no_grad():
            for _ in range(self.repeats):
                F.scaled_dot_product_attention(*self.heads_first)


def once_ms(run):
    """About how long a run takes; the second one, when everything is loaded."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    start.record()
    run()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop)


def time_ms(runs, rounds, heat, flush):
    """{name: (median, spread)}: one sample each per round, in shuffled order, on a cold L2; spread is (q3 - q1) / median."""
    samples = {name: [] for name in runs}
    for _ in range(3):  # warm the card and the allocator up
        for run in runs.values():
            run()
    for _ in range(5):  # tuning or a pause came before
        heat()
    for _ in range(rounds):
        names = list(runs)
        random.shuffle(names)
        events = []
        heat()
        for name in names:
            flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            runs[name]()
            stop.record()
            events.append((name, start, stop))
        torch.cuda.synchronize()
        for name, start, stop in events:
            samples[name].append(start.elapsed_time(stop))
    result = {}
    for name, times in samples.items():
        low, middle, high = statistics.quantiles(times, n=4)
        result[name] = (middle, (high - low) / middle)
    return result
