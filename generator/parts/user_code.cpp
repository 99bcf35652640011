// user_code.cpp - the arguments of the user's texts in a run: arrays of a made-up run lie one after
// another in one tensor, and the words that are addresses point there.
#include <algorithm>
#include <bit>
#include <cstring>

#include "attnforge/element_format.h"
#include "attnforge/error.h"
#include "attnforge/printable.h"
#include "generator/parts/part.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/tensor_check.h"
#include "generator/user_code/code_operands.h"
#include "generator/user_code/pair_terms.h"
#include "generator/user_code/user_code.h"

namespace attnforge {
namespace {

constexpr std::uint64_t kAlignedBytes = 16;
constexpr std::string_view kCodeArrays = "code_arrays", kDargs = "dargs";

std::size_t array_bytes(const CodeArgument& argument, const Problem& problem) {
  return static_cast<std::size_t>(array_elements(argument, problem)) *
         static_cast<std::size_t>(size_bytes(argument.type));
}

/// Where arrays of these sizes begin that lie one after another; where all end, at last.
std::vector<std::size_t> begins_of(const std::vector<std::size_t>& sizes, std::size_t alignment) {
  std::vector<std::size_t> begins = {0};
  for (const std::size_t size : sizes)
    begins.push_back(begins.back() + (size + alignment - 1) / alignment * alignment);
  return begins;
}

/// Of the user's arrays among all of them, in bytes: one for each argument.
std::vector<std::size_t> array_begins(const Problem& problem) {
  std::vector<std::size_t> bytes;
  for (const CodeArgument& argument : code_arguments(problem.args))
    bytes.push_back(argument.is_array ? array_bytes(argument, problem) : 0);
  return begins_of(bytes, 256);
}

/// Of the dargs among all of them, in elements.
std::vector<std::size_t> darg_begins(const Problem& problem) {
  std::vector<std::size_t> elements;
  for (const Darg& darg : dargs_of(problem))
    elements.push_back(static_cast<std::size_t>(darg.elements));
  return begins_of(elements, 64);
}

/// The next of a sequence whose upper bits are random: Knuth's.
std::uint64_t drawn(std::uint64_t seed) {
  return seed * 6364136223846793005u + 1442695040888963407u;
}

/// 0, +-0.25, +-0.5 and +-1 in the upper bytes of each format.
void fill_floats(CodeArgument::Type type, std::span<std::byte> values, std::uint64_t seed) {
  constexpr std::uint32_t kFloats[] = {0, 0x3e800000, 0x3f000000, 0x3f800000};
  constexpr std::uint32_t kHalves[] = {0, 0x3400, 0x3800, 0x3c00};
  const auto size = static_cast<std::size_t>(size_bytes(type));
  for (std::size_t i = 0; i + size <= values.size(); i += size) {
    seed = drawn(seed);
    const auto draw = static_cast<std::uint32_t>(seed >> 61);
    std::uint32_t bits = type == CodeArgument::Type::kFp16 ? kHalves[draw & 3] : kFloats[draw & 3];
    if (type == CodeArgument::Type::kBf16) bits >>= 16;
    if ((draw & 4) != 0) bits |= size == 4 ? 0x80000000u : 0x8000u;
    std::memcpy(values.data() + i, &bits, size);
  }
}

/// Numbers of documents that lie one after another in sequences of `seqlen`: about ten of very
/// unequal lengths in each, in all arrays the same.
void fill_labels(std::span<std::byte> values, std::int64_t seqlen, std::uint64_t seed) {
  std::int64_t end = 0;  // of the document, in its sequence
  for (std::size_t i = 0, label = 0; i * sizeof(int) < values.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i) % std::max<std::int64_t>(seqlen, 1);
    if (at == 0) end = 0;
    if (at == end) {
      seed = drawn(seed);
      end += std::max<std::int64_t>(1, seqlen >> (2 + (seed >> 33) % 5));
      ++label;
    }
    const int number = static_cast<int>(label);
    std::memcpy(values.data() + i * sizeof(int), &number, sizeof(int));
  }
}

/// All in one, as bytes.
void add_code_arrays(OperandList& list) {
  const std::size_t bytes = array_begins(list.problem).back();
  if (bytes == 0) return;
  Operand& arrays = list.add(
      operand<&HostTensors::code_arrays>(kCodeArrays, Operand::Role::kTable,
                                         [](const Problem&, void*, Tensors&) {}),
      DType::kFp32, static_cast<std::int64_t>(bytes), 1);
  arrays.bits_of_32 = 32 * 8;
  arrays.may_be_longer = true;
}

/// complete_code() tells a run where they are.
void add_dargs(OperandList& list) {
  if (list.problem.dargs.empty()) return;
  Operand& dargs = list.add_words(
      operand<&HostTensors::dargs>(kDargs, Operand::Role::kOutput,
                                   [](const Problem&, void*, Tensors&) {}),
      static_cast<std::int64_t>(darg_begins(list.problem).back()));
  dargs.added_to = true;
  dargs.of_heads = true;
}

void complete_code(const Problem& problem, const BoundOperands& run, Tensors& tensors) {
  run.code_words = run.host.code_words;
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  const auto address_of_operand = [&](std::string_view name) {
    const auto found = std::ranges::find(run.list, name, &Operand::name);
    return found == run.list.end() ? 0 : address_bits(run.addresses[found - run.list.begin()]);
  };
  const std::uintptr_t arrays = address_of_operand(kCodeArrays), dargs = address_of_operand(kDargs);
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    if (arguments[a].is_array) run.code_words[a] += arrays;
  }
  std::vector<std::size_t> begins = darg_begins(problem);
  begins.pop_back();
  for (const std::size_t begin : begins) run.code_words.push_back(dargs + begin * sizeof(float));
  tensors.code_arguments = run.code_words.data();
}

/// Bit i of the lower half: word i is the address of an array; of the upper half: of fp32 numbers,
/// or, where it is not set in the lower half, of an aligned array or its like.
std::uint64_t known_of_code(const Problem& problem) {
  static_assert(kMostCodeArguments <= 32, "a bit for each word, those of dargs among them");
  std::uint64_t arrays = 0, floats = 0;
  int word = 0;
  for (const CodeArgument& argument : code_arguments(problem.args)) {
    arrays |= std::uint64_t{argument.is_array && !argument.aligned} << word;
    floats |= std::uint64_t{argument.aligned} << word++;
  }
  const bool written = writes_dargs(problem);
  for (std::size_t i = places_of_dargs(problem).size(); i > 0; --i) {
    arrays |= std::uint64_t{!written} << word;
    floats |= std::uint64_t{1} << word++;
  }
  return arrays | floats << 32;
}

bool code_words_good(const Problem&, std::uint64_t known, const Tensors& t) {
  const std::uint64_t* const words = t.code_arguments;
  if (words == nullptr) return false;
  for (std::uint64_t arrays = known & 0xffffffff; arrays != 0; arrays &= arrays - 1) {
    const int i = std::countr_zero(arrays);
    const bool floats = (known >> 32 >> i & 1) != 0;
    if (words[i] == 0 || (floats && words[i] % alignof(float) != 0)) return false;
  }
  for (std::uint64_t rows = known >> 32 & ~known; rows != 0; rows &= rows - 1) {
    const std::uint64_t word = words[std::countr_zero(rows)];
    if (word == 0 || word % kAlignedBytes != 0) return false;
  }
  return true;
}

void check_words(const Problem& problem, std::span<const Operand>, const HostTensors& host) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  if (host.code_words.size() != arguments.size()) {
    refuse_tensors("code_words has {} words, but args=\"{}\" names {} arguments",
                   host.code_words.size(), printable(problem.args), arguments.size());
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_array) continue;
    const std::size_t bytes = array_bytes(arguments[i], problem);
    const std::size_t all = host.code_arrays.size(), begin = host.code_words[i];
    if (begin <= all && bytes <= all - begin) continue;
    refuse_tensors(
        "code_words[{}] is {}, where {} would begin; its {} bytes lie within the {} of code_arrays",
        i, begin, arguments[i].name, bytes, all);
  }
}

}  // namespace

void check_code_arguments(const Problem& problem, const std::uint64_t* words) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  if (words == nullptr) {
    refuse_tensors(
        "code_arguments is null, but the problem says args=\"{}\"; give it {} words of 8 bytes in "
        "host memory",
        printable(problem.args), code_words_of_run(problem));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].aligned && words[i] % kAlignedBytes != 0) {
      refuse_tensors(
          "code_arguments[{}] is {:#x}; it is the address of {}, an aligned array: a multiple of "
          "{} bytes",
          i, words[i], arguments[i].name, kAlignedBytes);
    }
    if (!arguments[i].is_array || words[i] != 0) continue;
    refuse_tensors(
        "code_arguments[{}] is null; it is the address of {}, an array of {} in device memory", i,
        arguments[i].name, to_string(arguments[i].type));
  }
  std::size_t word = arguments.size();
  if (writes_dargs(problem) && (words[word] == 0 || words[word] % kAlignedBytes != 0)) {
    refuse_tensors(
        "code_arguments[{}] is {:#x}; with dargs=\"{}\" it is the address of an array in device "
        "memory that is as the one that it is the gradient of: a multiple of {} bytes",
        word, words[word], printable(problem.dargs), kAlignedBytes);
  }
  for (const std::size_t at : places_of_dargs(problem)) {
    if (words[word] == 0 || words[word] % alignof(float) != 0) {
      refuse_tensors(
          "code_arguments[{}] is {:#x}; with dargs=\"{}\" it is the address of an array of float "
          "in device memory, to which the gradient of {} is added: fp32, a multiple of 4 bytes",
          word, words[word], printable(problem.dargs), arguments[at].name);
    }
    ++word;
  }
}

std::vector<std::int64_t> code_array_elements(const Problem& problem) {
  std::vector<std::int64_t> elements;
  for (const CodeArgument& argument : code_arguments(problem.args))
    elements.push_back(argument.is_array ? array_elements(argument, problem) : 0);
  return elements;
}

std::vector<Darg> dargs_of(const Problem& problem) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  std::vector<Darg> dargs;
  const bool written = writes_dargs(problem);
  for (const std::size_t at : places_of_dargs(problem)) {
    const CodeArgument::Type type = arguments[at].type;
    const DType own = type == CodeArgument::Type::kFloat  ? DType::kFp32
                      : type == CodeArgument::Type::kFp16 ? DType::kFp16
                                                          : DType::kBf16;
    dargs.push_back({arguments[at].name, array_elements(arguments[at], problem),
                     arguments.size() + dargs.size(), written, written ? own : DType::kFp32});
  }
  return dargs;
}

std::vector<float> floats_of(const Darg& darg, const void* values) {
  std::vector<float> floats(static_cast<std::size_t>(darg.elements));
  format_of(darg.dtype).load(values, 0, darg.elements, floats.data());
  return floats;
}

float* address_of(const Darg& darg, const Tensors& tensors) {
  return reinterpret_cast<float*>(static_cast<std::uintptr_t>(tensors.code_arguments[darg.word]));
}

Tensors with_dargs_at(const Tensors& tensors, std::span<const Darg> dargs,
                      std::span<float* const> addresses, std::vector<std::uint64_t>& words) {
  if (dargs.empty()) return tensors;
  ATTNFORGE_ASSERT(dargs.size() == addresses.size(), "an address for each gradient");
  words.assign(tensors.code_arguments, tensors.code_arguments + dargs.front().word);
  for (float* const address : addresses) words.push_back(reinterpret_cast<std::uintptr_t>(address));
  Tensors placed = tensors;
  placed.code_arguments = words.data();
  return placed;
}

void set_code_arguments(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  if (problem.args.empty()) return;
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  const std::vector<std::size_t> begins = array_begins(problem);
  host.code_arrays.assign(begins.back(), std::byte{0});
  host.code_words.clear();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const CodeArgument& argument = arguments[i];
    if (!argument.is_array) {
      const auto number = static_cast<float>(argument.value);
      const bool is_float = argument.type == CodeArgument::Type::kFloat;
      host.code_words.push_back(
          is_float ? std::bit_cast<std::uint32_t>(number)
                   : static_cast<std::uint32_t>(static_cast<std::int32_t>(argument.value)));
      continue;
    }
    host.code_words.push_back(begins[i]);
    const std::span<std::byte> own = std::span(host.code_arrays)
                                         .subspan(begins[i], array_bytes(argument, problem));
    if (argument.type == CodeArgument::Type::kBool)
      std::ranges::fill(own, std::byte{1});
    else if (argument.type != CodeArgument::Type::kInt)
      fill_floats(argument.type, own, seed + i);
    else if (holds_labels(problem, argument.name))
      fill_labels(own, problem.seqlen_kv, seed);
  }
}

extern const ProblemPart user_code_of_problem;
constinit const ProblemPart user_code_of_problem{
    .in = [](const Problem& p) { return !p.args.empty(); },
    .validate = check_code,
    .add_inputs = add_code_arrays,
    .add_outputs = add_dargs,
    .complete = complete_code,
    .make_up = set_code_arguments,
    .check_host = check_words,
    .known = known_of_code,
    .good = code_words_good,
    .explain = [](const Problem& p,
                  const Tensors& t) { check_code_arguments(p, t.code_arguments); }};

}  // namespace attnforge
