// step_widen.cuh - the step before a kernel that knows nothing of fewer bits: writes k and v in q's
// dtype to the workspace, numbers times scales and plus zero points, rounded once. Rows that lie in
// pages come out in order. Of fp16, what is finite stays so: no farther from 0 than its largest
// number.
#pragma once

#include "low_bits.h"
#include "parts/widening/params.h"
#include "ptx/convert.cuh"
#include "tile/elements.cuh"
#include "tile/unrolled.cuh"
#include "tile/widen.cuh"

namespace attnforge {

/// C is the problem's.
template <Shape C>
struct WidenKeys {
  static constexpr int kThreads = WideningWork::kThreads, kColumns = WideningWork::kColumns;
  static constexpr int kDepth = 4;
  static constexpr bool kPages = C.page_size != 0;
  static constexpr bool kPacked = C.lengths == kPackedLengths && !kPages;
  template <int kCode>
  static constexpr bool kScaled = is_low_bit(kCode) && C.kv_scale != kNoScale;

  /// Keys of a sequence that a block has.
  struct Keys {
    int sequence, first, count;
    i64 begin = 0;  // of the sequence, among the rows of the workspace

    ATTNFORGE_DEVICE explicit Keys(const WideningWork& w)
        : sequence(int(blockIdx.x / u32(w.blocks))),
          first(int(blockIdx.x % u32(w.blocks)) * w.block_keys),
          begin(i64(sequence) * w.rows) {
      int all = w.seqlen_kv;
      if constexpr (kPacked) {
        begin = w.lengths[sequence];
        all = w.lengths[sequence + 1] - int(begin);
      } else if (C.lengths != kFixedLengths && w.lengths != nullptr) {
        all = w.lengths[sequence];
      }
      const int left = (all < w.seqlen_kv ? all : w.seqlen_kv) - first;
      count = left < 0 ? 0 : left < w.block_keys ? left : w.block_keys;
    }
  };

  /// Where a key lies in the tensors of the run, and their scales of rows.
  struct Place {
    i64 batch, row;

    ATTNFORGE_DEVICE Place(const WideningWork& w, const Keys& keys, int key)
        : batch(keys.sequence), row(key) {
      if constexpr (kPages) {
        // A hole and a number of no page become some page: nothing faults.
        const u32 page = u32(w.table[keys.sequence * w.table_stride + u32(key) / C.page_size]);
        batch = page < u32(w.num_pages) ? page : u32(w.num_pages) - 1;
        row = u32(key) % C.page_size;
      } else if constexpr (kPacked) {
        batch = 0;
        row = keys.begin + key;
      }
    }
  };

  /// Floats as fp16 before, in the order of Widen.
  template <int kCode>
  ATTNFORGE_DEVICE static void numbers(const u32 (&words)[element_bits(kCode) / 4],
                                       float (&x)[kColumns]) {
    constexpr int kBits = element_bits(kCode), kOfWord = 32 / kBits;
    if constexpr (is_integer(kCode)) {
      unrolled<kColumns>([&](int i) {
        x[i] = float(int(words[i / kOfWord] << (32 - kBits - i % kOfWord * kBits)) >> (32 - kBits));
      });
    } else {
      unrolled<kColumns / kOfWord>([&](int w) {
        u32 pairs[2];
        Widen<kCode>::run(words[w], pairs);
        unrolled<2>(
            [&](int i) { unpack2<kFp16>(pairs[i], x[w * kOfWord + i], x[w * kOfWord + 2 + i]); });
      });
    }
  }

  ATTNFORGE_DEVICE static float within(float x) {
    constexpr float kLargest = 65504.0f;
    const float size = fabsf(x);
    const bool too_large = size > kLargest && size < __uint_as_float(0x7f800000u);
    return C.dtype == kFp16 && too_large ? copysignf(kLargest, x) : x;
  }

  /// What a thread has of all keys' rows: where they begin, and where they go.
  struct Part {
    const TensorRef &rows, &scales;  // for their strides
    const char* codes;
    const float* scale;  // null: there is none
    char* to;
    i64 key_bytes;  // from a key to the next one there
  };

  /// All heads of the keys, of K or of V.
  template <bool kOfV>
  ATTNFORGE_DEVICE static void widen(const WideningWork& w, const Keys& keys, void* wide) {
    constexpr int kCode = kOfV ? C.dtype_v : C.dtype_k, kDim = kOfV ? C.head_dim_v : C.head_dim;
    constexpr int kParts = kDim / kColumns, kBytes = kColumns * 2;
    Part part{kOfV ? w.v : w.k, kOfV ? w.v_scale : w.k_scale, nullptr, nullptr, nullptr, 0};
    const u32 of_key = u32(w.num_heads_kv) * kParts, together = min(of_key, u32(kThreads));
    const int apart = int(kThreads / together), first = int(threadIdx.x / together);
    if (first >= apart) return;
    part.key_bytes = i64(of_key) * kBytes;
    for (u32 own = threadIdx.x % together; own < of_key; own += together) {
      const int head = int(own / kParts), column = int(own % kParts) * kColumns;
      part.codes = static_cast<const char*>(part.rows.data) +
                   bytes_of(kCode, head * part.rows.stride_head + column);
      if constexpr (kScaled<kCode>)
        part.scale = static_cast<const float*>(part.scales.data) + head * part.scales.stride_head +
                     (scales_of_rows(C) ? column / scale_group(C, kDim) * (C.kv_zero ? 2 : 1)
                                        : keys.sequence * part.scales.stride_batch);
      part.to = static_cast<char*>(wide) + (keys.begin + keys.first) * part.key_bytes +
                i64(own) * kBytes;
      for (int key = first; key < keys.count; key += kDepth * apart)
        widen_keys<kCode>(w, keys, part, key, apart);
    }
  }
  /// kDepth of them, `apart` from each other: their reads are under way together.
  template <int kCode>
  ATTNFORGE_DEVICE static void widen_keys(const WideningWork& w, const Keys& keys, const Part& part,
                                          int first, int apart) {
    u32 words[kDepth][element_bits(kCode) / 4];
    float factor[kDepth], zero[kDepth] = {};
    unrolled<kDepth>([&](int d) {
      const Place place(w, keys, keys.first + min(first + d * apart, keys.count - 1));
      load_words<16>(part.codes + bytes_of(kCode, place.batch * part.rows.stride_batch +
                                                      place.row * part.rows.stride_row),
                     words[d]);
      if constexpr (kScaled<kCode>) {
        const float* const scale = part.scale + (scales_of_rows(C)
                                                     ? place.batch * part.scales.stride_batch +
                                                           place.row * part.scales.stride_row
                                                     : 0);
        factor[d] = *scale;
        if constexpr (C.kv_zero) zero[d] = scale[1];
      }
    });
    unrolled<kDepth>([&](int d) {
      const int key = first + d * apart;
      if (key >= keys.count) return;
      u32 stored[4];
      if constexpr (is_low_bit(kCode)) {
        float x[kColumns];
        numbers<kCode>(words[d], x);
        if constexpr (kScaled<kCode>)
          unrolled<kColumns>([&](int i) {
            x[i] = within(C.kv_zero ? fmaf(x[i], factor[d], zero[d]) : x[i] * factor[d]);
          });
        unrolled<4>([&](int i) { stored[i] = pack2<C.dtype>(x[2 * i], x[2 * i + 1]); });
      } else {
        unrolled<4>([&](int i) { stored[i] = words[d][i]; });
      }
      store_words<16>(part.to + key * part.key_bytes, stored);
    });
  }

  ATTNFORGE_DEVICE static void run(const WideningParams& p) {
    const Keys keys(p.work);
    if constexpr (is_low_bit(C.dtype_k) || kPages) widen<false>(p.work, keys, p.k);
    if constexpr (is_low_bit(C.dtype_v) || kPages) widen<true>(p.work, keys, p.v);
    if (p.own_table == nullptr || keys.first != 0) return;
    const int begin = keys.sequence * p.work.own_pages;
    for (int i = int(threadIdx.x); i < p.work.own_pages; i += kThreads)
      p.own_table[begin + i] = begin + i;
  }
};

}  // namespace attnforge
