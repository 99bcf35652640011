// kernel_source.h - the source of a family that has one kernel: the lines that name its config and
// its entry point, and the text of all headers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config.h"
#include "generator/shape.h"
#include "generator/source.h"

namespace attnforge {

/// A piece of a kernel that differs from what DensePieces has: `using {name} = {type};`, where
/// `type` is defined in the header. docs/ARCHITECTURE.md, "Seams".
struct Piece {
  std::string_view header;        // "pieces/plain_score.cuh"
  std::string_view name;          // "Score"
  std::string type;               // "PlainScore"
  std::string_view parameters{};  // of a template: "template <int kElementBytes> "
};

/// Names in the generated lines. `folder`/kernel.cuh defines the template `type` with a static
/// run(); its config type is `type` + "Config".
struct KernelNames {
  std::string symbol;                     // of the entry point, "fwd_wmma_bf16_d128_64x64"
  std::string_view folder;                // below templates/: "ladder/fwd_wmma"
  std::string_view type;                  // "FwdWmma"
  std::string params;                     // type of the argument, "FwdWmmaParams"
  std::size_t params_bytes = 0;           // its size here, which NVRTC must agree with
  std::vector<std::string_view> parts{};  // headers of the steps that the launch has beside it
  std::string declarations{};             // lines after the headers
  // Of the config: threads of a block, and blocks on an SM that registers are to leave room for.
  std::string_view threads = "num_threads()";
  std::string_view blocks_per_sm = "blocks_per_sm";
  // Of a kernel that is made of pieces: what it starts from, "DensePieces", in which header, and
  // what differs. Empty: the kernel takes none.
  std::string_view pieces{};
  std::string_view pieces_header{};
  std::vector<Piece> other_pieces{};
  // The config's last fields that only the launch reads: no member of `type`Config.
  int launch_fields = 0;
  bool gathers = false;  // where a mask decides which keys are walked over, lists say so
  // Probabilities are rounded to 16 bits: divisions and roots of the user's code to 2 ulp do.
  bool coarse = false;
  // How a score changes with its product is asked for too, of a Slope.
  bool slopes = false;
  std::vector<std::string> options{};  // of the compiler
  // Entry points of other steps, after the pieces.
  std::string other_kernels{};
};

/// "{{.dtype = 2, ...}, 128, 4}": a typed config as a C++ initialiser. Its members are the shape's,
/// then the config's fields in their order but for the last launch_fields; designators cannot name
/// those beside a base.
std::string initializer(const Config& config, const Shape& shape, int launch_fields = 0);

/// `config` as text and `shape` are one typed config.
Source kernel_source(const Config& config, const Shape& shape, const KernelNames& names);

}  // namespace attnforge
