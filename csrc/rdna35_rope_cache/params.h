// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// What the host hands to the kernel, and the table of kernels that exist.
// Shared by device code, the host build and the host checks; includes nothing
// of torch, HIP or CUDA.
#pragma once

#include <stdint.h>

namespace rdna35 {

// A wave of gfx11 and a warp of CUDA: 32 lanes.
constexpr int kWaveSize = 32;

// One of Q, K, V: where its heads [T, H, D] are read and where they go, and the
// weight [D] of its norm. Strides are in bytes.
struct HeadsParams {
  const void* src;
  void* dst;  // may equal src; null only for V: not wanted
  const void* weight;
  uint32_t src_token_stride;
  uint32_t src_head_stride;
  uint32_t dst_token_stride;
  uint32_t dst_head_stride;
};

enum Role { kQ, kK, kV };

constexpr int kWavesPerGroup = 4;  // waves in a workgroup

// What a quantized cache and M-RoPE need beside the rest.
struct RopeCacheExtras {
  // One element each, K's and V's; without a quantized cache of some readable
  // address, its value is not used.
  const float* scales[2];
  // The pairs that turn by the second and by the third row of positions:
  // `length` from `begin` on; of those, interleaved, the ones with remainder 1
  // and 2 by three. The others turn by the first.
  struct Section {
    int32_t begin;
    uint32_t length;
  } second, third;
};

// The kernel's only argument. A gfx11 wave loads all but the extras at once at
// its start, 256 bytes, the first of the memory round trips; the extras, which
// few launches need, come with the second. On CUDA each line of constant memory
// is fetched when it is first read: what is needed first stands first.
struct RopeCacheParams {
  const int64_t* positions;     // [T]
  const int64_t* slot_mapping;  // [num_mapped]; without a cache or a slot:
                                // positions, so that a read is always safe
  uint32_t num_mapped;          // S <= T: tokens from here on are not written
  uint32_t positions_stride;    // bytes from a row of M-RoPE's to the next
  int32_t num_waves;            // that serve one token: Q's, then K's, then V's
  uint32_t flags;  // RopeCacheFlags: choices that hold for the whole launch
  uint32_t num_q_heads;
  uint32_t num_kv_heads;
  int32_t rot_half;  // rot / 2; 0: no rotation

  float scale_beta;  // Llama-4 scaling of Q; 0: off

  HeadsParams heads[3];  // by Role

  const void* cos_sin;  // [max_pos, 2 * rot_half]; without a rotation any row
                        // of activations, read and discarded
  void* cache;          // rows of K then V; without one, positions, and
                        // num_slots is 0

  // Cache strides in bytes, of its three outer dimensions.
  uint64_t cache_block_stride;
  uint64_t cache_head_stride;
  uint64_t cache_slot_stride;

  // The row of cos_sin is min(max(position, row_low), row_high) - row_low:
  // position + pos_offset clamped into the table, without overflow.
  int64_t row_low;
  int64_t row_high;

  uint64_t scale_magic;  // of the scaling of Q, see scale_shift

  float eps;
  float weight_offset;  // the norm multiplies by weight_offset + w; -0.0: w

  // block = slot * block_magic >> block_shift, exact for every valid slot, and
  // of the scaling of Q, position / orig_max = (2 * position * scale_magic) >>
  // 64 >> scale_shift, exact for every position.
  uint32_t block_magic;
  uint16_t block_shift;
  uint16_t scale_shift;
  uint32_t block_size;  // tokens
  uint32_t num_slots;   // blocks * block_size; 0: no cache

  RopeCacheExtras extras;
};
static_assert(__builtin_offsetof(RopeCacheParams, extras) == 256,
              "loaded as four 64-byte words");

enum RopeCacheFlags : uint32_t {
  // Every vector that a lane moves is aligned and lies on one side of rot, and
  // RoPE's pairs are (i, i + rot/2): a lane moves its elements in whole
  // vectors.
  // Always set but for the narrowest kernel of a head size.
  kVectors = 1,
  // V is normed, without a weight.
  kNormV = 2,
  // q_weight and k_weight are fp32, else of the activation's dtype.
  kWeightsFp32 = 4,
  // The product with the weight stays fp32 (an fp32 weight, or a weight with
  // an offset): one rounding, else two.
  kNormInFp32 = 8,
  // RoPE's pairs are (2i, 2i + 1), GPT-J's; and the vectors are as for
  // kVectors.
  // With neither kind of vectors a lane moves its elements one by one.
  kAdjacentPairs = 16,
  kAdjacentVectors = 32,
  // As kVectors, for a launch that needs the extras.
  kExtendedVectors = 64,
  // M-RoPE's rows alternate from pair to pair.
  kInterleaved = 128,
  // The cache holds float8_e4m3fn; with kE5M2 as well, float8_e5m2.
  kFp8Cache = 256,
  kE5M2 = 512,
};

// The kernels: for each activation dtype and head size, whether Q and K are
// normed (a third of the instructions), and how many pairs a lane owns. Few
// pairs end soonest in a decode step; many move a large batch with the fewest
// instructions, in vectors of 16 bytes. All else is decided by branches on
// RopeCacheParams that are the same for all lanes.
// X(symbol in the code object, C++ type, head_dim, normed, pairs)
#define RDNA35_KERNELS_OF(X, name, type, head_dim, width, pairs)               \
  X(rdna35_rope_cache_##name##_##head_dim##_rope##width, type, head_dim,       \
    false, pairs)                                                              \
  X(rdna35_rope_cache_##name##_##head_dim##_norm##width, type, head_dim, true, \
    pairs)
#define RDNA35_KERNELS_OF_TYPE(X, name, type)     \
  RDNA35_KERNELS_OF(X, name, type, 64, , 2)       \
  RDNA35_KERNELS_OF(X, name, type, 64, _wide, 8)  \
  RDNA35_KERNELS_OF(X, name, type, 96, , 4)       \
  RDNA35_KERNELS_OF(X, name, type, 96, _wide, 8)  \
  RDNA35_KERNELS_OF(X, name, type, 128, , 2)      \
  RDNA35_KERNELS_OF(X, name, type, 128, _mid, 4)  \
  RDNA35_KERNELS_OF(X, name, type, 128, _wide, 8) \
  RDNA35_KERNELS_OF(X, name, type, 256, , 4)      \
  RDNA35_KERNELS_OF(X, name, type, 256, _wide, 8) \
  RDNA35_KERNELS_OF(X, name, type, 512, , 8)
#define RDNA35_KERNELS(X)              \
  RDNA35_KERNELS_OF_TYPE(X, f16, Half) \
  RDNA35_KERNELS_OF_TYPE(X, bf16, BFloat16)

// Of the kernels of a head size the narrowest alone also moves elements one by
// one, for what no vectors fit, with or without the extras, and turns adjacent
// pairs.
constexpr bool is_narrowest(int head_dim, int pairs) {
  constexpr int kAll[][2] = {
#define RDNA35_SIZE(symbol, type, head_dim, normed, pairs) {head_dim, pairs},
      RDNA35_KERNELS(RDNA35_SIZE)
#undef RDNA35_SIZE
  };
  for (const auto& kernel : kAll)
    if (kernel[0] == head_dim && kernel[1] < pairs) return false;
  return true;
}

// Whether adjacent pairs are moved in vectors: the registers that sort them
// would take waves from those that do not need it where a lane owns eight.
constexpr bool has_vectors_of_pairs(int pairs) { return pairs < 8; }

// Whether a kernel moves vectors in a launch that needs the extras: few and
// some pairs a lane, of the head sizes of models with M-RoPE. With more the
// code is over its budget.
constexpr bool has_extended_vectors(int head_dim, int pairs) {
  return (head_dim == 128 || head_dim == 256) && pairs <= 4;
}

// One launch, checked and ready: kernel is an index into RDNA35_KERNELS.
// Workgroups are one-dimensional, 32 * kWavesPerGroup threads; grid x is the
// token, grid y the group of waves of that token.
struct RopeCacheLaunch {
  int kernel;
  uint32_t grid_x;  // 0: nothing to do
  uint32_t grid_y;
  RopeCacheParams params;
};

}  // namespace rdna35
