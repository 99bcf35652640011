"""Plans, how they are chosen, and where they are kept."""

import ctypes
import sys
import threading
from typing import NamedTuple, Optional

from . import _c, _checks
from ._library import check, context, encode, forbid_jit, lib

_POLICIES = ("estimate", "first_run", "cached_only")  # by their numbers


class Plan:
    """Owns a plan of the library; it is destroyed when the last run that holds it is over. passing: of one call, not to be kept."""

    __slots__ = ("handle", "problem", "workspace_bytes", "passing", "_destroy")

    def __init__(self, problem, device, choice):
        self.handle = None
        library = lib()
        self._destroy = library.attnforge_plan_destroy
        self.passing = False
        self.problem = problem
        options = choice.struct()
        made = ctypes.c_void_p()
        with problem.handle() as handle:
            check(library.attnforge_plan_create(context(device), handle, ctypes.byref(options), ctypes.byref(made)))
        self.handle = made  # a c_void_p, which ctypes passes on faster than an int
        size = ctypes.c_size_t()
        check(library.attnforge_plan_workspace(self.handle, None, ctypes.byref(size)))
        self.workspace_bytes = size.value

    @property
    def config(self):
        return lib().attnforge_plan_config(self.handle).decode()

    @property
    def family(self):
        return self.config.partition(" ")[0]

    @property
    def provenance(self):
        return lib().attnforge_plan_provenance(self.handle).decode()

    @property
    def layer(self):
        return lib().attnforge_plan_layer(self.handle).decode()

    def run(self, argument, backend, device, queue):
        """Enqueues a run, with memory of the backend's for its workspace, which is freed in the stream's order. argument: a _c.Tensors,
        or its bytes."""
        if self.workspace_bytes == 0:
            check(lib().attnforge_run(self.handle, argument, None, 0, queue))
            return
        with backend.scratch(self.workspace_bytes + 255, device, queue) as address:
            workspace = -(-address // 256) * 256
            check(lib().attnforge_run(self.handle, argument, workspace, self.workspace_bytes, queue))

    def __del__(self):
        if self.handle:
            self._destroy(self.handle)


class PlanCache:
    """Plans by (device, problem), and what attention() remembers of calls (strides, ...) that led to them. Thread-safe.

    Keeps the newest `limit` of each; a server that sees endless shapes does not grow without bound.
    """

    def __init__(self, limit=4096):
        self._plans = {}
        self._calls = {}
        self._lock = threading.Lock()
        self.limit = limit
        self.epoch = 0  # of clear(): what was begun before is not kept after
        self.on_clear = []  # functions, called after each clear()
        self.agreed = {}  # config by bucket, of distributed.agree()
        self.get = self._plans.get
        self.get_call = self._calls.get

    def put(self, key, plan, epoch=None):
        # Not if clear() was called since `epoch`.
        self._put(self._plans, key, plan, epoch)

    def put_call(self, key, call, epoch=None):
        self._put(self._calls, key, call, epoch)

    def _put(self, kept, key, value, epoch):
        with self._lock:
            if epoch is not None and epoch != self.epoch:
                return
            kept[key] = value
            while len(kept) > self.limit:
                del kept[next(iter(kept))]

    def clear(self):
        """Forgets all plans and calls; later calls make theirs anew. Runs that were enqueued are not disturbed."""
        with self._lock:
            self.epoch += 1
            self._calls.clear()
            self._plans.clear()
        for each in self.on_clear:
            each()

    def passing(self, plan):
        """A plan for this call alone: no call that is under way remembers it."""
        plan.passing = True
        with self._lock:
            self.epoch += 1
        return plan

    def __len__(self):
        return len(self._plans)

    def __iter__(self):
        """The plans, oldest first; each has .problem, .config, .provenance and .layer."""
        with self._lock:
            return iter(list(self._plans.values()))


class Choice(NamedTuple):
    """How plans are chosen: what configure() sets."""

    policy: str = "first_run"
    time_limit_s: float = 8.0
    family: Optional[str] = None
    config: Optional[str] = None

    def of(self, op):
        """The same for problems of an op: a family or a config of another's is not meant."""
        others = tuple(f"{other}_" for other in ("fwd", "bwd", "merge", "append") if other != op)
        family, config = (None if text and text.startswith(others) else text for text in (self.family, self.config))
        return self._replace(family=family, config=config)

    def struct(self):
        """As the C API takes it."""
        return _c.PlanOptions(
            struct_size=ctypes.sizeof(_c.PlanOptions),
            policy=_POLICIES.index(self.policy),
            time_limit_s=self.time_limit_s,
            family=encode("family", self.family),
            config=encode("config", self.config),
        )


def _is_capturing():
    """Whether torch captures its current stream into a graph: that may not wait for a tuning."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return getattr(cuda, "is_initialized", bool)() and cuda.is_current_stream_capturing()


plan_cache = PlanCache()
_choice = Choice()
_configuring = threading.Lock()


def choice(op="fwd"):
    """What configure() has set, for problems of an op. Ask for plan_cache.epoch before."""
    return _choice.of(op)


def plan_of(problem, device, warn=None, epoch=None):
    """The plan of a problem, made if there is none. warn(plan) is called of a new one whose kernel the caller did not ask for.
    epoch: the cache's when the call began, if that was before."""
    epoch, key = plan_cache.epoch if epoch is None else epoch, (device, problem)
    plan = plan_cache.get(key)
    if plan is None:
        chosen = choice(problem.op)
        if plan_cache.agreed and chosen.family is None and chosen.config is None:
            chosen = chosen._replace(config=plan_cache.agreed.get(problem.bucket()))
        if chosen.policy == "first_run" and _is_capturing():
            return plan_cache.passing(Plan(problem, device, chosen._replace(policy="estimate")))
        plan = Plan(problem, device, chosen)
        if warn is not None and chosen.family is None and chosen.config is None:
            warn(plan)
        plan_cache.put(key, plan, epoch)
    return plan


def configure(policy=None, time_limit_s=None, no_jit=None, family=None, config=None):
    """How later plans are chosen; what is not given stays.

    policy: "first_run", the default (the tuned winner, else tune within time_limit_s, by processes of the program attnforge; while a
    graph is captured, and without the program, as "estimate"), "estimate" (the winner, else that of a problem like it, else the
    model's choice) or "cached_only" (the winner, else NotReadyError). no_jit: never compile and never tune,
    NotReadyError instead, also of zeros after packed rows, of weights and of block masks.
    family: only this kernel family, "" any again. config: exactly this config, as a plan's .config says it, "" any again: of forward
    problems where its name begins with fwd_, of gradients where it begins with bwd_, of merge_states() with merge_, of
    append_kv() with append_. Forgets all plans.
    """
    global _choice
    changes = {}
    if policy is not None:
        changes["policy"] = _checks.one_of("policy", policy, _POLICIES)
    if time_limit_s is not None:
        changes["time_limit_s"] = _checks.seconds("time_limit_s", time_limit_s)
    no_jit = None if no_jit is None else _checks.flag("no_jit", no_jit)
    if family is not None:
        changes["family"] = _checks.text("family", family) or None
    if config is not None:
        changes["config"] = _checks.text("config", config) or None
    with _configuring:
        _choice = _choice._replace(**changes)
        if no_jit is not None:
            forbid_jit(no_jit)
        plan_cache.clear()
