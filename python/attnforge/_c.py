"""The structs, constants and functions of include/attnforge/c.h and the headers that it includes. Written by tools/c_mirror.py; change those."""

from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

ABI_VERSION = 2
OK = 0
ERR_INVALID = 1
ERR_UNSUPPORTED = 2
ERR_WORKSPACE = 3
ERR_COMPILE = 4
ERR_CUDA = 5
ERR_NOT_READY = 6
ERR_NO_MEMORY = 7
ERR_NO_DRIVER = 8
ERR_IO = 9
ERR_INTERNAL = 10
LOG_DEBUG = 0
LOG_INFO = 1
LOG_WARNING = 2
LOG_ERROR = 3
NO_JIT = 1
READ_ONLY_CACHE = 2
POLICY_ESTIMATE = 0
POLICY_FIRST_RUN = 1
POLICY_CACHED_ONLY = 2
RIGOR_QUICK = 0
RIGOR_FULL = 1
RIGOR_EXHAUSTIVE = 2
INSPECT_COMPILE = 1
INSPECT_PTX = 2
INSPECT_SASS = 4


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("stride_batch", c_int64), ("stride_row", c_int64), ("stride_head", c_int64)]


class Rows(Structure):
    _fields_ = [("data", c_void_p), ("stride_batch", c_int64), ("stride_head", c_int64)]


class Rope(Structure):
    _fields_ = [("struct_size", c_uint32), ("cos", c_void_p), ("sin", c_void_p), ("rows", c_int64), ("offset", c_int64)]


class Lengths(Structure):
    _fields_ = [("struct_size", c_uint32), ("q", c_void_p), ("kv", c_void_p), ("tokens_q", c_int64), ("tokens_kv", c_int64)]


class BlockMaskLists(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("row_begin", c_void_p), ("columns", c_void_p), ("bits", c_void_p), ("bit_blocks", c_void_p),
    ]


class Pages(Structure):
    _fields_ = [("struct_size", c_uint32), ("table", c_void_p), ("stride_batch", c_int64), ("num_pages", c_int64)]


class KvScales(Structure):
    _fields_ = [("struct_size", c_uint32), ("k", Tensor), ("v", Tensor), ("q", Tensor)]


class Gradients(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("dout", Tensor), ("dq", Tensor), ("dk", Tensor), ("dv", Tensor), ("dlse", Rows),
        ("dsinks", c_void_p),
    ]


class State(Structure):
    _fields_ = [("o", Tensor), ("lse", Rows)]


class Cache(Structure):
    _fields_ = [("struct_size", c_uint32), ("k", Tensor), ("v", Tensor), ("lengths_after", c_void_p)]


class Tensors(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("q", Tensor), ("k", Tensor), ("v", Tensor), ("o", Tensor), ("lse", Rows), ("rope", c_void_p),
        ("lengths", c_void_p), ("block_mask", c_void_p), ("pages", c_void_p), ("gradients", c_void_p), ("parts", c_void_p),
        ("cache", c_void_p), ("kv_scales", c_void_p), ("code_arguments", c_void_p), ("sinks", c_void_p),
    ]


class Sizes(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("batch", c_int64), ("seqlen_q", c_int64), ("seqlen_kv", c_int64), ("tokens_q", c_int64),
        ("tokens_kv", c_int64),
    ]


LogFunction = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class ContextDesc(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("device", c_int32), ("arch", c_char_p), ("cache_path", c_char_p),
        ("log", LogFunction), ("log_user", c_void_p),
    ]


class Stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("compiles", c_uint64), ("plans", c_uint64), ("untuned_plans", c_uint64),
        ("shipped_plans", c_uint64),
    ]


class Progress(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("phase", c_int32), ("done", c_int32), ("total", c_int32), ("failed", c_int32),
        ("best_us", c_double), ("default_us", c_double), ("elapsed_s", c_double), ("remaining_s", c_double),
        ("best_config", c_char_p),
    ]


ProgressFunction = CFUNCTYPE(c_int, c_void_p, POINTER(Progress))


class PlanOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("policy", c_int32), ("flags", c_uint32), ("time_limit_s", c_double), ("family", c_char_p),
        ("config", c_char_p), ("progress", ProgressFunction), ("progress_user", c_void_p), ("stream", c_void_p),
    ]


class BlockMaskShape(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("block_q", c_int32), ("block_kv", c_int32), ("seqlen_q", c_int64), ("seqlen_kv", c_int64),
        ("heads", c_int64), ("batch", c_int64),
    ]


class BlockMaskInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("row_begin", c_void_p), ("columns", c_void_p), ("bits", c_void_p), ("bit_blocks", c_void_p),
        ("row_begin_count", c_int64), ("columns_count", c_int64), ("bits_count", c_int64), ("blocks", c_int64), ("full", c_int64),
        ("partial", c_int64),
    ]


class TuneOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("rigor", c_int32), ("time_limit_s", c_double), ("family", c_char_p),
        ("compile_threads", c_int32), ("retune", c_int32), ("seed", c_uint32), ("progress", ProgressFunction),
        ("progress_user", c_void_p),
    ]


class InspectOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("flags", c_uint32), ("max_candidates", c_int32), ("config", c_char_p), ("family", c_char_p),
    ]


class Rest(Structure):
    _fields_ = [("data", c_void_p), ("begin", c_void_p), ("rows", c_int64), ("row_bytes", c_int64), ("pieces", c_int64)]


class HostTensor(Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


# Result and arguments. Structs that are passed by their addresses are c_void_p, as handles are.
FUNCTIONS = {
    "attnforge_abi_version": (c_uint32, []),
    "attnforge_version": (c_char_p, []),
    "attnforge_status_name": (c_char_p, [c_int]),
    "attnforge_last_error": (c_char_p, []),
    "attnforge_free_string": (None, [c_void_p]),
    "attnforge_problem_create": (c_int, [c_char_p, c_void_p]),
    "attnforge_problem_destroy": (None, [c_void_p]),
    "attnforge_problem_set_sizes": (c_int, [c_void_p, c_void_p]),
    "attnforge_problem_round": (c_int, [c_void_p]),
    "attnforge_problem_format": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "attnforge_context_create": (c_int, [c_void_p, c_void_p]),
    "attnforge_context_destroy": (None, [c_void_p]),
    "attnforge_context_set_no_jit": (c_int, [c_void_p, c_int32]),
    "attnforge_context_stats": (c_int, [c_void_p, c_void_p]),
    "attnforge_query": (c_int, [c_void_p, c_void_p]),
    "attnforge_plan_create": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attnforge_plan_destroy": (None, [c_void_p]),
    "attnforge_plan_workspace": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attnforge_plan_problem": (c_char_p, [c_void_p]),
    "attnforge_plan_config": (c_char_p, [c_void_p]),
    "attnforge_plan_provenance": (c_char_p, [c_void_p]),
    "attnforge_plan_layer": (c_char_p, [c_void_p]),
    "attnforge_plan_measured_us": (c_double, [c_void_p]),
    "attnforge_contiguous_tensors": (c_int, [c_void_p, c_void_p]),
    "attnforge_run": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p]),
    "attnforge_block_mask_from_bsr": (c_int, [
        c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p,
    ]),
    "attnforge_block_mask_from_dense": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "attnforge_block_mask_random": (c_int, [c_void_p, c_double, c_uint64, c_void_p]),
    "attnforge_block_mask_window": (c_int, [c_void_p, c_int64, c_int64, c_int64, c_void_p]),
    "attnforge_block_mask_strided": (c_int, [c_void_p, c_int64, c_int64, c_void_p]),
    "attnforge_block_mask_documents": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "attnforge_block_mask_from_text": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "attnforge_block_mask_from_dense_on_gpu": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "attnforge_block_mask_to_gpu": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attnforge_block_mask_to_host": (c_int, [c_void_p, c_void_p]),
    "attnforge_block_mask_transpose": (c_int, [c_void_p, c_void_p, c_void_p]),
    "attnforge_block_mask_destroy": (None, [c_void_p]),
    "attnforge_block_mask_on_gpu": (c_int, [c_void_p, c_void_p]),
    "attnforge_block_mask_get_shape": (c_int, [c_void_p, c_void_p]),
    "attnforge_block_mask_get": (c_int, [c_void_p, c_void_p]),
    "attnforge_block_mask_words": (c_int, [c_void_p, c_void_p]),
    "attnforge_block_mask_draw": (c_int, [c_void_p, c_int64, c_int64, c_int32, c_void_p]),
    "attnforge_tune": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attnforge_inspect": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attnforge_clear_rest": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "attnforge_attention_weights": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_void_p]),
    "attnforge_key_mass": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "attnforge_solve_on_cpu": (c_int, [c_void_p, c_void_p, c_size_t]),
}
