"""attnforge under the names of others: of torch.compile, flash_attn, torch's SDPA, FlexAttention, transformers, and for JAX.

    from attnforge import integrations
    integrations.install_as("flash_attn")                  # what imports flash_attn has attnforge.flash_attn
    integrations.sdpa.register()                           # torch.nn.attention.activate_flash_attention_impl("ATTNFORGE")
    from attnforge.integrations.flex import flex_attention # the functions of torch's
    integrations.transformers.register()                   # from_pretrained(..., attn_implementation="attnforge")

Nothing here happens by an import. Modules are imported when they are first named, and torch with them.
"""

import importlib
import sys

_MODULES = ("diffusers", "flex", "jax", "sdpa", "sglang", "torch_ops", "transformers", "vllm")
_STAND_INS = {"flash_attn": "attnforge.flash_attn", "flash_attn_interface": "attnforge.flash_attn.v3"}


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install_as(name):
    """Puts attnforge.flash_attn where later imports look for `name`: "flash_attn", or "flash_attn_interface" for the names of version
    3. Raises ImportError where another module of that name was imported before."""
    if name not in _STAND_INS:
        raise ValueError(f"name={name!r} must be one of {', '.join(_STAND_INS)}")
    package = importlib.import_module(_STAND_INS[name])
    there = sys.modules.setdefault(name, package)
    if there is not package:
        raise ImportError(f"{name} was imported before, from {getattr(there, '__file__', 'elsewhere')}: call install_as({name!r}) first")
    prefix = package.__name__ + "."
    for each in getattr(package, "SUBMODULES", ()):
        sys.modules[f"{name}.{each}"] = importlib.import_module(prefix + each)
