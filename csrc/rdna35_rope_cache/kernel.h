// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// rdna35_rope_cache: per-head RMSNorm of Q [T, Hq, D] and K [T, Hkv, D], RoPE
// of both, the weightless norm of V, and the write of K and V into the paged
// cache [blocks, Hkv, block_size, 2 * D], in one launch.
//
// The plan
//
// A wave serves one token and one of Q, K and V, so that its lanes do the same
// and address memory from the same base. The 32 lanes are cut into groups of
// kLanes, and a group owns one head.
//
// A head is D/2 pairs, and a lane owns kPairs pairs in a row, both elements of
// each: the pairs (i, i + rot/2) that RoPE rotates and then, with partial RoPE,
// the same kind of pairs over the elements that it passes through. No element
// ever changes lanes, and a lane moves two vectors, one from each half. GPT-J's
// pairs are (2i, 2i + 1) instead: what a lane owns lies in one piece, and is
// sorted into first and second elements once it is in registers.
//
// The sum of squares is a balanced tree over the pairs in that order: first in
// the lane, then across the group. The tree is the same for any kPairs, and
// D and rot alone decide the pairs, so a token's bits depend on neither the
// batch nor the strides nor the vector width.
//
// There are three dependent memory round trips before the first store:
//   1. the argument,
//   2. position, slot, activations and weights, all at once,
//   3. cos and sin, which wait for the position alone; the norm is worked out
//      while they are under way.
#pragma once

#include "params.h"
#include "target.h"

namespace rdna35 {

constexpr int power_of_two_from(int n) {
  return n <= 1 ? 1 : 2 * power_of_two_from((n + 1) / 2);
}

// How a lane moves its elements: in vectors of one half of its pairs, in
// vectors of pairs whose elements are adjacent, or one by one.
enum Access { kOfHalves, kOfPairs, kOneByOne };

// One kernel, with one access; extended, with what few launches need: M-RoPE
// and a quantized cache, which so cost the others nothing.
template <class T, int kHeadDim, bool kNormed, int kPairs, Access kAccess,
          bool kExtended>
struct RopeCache {
  static constexpr int kHeadPairs = kHeadDim / 2;
  // Lanes of a head, idle ones included: for D = 96 a quarter of them is.
  static constexpr int kLanes = power_of_two_from(kHeadPairs / kPairs);
  static constexpr int kHeads = kWaveSize / kLanes;  // heads of a wave
  static constexpr int kWords = kPairs / 2;          // of a lane's half, 16-bit
  static constexpr uint32_t kBytes = 2;              // of an activation
  static constexpr bool kNarrowest = is_narrowest(kHeadDim, kPairs);
  static constexpr bool kVectors = kAccess != kOneByOne;
  static constexpr bool kHasPairs = kNarrowest && has_vectors_of_pairs(kPairs);
  static_assert(kHeadPairs % kPairs == 0 && kLanes <= kWaveSize);
  static constexpr bool kHasExtended = has_extended_vectors(kHeadDim, kPairs);
  static_assert(kAccess == kOfHalves || kNarrowest);
  static_assert(!kExtended || kNarrowest || kHasExtended);

  struct Halves {
    Words<kWords> half[2];  // the first and second elements of the pairs
  };
  struct WideHalves {
    Words<kPairs> half[2];
  };
  // Which elements make a pair.
  struct Pairing {
    int rot_half;
    bool adjacent;
  };
  // The heads of a wave: those of one token from first_head on.
  struct WaveHeads {
    const void* src;
    void* dst;
    uint32_t num_heads;
    uint32_t src_head_stride;
    uint32_t dst_head_stride;
  };
  // A lane's place in the wave.
  struct Place {
    bool owns;      // pairs of a head that exists
    bool idle;      // has no pairs
    uint32_t head;  // from the wave's first
    int pair;       // the first of kPairs
  };
  // What few launches need, extended alone.
  struct Extras {
    int64_t second_position, third_position;
    RopeCacheExtras given;
  };
  // Where a token's rows of cos and sin begin: from a base that all pairs share
  // or, extended, each pair's of three.
  struct Rows {
    const void* base;
    uint32_t first, second, third;  // bytes
    RopeCacheExtras extras;
    bool interleaved;

    // Bits, not branches.
    static RDNA35_DEVICE bool in(RopeCacheExtras::Section section, int pair,
                                 bool any) {
      return (static_cast<uint32_t>(pair - section.begin) < section.length) &
             any;
    }
    RDNA35_DEVICE uint32_t of(int pair) const {
      if constexpr (!kExtended) return 0;
      const int remainder = pair - 3 * (pair * 171 >> 9);  // by 3, pair < 256
      const bool in_second =
          in(extras.second, pair, !interleaved | (remainder == 1));
      const bool in_third =
          in(extras.third, pair, !interleaved | (remainder == 2));
      // Told apart by values: a choice among members would go through memory.
      const uint32_t a = first, b = second, c = third;
      return in_third ? c : in_second ? b : a;
    }
  };
  // What a lane keeps between loading and storing.
  struct Lane {
    Place place;
    Halves x;  // as loaded
    Halves cos_sin;
    WideHalves weight;  // fp32, or 16-bit in its first words
  };

  // Past a base by a number of strides, which are in bytes: 32 bits times 32 or
  // 64, unsigned, which every target multiplies with the fewest instructions.
  template <class Stride>
  static RDNA35_DEVICE const void* at(const void* base, uint32_t i,
                                      Stride stride) {
    return static_cast<const char*>(base) + uint64_t{i} * stride;
  }
  template <class Stride>
  static RDNA35_DEVICE void* at(void* base, uint32_t i, Stride stride) {
    return static_cast<char*>(base) + uint64_t{i} * stride;
  }

  // The two elements of a pair in their head, or where a lane's two vectors
  // begin, if `pair` is its first. Single elements are found without branches,
  // which would part their loads.
  static RDNA35_DEVICE uint32_t first_of(int pair, Pairing by) {
    if constexpr (kAccess == kOfPairs) return 2 * pair;
    const uint32_t first = pair < by.rot_half ? pair : pair + by.rot_half;
    return kAccess == kOneByOne && by.adjacent ? 2 * pair : first;
  }
  static RDNA35_DEVICE uint32_t second_of(int pair, Pairing by) {
    if constexpr (kAccess == kOfPairs) return 2 * pair + kPairs;
    const uint32_t second =
        pair < by.rot_half ? pair + by.rot_half : pair + kHeadPairs;
    return kAccess == kOneByOne && by.adjacent ? 2 * pair + 1 : second;
  }

  static RDNA35_DEVICE float element(const uint32_t* words, int i) {
    return i & 1 ? T::high(words[i / 2]) : T::low(words[i / 2]);
  }

  // A lane's 16-bit elements at two places, which are whole vectors or given
  // one by one, by functions from the pair to the offset in bytes.
  template <bool kWhole, class First, class Second>
  static RDNA35_DEVICE Halves load_halves(const void* base, First first,
                                          Second second) {
    Halves x;
    if constexpr (kWhole) {
      x.half[0] = load_words<kWords>(base, first(0));
      x.half[1] = load_words<kWords>(base, second(0));
    } else {
      uint32_t bits[2][kPairs];
      RDNA35_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        bits[0][i] = load<uint16_t>(base, first(i));
        bits[1][i] = load<uint16_t>(base, second(i));
      }
      RDNA35_UNROLL
      for (int w = 0; w < kWords; ++w) {
        x.half[0].w[w] = bits[0][2 * w] | bits[0][2 * w + 1] << 16;
        x.half[1].w[w] = bits[1][2 * w] | bits[1][2 * w + 1] << 16;
      }
    }
    return x;
  }

  static RDNA35_DEVICE Halves load_pairs(const void* base, uint32_t bytes,
                                         int pair, Pairing by) {
    return load_halves<kVectors>(
        base, [=](int i) { return bytes + kBytes * first_of(pair + i, by); },
        [=](int i) { return bytes + kBytes * second_of(pair + i, by); });
  }

  static RDNA35_DEVICE void store_pairs(void* base, uint32_t bytes, int pair,
                                        Pairing by, const Halves& x) {
    if constexpr (kVectors) {
      store_words(base, bytes + kBytes * first_of(pair, by), x.half[0]);
      store_words(base, bytes + kBytes * second_of(pair, by), x.half[1]);
    } else {
      // The addresses are worked out anew rather than kept from the loads.
      pair = forgotten(pair);
      RDNA35_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        const int shift = 16 * (i & 1);
        store(base, bytes + kBytes * first_of(pair + i, by),
              static_cast<uint16_t>(x.half[0].w[i / 2] >> shift));
        store(base, bytes + kBytes * second_of(pair + i, by),
              static_cast<uint16_t>(x.half[1].w[i / 2] >> shift));
      }
    }
  }

  // The i-th word of a lane's two vectors.
  template <int kHalf>
  static RDNA35_DEVICE uint32_t word_of(const Words<kHalf> (&half)[2], int i) {
    return half[i / kHalf].w[i % kHalf];
  }

  // What was loaded as the first and the second elements of pairs, and back as
  // it is stored. Not before all loads are under way: it waits for them.
  static RDNA35_DEVICE Halves in_halves(const Halves& x) {
    Halves halves = x;
    if constexpr (kAccess == kOfPairs) {
      RDNA35_UNROLL
      for (int w = 0; w < kWords; ++w) {
        const uint32_t a = word_of(x.half, 2 * w);
        const uint32_t b = word_of(x.half, 2 * w + 1);
        halves.half[0].w[w] = (a & 0xffff) | b << 16;
        halves.half[1].w[w] = a >> 16 | (b & 0xffff0000);
      }
    }
    return halves;
  }
  static RDNA35_DEVICE Halves as_moved(const Halves& x) {
    Halves moved = x;
    if constexpr (kAccess == kOfPairs) {
      RDNA35_UNROLL
      for (int w = 0; w < kWords; ++w) {
        const uint32_t a = x.half[0].w[w], b = x.half[1].w[w];
        moved.half[2 * w / kWords].w[2 * w % kWords] = (a & 0xffff) | b << 16;
        moved.half[(2 * w + 1) / kWords].w[(2 * w + 1) % kWords] =
            a >> 16 | (b & 0xffff0000);
      }
    }
    return moved;
  }
  static RDNA35_DEVICE WideHalves in_halves(const WideHalves& x, bool fp32) {
    if constexpr (kAccess == kOfPairs) {
      if (!fp32) return widened(in_halves(narrowed(x)));
      WideHalves halves;
      RDNA35_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        halves.half[0].w[i] = word_of(x.half, 2 * i);
        halves.half[1].w[i] = word_of(x.half, 2 * i + 1);
      }
      return halves;
    } else {
      return x;
    }
  }

  // 16-bit weights in the first words of what may hold fp32.
  static RDNA35_DEVICE WideHalves widened(const Halves& x) {
    WideHalves wide;
    leave_unset(wide);
    RDNA35_UNROLL
    for (int w = 0; w < kWords; ++w) {
      wide.half[0].w[w] = x.half[0].w[w];
      wide.half[1].w[w] = x.half[1].w[w];
    }
    return wide;
  }
  static RDNA35_DEVICE Halves narrowed(const WideHalves& wide) {
    Halves x;
    RDNA35_UNROLL
    for (int w = 0; w < kWords; ++w) {
      x.half[0].w[w] = wide.half[0].w[w];
      x.half[1].w[w] = wide.half[1].w[w];
    }
    return x;
  }

  // Lanes that rotate nothing read the start of the row and discard it.
  static RDNA35_DEVICE Halves load_cos_sin(const Rows& rows, int pair,
                                           int rot_half) {
    const auto cos = [=](int i) {
      const int turned = pair + i < rot_half ? pair + i : 0;
      return rows.of(turned) + kBytes * turned;
    };
    return load_halves < kVectors && !kExtended > (rows.base, cos, [=](int i) {
             return cos(i) + kBytes * rot_half;
           });
  }

  static RDNA35_DEVICE WideHalves load_weight(const void* weight, bool fp32,
                                              int pair, Pairing by) {
    if (!fp32) return widened(load_pairs(weight, 0, pair, by));
    WideHalves wide;
    // 16 bytes at a time at the most, or one by one.
    constexpr int kStep = !kVectors ? 1 : kPairs < 4 ? kPairs : 4;
    RDNA35_UNROLL
    for (int i = 0; i < kPairs; i += kStep) {
      const uint32_t first =
          kVectors ? first_of(pair, by) + i : first_of(pair + i, by);
      const uint32_t second =
          kVectors ? second_of(pair, by) + i : second_of(pair + i, by);
      const auto a = load_words<kStep>(weight, 4 * first);
      const auto b = load_words<kStep>(weight, 4 * second);
      RDNA35_UNROLL
      for (int j = 0; j < kStep; ++j) {
        wide.half[0].w[i + j] = a.w[j];
        wide.half[1].w[i + j] = b.w[j];
      }
    }
    return wide;
  }

  // The lane's part of the tree. Squares of 16-bit values are exact in fp32.
  static RDNA35_DEVICE float sum_of_squares(const Halves& x) {
    float sums[kPairs];
    RDNA35_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const float a = element(x.half[0].w, i), b = element(x.half[1].w, i);
      sums[i] = fused_multiply_add(a, a, b * b);
    }
    RDNA35_UNROLL
    for (int width = 1; width < kPairs; width *= 2) {
      RDNA35_UNROLL
      for (int i = 0; i < kPairs; i += 2 * width) sums[i] += sums[i + width];
    }
    return sums[0];
  }

  // And the group's. Every lane of the wave takes part.
  template <int kLaneMask = 1>
  static RDNA35_DEVICE void sum_over_group(PerLane<float>& x) {
    if constexpr (kLaneMask < kLanes) {
      add_from_lane_xor<kLaneMask>(x);
      sum_over_group<2 * kLaneMask>(x);
    }
  }

  static RDNA35_DEVICE void multiply(Words<kWords>& x, float factor) {
    RDNA35_UNROLL
    for (uint32_t& word : x.w)
      word = T::pack(T::low(word) * factor, T::high(word) * factor);
  }

  // x * inverse * weight, rounded where vLLM's RMSNorm and GemmaRMSNorm do.
  static RDNA35_DEVICE void normalise(const RopeCacheParams& p, float inverse,
                                      const WideHalves& loaded, Halves& x) {
    const bool fp32 = p.flags & kWeightsFp32;
    if (__builtin_expect(p.flags & kNormInFp32, false)) {
      const WideHalves weight = in_halves(loaded, fp32);
      normalise_in_fp32(p, inverse, fp32, weight.half[0], x.half[0]);
      normalise_in_fp32(p, inverse, fp32, weight.half[1], x.half[1]);
      return;
    }
    const WideHalves weight = in_halves(loaded, false);
    RDNA35_UNROLL
    for (int half = 0; half < 2; ++half) {
      multiply(x.half[half], inverse);
      RDNA35_UNROLL
      for (int w = 0; w < kWords; ++w) {
        uint32_t& word = x.half[half].w[w];
        word = T::product(word, weight.half[half].w[w]);
      }
    }
  }

  static RDNA35_DEVICE void normalise_in_fp32(const RopeCacheParams& p,
                                              float inverse, bool fp32,
                                              Words<kPairs> weight,
                                              Words<kWords>& x) {
    if (!fp32) {
      RDNA35_UNROLL
      for (int i = kPairs - 1; i >= 0; --i)
        weight.w[i] = as_bits(element(weight.w, i));
    }
    RDNA35_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const float low = p.weight_offset + as_float(weight.w[2 * i]);
      const float high = p.weight_offset + as_float(weight.w[2 * i + 1]);
      x.w[i] = T::pack_any(T::low(x.w[i]) * inverse * low,
                           T::high(x.w[i]) * inverse * high);
    }
  }

  // The pairs that RoPE turns; the other elements stay the bits they are.
  static RDNA35_DEVICE void rotate(const Halves& cos_sin, int pair,
                                   int rot_half, Halves& x) {
    RDNA35_UNROLL
    for (int w = 0; w < kWords; ++w) {
      float turned[2][2];
      uint32_t mask = 0;
      RDNA35_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float a = element(x.half[0].w, 2 * w + i);
        const float b = element(x.half[1].w, 2 * w + i);
        const float cos = element(cos_sin.half[0].w, 2 * w + i);
        const float sin = element(cos_sin.half[1].w, 2 * w + i);
        turned[0][i] = fused_multiply_add(a, cos, -(b * sin));
        turned[1][i] = fused_multiply_add(b, cos, a * sin);
        // All pairs of a vector turn, or none.
        const int this_pair = kVectors ? pair : pair + 2 * w + i;
        mask |= this_pair < rot_half ? 0xffff << 16 * i : 0;
      }
      RDNA35_UNROLL
      for (int half = 0; half < 2; ++half) {
        uint32_t& word = x.half[half].w[w];
        word =
            (T::pack(turned[half][0], turned[half][1]) & mask) | (word & ~mask);
      }
    }
  }

  // The row of cos and sin. A position from the device is not trusted: it is
  // clamped into the table. Between the limits the low halves say it all.
  static RDNA35_DEVICE uint32_t row_of(const RopeCacheParams& p,
                                       int64_t position) {
    const uint32_t low = static_cast<uint32_t>(p.row_low);
    const uint32_t last = static_cast<uint32_t>(p.row_high) - low;
    const uint32_t row = static_cast<uint32_t>(position) - low;
    const bool below = position<p.row_low, above = position> p.row_high;
    return below ? 0 : above ? last : row;
  }

  // Mistral's llama-4 scaling of Q at a position.
  static RDNA35_RARE float q_scale(float beta, uint64_t magic, uint32_t shift,
                                   int64_t position) {
    const uint64_t from_zero = position > 0 ? position : 0;
    const uint64_t periods = multiply_high(2 * from_zero, magic) >> shift;
    return 1.0f + beta * log_of(1.0f + static_cast<float>(periods));
  }

  static RDNA35_DEVICE WaveHeads heads_of(const HeadsParams& heads,
                                          uint32_t token, uint32_t first_head,
                                          uint32_t num_heads) {
    return {at(at(heads.src, token, heads.src_token_stride), first_head,
               heads.src_head_stride),
            at(at(heads.dst, token, heads.dst_token_stride), first_head,
               heads.dst_head_stride),
            num_heads - first_head, heads.src_head_stride,
            heads.dst_head_stride};
  }

  // Lanes without a head or a pair of their own take part in every step on
  // another's values, and store nothing.
  static RDNA35_DEVICE Place place_of(const WaveHeads& heads, int lane) {
    const uint32_t head = lane / kLanes;
    const int pair = lane % kLanes * kPairs;
    const bool idle = pair >= kHeadPairs;
    const bool exists =
        (kHeads == 1 && kKnowsSingleHeads) || head < heads.num_heads;
    return {exists && !idle, idle, exists ? head : heads.num_heads - 1,
            idle ? 0 : pair};
  }

  static RDNA35_DEVICE bool is_cached(const RopeCacheParams& p, uint32_t token,
                                      int64_t slot) {
    // A slot from the device is not trusted: one that is negative or past the
    // cache is not written.
    return token < p.num_mapped && static_cast<uint64_t>(slot) < p.num_slots;
  }

  // The rows of a wave's heads in the cache at a valid slot: K, and V behind
  // it.
  static RDNA35_DEVICE void* cache_rows(const RopeCacheParams& p, int64_t slot,
                                        uint32_t first_head) {
    const uint32_t valid = static_cast<uint32_t>(slot);
    const uint32_t block = static_cast<uint32_t>(
        static_cast<uint64_t>(valid) * p.block_magic >> p.block_shift);
    void* const in_block =
        at(at(p.cache, block, p.cache_block_stride),
           valid - block * p.block_size, p.cache_slot_stride);
    return at(in_block, first_head, p.cache_head_stride);
  }

  // Into the row of a head in the cache: K, or V behind it.
  static RDNA35_DEVICE void store_cached(const RopeCacheParams& p, float scale,
                                         void* row, bool is_v, int pair,
                                         Pairing by, const Halves& x) {
    if constexpr (kExtended) {
      if (p.flags & kFp8Cache) {
        store_quantized(fp8_format(p.flags & kE5M2), divisor(scale), row,
                        is_v ? kHeadDim : 0, pair, by, x);
        return;
      }
    }
    store_pairs(row, is_v ? kBytes * kHeadDim : 0, pair, by, x);
  }

  static RDNA35_DEVICE void store_quantized(const Fp8Format& format,
                                            const Divisor& by_scale, void* row,
                                            uint32_t bytes, int pair,
                                            Pairing by, Halves x) {
    // As in store_pairs, the addresses are worked out anew.
    pair = forgotten(pair);
    // A loop, with the next word moved to the first: unrolled, few launches'
    // instructions would be the most of a kernel.
    RDNA35_LOOP
    for (int i = 0; i < 2 * kPairs; i += 2) {
      const auto at = [=](int j) {
        return bytes + (i < kPairs ? first_of(pair + i + j, by)
                                   : second_of(pair + i + j - kPairs, by));
      };
      const auto code = [&](int j) {
        return to_fp8(format, divide(element(x.half[0].w, j), by_scale));
      };
      if constexpr (kVectors) {
        store(row, at(0), static_cast<uint16_t>(code(0) | code(1) << 8));
      } else {
        store(row, at(0), static_cast<uint8_t>(code(0)));
        store(row, at(1), static_cast<uint8_t>(code(1)));
      }
      RDNA35_UNROLL
      for (int w = 1; w < kPairs; ++w) {
        x.half[(w - 1) / kWords].w[(w - 1) % kWords] =
            x.half[w / kWords].w[w % kWords];
      }
    }
  }

  // One wave of V: copied, normed first if wanted.
  static RDNA35_DEVICE void wave_of_v(const RopeCacheParams& p,
                                      const Extras& extras, uint32_t token,
                                      int64_t slot, uint32_t first_head) {
    const WaveHeads heads =
        heads_of(p.heads[kV], token, first_head, p.num_kv_heads);
    const Pairing by = {kHeadPairs, (p.flags & kAdjacentPairs) != 0};
    PerLane<Place> places;
    PerLane<Halves> x;
    for_each_lane([&](int lane) {
      const Place at = places[lane] = place_of(heads, lane);
      x[lane] =
          load_pairs(heads.src, at.head * heads.src_head_stride, at.pair, by);
    });

    float scale = 1.0f;
    if constexpr (kExtended) {
      arrive_together(slot, slot, extras.second_position, extras.third_position,
                      extras.given);
      scale = load_uniform(extras.given.scales[1], 0);
    }

    if (p.flags & kNormV) {
      PerLane<float> squares;
      for_each_lane([&](int lane) {
        const float sum = sum_of_squares(in_halves(x[lane]));
        squares[lane] = places[lane].idle ? 0.0f : sum;
      });
      sum_over_group(squares);
      for_each_lane([&](int lane) {
        const float inverse = inverse_sqrt(squares[lane] / kHeadDim + p.eps);
        multiply(x[lane].half[0], inverse);
        multiply(x[lane].half[1], inverse);
      });
    }

    const bool cached = is_cached(p, token, slot);
    void* const cache = cache_rows(p, slot, first_head);
    if constexpr (kExtended) arrive(scale);
    for_each_lane([&](int lane) {
      const Place& place = places[lane];
      if (place.owns && p.heads[kV].dst) {
        store_pairs(heads.dst, place.head * heads.dst_head_stride, place.pair,
                    by, x[lane]);
      }
      if (place.owns && cached) {
        store_cached(p, scale, at(cache, place.head, p.cache_head_stride), true,
                     place.pair, by, x[lane]);
      }
    });
  }

  // One wave of Q or K.
  static RDNA35_DEVICE void wave_of_qk(const RopeCacheParams& p,
                                       const Extras& extras, uint32_t token,
                                       int64_t position, int64_t slot,
                                       bool is_q, uint32_t first_head) {
    HeadsParams params = p.heads[kQ];
    uint32_t num_heads = p.num_q_heads;
    if (!is_q) {
      params = p.heads[kK];
      num_heads = p.num_kv_heads;
      keep_branch();
    }

    // Neither these loads nor the third round trip's are under a branch: where
    // a path with fewer loads joins, the compiler waits for all.
    const WaveHeads heads = heads_of(params, token, first_head, num_heads);
    const Pairing by = {p.rot_half, (p.flags & kAdjacentPairs) != 0};
    PerLane<Lane> lanes;
    for_each_lane([&](int lane) {
      Lane& l = lanes[lane];
      const Place at = l.place = place_of(heads, lane);
      l.x = load_pairs(heads.src, at.head * heads.src_head_stride, at.pair, by);
      // Else they come behind the wait for the weights, or for the positions.
      if constexpr (kExtended) in_order();
      if constexpr (kNormed) {
        l.weight =
            load_weight(params.weight, p.flags & kWeightsFp32, at.pair, by);
      }
    });
    if constexpr (kExtended) {
      arrive_together(position, slot, extras.second_position,
                      extras.third_position, extras.given);
    } else {
      arrive_together(position, slot);
    }
    if constexpr (kNormed) loads_first();

    // Round trip 3.
    const uint32_t row_bytes = 2 * kBytes * p.rot_half;
    Rows rows;
    if constexpr (kExtended) {
      rows = {p.cos_sin,
              row_of(p, position) * row_bytes,
              row_of(p, extras.second_position) * row_bytes,
              row_of(p, extras.third_position) * row_bytes,
              extras.given,
              (p.flags & kInterleaved) != 0};
    } else {
      rows.base = at(p.cos_sin, row_of(p, position), row_bytes);
    }
    const float k_scale =
        kExtended ? load_uniform(extras.given.scales[0], 0) : 1.0f;
    for_each_lane([&](int lane) {
      Lane& l = lanes[lane];
      l.cos_sin = load_cos_sin(rows, l.place.pair, p.rot_half);
    });
    in_order();
    for_each_lane([&](int lane) { lanes[lane].x = in_halves(lanes[lane].x); });

    const bool scaled = is_q && p.scale_beta != 0.0f;
    const float scale =
        __builtin_expect(scaled, false)
            ? q_scale(p.scale_beta, p.scale_magic, p.scale_shift, position)
            : 1.0f;

    PerLane<float> squares;
    if constexpr (kNormed) {
      for_each_lane([&](int lane) {
        const Lane& l = lanes[lane];
        squares[lane] = l.place.idle ? 0.0f : sum_of_squares(l.x);
      });
      sum_over_group(squares);
    }
    const bool cached = !is_q && is_cached(p, token, slot);
    void* const cache = cache_rows(p, slot, first_head);

    for_each_lane([&](int lane) {
      const Lane& l = lanes[lane];
      const Place& place = l.place;
      Halves x = l.x;
      if constexpr (kNormed) {
        normalise(p, inverse_sqrt(squares[lane] / kHeadDim + p.eps), l.weight,
                  x);
      }
      rotate(l.cos_sin, place.pair, p.rot_half, x);
      if (__builtin_expect(scaled, false)) {
        multiply(x.half[0], scale);
        multiply(x.half[1], scale);
      }
      x = as_moved(x);

      if (place.owns) {
        store_pairs(heads.dst, place.head * heads.dst_head_stride, place.pair,
                    by, x);
      }
      if (place.owns && cached) {
        store_cached(p, k_scale, at(cache, place.head, p.cache_head_stride),
                     false, place.pair, by, x);
      }
    });
  }

  static RDNA35_DEVICE int waves_of(uint32_t num_heads) {
    return (num_heads + kHeads - 1) / kHeads;
  }

  // One wave of one token: first those of Q, then of K, then of V.
  static RDNA35_DEVICE void wave(const RopeCacheParams& p,
                                 const RopeCacheExtras& given, uint32_t token,
                                 int wave, int64_t position, int64_t slot) {
    // Before the roles part, so that they come with position and slot.
    Extras extras;
    leave_unset(extras);
    if constexpr (kExtended) {
      const auto row = [&](uint32_t i) {
        return static_cast<const int64_t*>(
            at(p.positions, i, p.positions_stride));
      };
      extras = {load_uniform(row(1), token), load_uniform(row(2), token),
                given};
    }
    const int kv_wave = wave - waves_of(p.num_q_heads);
    const int v_wave = kv_wave - waves_of(p.num_kv_heads);
    if (__builtin_expect(v_wave < 0, true)) {
      const bool is_q = kv_wave < 0;
      wave_of_qk(p, extras, token, position, slot, is_q,
                 kHeads * (is_q ? wave : kv_wave));
    } else {
      wave_of_v(p, extras, token, slot, kHeads * v_wave);
    }
  }
};

template <class T, int kHeadDim, bool kNormed, int kPairs>
RDNA35_DEVICE void rope_cache_wave(const RopeCacheParams& p,
                                   const RopeCacheExtras& extras,
                                   uint32_t token, int wave) {
  // Round trip 2 begins, with what the third waits for.
  const int64_t position = load_uniform(p.positions, token);
  const int64_t slot =
      load_uniform(p.slot_mapping, token < p.num_mapped ? token : 0);
  if (wave >= p.num_waves) return;
  using OfHalves = RopeCache<T, kHeadDim, kNormed, kPairs, kOfHalves, false>;
  constexpr bool kNarrowest = OfHalves::kNarrowest;
  constexpr bool kHasPairs = OfHalves::kHasPairs;
  constexpr bool kHasExtended = OfHalves::kHasExtended;
  using OfPairs = RopeCache<T, kHeadDim, kNormed, kPairs,
                            kHasPairs ? kOfPairs : kOfHalves, false>;
  using Extended =
      RopeCache<T, kHeadDim, kNormed, kPairs, kOfHalves, kHasExtended>;
  using OneByOne = RopeCache<T, kHeadDim, kNormed, kPairs,
                             kNarrowest ? kOneByOne : kOfHalves, kNarrowest>;
  constexpr bool kAlone = !kNarrowest && !kHasExtended;
  if (kAlone || __builtin_expect(p.flags & kVectors, true)) {
    OfHalves::wave(p, extras, token, wave, position, slot);
  } else if (kHasPairs && p.flags & kAdjacentVectors) {
    OfPairs::wave(p, extras, token, wave, position, slot);
  } else if (kHasExtended && (!kNarrowest || p.flags & kExtendedVectors)) {
    Extended::wave(p, extras, token, wave, position, slot);
  } else {
    OneByOne::wave(p, extras, token, wave, position, slot);
  }
}

}  // namespace rdna35
