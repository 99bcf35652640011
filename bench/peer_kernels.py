"""The kernels of others that bench/ times beside attnforge: how each is imported and called, and which of them agree.

A peer is prepared for one problem or point, of which it gets q, k and v, and for a backward pass dout, as [batch, seqlen, heads, head_dim]:
what it compiles, plans, searches or copies to a layout of its own is done there and is in no time, nor is the forward of a backward pass.
Importing this file imports no torch.
"""

import collections
import functools
import importlib
import importlib.metadata
import inspect

Peer = collections.namedtuple("Peer", "name version prepare")
# prepare(problem, q, k, v[, dout]): functions that run it and return o like q, with head_dim_v, or (dq, dk, dv) like q, k and v; where
# there are several, the fastest is what is timed. Raises whatever the peer raises where it does not serve the problem.

WRONG = 1e-2  # relative error from which outputs are not those of the same problem


def refuse_other_masks(problem):
    """The peers are called for full and causal attention alone."""
    if problem.window_left >= 0 or problem.window_right >= 0 or problem.softcap or problem.rope != "none":
        raise ValueError("only called for full and causal attention")
    if problem.causal and problem.seqlen_q != problem.seqlen_kv:
        raise ValueError("only called for causal masks of equal lengths: elsewhere they are aligned differently")


# ---- How each is loaded: (version, prepare) ----


def of_autograd(o, leaves, dout):
    """A function that runs the backward of a graph that is kept."""
    import torch

    return lambda: torch.autograd.grad(o, leaves, dout, retain_graph=True)


def torch_backend(name):
    """One of PyTorch's scaled_dot_product_attention, in both layouts: as the tensors are, and with rows of a head together."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, name)
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def prepare(problem, q, k, v, dout=None):
        options = {"is_causal": bool(problem.causal)}
        if problem.num_heads_q != problem.num_heads_kv:
            options["enable_gqa"] = True

        def runner(copy):
            turned = [x.transpose(1, 2) for x in (q, k, v, *([] if dout is None else [dout]))]
            inputs = [x.contiguous() for x in turned] if copy else turned

            def forward():
                with sdpa_kernel(backend):
                    return sdpa(*inputs[:3], **options)

            if dout is None:
                return lambda: forward().transpose(1, 2)
            inputs = [x.detach().requires_grad_() for x in inputs[:3]] + inputs[3:]
            with torch.enable_grad():
                backward = of_autograd(forward(), inputs[:3], inputs[3])
            return lambda: [x.transpose(1, 2) for x in backward()]

        return [runner(False), runner(True)]

    version = f"torch {torch.__version__}"
    return f"{version}, cuDNN {torch.backends.cudnn.version()}" if name == "CUDNN_ATTENTION" else version, prepare


def fa3_package(backward=False):
    """(module, version) of FlashAttention-3: a whole build of it, or the wheel fa3-fwd, which has bf16 alone, no pages and no backward."""
    name = "flash_attn_interface"
    try:
        package = importlib.import_module(name)
        distribution = importlib.metadata.packages_distributions().get(name, ["flash-attn-3"])[0]  # several build it
    except ModuleNotFoundError:
        if backward:
            raise
        package, distribution = importlib.import_module("fa3_fwd_interface"), "fa3-fwd"
    return package, f"{distribution} {importlib.metadata.version(distribution)}"


def flash_attention_3():
    """It writes lse in any case. Keys are split as it thinks best, too."""
    package, version = fa3_package()
    function = package.flash_attn_func

    def prepare(problem, q, k, v):
        runs = [lambda: function(q, k, v, causal=problem.causal)]
        if problem.seqlen_q < problem.seqlen_kv:
            runs.append(lambda: function(q, k, v, causal=problem.causal, num_splits=0))
        return runs

    return version, prepare


def flash_attention_3_backward(deterministic=False):
    import torch

    package, version = fa3_package(backward=True)

    def prepare(point, q, k, v, dout):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.enable_grad():
            o = package.flash_attn_func(*leaves, causal=bool(point.causal), deterministic=deterministic)
        return [of_autograd(o[0] if isinstance(o, tuple) else o, leaves, dout)]

    return version, prepare


def fa4_package(name):
    """(module, version) of FlashAttention-4 from the wheel flash-attn-4."""
    dsl = importlib.metadata.version("nvidia-cutlass-dsl")
    return importlib.import_module(name), f"flash-attn-4 {importlib.metadata.version('flash-attn-4')}, nvidia-cutlass-dsl {dsl}"


def flash_attention_4():
    """It writes lse where it is asked to, as attnforge is."""
    package, version = fa4_package("flash_attn.cute")

    def prepare(problem, q, k, v):
        return [lambda: package.flash_attn_func(q, k, v, causal=problem.causal, return_lse=problem.lse)[0]]

    return version, prepare


def flash_attention_4_backward(deterministic=False):
    """Its backward alone, into gradients that are there already where it takes them."""
    import torch

    interface, version = fa4_package("flash_attn.cute.interface")
    known = inspect.signature(interface._flash_attn_bwd).parameters
    if deterministic and "deterministic" not in known:
        raise ImportError("this flash-attn-4 has no deterministic backward")

    def prepare(point, q, k, v, dout):
        options = {"causal": bool(point.causal)}
        with torch.no_grad():
            o, lse = interface.flash_attn_func(q, k, v, **options, return_lse=True)[:2]
        if lse is None:
            raise ValueError("its forward gave no lse")
        if deterministic:
            options["deterministic"] = True
        if all(name in known for name in ("dq", "dk", "dv")):
            options |= {"dq": torch.empty_like(q), "dk": torch.empty_like(k), "dv": torch.empty_like(v)}

        def run():
            with torch.no_grad():
                return interface._flash_attn_bwd(q, k, v, o, dout, lse, **options)[:3]

        return [run]

    return version, prepare


def packed(package, version):
    """The kernel for packed sequences, all of them of q as of k."""

    def prepare(cu_seqlens, longest, causal, q, k, v):
        bounds = {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens, "max_seqlen_q": longest, "max_seqlen_k": longest}
        return [functools.partial(package.flash_attn_varlen_func, q, k, v, **bounds, causal=causal)]

    return version, prepare


def flashinfer_package():
    """(module, version)."""
    return importlib.import_module("flashinfer"), f"flashinfer {importlib.metadata.version('flashinfer-python')}"


def flashinfer():
    """FlashInfer's batched prefill of ragged sequences, planned beforehand."""
    import torch

    package, version = flashinfer_package()
    wrapper_type = package.BatchPrefillWithRaggedKVCacheWrapper

    def prepare(problem, q, k, v):
        wrapper = wrapper_type(torch.empty(256 << 20, dtype=torch.uint8, device=q.device), "NHD")
        starts = [
            torch.arange(problem.batch + 1, dtype=torch.int32, device=q.device) * length
            for length in (problem.seqlen_q, problem.seqlen_kv)
        ]
        heads = problem.num_heads_q, problem.num_heads_kv, problem.head_dim
        wrapper.plan(
            *starts, *heads, head_dim_vo=problem.head_dim_v, causal=problem.causal, q_data_type=q.dtype, kv_data_type=k.dtype
        )
        rows = [x.flatten(0, 1) for x in (q, k, v)]
        return [lambda: wrapper.run(*rows).unflatten(0, (problem.batch, problem.seqlen_q))]

    return version, prepare


def flex_run(q, k, v, mask=None, score=None, dout=None, kernel=None):
    """PyTorch's flex_attention, compiled with max-autotune for these tensors, on copies with the rows of a head together. kernel: its
    kernel_options."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # of the problems before: it gives up compiling anew after some
    function = torch.compile(flex_attention, mode="max-autotune-no-cudagraphs", dynamic=False)
    options = {"enable_gqa": q.shape[2] != k.shape[2], "score_mod": score}
    if mask is not None:
        options["block_mask"] = create_block_mask(mask, None, None, q.shape[1], k.shape[1], device=q.device, BLOCK_SIZE=128)
    if kernel:
        options["kernel_options"] = kernel
    heads_first = [x.transpose(1, 2).contiguous().requires_grad_(dout is not None) for x in (q, k, v)]
    if dout is None:
        return lambda: function(*heads_first, **options).transpose(1, 2)
    with torch.enable_grad():
        backward = of_autograd(function(*heads_first, **options), heads_first, dout.transpose(1, 2).contiguous())
    return lambda: [x.transpose(1, 2) for x in backward()]


def flex():
    """Causal is a block mask."""
    import torch

    def prepare(problem, q, k, v):
        return [flex_run(q, k, v, (lambda batch, head, row, key: row >= key) if problem.causal else None)]

    return f"torch {torch.__version__}, triton {importlib.metadata.version('triton')}, max-autotune", prepare


def untuned():
    """attnforge itself with its model's first choice, to see what tuning gains. A problem has one plan at a time: attnforge's own run has
    to put its plan back, too."""
    import attnforge
    import choice
    import peer_runs

    def prepare(problem, q, k, v):
        first = attnforge.inspect(problem, compile=False, max_candidates=1)["candidates"][0]["config"]
        run = peer_runs.attnforge_run(problem, q, k, v)
        plan, _ = choice.with_config(run, first, attnforge)
        return [choice.with_plan(run, plan, q.device.index, attnforge)]

    return f"attnforge {attnforge.version()}, the model's first choice", prepare


# Also the order in which their outputs are taken to compare with.
LOADERS = {
    "torch-cudnn": functools.partial(torch_backend, "CUDNN_ATTENTION"),
    "torch-flash": functools.partial(torch_backend, "FLASH_ATTENTION"),
    "torch-efficient": functools.partial(torch_backend, "EFFICIENT_ATTENTION"),
    "torch-math": functools.partial(torch_backend, "MATH"),
    "fa3": flash_attention_3,
    "fa4": flash_attention_4,
    "flashinfer": flashinfer,
    "flex": flex,
    "untuned": untuned,
}
BACKWARD = {
    "torch-cudnn": LOADERS["torch-cudnn"],
    "torch-flash": LOADERS["torch-flash"],
    "fa3": flash_attention_3_backward,
    "fa4": flash_attention_4_backward,
    "fa3-deterministic": functools.partial(flash_attention_3_backward, deterministic=True),
    "fa4-deterministic": functools.partial(flash_attention_4_backward, deterministic=True),
}
PACKED = {"fa3": lambda: packed(*fa3_package()), "fa4": lambda: packed(*fa4_package("flash_attn.cute"))}
DEFAULT = [name for name in LOADERS if name not in ("torch-math", "untuned")]  # one materializes all scores, one is attnforge


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__


def find(names, loaders=LOADERS, needed=False):
    """(the peers of `names` that can be imported, {name: why not} of the others). needed: --peers names them, and one that
    cannot be imported ends the run before it costs time on a GPU.
    """
    unknown = [name for name in names if name not in loaders]
    if unknown:
        raise SystemExit(f"no peer is named {', '.join(unknown)}; there are {', '.join(loaders)}")
    peers, missing = [], {}
    for name in names:
        try:
            version, prepare = loaders[name]()
        except Exception as error:  # what a package raises while it is imported is its own
            missing[name] = first_line(error)
            continue
        peers.append(Peer(name, version, prepare))
    if needed and missing:
        reasons = "; ".join(f"{name} cannot be imported: {why}" for name, why in missing.items())
        raise SystemExit(f"{reasons}. Install what --peers names, or leave it out there")
    return peers, missing


def who(peers, missing, asked, usual):
    """Lines for a file's header: the versions of those in the run, and why others of `usual` are not."""
    lines = [f"peer {peer.name}: {peer.version}" for peer in peers]
    lines += [f"not in the run: {name}: {why}" for name, why in missing.items()]
    return lines + [f"not in the run: {name}: not asked for" for name in usual if name not in asked]


# ---- Which outputs are right ----


def relative_error(output, wanted):
    """Of tensors; `wanted` is in fp32."""
    return ((output.float() - wanted).norm() / wanted.norm()).item()


def output_of(result):
    """Some kernels return more beside it in some builds."""
    return result[0] if isinstance(result, (tuple, list)) else result


def drop_wrong(runs, notes, error_of, beside, wrong=WRONG):
    """{name: relative error} of the runs by error_of(name, run); beside: what from. What is wrong goes from `runs` to `notes`."""
    errors = {}
    for name, run in list(runs.items()):
        try:
            errors[name] = error_of(name, run)
            if errors[name] < wrong:
                continue
            notes[name] = f"wrong: differs from {beside} by {errors[name]:.1e}"
        except RuntimeError as error:
            notes[name] = first_line(error)
        del runs[name]
    return errors


def judge(errors):
    """(reference, {name: relative error to it}) from errors[one][other], of all that ran.

    The reference is the peer with which most of the others agree, so that a peer that is wrong is alone. None and {} where
    there is no peer.
    """
    peers = [name for name in LOADERS if name in errors]
    if not peers:
        return None, {}
    agree = {name: sum(errors[name][other] < WRONG for other in errors if other != name) for name in peers}
    reference = max(peers, key=agree.get)
    return reference, errors[reference]
