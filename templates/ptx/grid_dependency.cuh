// grid_dependency.cuh - kernels that overlap with the one before them (PTX ISA, "griddepcontrol";
// CUDA Programming Guide, "Programmatic Dependent Launch"): from sm_90 on, elsewhere nothing.
#pragma once

#include "base.cuh"

namespace attnforge {

/// The next kernel's blocks may start; what this one writes they see after await_previous_grid().
ATTNFORGE_DEVICE void start_next_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Until the kernel before has ended and all it wrote can be seen. At once where the launch does
/// not overlap.
ATTNFORGE_DEVICE void await_previous_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace attnforge
