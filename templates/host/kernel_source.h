// kernel_source.h - the source of a kernel: its config, its pieces, its entry points, all headers.
#pragma once

#include <string>

#include "generator/config.h"
#include "generator/shape.h"
#include "generator/source.h"
#include "templates/host/assembly.h"

namespace attnforge {

/// "{{.dtype = 2, ...}, 128, 4}": a typed config as a C++ initialiser. Its members are the shape's,
/// then the config's fields in their order but for the last launch_fields; designators cannot name
/// members of a struct with a base.
std::string initializer(const Config& config, const Shape& shape, int launch_fields = 0);

/// `config` as text and `shape` are one typed config, of the kernel that is assembled.
Source kernel_source(const Config& config, const Shape& shape, const Assembly& assembly);

/// That of the assembly of `problem` and `kernel`.
Source kernel_source(const Config& config, const Shape& shape, const Problem& problem,
                     const KernelTraits& kernel);

}  // namespace attnforge
