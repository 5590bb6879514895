// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The kernels as part of _rocm_C: compiled for the gfx115x among the build's
// architectures alone, which RDNA35_ARCHITECTURES names.

#include "rocm.h"

#include <hip/hip_runtime_api.h>

#include <stdexcept>
#include <string>

#include "device.cu"

namespace rdna35 {
namespace {

#define RDNA35_POINTER(symbol, ...) reinterpret_cast<const void*>(&symbol),
const void* const kKernels[] = {RDNA35_KERNELS(RDNA35_POINTER)};
#undef RDNA35_POINTER

#define RDNA35_NAME(symbol, ...) #symbol,
constexpr const char* kKernelNames[] = {RDNA35_KERNELS(RDNA35_NAME)};
#undef RDNA35_NAME

// Says what failed, on which device, and what the build has code for.
[[noreturn]] void fail(const std::string& what, hipError_t error) {
  // HIP keeps the last error: without this, torch would find it after a launch
  // of its own.
  static_cast<void>(hipGetLastError());
  int device = -1;
  hipDeviceProp_t properties;
  std::string architecture = "unknown";
  if (hipGetDevice(&device) == hipSuccess &&
      hipGetDeviceProperties(&properties, device) == hipSuccess) {
    architecture = properties.gcnArchName;
  }
  throw std::runtime_error(
      "rdna35_rope_cache: " + what + " on cuda:" + std::to_string(device) +
      " (" + architecture + ") failed: " + hipGetErrorName(error) +
      "; the build has code for " RDNA35_ARCHITECTURES);
}

}  // namespace

void load_rope_cache() {
  for (size_t i = 0; i < sizeof(kKernels) / sizeof(kKernels[0]); ++i) {
    hipFuncAttributes attributes;
    const hipError_t error = hipFuncGetAttributes(&attributes, kKernels[i]);
    if (error != hipSuccess)
      fail(std::string("loading ") + kKernelNames[i], error);
  }
}

void launch_rope_cache(const RopeCacheLaunch& launch, void* stream) {
  if (launch.grid_x == 0) return;
  const dim3 grid(launch.grid_x, launch.grid_y);
  const dim3 block(kWaveSize * kWavesPerGroup);
  void* arguments[] = {const_cast<RopeCacheParams*>(&launch.params)};
  const hipError_t error =
      hipLaunchKernel(kKernels[launch.kernel], grid, block, arguments, 0,
                      static_cast<hipStream_t>(stream));
  if (error != hipSuccess) {
    fail(std::string("the launch of ") + kKernelNames[launch.kernel] +
             " (grid " + std::to_string(grid.x) + " x " +
             std::to_string(grid.y) + ", " + std::to_string(block.x) +
             " threads)",
         error);
  }
}

}  // namespace rdna35
