// piece_set.h - the pieces of a kernel by slot, and which part filled, wrapped or replaced what.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnforge {

/// What each of them is for: templates/pieces/README.md.
enum class Slot {
  // Members of the entry's struct Pieces.
  kOrder,
  kLengths,
  kWalk,
  kKeys,
  kScore,
  kSlope,
  kMask,
  kQueries,
  kOutput,
  kDargs,
  kSplits,
  kLists,
  kKJob,
  kVJob,
  // What a part has for another one to make a piece of: no members.
  kListSource,  // which groups of keys rows see, for the step that writes lists
  kListRule,    // what hides keys inside a group
  kBlockRule,   // what hides keys inside a partial block of a block mask
};

/// "Walk"; "" where the slot is no member.
std::string_view member_of(Slot slot);
/// Its name for people: "list source".
std::string_view name_of(Slot slot);

struct Piece {
  std::string type;               // "PlainScore", defined in the header
  std::string_view header;        // "pieces/plain_score.cuh"
  std::string_view parameters{};  // of a template: "template <int kDtype> "
};

/// What a kernel starts from: the struct `type`<kConfig> has a dense piece for each slot that the
/// kernel reads, but for those of `more`.
struct BasePieces {
  struct Dense {
    Slot slot;
    std::string_view type, header;
  };
  std::string_view type, header;  // "DensePieces", "pieces/dense.cuh"; empty: it takes no pieces
  bool tma = false;               // keys come by TMA; else by cp.async
  bool exact = false;             // of an oracle, whose lines make scores: it takes a text alone
  std::span<const Dense> more{};
};
inline constexpr BasePieces kDensePieces{"DensePieces", "pieces/dense.cuh"};
inline constexpr BasePieces kDenseTmaPieces{"DenseTmaPieces", "hopper/dense_pieces.cuh", true};
inline constexpr BasePieces kOraclePieces{"DensePieces", "pieces/dense.cuh", false, true};

class PieceSet {
 public:
  struct Change {
    std::string_view part, how;  // "softcap", "fills"
  };
  struct Filled {
    Slot slot;
    Piece piece;
    std::vector<Change> changes{};  // none: dense
  };

  explicit PieceSet(const BasePieces& base);

  /// Whose the changes are from now on.
  void changed_by(std::string_view part) { part_ = part; }

  // Each throws Error(kInternal) for a second change of one slot by one part.
  /// Throws Error(kInternal) if the slot is not dense.
  void fill(Slot slot, Piece piece);
  /// piece.type has "{}" in the place of what the slot had, whose header is kept.
  void wrap(Slot slot, Piece piece);
  /// Instead of what another part filled it with. Throws Error(kInternal) if that is none.
  void replace(Slot slot, Piece piece);
  /// The source has this header before those of the pieces.
  void include(std::string_view header) { headers_.push_back(header); }

  bool is_dense(Slot slot) const;
  /// What a slot has: "DensePieces<kConfig>::Walk" if no part changed it; of one without a member,
  /// the type that stands for none.
  std::string type(Slot slot) const;
  /// The dense piece, whatever the slot has.
  std::string dense(Slot slot) const;

  /// In the order of their last changes; what `more` of the base has comes first.
  const std::vector<Filled>& filled() const { return filled_; }
  const std::vector<std::string_view>& headers() const { return headers_; }

 private:
  const Filled* find(Slot slot) const;
  /// Takes what the slot had out of the list.
  Filled take(Slot slot, std::string_view how);
  void put(Filled filled, Piece piece, std::string_view how);

  const BasePieces& base_;
  std::string_view part_;
  std::vector<Filled> filled_;
  std::vector<std::string_view> headers_;
};

}  // namespace attnforge
