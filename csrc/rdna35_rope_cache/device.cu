// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The kernels' entry points: one for each row of RDNA35_KERNELS.

#include "kernel.h"

namespace rdna35 {

template <class T, int kHeadDim, bool kNormed, int kPairs>
RDNA35_DEVICE void rope_cache(const RopeCacheParams& argument) {
  const RopeCacheParams& p = load_params(argument);
  const uint32_t token = grid_x();
  const int wave = static_cast<int>(grid_y() * kWavesPerGroup +
                                    uniform(thread() / kWaveSize));
  rope_cache_wave<T, kHeadDim, kNormed, kPairs>(p, argument.extras, token,
                                                wave);
}

}  // namespace rdna35

#define RDNA35_ENTRY(symbol, type, head_dim, normed, pairs)               \
  extern "C" RDNA35_KERNEL void symbol(const rdna35::RopeCacheParams p) { \
    rdna35::rope_cache<rdna35::type, head_dim, normed, pairs>(p);         \
  }

RDNA35_KERNELS(RDNA35_ENTRY)
