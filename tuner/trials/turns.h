// turns.h - searches of one process on one GPU at once: while kernels of one run, the others
// compile or wait, so that no time is taken beside foreign kernels.
#pragma once

#include <memory>

#include "attnforge/device.h"
#include "tuner/trials/trials.h"

namespace attnforge {

/// How long one lasts. kToTheEnd: the first is the only one, as in one CUDA context, where a fault
/// of one search would be taken for the other's.
enum class Turns { kEachCall, kToTheEnd };

/// As `trials`; what works on the GPU waits for its turn, all but start(). Turns are by uuid, in
/// the order in which they were asked for; get_ready() has one until the first proof can begin, or
/// does nothing while another has it. Used on one thread.
std::unique_ptr<Trials> taking_turns(std::unique_ptr<Trials> trials, const DeviceFacts& device,
                                     Turns turns);

}  // namespace attnforge
