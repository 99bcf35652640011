// c_api.cpp - any field values in the structs of the C API, on the fake driver and a compiler that
// compiles nothing: every call answers with a status, and a text if it is not ATTNFORGE_OK.
#include "attnforge/c.h"

#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "attnforge/inspect.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/any_problem.h"
#include "tests/support/fake_cuda.h"

namespace attnforge::fuzz {
namespace {

// Larger ones take long to be estimated.
constexpr test::MostSizes kMost = {.batch_bits = 8, .heads_bits = 5, .seqlen_bits = 15};

/// What the caller gets; returns whether the call succeeded.
bool answered(attnforge_status status, const char* call) {
  const std::string text = attnforge_last_error();
  require(status != ATTNFORGE_ERR_INTERNAL, std::string(call) + ": " + text);
  require(std::strcmp(attnforge_status_name(status), "unknown") != 0, "an unknown status");
  require((status == ATTNFORGE_OK) == text.empty(),
          std::string(call) + " says " + attnforge_status_name(status) + " with the text: " + text);
  if (status != ATTNFORGE_OK) require_readable(text);
  return status == ATTNFORGE_OK;
}

void on_log(void* user, int32_t level, const char* message) {
  require(user == nullptr && level >= 0 && level <= 3, "a log line's level");
  require_readable(message);
}
int on_progress(void*, const attnforge_progress* progress) { return progress->done > 3; }

/// A struct as a caller would have it, with a tail that a later version might have; some aligned
/// fields overwritten.
template <class Struct>
struct Hostile {
  alignas(16) unsigned char memory[sizeof(Struct) + 32] = {};

  Hostile(const Struct& valid, Bytes& bytes, std::set<std::size_t> kept = {}) {
    std::memcpy(memory, &valid, sizeof(valid));
    for (int changes = bytes.byte() % 4; changes > 0; --changes) {
      const std::size_t width = bytes.flag() ? 4 : 8;
      const auto at = static_cast<std::size_t>(
                          bytes.between(0, static_cast<std::int64_t>(sizeof(memory) / width) - 1)) *
                      width;
      const std::int64_t value = bytes.odd_number();
      bool is_kept = false;  // a pointer that the library may follow
      for (const std::size_t offset : kept)
        is_kept = is_kept || (at < offset + 8 && offset < at + width);
      if (!is_kept) std::memcpy(memory + at, &value, width);
    }
    std::uint32_t size = 0;  // more than there is would be a caller's lie, which none can see
    std::memcpy(&size, memory, sizeof(size));
    if (size > sizeof(memory)) size = sizeof(memory);
    std::memcpy(memory, &size, sizeof(size));
  }
  Struct* get() { return reinterpret_cast<Struct*>(memory); }
};

attnforge_context* new_context(const char* arch) {
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  desc.cache_path = ":memory:";
  desc.log = on_log;
  desc.arch = arch;
  attnforge_context* context = nullptr;
  require(
      answered(attnforge_context_create(&desc, &context), "context_create") && context != nullptr,
      "no context");
  return context;
}

/// Plans stay in their context, so that one is not kept for ever.
attnforge_context* context_in_use() {
  static int uses = 0;
  static attnforge_context* context = nullptr;
  if (uses++ % 256 == 0) {
    attnforge_context_destroy(context);
    context = new_context(nullptr);
  }
  return context;
}

void create_any_context(Bytes& bytes) {
  const std::string arch = bytes.text(8), path = bytes.text(8);
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  desc.arch = bytes.flag() ? arch.c_str() : nullptr;
  desc.cache_path = ":memory:";
  desc.log = on_log;
  Hostile hostile(
      desc, bytes,
      {offsetof(attnforge_context_desc, arch), offsetof(attnforge_context_desc, cache_path),
       offsetof(attnforge_context_desc, log), offsetof(attnforge_context_desc, log_user)});
  attnforge_context* context = new_context("80");
  attnforge_context_destroy(context);
  const bool ok = answered(attnforge_context_create(hostile.get(), &context), "context_create");
  require(ok == (context != nullptr), "a context and a failure");
  attnforge_context_destroy(context);
}

void run_plan(const attnforge_plan* plan, const attnforge_problem* problem, Bytes& bytes) {
  alignas(256) static unsigned char memory[4096];
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  answered(attnforge_contiguous_tensors(problem, &tensors), "contiguous_tensors");
  tensors.q.data = tensors.k.data = tensors.v.data = tensors.o.data = memory;
  tensors.lse.data = reinterpret_cast<float*>(memory);
  attnforge_rope rope = ATTNFORGE_ROPE_INIT;
  rope.cos = rope.sin = tensors.lse.data;
  rope.rows = std::int64_t{1} << 40;
  attnforge_lengths lengths = ATTNFORGE_LENGTHS_INIT;
  lengths.q = lengths.kv = reinterpret_cast<const std::int32_t*>(memory);
  Hostile any_rope(rope, bytes);
  Hostile any_lengths(lengths, bytes);
  attnforge_block_mask_lists lists = ATTNFORGE_BLOCK_MASK_LISTS_INIT;
  lists.row_begin = lists.columns = lists.bit_blocks = lengths.q;
  lists.bits = reinterpret_cast<const std::uint32_t*>(memory);
  Hostile any_lists(lists, bytes);
  std::uint64_t arguments[64];  // more than a problem may name
  for (std::uint64_t& argument : arguments)
    argument = static_cast<std::uint64_t>(bytes.odd_number());
  if (bytes.byte() % 8 != 0) tensors.rope = any_rope.get();
  if (bytes.byte() % 8 != 0) tensors.lengths = any_lengths.get();
  if (bytes.byte() % 8 != 0) tensors.block_mask = any_lists.get();
  if (bytes.byte() % 8 != 0) tensors.code_arguments = arguments;
  if (bytes.byte() % 8 != 0) tensors.sinks = reinterpret_cast<const float*>(memory);
  attnforge_gradients gradients = ATTNFORGE_GRADIENTS_INIT;
  gradients.dout.data = gradients.dq.data = gradients.dk.data = gradients.dv.data = memory;
  gradients.dlse.data = gradients.dsinks = tensors.lse.data;
  Hostile any_gradients(gradients, bytes);
  if (bytes.byte() % 8 != 0) tensors.gradients = any_gradients.get();
  attnforge_kv_scales scales = ATTNFORGE_KV_SCALES_INIT;
  scales.k.data = scales.v.data = memory;
  Hostile any_scales(scales, bytes);
  if (bytes.byte() % 8 != 0) tensors.kv_scales = any_scales.get();
  Hostile hostile(tensors, bytes,
                  {offsetof(attnforge_tensors, rope), offsetof(attnforge_tensors, lengths),
                   offsetof(attnforge_tensors, block_mask),
                   offsetof(attnforge_tensors, code_arguments), offsetof(attnforge_tensors, pages),
                   offsetof(attnforge_tensors, gradients), offsetof(attnforge_tensors, parts),
                   offsetof(attnforge_tensors, cache), offsetof(attnforge_tensors, kv_scales)});
  size_t needed = 0;
  require(answered(attnforge_plan_workspace(plan, nullptr, &needed), "plan_workspace"),
          "no workspace");
  const size_t given = bytes.byte() % 8 == 0 ? bytes.bits(2) : needed;
  answered(
      attnforge_run(plan, hostile.get(), memory + (bytes.byte() % 8 == 0 ? 16 : 0), given, nullptr),
      "run");
  const attnforge_sizes sizes = ATTNFORGE_SIZES_INIT;
  Hostile bound(sizes, bytes);
  answered(attnforge_plan_workspace(plan, bound.get(), &needed), "plan_workspace");
}

attnforge_problem* new_problem(const std::string& text) {
  attnforge_problem* problem = nullptr;
  const bool ok = answered(attnforge_problem_create(text.c_str(), &problem), "problem_create");
  require(ok == (problem != nullptr), "a problem and a failure");
  return problem;
}

std::string text_of(const attnforge_problem* problem) {
  char buffer[600];
  size_t length = 0;
  require(answered(attnforge_problem_format(problem, buffer, sizeof(buffer), &length),
                   "problem_format") &&
              length < sizeof(buffer),
          "no text");
  return buffer;
}

/// Hostile sizes: the problem has them, or stays as it was.
void set_any_sizes(attnforge_problem* problem, Bytes& bytes) {
  const std::string before = text_of(problem);
  const Problem had = parse_problem(before);
  attnforge_sizes sizes = ATTNFORGE_SIZES_INIT;
  sizes.batch = had.batch;
  sizes.seqlen_q = had.seqlen_q;
  sizes.seqlen_kv = had.seqlen_kv;
  sizes.tokens_q = had.tokens_q;
  sizes.tokens_kv = had.tokens_kv;
  Hostile hostile(sizes, bytes);
  const bool ok = answered(attnforge_problem_set_sizes(problem, hostile.get()), "set_sizes");
  const std::string after = text_of(problem);
  require(ok || after == before, "sizes that were refused changed " + before + " to " + after);
  require(to_string(parse_problem(after)) == after, "not the canonical text: " + after);
}

/// What can be asked of a mask on a GPU, which is destroyed.
void use_block_mask(attnforge_block_mask* mask, Bytes& bytes) {
  attnforge_block_mask* columns = nullptr;
  require(answered(attnforge_block_mask_transpose(mask, nullptr, &columns), "mask_transpose") ==
              (columns != nullptr),
          "columns and a failure");
  Hostile info(attnforge_block_mask_info(ATTNFORGE_BLOCK_MASK_INFO_INIT), bytes);
  answered(attnforge_block_mask_get(mask, info.get()), "mask_get");
  Hostile lists(attnforge_block_mask_lists(ATTNFORGE_BLOCK_MASK_LISTS_INIT), bytes);
  answered(attnforge_block_mask_on_gpu(columns, lists.get()), "mask_on_gpu");
  Hostile shape(attnforge_block_mask_shape(ATTNFORGE_BLOCK_MASK_SHAPE_INIT), bytes);
  answered(attnforge_block_mask_get_shape(mask, shape.get()), "mask_get_shape");
  char* text = nullptr;
  require(answered(attnforge_block_mask_words(mask, &text), "mask_words"), "no words");
  attnforge_free_string(text);
  attnforge_block_mask_destroy(columns);
  attnforge_block_mask_destroy(mask);
}

/// Of the problem with a mask text, and of a dense mask of any shape.
void make_block_masks(attnforge_context* context, const attnforge_problem* problem, Bytes& bytes) {
  static const std::vector<std::string> kMasks = {"k <= q", "k < n * head", "a[batch] > seqlen_kv"};
  Problem text = parse_problem(text_of(problem));
  if (text.mask_block_q == 0) text.mask_block_q = text.mask_block_kv = 16 << bytes.byte() % 4;
  if (bytes.byte() % 8 != 0) text.mask = bytes.among(kMasks);
  text.args = "int n, int* a";
  attnforge_problem* const with_text = new_problem(to_string(text));
  if (with_text == nullptr) return;  // too many blocks
  const std::unique_ptr<attnforge_problem, void (*)(attnforge_problem*)> owner(
      with_text, attnforge_problem_destroy);
  std::uint64_t arguments[64];  // more than a problem may name
  for (std::uint64_t& argument : arguments)
    argument = static_cast<std::uint64_t>(bytes.odd_number());
  attnforge_block_mask* mask = nullptr;
  const bool ok = answered(
      attnforge_block_mask_from_text(context, with_text,
                                     bytes.byte() % 8 == 0 ? nullptr : arguments, nullptr, &mask),
      "mask_from_text");
  require(ok == (mask != nullptr), "a mask and a failure");
  if (ok) use_block_mask(mask, bytes);
  attnforge_block_mask_shape shape = ATTNFORGE_BLOCK_MASK_SHAPE_INIT;
  shape.seqlen_q = bytes.between(0, 300);
  shape.seqlen_kv = bytes.between(0, 300);
  Hostile any_shape(shape, bytes);
  const bool made = answered(
      attnforge_block_mask_from_dense_on_gpu(context, any_shape.get(), arguments, nullptr, &mask),
      "mask_from_dense_on_gpu");
  if (made) use_block_mask(mask, bytes);
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const bool is_fake = [] {
    setenv("ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC, 1);
    test::fake_cuda();  // throws if the real driver would be used
    return true;
  }();
  require(is_fake, "not the fake driver");
  Bytes bytes(data, size);
  if (bytes.byte() % 16 == 0) create_any_context(bytes);
  attnforge_context* context = context_in_use();

  const std::string anything = bytes.text(64);
  attnforge_problem_destroy(new_problem(anything));
  attnforge_problem* p = new_problem(to_string(test::any_problem(bytes, kMost)));
  require(p != nullptr, "a valid problem was refused");
  const std::unique_ptr<attnforge_problem, void (*)(attnforge_problem*)> owner(
      p, attnforge_problem_destroy);
  set_any_sizes(p, bytes);
  char buffer[600];
  size_t length = 0;
  const size_t capacity = static_cast<size_t>(bytes.between(0, sizeof(buffer)));
  require(answered(attnforge_problem_format(p, buffer, capacity, &length), "problem_format") &&
              (capacity == 0 || std::strlen(buffer) == std::min(length, capacity - 1)),
          "a cut text");

  // A giant takes long.
  const Problem problem = parse_problem(text_of(p));
  if (std::max(problem.seqlen_q, problem.seqlen_kv) > 1 << kMost.seqlen_bits) return 0;
  answered(attnforge_query(context, p), "query");
  if (bytes.byte() % 4 == 0) make_block_masks(context, p, bytes);
  attnforge_plan_options options = ATTNFORGE_PLAN_OPTIONS_INIT;
  // One family has fewer candidates to rank than all.
  static const std::vector<attnforge::FamilyInfo> families = attnforge::list_families();
  const std::string family = bytes.byte() % 8 == 0 ? bytes.text(16) : bytes.among(families).name;
  if (bytes.byte() % 8 != 0) options.family = family.c_str();
  if (bytes.byte() % 8 == 0) options.config = anything.c_str();
  options.progress = on_progress;
  Hostile hostile(
      options, bytes,
      {offsetof(attnforge_plan_options, family), offsetof(attnforge_plan_options, config),
       offsetof(attnforge_plan_options, progress)});
  attnforge_plan* plan = nullptr;
  const bool ok = answered(attnforge_plan_create(context, p, hostile.get(), &plan), "plan_create");
  require(ok == (plan != nullptr), "a plan and a failure");
  if (!ok) return 0;
  require(*attnforge_plan_config(plan) != '\0' && *attnforge_plan_problem(plan) != '\0' &&
              *attnforge_plan_provenance(plan) != '\0',
          "a plan without texts");
  require(attnforge_plan_measured_us(plan) >= 0, "a negative time");
  run_plan(plan, p, bytes);
  attnforge_plan_destroy(plan);
  return 1;
}

std::vector<std::string> corpus() { return random_inputs(64, 300); }
std::vector<std::string> words() { return {"fwd bf16 seqlen=64", "fwd_naive", "90a"}; }

}  // namespace attnforge::fuzz
