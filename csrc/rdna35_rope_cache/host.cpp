// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The host build: the kernel's own source, every lane of every wave.

#include "checks.h"
#include "kernel.h"

namespace rdna35 {
namespace {

template <class T, int kHeadDim, bool kNormed, int kPairs>
void run(const RopeCacheLaunch& launch) {
  const RopeCacheParams& p = launch.params;
  for (uint32_t token = 0; token < launch.grid_x; ++token) {
    for (int wave = 0; wave < p.num_waves; ++wave)
      rope_cache_wave<T, kHeadDim, kNormed, kPairs>(p, p.extras, token, wave);
  }
}

}  // namespace

void run_rope_cache_on_host(const RopeCacheLaunch& launch) {
  using Run = void (*)(const RopeCacheLaunch&);
#define RDNA35_RUN(symbol, type, head_dim, normed, pairs) \
  run<type, head_dim, normed, pairs>,
  static constexpr Run kRuns[] = {RDNA35_KERNELS(RDNA35_RUN)};
#undef RDNA35_RUN
  kRuns[launch.kernel](launch);
}

}  // namespace rdna35
