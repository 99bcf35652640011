from . import diffusers as diffusers
from . import flex as flex
from . import jax as jax
from . import sdpa as sdpa
from . import sglang as sglang
from . import transformers as transformers
from . import vllm as vllm

def install_as(name: str) -> None: ...
