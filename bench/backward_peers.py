"""The backward kernels of others that bench/backward.py times: how each is imported, prepared and called. Importing this imports no torch.

A peer is prepared for one point, of which it gets q, k, v and dout as [batch, seqlen, heads, head_dim]: its own forward, what it compiles
and graphs of autograd are done there and are in no time. prepare() gives functions that run the backward and return (dq, dk, dv) like q,
k and v; where there are several, the fastest is what is timed.
"""

import importlib
import importlib.metadata
import inspect



def of_autograd(torch, leaves, o, dout):
    """A function that runs the backward of a graph that is kept."""

    def run():
        return torch.autograd.grad(o, leaves, dout, retain_graph=True)

    return run


def torch_backend(name):
    """One of PyTorch's scaled_dot_product_attention, on the tensors as they are and on copies with the rows of a head together."""

    def load():
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, name)
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def prepare(point, q, k, v, dout):
            options = {"is_causal": bool(point.causal)}
            if point.num_heads_q != point.num_heads_kv:
                options["enable_gqa"] = True

            def runner(copy):
                leaves = [x.transpose(1, 2) for x in (q, k, v)]
                leaves = [(x.contiguous() if copy else x).detach().requires_grad_() for x in leaves]
                of_o = dout.transpose(1, 2)
                with torch.enable_grad(), sdpa_kernel(backend):
                    o = sdpa(*leaves, **options)
                run = of_autograd(torch, leaves, o, of_o.contiguous() if copy else of_o)
                return lambda: [x.transpose(1, 2) for x in run()]

            return [runner(False), runner(True)]

        version = f"torch {torch.__version__}"
        return f"{version}, cuDNN {torch.backends.cudnn.version()}" if name == "CUDNN_ATTENTION" else version, prepare

    return load


def flash_attention_3(deterministic=False):
    """FlashAttention-3 with its backward: the package that its hopper folder builds. The wheel fa3-fwd has no backward."""

    def load():
        import torch

        function = importlib.import_module("flash_attn_interface").flash_attn_func

        def prepare(point, q, k, v, dout):
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            with torch.enable_grad():
                o = function(*leaves, causal=bool(point.causal), deterministic=deterministic)
            return [of_autograd(torch, leaves, o[0] if isinstance(o, tuple) else o, dout)]

        return "flash_attn_interface", prepare

    return load


def flash_attention_4(deterministic=False):
    """FlashAttention-4 from the wheel flash-attn-4: its backward alone, into gradients that are there already where it takes them."""

    def load():
        import torch

        interface = importlib.import_module("flash_attn.cute.interface")
        backward = interface._flash_attn_bwd
        known = inspect.signature(backward).parameters
        if deterministic and "deterministic" not in known:
            raise ImportError("this flash-attn-4 has no deterministic backward")

        def prepare(point, q, k, v, dout):
            with torch.no_grad():
                o, lse = interface.flash_attn_func(q, k, v, causal=bool(point.causal), return_lse=True)[:2]
            if lse is None:
                raise ValueError("its forward gave no lse")
            options = {"causal": bool(point.causal)}
            if deterministic:
                options["deterministic"] = True
            if all(name in known for name in ("dq", "dk", "dv")):
                options |= {"dq": torch.empty_like(q), "dk": torch.empty_like(k), "dv": torch.empty_like(v)}

            def run():
                with torch.no_grad():
                    return backward(q, k, v, o, dout, lse, **options)[:3]

            return [run]

        dsl = importlib.metadata.version("nvidia-cutlass-dsl")
        return f"flash-attn-4 {importlib.metadata.version('flash-attn-4')}, nvidia-cutlass-dsl {dsl}", prepare

    return load


LOADERS = {
    "torch-cudnn": torch_backend("CUDNN_ATTENTION"),
    "torch-flash": torch_backend("FLASH_ATTENTION"),
    "fa3": flash_attention_3(),
    "fa4": flash_attention_4(),
    "fa3-deterministic": flash_attention_3(True),
    "fa4-deterministic": flash_attention_4(True),
}
