// user_code.h - score and mask texts of commands, and values for what they name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"

namespace attnforge::cli {

/// What --score, --mask and --arg hold.
struct CodeOptions {
  std::string score{}, mask{};      // "": not given
  std::vector<std::string> args{};  // NAME=VALUE
};

/// Adds --score and --mask to the text of a problem. Throws Error(kInvalidArgument) for a text that
/// it has already.
void add_texts(std::string& problem, const CodeOptions& options);

/// The problem of such a text with what --arg names added to its args unless they have it: numbers
/// with their value, arrays of .npy files with the file's type and size, `random` ones as float
/// arrays. Throws Error(kInvalidArgument) for a value that is neither of these, and for a number
/// that args has already; Error(kIo) for a file; else as validate().
Problem with_arguments(Problem problem, const CodeOptions& options);

/// Puts arrays of files in the place of made-up ones. `problem` is what with_arguments() gave.
/// Throws Error(kInvalidArgument) for a file of another type or size than args says.
void set_code_arrays(const Problem& problem, const CodeOptions& options, HostTensors& host);

/// Tensors::code_arguments of these tensors, whose arrays begin at `arrays` on a GPU.
std::vector<std::uint64_t> code_words_at(const Problem& problem, const HostTensors& host,
                                         const void* arrays);

}  // namespace attnforge::cli
