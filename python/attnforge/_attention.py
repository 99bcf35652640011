"""attention(): plans are looked up by shape, and a run costs a few microseconds of Python."""

import ctypes
import threading

from ._arrays import FP32, ITEM_BYTES, backend_of
from ._context import context
from ._errors import InvalidError
from ._library import PlanOptions, TensorsStruct, check, encode, lib
from ._problem import DTYPES, Problem

_POLICIES = ("estimate", "first_run", "cached_only")
_TENSORS_BYTES = ctypes.sizeof(TensorsStruct)


class _Plan:
    """Owns a plan; it is destroyed when the last run that holds it is over."""

    __slots__ = ("handle", "problem", "workspace_bytes", "_destroy")

    def __init__(self, problem, device, options):
        self.handle = None
        library = lib()
        self._destroy = library.attnforge_plan_destroy
        self.problem = problem
        struct = problem.struct()
        made = ctypes.c_void_p()
        check(
            library.attnforge_plan_create(
                context(device), ctypes.byref(struct), ctypes.byref(options), ctypes.byref(made)
            )
        )
        self.handle = made.value
        size = ctypes.c_size_t()
        check(library.attnforge_plan_workspace(self.handle, None, ctypes.byref(size)))
        self.workspace_bytes = size.value

    @property
    def config(self):
        return lib().attnforge_plan_config(self.handle).decode()

    @property
    def provenance(self):
        return lib().attnforge_plan_provenance(self.handle).decode()

    def __del__(self):
        if self.handle:
            self._destroy(self.handle)


class PlanCache:
    """Plans by (device, dtypes, shapes, options, alignment). Strides are no part of it. Thread-safe.

    Keeps the newest `limit`; a server that sees endless shapes does not grow without bound.
    """

    def __init__(self, limit=4096):
        self._plans = {}
        self._lock = threading.Lock()
        self.limit = limit
        self.get = self._plans.get

    def put(self, key, plan):
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > self.limit:
                del self._plans[next(iter(self._plans))]

    def clear(self):
        with self._lock:
            self._plans.clear()

    def __len__(self):
        return len(self._plans)

    def __iter__(self):
        """The plans, oldest first; each has .problem, .config and .provenance."""
        return iter(list(self._plans.values()))


plan_cache = PlanCache()
_options = {"policy": "estimate", "time_limit_s": 8.0, "no_jit": False, "family": None, "config": None}


def configure(policy=None, time_limit_s=None, no_jit=None, family=None, config=None):
    """How later plans are chosen; what is not given stays.

    policy: "estimate" (the tuned winner, else the model's choice), "first_run" (the winner, else tune within time_limit_s) or
    "cached_only" (the winner, else NotReadyError). no_jit: never compile, NotReadyError instead. family: only this kernel family,
    "" any again. config: exactly this config, as a plan's .config says it, "" any again. Forgets all plans.
    """
    if policy is not None:
        if policy not in _POLICIES:
            raise InvalidError(f"policy={policy!r} must be one of {', '.join(_POLICIES)}")
        _options["policy"] = policy
    if time_limit_s is not None:
        _options["time_limit_s"] = float(time_limit_s)
    if no_jit is not None:
        _options["no_jit"] = bool(no_jit)
    if family is not None:
        _options["family"] = family or None
    if config is not None:
        _options["config"] = config or None
    plan_cache.clear()


def _plan_options():
    return PlanOptions(
        struct_size=ctypes.sizeof(PlanOptions),
        policy=_POLICIES.index(_options["policy"]),
        flags=1 if _options["no_jit"] else 0,
        time_limit_s=_options["time_limit_s"],
        family=encode(_options["family"]),
        config=encode(_options["config"]),
    )


def _window(window, causal):
    """(left, right) with -1 for open, from None, a number of keys or a pair."""
    if window is None:
        return -1, -1
    if isinstance(window, int):
        return window, 0 if causal else window
    left, right = window
    return (-1 if left is None else left), (-1 if right is None else right)


# Places of batch, row (sequence position) and head in shapes and strides.
_LAYOUTS = {"bshd": (0, 1, 2), "bhsd": (0, 2, 1)}


def _places(layout):
    places = _LAYOUTS.get(layout)
    if places is None:
        raise InvalidError(f"layout={layout!r} must be one of {', '.join(_LAYOUTS)}")
    return places


def _low_bits(strides, shape, item_bytes):
    """OR of the strides in bytes that are used: those of dimensions of more than one element."""
    bits = (strides[0] | strides[1] | strides[2]) * item_bytes
    if not bits & 15:
        return bits
    bits = 0
    for size, stride in zip(shape[:3], strides):
        if size > 1:
            bits |= stride
    return bits * item_bytes


def _alignment(bits):
    """Largest of 16, 8, 4, 2 that divides every address and stride that went into `bits`."""
    bits |= 16
    return bits & -bits


def _checked(name, view):
    _, shape, strides, _, _, _ = view
    if len(shape) != 4:
        raise InvalidError(f"{name} has shape {tuple(shape)}; attention needs four dimensions")
    if strides[3] != 1 and shape[3] > 1:
        raise InvalidError(f"the last dimension of {name} has stride {strides[3]}; it must be contiguous")
    return view


def _rope_tables(rope, device):
    """Views of the two tables."""
    views = []
    for name, table in zip(("cos", "sin"), rope):
        view = _, shape, strides, code, table_device, _ = backend_of(table).view(table)
        contiguous = len(shape) == 2 and strides[1] == 1 and strides[0] == shape[1]
        if code != FP32 or not contiguous or table_device != device:
            raise InvalidError(
                f"{name} of rope is {DTYPES[code]} {tuple(shape)} on GPU {table_device}; it must be contiguous float32 "
                f"[rows, rope_dim / 2] on GPU {device}"
            )
        views.append(view)
    if tuple(views[0][1]) != tuple(views[1][1]):
        raise InvalidError(f"cos and sin of rope have shapes {tuple(views[0][1])} and {tuple(views[1][1])}; they must be one")
    return views


def _problem(
    views, layout, causal, window, softmax_scale, softcap, lse, tf32, dtype_o, alignment, rope_dim=0, rope_interleaved=False
):
    batch, row, head = _places(layout)
    (_, q, _, dtype_q, _, _), (_, k, _, dtype_k, _, _), (_, v, _, dtype_v, _, _) = views
    for name, shape in (("k", k), ("v", v)):
        if shape[batch] != q[batch]:
            raise InvalidError(f"{name} has batch {shape[batch]} and q has {q[batch]}")
    if k[row] != v[row] or k[head] != v[head]:
        raise InvalidError(f"k {tuple(k)} and v {tuple(v)} differ in sequence length or heads")
    if k[3] != q[3]:
        raise InvalidError(f"q has head_dim {q[3]} and k has {k[3]}")
    if softmax_scale is not None and not softmax_scale > 0:
        raise InvalidError(f"softmax_scale={softmax_scale} must be positive, or None for 1 / sqrt(head_dim)")
    left, right = _window(window, causal)
    return Problem(
        batch=q[batch],
        num_heads_q=q[head],
        num_heads_kv=k[head],
        seqlen_q=q[row],
        seqlen_kv=k[row],
        head_dim=q[3],
        head_dim_v=v[3],
        dtype_q=DTYPES[dtype_q],
        dtype_k=DTYPES[dtype_k],
        dtype_v=DTYPES[dtype_v],
        dtype_o=DTYPES[dtype_o],
        layout=layout,
        causal=bool(causal),
        lse=lse,
        tf32=bool(tf32),
        alignment_bytes=alignment,
        window_left=left,
        window_right=right,
        softcap=softcap or 0.0,
        softmax_scale=softmax_scale or 0.0,
        rope="none" if rope_dim == 0 else "interleaved" if rope_interleaved else "half",
        rope_dim=rope_dim,
    )


def problem_of(
    q,
    k,
    v,
    causal=False,
    window=None,
    softmax_scale=None,
    softcap=None,
    return_lse=False,
    layout="bshd",
    tf32=False,
    rope=None,
    rope_interleaved=False,
):
    """(problem, device) of a call of attention() with these arguments, outputs allocated by attnforge."""
    views = [_checked(name, backend_of(each).view(each)) for name, each in (("q", q), ("k", k), ("v", v))]
    bits = 0
    for pointer, shape, strides, code, _, _ in views:
        bits |= pointer | _low_bits(strides, shape, ITEM_BYTES[code])
    bits |= views[2][1][3] * ITEM_BYTES[views[0][3]]  # rows of o
    rope_dim = 0 if rope is None else 2 * _rope_tables(rope, views[0][4])[0][1][1]
    problem = _problem(
        views,
        layout,
        causal,
        window,
        softmax_scale,
        softcap,
        bool(return_lse),
        tf32,
        views[0][3],
        _alignment(bits),
        rope_dim,
        rope_interleaved,
    )
    return problem, views[0][4]


def attention(
    q,
    k,
    v,
    causal=False,
    window=None,
    softmax_scale=None,
    softcap=None,
    return_lse=False,
    layout="bshd",
    out=None,
    stream=None,
    tf32=False,
    rope=None,
    rope_interleaved=False,
    rope_offset=0,
):
    """softmax(softmax_scale * q k^T, masked) v on the GPU; returns o, or (o, lse) with return_lse.

    q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_kv, heads_kv, head_dim],
    v [batch, seqlen_kv, heads_kv, head_dim_v]; o is like q with head_dim_v; with layout="bhsd", heads come before seqlen.
    lse is [batch, heads_q, seqlen_q], float32, natural logarithm. Any strides with a contiguous last dimension. Head dims
    are multiples of 8 up to 512; heads_kv divides heads_q.

    causal: bottom-right aligned. window: keys seen on each side of the query's position: a number, or (left, right) with None
    for open. softmax_scale: default 1 / sqrt(head_dim). softcap: s = softcap * tanh(s / softcap).
    rope: (cos, sin), float32 [rows, rope_dim / 2] each: q and k are rotated first, their leading rope_dim elements in pairs
    (i, i + rope_dim / 2), or (2 i, 2 i + 1) with rope_interleaved. Key j takes row rope_offset + j, query i row
    rope_offset + i + seqlen_kv - seqlen_q.
    out: where o goes, with return_lse a pair (o, lse). Arrays of frameworks other than torch and cupy need it.
    stream: a CUDA stream as a number; default: the framework's current one.
    tf32: of float32 tensors, products may round their inputs to TF32 (10 bits of mantissa), which is faster.

    Enqueues on the stream and returns at once; may be captured into a CUDA graph after a first call with the same shapes.
    Has no backward: tensors that require grad are refused unless grad is off.
    """
    backend = backend_of(q)
    view_q = q_pointer, q_shape, q_strides, q_code, device, _ = backend.view(q)
    view_k = k_pointer, k_shape, k_strides, k_code, k_device, _ = backend_of(k).view(k)
    view_v = v_pointer, v_shape, v_strides, v_code, v_device, _ = backend_of(v).view(v)
    if k_device != device or v_device != device:
        raise InvalidError(f"q, k and v are on GPUs {device}, {k_device} and {v_device}; they must be on one")
    batch, row, head = _places(layout)
    if len(q_strides) != 4 or len(k_strides) != 4 or len(v_strides) != 4 or q_strides[3] * k_strides[3] * v_strides[3] != 1:
        for name, view in (("q", view_q), ("k", view_k), ("v", view_v)):
            _checked(name, view)

    # ---- 1. Outputs ----
    lse = None
    if out is None:
        o = backend.empty((*q_shape[:3], v_shape[3]), q_code, device)
        if return_lse:
            lse = backend.empty((q_shape[batch], q_shape[head], q_shape[row]), 0, device)
    elif return_lse:
        o, lse = out
    else:
        o = out
    view_o = o_pointer, o_shape, o_strides, o_code, o_device, _ = backend_of(o).view(o)
    if out is not None:
        _checked("out", view_o)
        wanted = (*q_shape[:3], v_shape[3])
        if tuple(o_shape) != wanted or o_device != device:
            raise InvalidError(f"out has shape {tuple(o_shape)} on GPU {o_device}; it must be {wanted} on GPU {device}")
    lse_pointer, lse_strides, lse_owner = None, (0, 0, 1), None
    if return_lse:
        # The last one may own what keeps the memory alive until the launch.
        lse_pointer, lse_shape, lse_strides, lse_code, lse_device, lse_owner = backend_of(lse).view(lse)
        wanted = (q_shape[batch], q_shape[head], q_shape[row])
        if out is not None and (
            tuple(lse_shape) != wanted or lse_code != 0 or lse_device != device or (lse_strides[2] != 1 and wanted[2] > 1)
        ):
            raise InvalidError(f"the lse of out must be float32 {wanted} on GPU {device} with contiguous rows")

    rope_cos, rope_sin, rope_rows, rope_dim, rope_views = None, None, 0, 0, None
    if rope is not None:
        # The views may own what keeps the memory alive until the launch.
        (rope_cos, shape, _, _, _, _), (rope_sin, _, _, _, _, _) = rope_views = _rope_tables(rope, device)
        rope_rows, rope_dim = shape[0], 2 * shape[1]

    # ---- 2. Plan ----
    bits = (
        q_pointer
        | k_pointer
        | v_pointer
        | o_pointer
        | _low_bits(q_strides, q_shape, ITEM_BYTES[q_code])
        | _low_bits(k_strides, k_shape, ITEM_BYTES[k_code])
        | _low_bits(v_strides, v_shape, ITEM_BYTES[v_code])
        | _low_bits(o_strides, o_shape, ITEM_BYTES[o_code])
    )
    alignment = _alignment(bits)
    if isinstance(window, list):
        window = tuple(window)
    key = (
        device,
        q_code,
        k_code,
        v_code,
        o_code,
        q_shape,
        k_shape,
        v_shape,
        causal,
        window,
        softmax_scale,
        softcap,
        return_lse,
        layout,
        alignment,
        tf32,
        rope_dim,
        rope_interleaved,
    )
    plan = plan_cache.get(key)
    if plan is None:
        problem = _problem(
            (view_q, view_k, view_v),
            layout,
            causal,
            window,
            softmax_scale,
            softcap,
            bool(return_lse),
            tf32,
            o_code,
            alignment,
            rope_dim,
            rope_interleaved,
        )
        plan = _Plan(problem, device, _plan_options())
        plan_cache.put(key, plan)

    # ---- 3. Run ----
    tensors = TensorsStruct(
        _TENSORS_BYTES,
        q_pointer,
        q_strides[batch],
        q_strides[row],
        q_strides[head],
        k_pointer,
        k_strides[batch],
        k_strides[row],
        k_strides[head],
        v_pointer,
        v_strides[batch],
        v_strides[row],
        v_strides[head],
        o_pointer,
        o_strides[batch],
        o_strides[row],
        o_strides[head],
        lse_pointer,
        lse_strides[0],
        lse_strides[1],
        rope_cos,
        rope_sin,
        rope_rows,
        rope_offset,
    )
    if stream is None:
        stream = backend.stream(device)
    workspace, workspace_bytes, keep = _workspace(plan, backend, device, stream)
    status = lib().attnforge_run(plan.handle, ctypes.byref(tensors), workspace, workspace_bytes, stream)
    if status:
        check(status)
    del keep, lse_owner, rope_views  # frameworks free in the stream's order
    return (o, lse) if return_lse else o


_workspaces = {}  # (framework, device, stream) -> address, bytes, owner


def _workspace(plan, backend, device, stream):
    """Address, size and owner of the stream's workspace; nothing for plans that need none. Runs find its counters zeroed and leave them so."""
    size = plan.workspace_bytes
    if size == 0:
        return None, 0, None
    # Memory of a graph is the graph's alone: replays may run beside this stream and beside each other.
    capturing = backend.capturing()
    key = type(backend), device, stream
    known = None if capturing else _workspaces.get(key)
    if known is None or known[1] < size:
        capacity = max(size, 4096)
        base, owner = backend.zeros(capacity + 256, device)
        known = -(-base // 256) * 256, capacity, owner
        if not capturing:
            _workspaces[key] = known
    return known
