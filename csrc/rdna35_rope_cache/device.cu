// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The kernels' entry points: one for each row of RDNA35_KERNELS.

#include "kernel.h"

#define RDNA35_ENTRY(name, type, head_dim, normed_name, normed)              \
  extern "C" RDNA35_KERNEL void RDNA35_KERNEL_NAME(name, head_dim,           \
                                                   normed_name)(             \
      const rdna35::RopeCacheParams p) {                                     \
    using namespace rdna35;                                                  \
    const int wave = static_cast<int>(                                       \
        grid_y() * p.waves_per_group + uniform(thread() / kWaveSize));       \
    if (wave < p.num_waves)                                                  \
      RopeCache<type, head_dim, normed>::wave(p, static_cast<int>(grid_x()), \
                                              wave);                         \
  }

RDNA35_KERNELS(RDNA35_ENTRY)
