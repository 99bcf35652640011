"""tune, inspect and supported: what the command-line tool does, from Python."""

import ctypes
import json

from . import _c, _checks
from ._calls import native
from ._calls.arguments import problem_of
from ._gradients.backward import problem_of_backward
from ._errors import InvalidError, NoDriverError, UnsupportedError
from ._library import check, context, encode, lib, opened_devices, take_string
from ._options import options_of
from ._plans import plan_cache
from ._problem import Problem, as_problem

_RIGORS = ("quick", "full", "exhaustive")
_PHASES = ("compile", "verify", "measure", "final")
_NUMBERS_SO_FAR = ("done", "total", "failed", "best_us", "default_us", "elapsed_s", "remaining_s")


def _context(device, arch):
    try:
        return context(device, arch)
    except NoDriverError as error:
        raise NoDriverError(f'{error}. Without a GPU pass arch="sm_90a", or another that is meant') from None


def supported(problem, arch=None, device=0):
    """(True, "") if attention() serves a problem (a Problem or its text), else (False, reasons). No compile, no GPU work.

    arch: e.g. "sm_90a" asks for a typical GPU of that arch, which need not be present.
    """
    try:
        with as_problem(problem).handle() as handle:
            check(lib().attnforge_query(_context(device, arch), handle))
    except UnsupportedError as error:
        return False, str(error)
    return True, ""


def inspect(problem, arch=None, device=0, config=None, family=None, compile=True, ptx=False, sass=False, max_candidates=0):
    """What a problem becomes, hop by hop, as a dict: candidates, config, source, what the compiler says, launches, times.
    Its keys are in docs/JSON.md under "inspect".

    arch: e.g. "sm_86"; needs no GPU. compile needs NVRTC; sass needs nvdisasm or cuobjdump.
    """
    problem = as_problem(problem)
    wanted = (("compile", compile, _c.INSPECT_COMPILE), ("ptx", ptx, _c.INSPECT_PTX), ("sass", sass, _c.INSPECT_SASS))
    options = _c.InspectOptions(
        struct_size=ctypes.sizeof(_c.InspectOptions),
        flags=sum(bit for name, value, bit in wanted if _checks.flag(name, value)),
        max_candidates=_checks.integer("max_candidates", max_candidates, 0, 2**31 - 1),
        config=encode("config", config),
        family=encode("family", family),
    )
    text = ctypes.c_void_p()
    with problem.handle() as handle:
        check(lib().attnforge_inspect(_context(device, arch), handle, ctypes.byref(options), ctypes.byref(text)))
    return json.loads(take_string(text))


def problem_to_tune(problem_or_tensors, backward=False, **attention_options):
    """(problem, device, or None if nothing says which) of tune() with these arguments."""
    backward = _checks.flag("backward", backward)
    if len(problem_or_tensors) == 1:
        if attention_options or backward:
            options_of(attention_options)
            words = ["backward"] * backward + list(attention_options)
            raise InvalidError(f"{', '.join(words)}: belongs into the problem's text")
        return as_problem(problem_or_tensors[0]), None
    if len(problem_or_tensors) != 3:
        raise InvalidError(f"tune takes a problem, or q, k and v, not {len(problem_or_tensors)} arguments")
    deterministic = _checks.flag("deterministic", attention_options.pop("deterministic", False))
    if backward:
        return problem_of_backward(*problem_or_tensors, deterministic, **attention_options)
    return problem_of(*problem_or_tensors, **attention_options)


def tune(
    *problem_or_tensors, device=None, rigor="full", time_limit_s=0.0, family=None, compile_threads=0, retune=False, seed=1, progress=None,
    backward=False, **attention_options
):
    """Searches the configs of a problem on the GPU; later calls of attention() use the winner. Returns a dict, "tuned" in
    docs/JSON.md.

    tune("fwd bf16 ...") or tune(problem), or tune(q, k, v, causal=True, ...) with the arguments of attention(). With backward=True it
    is the problem of that call's derivative: of lse too with return_lse, of tensors beside q, k and v if they require grad.
    progress(dict) is called as it goes; when it answers True, the search stops and keeps what is done. Ctrl-C does the same
    at the next report of progress, and is raised again afterwards.
    """
    _checks.one_of("rigor", rigor, _RIGORS)
    problem, tensors_device = problem_to_tune(problem_or_tensors, backward, **attention_options)
    device = tensors_device if device is None else device

    raised = []

    @_c.ProgressFunction
    def report(_user, state):
        # An exception cannot pass through C: it is kept, and ends the search.
        try:
            if progress is None:
                return 0
            now = state.contents
            so_far = {name: getattr(now, name) for name in _NUMBERS_SO_FAR}
            best = (now.best_config or b"").decode()
            return int(bool(progress({"phase": _PHASES[now.phase], **so_far, "best_config": best})))
        except BaseException as error:  # KeyboardInterrupt too
            raised.append(error)
            return 1

    options = _c.TuneOptions(
        struct_size=ctypes.sizeof(_c.TuneOptions),
        rigor=_RIGORS.index(rigor),
        time_limit_s=_checks.seconds("time_limit_s", time_limit_s),
        family=encode("family", family),
        compile_threads=_checks.integer("compile_threads", compile_threads, 0, 2**31 - 1),
        retune=int(_checks.flag("retune", retune)),
        seed=_checks.integer("seed", seed, 0, 2**32 - 1),
        progress=report,
    )
    text = ctypes.c_void_p()
    with problem.handle() as handle:
        status = lib().attnforge_tune(context(device or 0), handle, ctypes.byref(options), ctypes.byref(text))
    result = take_string(text) if text.value else None
    plan_cache.clear()
    if raised:
        raise raised[0]
    check(status)
    return json.loads(result)


def stats(device=None):
    """What this process has done for plans so far, of one GPU or of all, as a dict: {"compiles", "plans", "untuned_plans",
    "shipped_plans", "calls_without_python"}.

    compiles: by NVRTC, of a search's tries only the winner's. plans: for problems of which none like it was asked for before.
    untuned_plans: of these, those that policy="cached_only" would have refused; shipped_plans: those that go by a winner that ships
    with the library. calls_without_python: of torch's tensors, on all GPUs, by libattnforge_torch.so (torch 2.10 and later;
    ATTNFORGE_TORCH_SHIM=0 turns it off). To assert that serving compiles nothing, compare two.
    """
    total = {"compiles": 0, "plans": 0, "untuned_plans": 0, "shipped_plans": 0}
    devices = opened_devices() if device is None else [_checks.integer("device", device, 0, 2**31 - 1)]
    for each in devices:
        of_device = _c.Stats(struct_size=ctypes.sizeof(_c.Stats))
        check(lib().attnforge_context_stats(context(each), ctypes.byref(of_device)))
        total = {name: count + getattr(of_device, name) for name, count in total.items()}
    total["calls_without_python"] = native.runs()
    return total


__all__ = ["Problem", "inspect", "stats", "supported", "tune"]
