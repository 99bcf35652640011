"""A process that has loaded torch and nothing else: programs that need a process of their own are forks of it, without the seconds
that torch takes to load. Import this before attnforge.
"""

import json
import os
import socket
import sys
import tempfile
import traceback

import torch  # noqa: F401
import torch.distributed  # noqa: F401


def _become(program, arguments, environment, said):
    """Runs the program in this process, which ends with it."""
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    file = os.open(said, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 0
    try:
        exec(program, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve(requests):
    with requests.makefile("rw") as file:
        for line in file:  # until the tests' process ends
            child = os.fork()
            if child == 0:
                _become(*json.loads(line))
            file.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
            file.flush()
    os._exit(0)


_requests, _of_server = socket.socketpair()
if os.fork() == 0:
    _requests.close()
    _serve(_of_server)
_of_server.close()
_file = _requests.makefile("rw")


def run(program, *arguments, **environment):
    """(exit code, what was printed) of a Python program, with variables beside those of this process."""
    with tempfile.NamedTemporaryFile() as said:
        print(json.dumps([program, arguments, environment, said.name]), file=_file, flush=True)
        return int(_file.readline()), said.read().decode()
