#include "generator/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "attnforge/error.h"
#include "generator/pair_terms.h"
#include "generator/user_code.h"

namespace attnforge {
namespace {

using Role = Operand::Role;

template <auto kMember>
std::span<std::byte> in_host(HostTensors& host) {
  return std::as_writable_bytes(std::span(host.*kMember));
}

template <auto kMember>
void resize(HostTensors& host, std::size_t bytes) {
  auto& vector = host.*kMember;
  vector.resize(bytes / sizeof(vector[0]));
}

/// An operand with the host's vector kMember; the caller adds the sizes.
template <auto kMember>
Operand operand(std::string_view name, Role role, void (*bind)(const Problem&, void*, Tensors&)) {
  return {.name = name,
          .role = role,
          .bind = bind,
          .in_host = &in_host<kMember>,
          .resize = &resize<kMember>};
}

template <Tensor Tensors::*kTensor>
void bind_tensor(const Problem&, void* data, Tensors& tensors) {
  (tensors.*kTensor).data = data;
}

template <Tensor Gradients::*kTensor>
void bind_gradient(const Problem&, void* data, Tensors& tensors) {
  (tensors.gradients.*kTensor).data = data;
}

void bind_lse(const Problem&, void* data, Tensors& tensors) {
  tensors.lse.data = static_cast<float*>(data);
}

/// q, k and v, or their gradients, beside one another in each row of one tensor.
void bind_packed(const Problem& p, DType dtype, void* data, Tensor& q, Tensor& k, Tensor& v) {
  const std::int64_t head_bytes = std::int64_t{p.head_dim} * size_bytes(dtype);
  auto* const at = static_cast<std::byte*>(data);
  q.data = at;
  k.data = at + p.num_heads_q * head_bytes;
  v.data = at + (p.num_heads_q + p.num_heads_kv) * head_bytes;
}
void bind_packed_qkv(const Problem& p, void* data, Tensors& t) {
  bind_packed(p, p.dtype_q, data, t.q, t.k, t.v);
}
void bind_packed_gradients(const Problem& p, void* data, Tensors& t) {
  bind_packed(p, gradient_dtype(p, p.dtype_q), data, t.gradients.dq, t.gradients.dk,
              t.gradients.dv);
}

constexpr std::string_view kCodeArrays = "code_arrays", kDargs = "dargs";

/// Where arrays of the user's begin among all of them.
struct CodeArrayPlaces {
  std::vector<CodeArgument> arguments;
  std::vector<std::size_t> begins;  // one for each argument; 0 of a number
  std::size_t bytes = 0;
};
CodeArrayPlaces code_array_places(const Problem& problem) {
  constexpr std::size_t kAlignment = 256;
  CodeArrayPlaces places{code_arguments(problem.args), {}, 0};
  for (const CodeArgument& argument : places.arguments) {
    places.begins.push_back(argument.is_array ? places.bytes : 0);
    if (!argument.is_array) continue;
    const auto bytes = static_cast<std::size_t>(array_elements(argument, problem)) *
                       static_cast<std::size_t>(size_bytes(argument.type));
    places.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return places;
}

/// Where gradients of arrays begin among all of them, in elements.
struct DargPlaces {
  std::vector<std::size_t> begins;
  std::size_t elements = 0;
};
DargPlaces darg_places(const Problem& problem) {
  constexpr std::size_t kAlignment = 64;
  DargPlaces places;
  for (const Darg& darg : dargs_of(problem)) {
    places.begins.push_back(places.elements);
    const auto elements = static_cast<std::size_t>(darg.elements);
    places.elements += (elements + kAlignment - 1) / kAlignment * kAlignment;
  }
  return places;
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

class Table {
 public:
  explicit Table(const Problem& problem) : p_(problem), tokens_(total_tokens(problem)) {}

  std::vector<Operand> take() {
    add_inputs();
    if (is_backward(p_)) add_gradients_in();
    if (p_.sinks) add_sinks();
    if (p_.rope != Rope::kNone) add_rope();
    if (p_.lengths != Lengths::kFixed) add_lengths();
    if (has_pages(p_)) add_page_table();
    if (has_block_mask(p_)) add_block_mask();
    if (!p_.args.empty()) add_code_arrays();
    if (is_backward(p_)) {
      add_lse(Role::kTable);
      add_gradients_out();
    } else {
      add_outputs();
    }
    return std::move(list_);
  }

 private:
  void add(Operand operand, DType dtype, std::int64_t rows, std::int64_t row_elements) {
    operand.dtype = dtype;
    operand.element_bytes = size_bytes(dtype);
    operand.elements = rows * row_elements;
    operand.row_elements = row_elements;
    list_.push_back(operand);
  }

  void add_inputs() {
    if (p_.layout == Layout::kPackedQkv) {
      add(operand<&HostTensors::q>("q", Role::kInput, bind_packed_qkv), p_.dtype_q, tokens_.q,
          (p_.num_heads_q + 2 * p_.num_heads_kv) * p_.head_dim);
      return;
    }
    add(operand<&HostTensors::q>("q", Role::kInput, bind_tensor<&Tensors::q>), p_.dtype_q,
        tokens_.q, p_.num_heads_q * p_.head_dim);
    // A row of a pool is a page.
    const std::int64_t rows = has_pages(p_) ? pages_of_pool(p_) : tokens_.kv;
    const std::int64_t keys = has_pages(p_) ? p_.page_size : 1;
    add(operand<&HostTensors::k>("k", Role::kInput, bind_tensor<&Tensors::k>), p_.dtype_k, rows,
        keys * p_.num_heads_kv * p_.head_dim);
    add(operand<&HostTensors::v>("v", Role::kInput, bind_tensor<&Tensors::v>), p_.dtype_v, rows,
        keys * p_.num_heads_kv * p_.head_dim_v);
    list_[list_.size() - 2].any_rows = list_.back().any_rows = has_pages(p_);
  }

  void add_page_table() {
    add(operand<&HostTensors::page_table>("page_table", Role::kTable,
                                          [](const Problem&, void* data, Tensors& t) {
                                            t.pages.table = static_cast<const int*>(data);
                                          }),
        DType::kFp32, p_.batch, pages_of_sequence(p_));
  }

  void add_sinks() {
    add(operand<&HostTensors::sinks>(
            "sinks", Role::kInput,
            [](const Problem&, void* data, Tensors& t) { t.sinks = static_cast<float*>(data); }),
        DType::kFp32, p_.num_heads_q, 1);
  }

  void add_rope() {
    const std::int64_t pairs = effective_rope_dim(p_) / 2,
                       rows = least_rope_offset(p_) + p_.seqlen_kv;
    add(operand<&HostTensors::rope_cos>("rope_cos", Role::kTable,
                                        [](const Problem&, void* data, Tensors& t) {
                                          t.rope.cos = static_cast<const float*>(data);
                                        }),
        DType::kFp32, rows, pairs);
    add(operand<&HostTensors::rope_sin>("rope_sin", Role::kTable,
                                        [](const Problem&, void* data, Tensors& t) {
                                          t.rope.sin = static_cast<const float*>(data);
                                        }),
        DType::kFp32, rows, pairs);
    list_[list_.size() - 2].may_be_longer = list_.back().may_be_longer = true;
  }

  /// Integers: the dtype is only right about their size.
  void add_lengths() {
    const std::int64_t count_q = p_.batch + (p_.lengths == Lengths::kPacked ? 1 : 0);
    const std::int64_t count_kv = p_.batch + (has_packed_keys(p_) ? 1 : 0);
    add(operand<&HostTensors::lengths_q>("lengths_q", Role::kTable,
                                         [](const Problem&, void* data, Tensors& t) {
                                           t.lengths.q = static_cast<const int*>(data);
                                         }),
        DType::kFp32, count_q, 1);
    add(operand<&HostTensors::lengths_kv>("lengths_kv", Role::kTable,
                                          [](const Problem&, void* data, Tensors& t) {
                                            t.lengths.kv = static_cast<const int*>(data);
                                          }),
        DType::kFp32, count_kv, 1);
  }

  /// Integers too. How many blocks are present is the run's, so the lists have no size but a least.
  void add_block_mask() {
    const std::int64_t rows = mask_blocks(p_).q * p_.mask_heads * p_.mask_batch;
    add(operand<&HostTensors::mask_row_begin>("mask_row_begin", Role::kTable,
                                              [](const Problem&, void* data, Tensors& t) {
                                                t.block_mask.row_begin = static_cast<int*>(data);
                                              }),
        DType::kFp32, rows + 1, 1);
    add_longer(operand<&HostTensors::mask_columns>("mask_columns", Role::kTable,
                                                   [](const Problem&, void* data, Tensors& t) {
                                                     t.block_mask.columns = static_cast<int*>(data);
                                                   }),
               1);
    if (!p_.mask_bits) return;
    add_longer(
        operand<&HostTensors::mask_bits>("mask_bits", Role::kTable,
                                         [](const Problem&, void* data, Tensors& t) {
                                           t.block_mask.bits = static_cast<std::uint32_t*>(data);
                                         }),
        p_.mask_block_q * ((p_.mask_block_kv + 31) / 32));
    add_longer(
        operand<&HostTensors::mask_bit_blocks>("mask_bit_blocks", Role::kTable,
                                               [](const Problem&, void* data, Tensors& t) {
                                                 t.block_mask.bit_blocks = static_cast<int*>(data);
                                               }),
        1);
  }

  /// Rows of so many 32-bit words: one or more.
  void add_longer(const Operand& operand, std::int64_t row_elements) {
    add(operand, DType::kFp32, 1, row_elements);
    list_.back().may_be_longer = true;
  }

  /// All in one, as bytes.
  void add_code_arrays() {
    const std::size_t bytes = code_array_places(p_).bytes;
    if (bytes == 0) return;
    Operand arrays = operand<&HostTensors::code_arrays>(kCodeArrays, Role::kTable,
                                                        [](const Problem&, void*, Tensors&) {});
    arrays.element_bytes = 1;
    arrays.elements = static_cast<std::int64_t>(bytes);
    arrays.may_be_longer = true;
    list_.push_back(arrays);
  }

  void add_outputs() {
    add_o(Role::kOutput);
    if (p_.lse) add_lse(Role::kOutput);
  }

  void add_o(Role role) {
    add(operand<&HostTensors::o>("o", role, bind_tensor<&Tensors::o>), p_.dtype_o, tokens_.q,
        p_.num_heads_q * p_.head_dim_v);
  }

  void add_lse(Role role) {
    add(operand<&HostTensors::lse>("lse", role, bind_lse), DType::kFp32, p_.num_heads_q * tokens_.q,
        1);
  }

  /// What of a forward goes out, and the gradients of that.
  void add_gradients_in() {
    add_o(Role::kInput);
    add(operand<&HostTensors::dout>("dout", Role::kInput, bind_gradient<&Gradients::dout>),
        p_.dtype_o, tokens_.q, p_.num_heads_q * p_.head_dim_v);
    if (!p_.dlse) return;
    add(operand<&HostTensors::dlse>("dlse", Role::kInput,
                                    [](const Problem&, void* data, Tensors& t) {
                                      t.gradients.dlse.data = static_cast<float*>(data);
                                    }),
        DType::kFp32, p_.num_heads_q * tokens_.q, 1);
  }

  void add_gradients_out() {
    const std::size_t first = list_.size();
    if (p_.layout == Layout::kPackedQkv) {
      add(operand<&HostTensors::dq>("dq", Role::kOutput, bind_packed_gradients),
          gradient_dtype(p_, p_.dtype_q), tokens_.q,
          (p_.num_heads_q + 2 * p_.num_heads_kv) * p_.head_dim);
    } else {
      add(operand<&HostTensors::dq>("dq", Role::kOutput, bind_gradient<&Gradients::dq>),
          gradient_dtype(p_, p_.dtype_q), tokens_.q, p_.num_heads_q * p_.head_dim);
      add(operand<&HostTensors::dk>("dk", Role::kOutput, bind_gradient<&Gradients::dk>),
          gradient_dtype(p_, p_.dtype_k), tokens_.kv, p_.num_heads_kv * p_.head_dim);
      add(operand<&HostTensors::dv>("dv", Role::kOutput, bind_gradient<&Gradients::dv>),
          gradient_dtype(p_, p_.dtype_v), tokens_.kv, p_.num_heads_kv * p_.head_dim_v);
    }
    for (std::size_t i = first; i < list_.size(); ++i) {
      list_[i].added_to = p_.accumulate;
      if (i > first) list_[i].key_elements = list_[i].elements;
    }
    if (p_.layout == Layout::kPackedQkv)
      list_[first].key_elements = tokens_.kv * 2 * p_.num_heads_kv * p_.head_dim;
    if (p_.sinks) {
      add(operand<&HostTensors::dsinks>("dsinks", Role::kOutput,
                                        [](const Problem&, void* data, Tensors& t) {
                                          t.gradients.dsinks = static_cast<float*>(data);
                                        }),
          DType::kFp32, p_.num_heads_q, 1);
      list_.back().added_to = p_.accumulate;
      list_.back().of_heads = true;
    }
    if (p_.dargs.empty()) return;
    // bound_tensors() tells a run where they are.
    add(operand<&HostTensors::dargs>(kDargs, Role::kOutput, [](const Problem&, void*, Tensors&) {}),
        DType::kFp32, static_cast<std::int64_t>(darg_places(p_).elements), 1);
    list_.back().added_to = true;
    list_.back().of_heads = true;
  }

  const Problem& p_;
  const Tokens tokens_;
  std::vector<Operand> list_;
};

}  // namespace

std::vector<Operand> operands(const Problem& problem) { return Table(problem).take(); }

namespace {

/// That the host's tensor has; those of a tensor that is not on the host are made up.
std::int64_t rows_in(const Operand& operand, const HostTensors& host) {
  const std::size_t bytes = operand.content(host).size();
  const auto row_bytes = static_cast<std::size_t>(operand.row_elements) * operand.element_bytes;
  return bytes == 0 ? operand.elements / operand.row_elements
                    : static_cast<std::int64_t>(bytes / row_bytes);
}

}  // namespace

Tensors bound_tensors(const Problem& problem, std::span<const Operand> list,
                      std::span<void* const> addresses, const HostTensors& host,
                      std::vector<std::uint64_t>& code_words) {
  ATTNFORGE_ASSERT(list.size() == addresses.size(), "an address for each operand");
  Tensors tensors = contiguous_tensors(problem);
  for (std::size_t i = 0; i < list.size(); ++i) list[i].bind(problem, addresses[i], tensors);
  if (!problem.args.empty()) {
    code_words = host.code_words;
    const std::vector<CodeArgument> arguments = code_arguments(problem.args);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].name != kCodeArrays) continue;
      for (std::size_t a = 0; a < arguments.size(); ++a) {
        if (arguments[a].is_array) code_words[a] += reinterpret_cast<std::uintptr_t>(addresses[i]);
      }
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].name != kDargs) continue;
      for (const std::size_t begin : darg_places(problem).begins)
        code_words.push_back(reinterpret_cast<std::uintptr_t>(addresses[i]) +
                             begin * sizeof(float));
    }
    tensors.code_arguments = code_words.data();
  }
  if (has_pages(problem)) {
    for (const Operand& operand : list) {
      if (operand.name == "k") tensors.pages.num_pages = rows_in(operand, host);
    }
  }
  if (problem.rope != Rope::kNone) {
    const auto pairs = static_cast<std::size_t>(effective_rope_dim(problem) / 2);
    tensors.rope.rows = static_cast<std::int64_t>(host.rope_cos.size() / pairs);
    tensors.rope.offset = host.rope_offset;
  }
  return tensors;
}

std::vector<Darg> dargs_of(const Problem& problem) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  std::vector<Darg> dargs;
  for (const std::size_t at : places_of_dargs(problem))
    dargs.push_back({arguments[at].name, array_elements(arguments[at], problem),
                     arguments.size() + dargs.size()});
  return dargs;
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
  const CodeArrayPlaces places = code_array_places(problem);
  host.code_arrays.assign(places.bytes, std::byte{0});
  host.code_words.clear();
  for (std::size_t i = 0; i < places.arguments.size(); ++i) {
    const CodeArgument& argument = places.arguments[i];
    const std::span<std::byte> rest = std::span(host.code_arrays).subspan(places.begins[i]);
    if (!argument.is_array) {
      const auto number = static_cast<float>(argument.value);
      const bool is_float = argument.type == CodeArgument::Type::kFloat;
      host.code_words.push_back(
          is_float ? std::bit_cast<std::uint32_t>(number)
                   : static_cast<std::uint32_t>(static_cast<std::int32_t>(argument.value)));
      continue;
    }
    host.code_words.push_back(places.begins[i]);
    const std::span<std::byte> own = rest.first(
        static_cast<std::size_t>(array_elements(argument, problem)) *
        static_cast<std::size_t>(size_bytes(argument.type)));
    if (argument.type == CodeArgument::Type::kBool)
      std::ranges::fill(own, std::byte{1});
    else if (argument.type != CodeArgument::Type::kInt)
      fill_floats(argument.type, own, seed + i);
    else if (holds_labels(problem, argument.name))
      fill_labels(own, problem.seqlen_kv, seed);
  }
}

namespace {

void check_pools(std::span<const Operand> list, const HostTensors& host) {
  const Operand* k = nullptr;
  for (const Operand& operand : list) {
    if (!operand.any_rows) continue;
    if (k == nullptr) {
      k = &operand;
    } else if (rows_in(*k, host) != rows_in(operand, host)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("host tensors {} and {} have {} and {} pages; they must have as many",
                              k->name, operand.name, rows_in(*k, host), rows_in(operand, host)));
    }
  }
}

}  // namespace

void check_sizes(const Problem& problem, std::span<const Operand> list, const HostTensors& host) {
  for (const Operand& operand : list) {
    const std::size_t bytes = operand.content(host).size();
    const auto row_bytes = static_cast<std::size_t>(operand.row_elements) * operand.element_bytes;
    const bool longer = operand.may_be_longer && bytes > operand.bytes() && bytes % row_bytes == 0;
    if (bytes == operand.bytes() || longer) continue;
    if (operand.any_rows) {
      if (bytes % row_bytes == 0) continue;
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("host tensor {} has {} bytes, but \"{}\" needs a multiple of {}: whole "
                      "pages",
                      operand.name, bytes, to_string(problem), row_bytes));
    }
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("host tensor {} has {} bytes, but \"{}\" needs {}{}", operand.name,
                            bytes, to_string(problem), operand.bytes(),
                            operand.may_be_longer ? " or more, in whole rows" : ""));
  }
  check_pools(list, host);
  if (host.code_words.size() != code_arguments(problem.args).size()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("code_words has {} words, but args=\"{}\" names {} arguments",
                    host.code_words.size(), problem.args, code_arguments(problem.args).size()));
  }
  if (host.rope_cos.size() != host.rope_sin.size() && problem.rope != Rope::kNone) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("host tensors rope_cos and rope_sin have {} and {} elements; they must "
                            "be of one size",
                            host.rope_cos.size(), host.rope_sin.size()));
  }
}

}  // namespace attnforge
