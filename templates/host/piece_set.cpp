#include "templates/host/piece_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "attnforge/error.h"

namespace attnforge {
namespace {

struct SlotName {
  std::string_view member, name;
  std::string_view none{};  // the type that stands for no piece, of a slot without a member
};
/// In the order of Slot.
constexpr SlotName kNames[] = {
    {"Order", "order"},
    {"Lengths", "lengths"},
    {"Walk", "walk"},
    {"Keys", "keys"},
    {"Score", "score"},
    {"Slope", "slope"},
    {"Mask", "mask"},
    {"Queries", "queries"},
    {"Output", "output"},
    {"Dargs", "dargs"},
    {"Splits", "splits"},
    {"Lists", "lists"},
    {"KJob", "job of k"},
    {"VJob", "job of v"},
    {"", "list source", ""},
    {"", "list rule", "NoRule"},
    {"", "block rule", "NoBlockText"},
};
static_assert(std::size(kNames) == static_cast<std::size_t>(Slot::kBlockRule) + 1);

const SlotName& names_of(Slot slot) { return kNames[static_cast<std::size_t>(slot)]; }

}  // namespace

std::string_view member_of(Slot slot) { return names_of(slot).member; }
std::string_view name_of(Slot slot) { return names_of(slot).name; }

PieceSet::PieceSet(const BasePieces& base) : base_(base) {
  for (const BasePieces::Dense& dense : base.more)
    filled_.push_back({dense.slot, {std::string(dense.type), dense.header}});
}

const PieceSet::Filled* PieceSet::find(Slot slot) const {
  const auto found = std::ranges::find(filled_, slot, &Filled::slot);
  return found == filled_.end() ? nullptr : &*found;
}

bool PieceSet::is_dense(Slot slot) const {
  const Filled* const filled = find(slot);
  return filled == nullptr || filled->changes.empty();
}

std::string PieceSet::dense(Slot slot) const {
  const SlotName& names = names_of(slot);
  if (names.member.empty()) return std::string(names.none);
  const auto more = std::ranges::find(base_.more, slot, &BasePieces::Dense::slot);
  if (more != base_.more.end()) return std::string(more->type);
  return fmt::format("{}<kConfig>::{}", base_.type, names.member);
}

std::string PieceSet::type(Slot slot) const {
  const Filled* const filled = find(slot);
  return filled == nullptr ? dense(slot) : filled->piece.type;
}

PieceSet::Filled PieceSet::take(Slot slot, std::string_view how) {
  ATTNFORGE_ASSERT(!base_.type.empty(), "a kernel that takes no pieces has no slots");
  const auto found = std::ranges::find(filled_, slot, &Filled::slot);
  if (found == filled_.end()) return {slot, {}, {}};
  if (std::ranges::find(found->changes, part_, &Change::part) != found->changes.end())
    throw Error(ErrorCode::kInternal, fmt::format("{} {} the {} a second time: a part changes a "
                                                  "slot once",
                                                  part_, how, name_of(slot)));
  Filled taken = std::move(*found);
  filled_.erase(found);
  return taken;
}

void PieceSet::put(Filled filled, Piece piece, std::string_view how) {
  filled.piece = std::move(piece);
  filled.changes.push_back({part_, how});
  filled_.push_back(std::move(filled));
}

void PieceSet::fill(Slot slot, Piece piece) {
  if (const Filled* const had = find(slot); had != nullptr && !had->changes.empty())
    throw Error(ErrorCode::kInternal,
                fmt::format("{} fills the {}, which {} has filled with {}: wrap or replace it",
                            part_, name_of(slot), had->changes.back().part, had->piece.type));
  put(take(slot, "fills"), std::move(piece), "fills");
}

void PieceSet::wrap(Slot slot, Piece piece) {
  piece.type = fmt::format(fmt::runtime(piece.type), type(slot));
  Filled had = take(slot, "wraps");
  if (!had.piece.header.empty()) include(had.piece.header);
  put(std::move(had), std::move(piece), "wraps");
}

void PieceSet::replace(Slot slot, Piece piece) {
  if (is_dense(slot))
    throw Error(ErrorCode::kInternal,
                fmt::format("{} replaces the {}, which is dense: fill it", part_, name_of(slot)));
  put(take(slot, "replaces"), std::move(piece), "replaces");
}

}  // namespace attnforge
