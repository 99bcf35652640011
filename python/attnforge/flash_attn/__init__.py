"""The functions of flash_attn 2 by their names, with its arguments: `from attnforge.flash_attn import flash_attn_func`.

The names of version 3 are in attnforge.flash_attn.v3. attnforge.integrations.install_as("flash_attn") puts this package where imports
of flash_attn look. Tensors are torch's, float16 or bfloat16 (float32 too), on an NVIDIA GPU; any head dim up to 512, filled up to a
multiple of 8; k and v may have other head dims. Everything works under torch.compile, and lengths are never read on the host.
Refused by UnsupportedError: dropout, cache_leftpad, and what a function's text says. What only tells a kernel how to go about it
(num_splits, zero_tensors) is left to the plan.
"""

from . import bert_padding, flash_attn_interface, layers
from .flash_attn_interface import (
    flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func, flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache
)

__version__ = "2.8.3"  # whose names these are
# What install_as() names beneath its name; each module of this package, since it would be loaded once more by another name.
SUBMODULES = ("bert_padding", "flash_attn_interface", "kvcache", "layers", "layers.rotary", "v3")
__all__ = [
    "bert_padding", "flash_attn_func", "flash_attn_interface", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache", "layers"
]
