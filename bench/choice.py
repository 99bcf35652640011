"""Which of attnforge's configs is the fastest at a point, timed as a benchmark times it: for --choose.

A search of attnforge's own takes its samples one after another on a card that only it heats, and those of used lengths take unequal
lengths. Here all configs are in the same shuffled rounds, on the very tensors of the point, and the fastest of many, which is as often
the luckiest, must win again among the few fastest.
"""

import sys


CHOICE_ROUNDS, FINAL_ROUNDS, FINALISTS = 31, 61, 4
TOLD_APART_BY = ("block_n", "num_splits", "stages", "k_stages", "v_stages")  # configs, beside their family


def choices(candidates, count):
    """Configs: the model's first of each family, tile of keys, number of splits and of tiles under way, then its next of any, at most
    `count`, none twice as slow as the very first."""
    fast = [candidate["config"] for candidate in candidates if candidate["estimate_us"] <= 2 * candidates[0]["estimate_us"]]
    first = {}
    for config in fast:
        family, *fields = config.split()
        values = dict(field.split("=") for field in fields)
        first.setdefault((family, *map(values.get, TOLD_APART_BY)), config)
    return list(dict.fromkeys([*first.values(), *fast]))[:count]


def with_config(run, config, attnforge, family=""):
    """(plan, output) of a run with this config and family, which do not stay; AttnforgeError where it is refused."""
    attnforge.configure(config=config, family=family)
    try:
        output = run()
        return list(attnforge.plan_cache)[-1], output
    finally:
        attnforge.configure(config="", family="")


def with_plan(run, plan, device, attnforge):
    """A function that runs with this plan, whatever ran before."""

    def again():
        attnforge.plan_cache.clear()
        attnforge.plan_cache.put((device, plan.problem), plan)
        return run()

    return again


def runs_with(run, configs, device, attnforge):
    """{config: function that runs with it} of those that are not refused."""
    runs = {}
    for config in configs:
        try:
            plan, _ = with_config(run, config, attnforge)
            runs[config] = with_plan(run, plan, device, attnforge)
        except attnforge.AttnforgeError:
            pass
    return runs


def chosen(runs, stored, device, count, flush, heat, attnforge):
    """{name: config} of the fastest of `count` configs, and of that of {name: config}, of each of `runs`, functions with the same
    result. What won for one is in the final of each: else luck would tell caches in pages and in one piece apart."""
    import peer_runs

    def in_order(name, configs, rounds):
        """Those that are not refused, the fastest first."""
        tried = runs_with(runs[name], configs, device, attnforge)
        times = peer_runs.time_ms(tried, rounds, heat, flush) if tried else {}
        found = sorted(times, key=lambda config: times[config].ms)
        if found:
            fastest, slowest = times[found[0]].ms, times[found[-1]].ms
            print(f"  {name}: of {len(found)} configs {fastest:.4f} to {slowest:.4f} ms: {found[0]}", file=sys.stderr)
        return found

    finalists, best = {}, {}
    for name, run in runs.items():
        try:
            run()
        except attnforge.AttnforgeError:  # told where the run is settled
            continue
        problem = list(attnforge.plan_cache)[-1].problem
        configs = choices(attnforge.inspect(str(problem), compile=False)["candidates"], count)
        configs = dict.fromkeys([*filter(None, [stored.get(name)]), *configs])
        finalists[name] = in_order(name, configs, CHOICE_ROUNDS)[:FINALISTS]
    winners = [config for of_run in finalists.values() for config in of_run[:1]]
    for name, own in finalists.items():
        best |= {name: config for config in in_order(name, dict.fromkeys(own + winners), FINAL_ROUNDS)[:1]}
    return best
