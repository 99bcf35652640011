#include "templates/parts/user_code/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/plan.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/pair_terms.h"
#include "generator/user_code/read_once.h"
#include "generator/user_code/user_code.h"
#include "templates/backward/host.h"
#include "templates/host/argument.h"
#include "templates/host/assembly.h"
#include "templates/host/common_rejects.h"
#include "templates/host/launch_work.h"
#include "templates/parts/key_lists/host.h"
#include "templates/parts/user_code/params.h"

namespace attnforge {

extern const Part code_part;

std::size_t code_words(const Problem& problem) {
  const std::size_t count = code_words_of_run(problem);
  return std::max<std::size_t>(2, (count + 1) / 2 * 2);
}

namespace {

void bind_code_words(std::span<std::byte> place, const Tensors& tensors, const RunMemory&) {
  if (!place.empty()) std::memcpy(place.data(), tensors.code_arguments, place.size());
}

}  // namespace

OwnArgument code_argument(const Problem& problem) {
  const std::size_t bytes = code_words_of_run(problem) * sizeof(std::uint64_t);
  return {static_cast<std::uint32_t>(bytes), bind_code_words};
}

std::string with_code_params(const Problem& problem, std::string_view params) {
  return fmt::format("WithCode<{}, {}>", params, code_words(problem));
}

std::size_t code_params_bytes(const Problem& problem) {
  return code_words(problem) * sizeof(std::uint64_t);
}

void add_code_params(Argument& argument, const Problem& problem) {
  argument.zeros(code_params_bytes(problem), alignof(CodeParams<2>), code_argument(problem));
}

namespace {

/// What the text makes of scores, and its derivatives: it sees what the Score before it leaves.
void wrap_score(PieceSet& pieces, const Assembly& a) {
  const std::string before = pieces.type(Slot::kScore);
  if (a.shape.may_tile_rows() && !a.kernel.row_ring_header.empty()) {
    pieces.include(a.kernel.row_ring_header);
    pieces.wrap(Slot::kScore, {"RingScore<kConfig, UserCode, UserScore<UserCode, {}>>",
                               "parts/user_code/row_ring.cuh"});
  } else if (a.shape.may_tile_rows() && a.kernel.row_boxes) {
    pieces.wrap(Slot::kScore, {"BoxedScore<kConfig, UserCode, UserScore<UserCode, {}>>",
                               "parts/user_code/row_boxes.cuh"});
  } else {
    pieces.wrap(Slot::kScore,
                adds_term_of_key(a.problem) && !a.kernel.pieces->exact
                    ? Piece{"KeyTermScore<UserCode, {}>", "parts/user_code/key_term.cuh"}
                    : Piece{"UserScore<UserCode, {}>", "parts/user_code/score.cuh"});
  }
  if (a.kernel.slopes && a.kernel.pieces->exact)
    pieces.fill(Slot::kSlope,
                {fmt::format("UserSlope<UserCode, {}>", before), "parts/user_code/slope.cuh"});
  else if (a.kernel.slopes)
    pieces.wrap(Slot::kSlope, {fmt::format("UserSlope<UserCode, {}, {{}}>", before),
                               "parts/user_code/slope.cuh"});
  if (a.problem.dargs.empty()) return;
  const bool whole = a.shape.dargs == 2;
  const char* const header = whole ? "parts/user_code/whole_dargs.cuh"
                                   : "parts/user_code/dargs.cuh";
  pieces.include(header);
  pieces.fill(Slot::kDargs, {fmt::format("{}<UserCode, UserRow<UserCode>, {}>",
                                         whole ? "WholeDargs" : "DargsOfRows", before),
                             header});
}

/// What the mask's text hides. Who asks it: lists of keys, of which it is the source where blocks
/// are not, and a rule; bits of query tiles, in blocks that are partial; else the mask itself.
void fill_mask(PieceSet& pieces, const Assembly& a) {
  if (a.gathers()) {
    if (!has_block_mask(a.problem))
      pieces.fill(Slot::kListSource, {"TextSource", "parts/user_code/lists.cuh"});
    std::string rule = "UserRule<UserCode>";
    if (a.shape.text_bits)
      rule = fmt::format("TextBits<kConfig.{}, kConfig.{}>", a.kernel.block_m, a.kernel.block_n);
    const char* const header = a.shape.text_bits ? "parts/user_code/lists.cuh"
                                                 : "parts/user_code/mask.cuh";
    if (a.shape.mask_bits)
      pieces.wrap(Slot::kListRule, {fmt::format("BothRules<{{}}, {}>", rule), header});
    else
      pieces.fill(Slot::kListRule, {std::move(rule), header});
  } else if (a.kernel.gradients != nullptr && has_block_mask(a.problem)) {
    pieces.fill(Slot::kBlockRule, {"BlockText<UserCode>", "parts/user_code/mask.cuh"});
  } else {
    if (a.kernel.gradients != nullptr && !has_query_bits(a.shape, a.problem))
      pieces.fill(Slot::kQueries, {kMaskedQueryWalk, "backward/query_walk.cuh"});
    pieces.fill(Slot::kMask, {fmt::format("UserMask<UserCode, {}>", pieces.dense(Slot::kMask)),
                              "parts/user_code/mask.cuh"});
    pieces.fill(Slot::kWalk, {fmt::format("MaskedWalk<{}>", pieces.dense(Slot::kWalk)),
                              "pieces/masked_walk.cuh"});
  }
}

/// The struct UserCode of the entry, whose functions are the texts, and the pieces that call them.
void fill_by_code(Entry& entry, const Assembly& a) {
  const Problem& problem = a.problem;
  entry.pieces.include("parts/user_code/code.cuh");
  if (a.kernel.coarse) entry.options = {"--prec-div=false", "--prec-sqrt=false"};
  const bool listed = a.kernel.gradients != nullptr ? has_query_bits(a.shape, problem)
                                                    : a.gathers();
  const bool of_text = listed && a.shape.user_mask != 0 && !has_block_mask(problem);
  const PairTerms terms = of_text ? pair_terms(problem) : PairTerms();
  entry.declarations += struct_of_code(problem, mask_code(problem), of_text ? &terms : nullptr,
                                       a.kernel.slopes);
  if (has_score_code(problem)) wrap_score(entry.pieces, a);
  if (a.shape.user_mask != 0) fill_mask(entry.pieces, a);
}

bool terms_decide(const Problem& problem) {
  const PairTerms terms = pair_terms(problem);
  return !terms.terms.empty() && terms.all();
}

/// What rows see of each group of keys by the text, before lists are made of it.
constexpr const char* kStatesKernel = "mask_states";
constexpr Step kStates{
    .kernel = kStatesKernel,
    .in = [](const Assembly& a) { return a.lists_of_text(); },
    .text =
        [](Entry& entry, const Assembly& a) {
          entry.pieces.include("parts/user_code/mask.cuh");
          entry.pieces.include("parts/user_code/step_states.cuh");
          entry.pieces.include("parts/user_code/terms.cuh");
          const bool decide = terms_decide(a.problem);  // with more registers
          return Step::Text{
              .threads = kListStepThreads,
              .blocks_per_sm = decide ? kListStepBlocks - 1 : kListStepBlocks,
              .type = fmt::format("MaskStates<Pieces::Lengths, UserRule<UserCode>, "
                                  "UserTerms<UserCode>, kConfig.{}, kConfig.{}, {}, "
                                  "kConfig.text_bits, {}>",
                                  a.kernel.block_m, a.kernel.block_n,
                                  entry.pieces.dense(Slot::kMask), state_groups_of_block(decide))};
        },
    .launch =
        [](const LaunchWork& work) {
          return step_of(
              kStatesKernel, kListStepThreads, 0,
              state_blocks(key_lists(work), state_groups_of_block(terms_decide(work.problem()))));
        }};

/// Of an element of the array that rows of scores read, 0 without one.
int aligned_bytes(const std::string& args) {
  const std::vector<CodeArgument> arguments = code_arguments(args);
  const std::size_t aligned = place_of_aligned(arguments);
  return aligned == arguments.size() ? 0 : size_bytes(arguments[aligned].type);
}

}  // namespace

int slope_registers(const Problem& problem, int scores) {
  return has_score_code(problem) && !adds_to_score(problem.score) ? scores : 0;
}

int row_registers(const Problem& problem, int scores) {
  return scores * read_once<aligned_bytes>(problem.args) / 4;
}

int added_row_registers(const Problem& problem, int scores) {
  if (!adds_to_score(problem.score) || !problem.mask.empty()) return 0;
  return row_registers(problem, scores);
}

constinit const Part code_part{
    .name = "user_code",
    .in = [](const Assembly& a) { return has_score_code(a.problem) || a.shape.user_mask != 0; },
    .type = [](const Assembly& a,
               std::string_view params) { return with_code_params(a.problem, params); },
    .bytes = [](const Assembly& a) { return code_params_bytes(a.problem); },
    .add = [](Argument& argument,
              const LaunchWork& work) { add_code_params(argument, work.problem()); },
    .fill = fill_by_code,
    .steps = {&kStates, 1},
    .suffix = code_suffix};

}  // namespace attnforge
