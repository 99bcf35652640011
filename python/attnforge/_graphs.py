"""Under torch.compile a call of this package is between two graphs: nothing inside it is traced."""

_outside = []


def outside(function):
    """`function`, where tracing of a caller ends: it launches kernels that no graph knows."""
    function._torchdynamo_disable = True  # as torch.compiler.disable() marks its own, which would need all of the compiler
    function._torchdynamo_disable_msg = "attnforge launches kernels that no graph knows"
    _outside.append(function)
    return function


def leave_out(torch):
    """Once torch is there: those functions, and all that they call, run as they are. Without it calls give the same, but the first
    ones of a shape are traced in vain."""
    frames = getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "eval_frame", None)
    try:
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for function in _outside:
            frames.set_code_exec_strategy(function.__code__, skip)
    except (AttributeError, TypeError):  # torch before 2.7
        pass
