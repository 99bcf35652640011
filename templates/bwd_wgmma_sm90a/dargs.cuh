// dargs.cuh - which roles of bwd_wgmma_sm90a make gradients of arrays that scores read.
#pragma once

#include "bwd_wgmma_sm90a/config.h"

namespace attnforge {

template <BwdWgmmaSm90aConfig C, class Pieces>
struct BwdWgmmaSm90aDargs {
  /// Whether elements of arrays whose gradients are wanted are shared by all queries.
  ATTNFORGE_DEVICE static constexpr bool has_key_sums() {
    if constexpr (C.dargs == 1 && !C.split_columns)
      return Pieces::Dargs::kWithoutQuery;
    else
      return false;
  }
  /// Whether what is added up is dS of what the text makes of scores, which slopes are no part of.
  ATTNFORGE_DEVICE static constexpr bool key_sums_of_text() {
    if constexpr (has_key_sums())
      return !Pieces::Dargs::kSlopeIsOne;
    else
      return false;
  }
  /// Whether dS on its way to dQ is the gradient of an array, too.
  ATTNFORGE_DEVICE static constexpr bool stores_tiles() {
    if constexpr (C.dargs == 2)
      return Pieces::Dargs::template kStoresTiles<C.dtype>;
    else
      return false;
  }
  /// Whether a warp that does not compute stores it from there.
  ATTNFORGE_DEVICE static constexpr bool stores_aside() {
    return stores_tiles() && C.has_dargs_aside();
  }
  ATTNFORGE_DEVICE static constexpr int threads_storing() {
    if constexpr (stores_aside())
      return Pieces::Dargs::kStoring;
    else
      return 0;
  }
};

}  // namespace attnforge
