// shape.h - what of a problem is compiled into a kernel, whichever family and config it is of.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Values of Shape::rope. The same numbers as attnforge::Rope.
inline constexpr int kNoRope = 0;
inline constexpr int kRopeInterleaved = 1;
inline constexpr int kRopeHalf = 2;
/// Values of Shape::lengths. The same numbers as attnforge::Lengths.
inline constexpr int kFixedLengths = 0;
inline constexpr int kPackedLengths = 1;
inline constexpr int kUsedLengths = 2;

/// The base of every family's typed config, which adds what is searched. shape_of()
/// (generator/shape.h) fills it from a problem; nothing of it is written in a config's text.
struct Shape {
  int dtype;  // of q: kFp32, kFp16, kBf16 or kE4m3; and of k, v and o where families take no mix
  int dtype_k;
  int dtype_v;
  int dtype_o;
  int head_dim;       // of q and k
  int head_dim_v;     // of v and o
  int right_bound;    // 1: a row does not see all keys to its right (causal, window_right)
  int left_bound;     // 1: nor all keys to its left (window_left)
  int softcap;        // 1: scores are capped
  int lse;            // 1: lse is written
  int alignment;      // bytes of pointers and strides: 2, 4, 8 or 16
  int rope;           // kNoRope, or which elements of q and k are rotated together
  int rope_dim;       // leading elements that rotate; 0 without a rope
  int lengths;        // kFixedLengths, or which arrays say how long a sequence is
  int mask_block_q;   // queries of a block of the block mask; 0: there is none
  int mask_block_kv;  // keys of a block
  int mask_bits;      // 1: partial blocks have bits
  int user_score;     // 1: the user's code changes scores
  int user_mask;      // 1: and says which keys a row sees; 2: by arguments
  int text_bits;      // 1: what the code says of pairs is written as bits by a step, once for all
                      // heads that share it; 0: kernels ask it again
  int sinks;          // 1: the softmax of a row counts a logit of its head
  int page_size;      // rows of a page of k and v; 0: they lie in one piece
  // 1: gradients are added to what dq, dk and dv hold
  int accumulate;
  // 1: dq, dk and dv are fp32; else they are of the dtypes of q, k and v
  int fp32_gradients;
  int dargs;  // 1: arrays that the score's text reads get gradients; 2: one that is written whole
  int kv_scale;   // what shares a scale of k and v of fewer bits: low_bits.h
  int row_bytes;  // of an element of the array that scores read by rows of keys; 0: there is none
  int fast_sums;  // 1: products of 8 bits may add up in fewer than 32
  int kv_zero;    // 1: after each scale of a row of k and v lies a zero point

  /// Whether each row sees all keys, but for a block mask and what a text hides.
  ATTNFORGE_CONSTEXPR bool sees_all() const { return !right_bound && !left_bound; }
  /// The dtype of dq, dk or dv, when that of q, k or v is `input`.
  ATTNFORGE_CONSTEXPR int gradient_dtype(int input) const { return fp32_gradients ? kFp32 : input; }

  /// Whether scores are other than scaled products, and their slopes other than 1.
  ATTNFORGE_CONSTEXPR bool changes_scores() const { return softcap || user_score; }
  ATTNFORGE_CONSTEXPR bool has_block_mask() const { return mask_block_q != 0; }
  /// Whether the key tiles of each query tile come from a list that a step before the kernel
  /// writes.
  ATTNFORGE_CONSTEXPR bool has_key_lists() const { return has_block_mask() || user_mask != 0; }
  /// Whether the query tiles do.
  ATTNFORGE_CONSTEXPR bool has_tile_queue() const {
    return lengths != kFixedLengths || has_key_lists();
  }
  /// Whether tiles of the array that scores read by rows can come as tiles of K do.
  ATTNFORGE_CONSTEXPR bool may_tile_rows() const { return row_bytes != 0 && !has_key_lists(); }
  /// Whether a block can make the list of keys of its query tile by itself: blocks of the mask say
  /// all, and query tiles need no list.
  ATTNFORGE_CONSTEXPR bool may_list_alone() const {
    return has_block_mask() && lengths == kFixedLengths;
  }
  /// Groups of neighbouring keys in a gathered key tile: one, or as many as there are blocks in it.
  ATTNFORGE_CONSTEXPR int key_groups_of(int block_n) const {
    return mask_block_kv == 0 || mask_block_kv >= block_n ? 1 : block_n / mask_block_kv;
  }
  /// 32-bit words of a row of a text's bits, which are read one, two or four at a time.
  ATTNFORGE_CONSTEXPR static int bits_row_words(int keys) {
    return keys <= 32 ? 1 : 2 * ceil_div(keys, 64);
  }
  /// Keys of a tile that one copy by TMA brings: as many as are in one group, or page, for sure.
  ATTNFORGE_CONSTEXPR int box_keys(int block_n) const {
    return page_size != 0 ? gcd(page_size, block_n) : block_n / key_groups_of(block_n);
  }
  /// Whether blocks of the mask and tiles divide one another.
  ATTNFORGE_CONSTEXPR bool blocks_fit(int block_n) const {
    return mask_block_kv == 0 || mask_block_kv % block_n == 0 || block_n % mask_block_kv == 0;
  }
};

}  // namespace attnforge
