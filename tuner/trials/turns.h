// turns.h - searches of one process on one GPU at once: while kernels of one run, the others
// compile or wait, so that no time is taken beside foreign kernels.
#pragma once

#include <memory>

#include "attnforge/device.h"
#include "tuner/trials/trials.h"

namespace attnforge {

/// As `trials`, each call of which waits for its turn on the GPU. Turns are by uuid, in the order
/// in which they were asked for; get_ready() has one until the first proof can begin, or does
/// nothing while another has it. Made and used on one thread.
std::unique_ptr<Trials> taking_turns(std::unique_ptr<Trials> trials, const DeviceFacts& device);

}  // namespace attnforge
