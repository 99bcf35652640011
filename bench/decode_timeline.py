"""Where the time of a short decode goes: its kernel, and what the step that merges splits adds to it.

    python3 bench/decode_timeline.py --configs bench/results/h100/serving.csv
    python3 bench/decode_timeline.py --configs bench/results/h200/serving.csv --same --only "1 x 8192, 16:1" --out timeline.csv

The cases and the three implementations are those of bench/serving.py, each at its config of --configs; --same takes that of the pages
for all three, so that configs tell nothing apart. Times are the GPU's own of kernels (PyTorch's profiler), medians of 25 runs after a
cold L2: they are good to 0.1 us, where events around a whole call are to 0.5. merge_after_us: from the end of the kernel to that of
the merge; merge_starts_us: from the beginning of the kernel, and more than kernel_us only where the host was late.
"""

import argparse
import csv
import statistics
import sys

import machine
import serving

COLUMNS = "num_heads_q,num_heads_kv,batch,keys,cache,kernel_us,merge_starts_us,merge_after_us,all_us,note,config".split(",")
RUNS = 25


def timeline(events):
    """{column: median us} of runs whose kernels are [(name, start ns, duration ns)]."""
    runs = []
    for name, start, duration in sorted(events, key=lambda event: event[1]):
        if not name.startswith("combine"):
            runs.append([(start, start + duration)])
        elif runs:
            runs[-1].append((start, start + duration))
    if not runs:
        raise ValueError("no kernel of attnforge was seen")
    whole = [(run[0], run[-1]) for run in runs]
    times = {
        "kernel_us": [kernel[1] - kernel[0] for kernel, _ in whole],
        "merge_starts_us": [last[0] - kernel[0] for kernel, last in whole],
        "merge_after_us": [last[1] - kernel[1] for kernel, last in whole],
        "all_us": [last[1] - kernel[0] for kernel, last in whole],
    }
    return {column: f"{statistics.median(each) / 1e3:.2f}" for column, each in times.items()}


def profiled(torch, run, flush):
    """[(name, start ns, duration ns)] of attnforge's kernels in RUNS runs."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(RUNS):
            flush()
            run()
        torch.cuda.synchronize()
    events = profile.profiler.kineto_results.events()
    return [(e.name(), e.start_ns(), e.duration_ns()) for e in events if e.name().startswith(("fwd_", "combine"))]


def rows_of(case, stored, same, torch, flush, attnforge):
    named = serving.names_of(case)
    for name, run in serving.runs_of(case, True, attnforge).items():
        config = stored.get(serving.key_of(named | {"impl": "attnforge" if same else name}))
        attnforge.plan_cache.clear()
        try:
            plan, _ = serving.settle(run, config, "none", attnforge)
        except attnforge.AttnforgeError as error:
            print(f"{case.name}, {name}: {error}", file=sys.stderr)
            continue
        attnforge.plan_cache.clear()
        attnforge.plan_cache.put((case.q.device.index, plan.problem), plan)
        row = {column: named[column] for column in COLUMNS if column in named} | {"keys": case.longest}
        note = "" if plan.config == config else "the model's choice"
        yield row | {"cache": "pages" if name == "attnforge" else name, "note": note, "config": plan.config} | timeline(profiled(torch, run, flush))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", required=True, metavar="FILE.csv", help="attnforge's configs: a file that bench/serving.py wrote")
    parser.add_argument("--same", action="store_true", help="the config of pages for all implementations")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases with these words in their titles, as 1 x 8192, 16:1")
    parser.add_argument("--out", help="CSV file; default: standard output")
    args = parser.parse_args()
    stored = serving.stored_configs(args.configs)
    sys.path.insert(0, str(serving.HERE.parent / "python"))
    torch = machine.torch()
    import attnforge
    import peer_runs

    peer_runs.seed(1)
    flush = peer_runs.ColdL2()
    with open(args.out, "w", newline="") if args.out else sys.stdout as file:
        gpu, driver = peer_runs.machine()
        file.write(f"# {gpu}, driver {driver}, torch {torch.__version__}, attnforge {attnforge.version()}\n# {machine.command()}\n")
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        for group, title, make in serving.cases(torch, []):
            if group == "decode" and args.only in title:
                print(title, file=sys.stderr)
                out.writerows(rows_of(make(), stored, args.same, torch, flush, attnforge))
                file.flush()


if __name__ == "__main__":
    main()
