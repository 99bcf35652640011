// worker_program.h - which program tries kernels for a search.
#pragma once

#include <string>

#include "tuner/worker/process.h"

namespace attnforge {

/// What both sides of a search must agree on: version, messages, and the headers of kernels,
/// in which their arguments are declared.
const std::string& worker_identity();

/// Where searches try kernels.
struct WorkerChoice {
  WorkerProgram program{};  // path "": there is none
  bool
      in_process = false;  // ATTNFORGE_WORKER=in_process: also a first run, in the caller's process
  std::string missing{};   // why there is none, and what to do
};

/// By ATTNFORGE_WORKER: a program's path, "none" or "in_process"; else the program attnforge in the
/// folder of this library or program, or in ../bin beside it. Throws Error(kInvalidArgument) for a
/// path that is no program.
WorkerChoice worker_from_environment();

/// The same for a GPU. One that is found without ATTNFORGE_WORKER is not used where the GPU's
/// compute mode would not let it: with it, the caller knows of MPS.
WorkerChoice worker_for(int ordinal);

}  // namespace attnforge
