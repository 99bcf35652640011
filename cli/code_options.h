// code_options.h - score and mask texts as options of commands, and values for what they name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"
#include "cli/command_line.h"
#include "cli/npy.h"

namespace attnforge::cli {

/// What --score, --mask and --arg hold.
struct CodeOptions {
  std::string score{}, mask{};      // "": not given
  std::vector<std::string> args{};  // NAME=VALUE
};

void add_code_options(Command& verb, CodeOptions& options);

/// The problem of a text and of the options: with their texts, and with what --arg names added to
/// its args unless they have it: numbers with their value, arrays of .npy files with the file's
/// type and size, `random` ones as float arrays. Throws Error(kInvalidArgument) for a text that the
/// problem has already, for a value that is neither of these, and for a number that args has
/// already; Error(kIo) for a file; else as parse_problem().
Problem problem_of_text(const std::string& text, const CodeOptions& options);

/// The files of --arg, for each of the problem's args in their order: none for the others. Throws
/// as set_code_arrays().
std::vector<std::optional<NpyArray>> code_files(const Problem& problem, const CodeOptions& options);

/// Puts arrays of files in the place of made-up ones. `problem` is what problem_of_text() gave.
/// Throws Error(kInvalidArgument) for a file of another type than args says, or of more elements.
void set_code_arrays(const Problem& problem, const CodeOptions& options, HostTensors& host);

/// Tensors::code_arguments of these tensors, whose arrays begin at `arrays` on a GPU.
std::vector<std::uint64_t> code_words_at(const Problem& problem, const HostTensors& host,
                                         const void* arrays);

}  // namespace attnforge::cli
