// same_code.h - a winner whose source was changed since, but not its machine code, is the kernel
// that was measured.
#pragma once

#include "plan/choice/choice.h"
#include "plan/device_state.h"

namespace attnforge {

/// Compares the code that a stale choice was measured with, where the database has it, to that of
/// today's source, which is compiled if it is not stored and `may_compile`. Where they are equal
/// the choice becomes a measured one, and the try is stored under today's digest too: the next
/// process finds it so. Anything else, or a compile that fails, leaves the choice as it is. Never
/// throws but for lack of memory.
void recognise(Choice& choice, bool may_compile, DeviceState& state);

}  // namespace attnforge
