"""attnforge and its peers on the same tensors: which of them run, whether they agree, how long they take."""

import collections
import math
import random
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import attnforge
import peer_kernels

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

Time = collections.namedtuple("Time", "ms spread late")
# ms: median. spread: (q3 - q1) / median. late: samples that the host queued when the GPU had caught up with the heat before
# them, so that they may hold time in which the GPU waited for the host.


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


def attnforge_run(problem, q, k, v):
    """A function that runs attnforge and returns o."""
    left, right = (None if keys < 0 else keys for keys in (problem.window_left, problem.window_right))
    options = {"causal": problem.causal, "return_lse": problem.lse, "softcap": problem.softcap or None, "tf32": problem.tf32}
    if left is not None or right is not None:
        options["window"] = (left, right)
    if problem.rope != "none":
        raise attnforge.UnsupportedError("no tables of a rope here")

    def run():
        result = attnforge.attention(q, k, v, **options)
        return result[0] if problem.lse else result

    return run


def add_peers(runs, notes, peers, *prepared):
    """Of each peer the fastest of its functions goes to `runs`, compiled, or why there is none to `notes`; prepared: what its prepare() gets."""
    for peer in peers:
        try:
            runs[peer.name] = fastest(peer.prepare(*prepared))
            torch.cuda.synchronize()
        except Exception as error:  # a package raises what it likes where it does not serve a problem
            notes[peer.name] = peer_kernels.first_line(error)


def errors(runs):
    """{one: {other: relative error of their outputs}}, each way; one alone is in it with nothing."""
    outputs = {name: run().float() for name, run in runs.items()}
    return {one: {other: 0.0 if one == other else peer_kernels.relative_error(outputs[other], outputs[one]) for other in outputs} for one in outputs}


class Heat:
    """Keeps the card on its power limit: a peer's kernel for so many ms before each round of samples.

    Always of one problem that takes about a ms a launch, so that the host gets ahead of the GPU here: the samples that are
    queued after it then wait for no launch, and ended() tells where they might have.
    """

    def __init__(self, duration_ms):
        self.heads_first = [torch.randn(4, 16, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self.repeats = 0
        self.end = torch.cuda.Event()
        if duration_ms > 0:
            self.repeats = 10
            self()
            self.repeats = math.ceil(duration_ms * self.repeats / once_ms(self))

    def __call__(self):
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]), torch.no_grad():
            for _ in range(self.repeats):
                F.scaled_dot_product_attention(*self.heads_first)
        self.end.record()

    def ended(self):
        """Whether the GPU is done with the last heat."""
        return self.end.query()


def timed(run):
    """Queues a run between two events."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    stop.record()
    return start, stop


def once_ms(run):
    """About how long a run takes; the second one, when everything is loaded."""
    run()
    start, stop = timed(run)
    torch.cuda.synchronize()
    return start.elapsed_time(stop)


def fastest(runs):
    """That of `runs` with the shortest run of five, in turn, all of them queued after work that the host is ahead of: else short
    ones would be told apart by the host. Runs a single one too, so that everything is loaded."""
    for run in runs:
        run()
    if len(runs) == 1:
        return runs[0]
    cleared = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    best = [math.inf] * len(runs)
    for _ in range(5):
        for _ in range(32):
            cleared.zero_()
        events = [timed(run) for run in runs]
        torch.cuda.synchronize()
        best = [min(ms, start.elapsed_time(stop)) for ms, (start, stop) in zip(best, events)]
    return runs[best.index(min(best))]


def copy_tb_per_s():
    """What this card's memory gives a plain copy, the best of ten: bytes read and bytes written together."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / min(once_ms(lambda: target.copy_(source)) for _ in range(10)) / 1e9


class ColdL2:
    """Fills the L2 with other data. Written data must go to memory before a run's may come, at the expense of the run: up to 12 us
    on an H200. `clean` reads as much after it, so that nothing is left to be written, as after a layer that reads weights."""

    def __init__(self, clean=False):
        self.written = torch.empty(160 << 20, dtype=torch.uint8, device="cuda")
        self.read = torch.zeros(40 << 20, dtype=torch.int32, device="cuda") if clean else None

    def __call__(self):
        self.written.zero_()
        if self.read is not None:
            self.read.amax()


def time_ms(runs, rounds, heat, flush):
    """{name: Time}: one sample each per round, in shuffled order, after a flush()."""
    samples = {name: [] for name in runs}
    late = dict.fromkeys(runs, 0)
    with torch.no_grad():
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
                flush()
                events.append((name, *timed(runs[name])))
                late[name] += heat.ended()
            torch.cuda.synchronize()
            for name, start, stop in events:
                samples[name].append(start.elapsed_time(stop))
    result = {}
    for name, times in samples.items():
        low, middle, high = statistics.quantiles(times, n=4) if rounds > 1 else times * 3
        result[name] = Time(middle, (high - low) / middle, late[name])
    return result
