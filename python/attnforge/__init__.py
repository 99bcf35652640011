"""Attention on NVIDIA GPUs: kernels generated, compiled and tuned for the problem at hand.

    import attnforge
    o = attnforge.attention(q, k, v, causal=True)                      # torch or cupy, [batch, seqlen, heads, head_dim]
    o, lse = attnforge.attention(q, k, v, causal=True, return_lse=True, layout="bhsd")
    attnforge.attention(q, k, v, causal=True).sum().backward()         # torch: gradients where q, k or v require grad

    attnforge.attention(q, k, v, score="s + slope[head] * (k - q)", mask="k <= q", args={"slope": slope})  # C++ of your own

    attnforge.tune("fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal")   # once; later calls use the winner
    print(attnforge.inspect("fwd bf16 seqlen=4096 head_dim=128", arch="sm_90a")["source"])  # needs no GPU

Tensors are read and written where they are, on the framework's current stream, and nothing is copied. The first call for a
shape makes a plan (it tunes, for 8 s at most: configure()); later calls with torch's tensors cost less than PyTorch's own
(docs/NUMBERS.md has times). Needs libattnforge.so, found through $ATTNFORGE_LIBRARY, in the wheel or prefix that this package
is installed in, in a build folder of the checkout, or by the loader. Imports no other package.
"""


from . import _graphs, texts
from ._caches.append import append_kv, prepare_append_kv
from ._attention import attention
from ._gradients.backward import attention_backward
from ._block_mask import BlockMask
from ._errors import (
    AttnforgeError, CompileError, CudaError, InvalidError, NoDriverError, NotReadyError, PerformanceWarning, UnsupportedError,
    WorkspaceError
)
from ._caches.kv_cache import KvCache
from ._float8 import quantize_qkv
from ._library import library_path, version
from ._merge import merge_states
from ._plans import configure, plan_cache
from ._problem import Problem
from ._reference import reference
from ._caches.scales import quantize_kv
from ._tools import inspect, stats, supported, tune
from ._weights import attention_weights, key_mass

__all__ = [
    "AttnforgeError", "BlockMask", "CompileError", "CudaError", "InvalidError", "KvCache", "NoDriverError", "NotReadyError",
    "PerformanceWarning", "Problem", "UnsupportedError", "WorkspaceError", "append_kv", "attention", "attention_backward",
    "attention_weights", "configure", "inspect", "key_mass", "library_path", "merge_states", "plan_cache", "prepare_append_kv", "quantize_kv",
    "quantize_qkv", "reference", "stats", "supported", "texts", "tune", "version"
]

_graphs.torch_is_there()


def __getattr__(name):
    if name == "__version__":
        return version()
    if name in ("flash_attn", "integrations"):  # which import torch
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
