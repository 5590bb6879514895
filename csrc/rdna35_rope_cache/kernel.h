// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// rdna35_rope_cache: per-head RMSNorm of Q [T, Hq, D] and K [T, Hkv, D], RoPE
// of both, the weightless norm of V, and the write of K and V into the paged
// cache [blocks, Hkv, block_size, 2 * D], in one launch.
//
// The plan
//
// A wave serves one token. Its 32 lanes are cut into groups of kLanes, and a
// group owns one head: a head of Q, or one of the units K0, V0, K1, V1, ...
// in which a K row and the V row behind it in the cache are neighbours.
//
// A head is D/2 pairs, and a lane owns kPairs pairs in a row, both elements of
// each: the pairs (i, i + rot/2) that RoPE rotates, then, with partial RoPE,
// the same kind of pairs over the elements that it passes through. So no
// element ever changes lanes, and a lane moves two vectors, one from each half.
//
// The sum of squares is a balanced tree over the pairs in that order: first in
// the lane, then across the group. The tree is the same for any kPairs, and
// nothing but D and rot decides the pairs, so a token's bits depend on neither
// the batch nor the strides nor the vector width.
//
// There are three dependent memory round trips before the first store:
//   1. the argument,
//   2. position, slot, activations and weights, all at once,
//   3. cos and sin, which wait for the position alone: the norm's sum and the
//      normalisation run while they are under way.
#pragma once

#include "params.h"
#include "target.h"

namespace rdna35 {

constexpr int power_of_two_from(int n) {
  return n <= 1 ? 1 : 2 * power_of_two_from((n + 1) / 2);
}

// Who owns what, for one head size: all that the host needs to lay out a grid.
template <int kHeadDim>
struct Ownership {
  // 8 bytes of each half a lane; a head of 512 needs 16 to fit in a wave.
  static constexpr int kPairs = kHeadDim <= 256 ? 4 : 8;
  static constexpr int kHeadPairs = kHeadDim / 2;
  // Lanes of a head, idle ones included (12 of 16 work for D = 96).
  static constexpr int kLanes = power_of_two_from(kHeadPairs / kPairs);
  static constexpr int kHeads = kWaveSize / kLanes;  // heads of a wave
  static_assert(kHeadPairs % kPairs == 0 && kLanes <= kWaveSize);
};

template <class T, int kHeadDim, bool kNormed>
struct RopeCache : Ownership<kHeadDim> {
  using Owner = Ownership<kHeadDim>;
  using Owner::kHeadPairs;
  using Owner::kHeads;
  using Owner::kLanes;
  using Owner::kPairs;
  static constexpr int kWords = kPairs / 2;  // of a vector of 16-bit elements

  // What a lane keeps between loading and storing.
  struct Lane {
    bool is_v;
    bool owns;  // a pair of a head that exists
    int head;
    int pair;              // the first of its kPairs pairs
    Words<kWords> x[2];    // both elements of each pair, as loaded
    Words<kWords> cos, sin;
    Words<kPairs> weight[2];  // fp32, or 16-bit in the first kWords words
  };

  // The two elements of a pair.
  static RDNA35_DEVICE int first_of(int pair, int rot_half) {
    return pair < rot_half ? pair : pair + rot_half;
  }
  static RDNA35_DEVICE int second_of(int pair, int rot_half) {
    return pair < rot_half ? pair + rot_half : pair + kHeadPairs;
  }

  template <class W>
  static RDNA35_DEVICE const void* at(const void* base, int64_t elements) {
    return static_cast<const char*>(base) +
           elements * static_cast<int64_t>(sizeof(W));
  }
  template <class W>
  static RDNA35_DEVICE void* at(void* base, int64_t elements) {
    return static_cast<char*>(base) +
           elements * static_cast<int64_t>(sizeof(W));
  }

  static RDNA35_DEVICE uint32_t half_word(const Words<kWords>& words, int i) {
    return words.w[i / 2] >> 16 * (i & 1) & 0xffff;
  }
  static RDNA35_DEVICE float element(const Words<kWords>& words, int i) {
    return i & 1 ? T::high(words.w[i / 2]) : T::low(words.w[i / 2]);
  }

  // A lane's elements of one 16-bit row: whole vectors, or one by one where a
  // row is not aligned or a lane's pairs lie on both sides of rot.
  template <bool kVectors>
  static RDNA35_DEVICE void load_pairs(const void* row, int pair, int rot_half,
                                       Words<kWords> (&x)[2]) {
    if constexpr (kVectors) {
      x[0] = load_words<kWords>(at<uint16_t>(row, first_of(pair, rot_half)));
      x[1] = load_words<kWords>(at<uint16_t>(row, second_of(pair, rot_half)));
    } else {
      uint32_t bits[2][kPairs];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        bits[0][i] = load<uint16_t>(row, first_of(pair + i, rot_half));
        bits[1][i] = load<uint16_t>(row, second_of(pair + i, rot_half));
      }
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        x[0].w[i] = bits[0][2 * i] | bits[0][2 * i + 1] << 16;
        x[1].w[i] = bits[1][2 * i] | bits[1][2 * i + 1] << 16;
      }
    }
  }

  template <bool kVectors>
  static RDNA35_DEVICE void store_pairs(void* row, int pair, int rot_half,
                                        const Words<kWords> (&x)[2]) {
    if constexpr (kVectors) {
      store_words(at<uint16_t>(row, first_of(pair, rot_half)), x[0]);
      store_words(at<uint16_t>(row, second_of(pair, rot_half)), x[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        store(row, first_of(pair + i, rot_half),
              static_cast<uint16_t>(half_word(x[0], i)));
        store(row, second_of(pair + i, rot_half),
              static_cast<uint16_t>(half_word(x[1], i)));
      }
    }
  }

  template <bool kVectors>
  static RDNA35_DEVICE void load_weight(const RopeCacheParams& p,
                                        const void* weight, Lane& l) {
    if (p.flags & kWeightsFp32) {
      if constexpr (kVectors) {
        const void* first = at<float>(weight, first_of(l.pair, p.rot_half));
        const void* second = at<float>(weight, second_of(l.pair, p.rot_half));
#pragma unroll
        for (int i = 0; i < kPairs; i += 4) {
          const Words<4> a = load_words<4>(at<float>(first, i));
          const Words<4> b = load_words<4>(at<float>(second, i));
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            l.weight[0].w[i + j] = a.w[j];
            l.weight[1].w[i + j] = b.w[j];
          }
        }
      } else {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          l.weight[0].w[i] =
              load<uint32_t>(weight, first_of(l.pair + i, p.rot_half));
          l.weight[1].w[i] =
              load<uint32_t>(weight, second_of(l.pair + i, p.rot_half));
        }
      }
    } else {
      Words<kWords> narrow[2];
      load_pairs<kVectors>(weight, l.pair, p.rot_half, narrow);
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        l.weight[0].w[i] = narrow[0].w[i];
        l.weight[1].w[i] = narrow[1].w[i];
      }
    }
  }

  template <bool kVectors>
  static RDNA35_DEVICE void load_cos_sin(const RopeCacheParams& p, int64_t row,
                                         Lane& l) {
    const int rot_half = p.rot_half;
    const void* cos = at<uint16_t>(p.cos_sin, row * (2 * rot_half));
    const void* sin = at<uint16_t>(cos, rot_half);
    // Lanes that rotate nothing read the row's start and discard it.
    if constexpr (kVectors) {
      const int pair = l.pair < rot_half ? l.pair : 0;
      l.cos = load_words<kWords>(at<uint16_t>(cos, pair));
      l.sin = load_words<kWords>(at<uint16_t>(sin, pair));
    } else {
      uint32_t bits[2][kPairs];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const int pair = l.pair + i < rot_half ? l.pair + i : 0;
        bits[0][i] = load<uint16_t>(cos, pair);
        bits[1][i] = load<uint16_t>(sin, pair);
      }
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        l.cos.w[i] = bits[0][2 * i] | bits[0][2 * i + 1] << 16;
        l.sin.w[i] = bits[1][2 * i] | bits[1][2 * i + 1] << 16;
      }
    }
  }

  // The lane's part of the tree. Squares of 16-bit values are exact in fp32.
  static RDNA35_DEVICE float sum_of_squares(const Words<kWords> (&x)[2]) {
    float sums[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float a = element(x[0], i), b = element(x[1], i);
      sums[i] = fused_multiply_add(a, a, b * b);
    }
#pragma unroll
    for (int width = 1; width < kPairs; width *= 2) {
#pragma unroll
      for (int i = 0; i < kPairs; i += 2 * width) sums[i] += sums[i + width];
    }
    return sums[0];
  }

  template <int kLaneMask = 1>
  static RDNA35_DEVICE void sum_over_group(PerLane<float>& x) {
    if constexpr (kLaneMask < kLanes) {
      add_from_lane_xor<kLaneMask>(x);
      sum_over_group<2 * kLaneMask>(x);
    }
  }

  static RDNA35_DEVICE float weight_of(const RopeCacheParams& p, const Lane& l,
                                       int half, int i) {
    if (p.flags & kWeightsFp32) return as_float(l.weight[half].w[i]);
    const uint32_t word = l.weight[half].w[i / 2];
    return i & 1 ? T::high(word) : T::low(word);
  }

  // x * inverse * weight, rounded where vLLM's RMSNorm and GemmaRMSNorm do.
  static RDNA35_DEVICE void normalise(const RopeCacheParams& p, const Lane& l,
                                      bool is_q, float inverse,
                                      float (&x)[2][kPairs]) {
    const bool weighted = !l.is_v;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) x[half][i] *= inverse;
    }
    if (p.flags & kNormInFp32) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          const float w = p.weight_offset + weight_of(p, l, half, i);
          x[half][i] = T::round(weighted ? x[half][i] * w : x[half][i]);
        }
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          const float w = weight_of(p, l, half, i);
          x[half][i] = T::round(x[half][i]);
          x[half][i] = weighted ? T::round(x[half][i] * w) : x[half][i];
        }
      }
    }
  }

  // Mistral's llama-4 scaling of Q at a position.
  static RDNA35_DEVICE float q_scale(const RopeCacheParams& p,
                                     int64_t position) {
    const uint64_t from_zero = position > 0 ? position : 0;
    const uint64_t periods = from_zero / static_cast<uint64_t>(p.scale_orig_max);
    return 1.0f + p.scale_beta * log_of(1.0f + static_cast<float>(periods));
  }

  template <bool kVectors>
  static RDNA35_DEVICE void run(const RopeCacheParams& p, int token, int wave) {
    const int64_t position = load<int64_t>(p.positions, token);
    const bool mapped = token < p.num_slots_mapped;
    const int64_t slot = load<int64_t>(p.slot_mapping, mapped ? token : 0);

    const bool is_q = wave < p.q_waves;
    const int first_unit = (is_q ? wave : wave - p.q_waves) * kHeads;
    const int units = is_q ? p.num_q_heads : 2 * p.num_kv_heads;

    PerLane<Lane> lanes;
    PerLane<float> squares;
    for_each_lane([&](int lane) {
      Lane& l = lanes[lane];
      // Lanes without a head or a pair of their own take part in every step
      // on another's values and store nothing.
      int unit = first_unit + lane / kLanes;
      l.owns = unit < units;
      unit = l.owns ? unit : units - 1;
      l.is_v = !is_q && (unit & 1);
      l.head = is_q ? unit : unit >> 1;
      l.pair = lane % kLanes * kPairs;
      const bool idle = l.pair >= kHeadPairs;
      l.owns = l.owns && !idle;
      l.pair = idle ? 0 : l.pair;

      const void* src = is_q ? p.q.src : l.is_v ? p.v.src : p.k.src;
      const int32_t token_stride = is_q     ? p.q.src_token_stride
                                   : l.is_v ? p.v.src_token_stride
                                            : p.k.src_token_stride;
      const int32_t head_stride = is_q     ? p.q.src_head_stride
                                  : l.is_v ? p.v.src_head_stride
                                           : p.k.src_head_stride;
      src = at<uint16_t>(src, static_cast<int64_t>(token) * token_stride +
                                  static_cast<int64_t>(l.head) * head_stride);
      load_pairs<kVectors>(src, l.pair, p.rot_half, l.x);
      if constexpr (kNormed) {
        if (p.flags & kNormQK)
          load_weight<kVectors>(p, is_q ? p.q_weight : p.k_weight, l);
      }
    });

    // Clamped into the table: a position from the device is not trusted.
    int64_t row = position > p.row_low ? position : p.row_low;
    row = (row < p.row_high ? row : p.row_high) - p.row_low;
    if (p.rot_half > 0) {
      for_each_lane(
          [&](int lane) { load_cos_sin<kVectors>(p, row, lanes[lane]); });
    }

    if constexpr (kNormed) {
      for_each_lane([&](int lane) {
        const bool idle = lane % kLanes * kPairs >= kHeadPairs;
        squares[lane] = idle ? 0.0f : sum_of_squares(lanes[lane].x);
      });
      sum_over_group(squares);
    }

    const bool write = mapped && static_cast<uint64_t>(slot) < p.num_slots;
    const uint32_t block = static_cast<uint32_t>(
        static_cast<uint64_t>(static_cast<uint32_t>(slot)) * p.block_magic >>
        p.block_shift);
    const uint32_t slot_in_block =
        static_cast<uint32_t>(slot) - block * p.block_size;
    void* cache_row = at<uint16_t>(p.cache, block * p.cache_block_stride +
                                       slot_in_block * p.cache_slot_stride);
    const bool scaled = is_q && p.scale_beta != 0.0f;
    const float scale = scaled ? q_scale(p, position) : 1.0f;

    for_each_lane([&](int lane) {
      const Lane& l = lanes[lane];
      float x[2][kPairs];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        x[0][i] = element(l.x[0], i);
        x[1][i] = element(l.x[1], i);
      }

      bool normed = false;
      if constexpr (kNormed) {
        normed = p.flags & (l.is_v ? kNormV : kNormQK);
        if (normed) {
          const float mean = squares[lane] / kHeadDim;
          normalise(p, l, is_q, inverse_sqrt(mean + p.eps), x);
        }
      }

      Words<kWords> out[2];
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        uint32_t changed = 0;
#pragma unroll
        for (int i = 2 * w; i < 2 * w + 2; ++i) {
          const bool rotates = !l.is_v && l.pair + i < p.rot_half;
          const float cos = element(l.cos, i), sin = element(l.sin, i);
          const float a = x[0][i], b = x[1][i];
          x[0][i] = rotates ? fused_multiply_add(a, cos, -(b * sin)) : a;
          x[1][i] = rotates ? fused_multiply_add(b, cos, a * sin) : b;
          if (rotates || normed || scaled) changed |= 0xffffu << 16 * (i & 1);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t word = T::pack(x[half][2 * w], x[half][2 * w + 1]);
          if (scaled) word = T::pack(T::low(word) * scale, T::high(word) * scale);
          // What nothing touched stays the bits it was, a signalling NaN too.
          out[half].w[w] = (word & changed) | (l.x[half].w[w] & ~changed);
        }
      }

      void* dst = is_q ? p.q.dst : l.is_v ? p.v.dst : p.k.dst;
      const int32_t token_stride = is_q     ? p.q.dst_token_stride
                                   : l.is_v ? p.v.dst_token_stride
                                            : p.k.dst_token_stride;
      const int32_t head_stride = is_q     ? p.q.dst_head_stride
                                  : l.is_v ? p.v.dst_head_stride
                                           : p.k.dst_head_stride;
      if (l.owns && dst) {
        dst = at<uint16_t>(dst, static_cast<int64_t>(token) * token_stride +
                                    static_cast<int64_t>(l.head) * head_stride);
        store_pairs<kVectors>(dst, l.pair, p.rot_half, out);
      }
      if (l.owns && !is_q && write) {
        store_pairs<kVectors>(
            at<uint16_t>(cache_row, l.head * p.cache_head_stride +
                                        (l.is_v ? kHeadDim : 0)),
            l.pair, p.rot_half, out);
      }
    });
  }

  // One wave of one token.
  static RDNA35_DEVICE void wave(const RopeCacheParams& p, int token,
                                 int wave) {
    if (p.flags & kVectors) {
      run<true>(p, token, wave);
    } else {
      run<false>(p, token, wave);
    }
  }
};

}  // namespace rdna35
