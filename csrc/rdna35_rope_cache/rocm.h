// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The kernels built by ROCm's compiler, as part of _rocm_C. Both functions work
// on the current device and throw std::runtime_error where HIP refuses.
#pragma once

#include "params.h"

namespace rdna35 {

// Loads all kernels on the current device. HIP does it at the first launch, but
// not inside graph capture.
void load_rope_cache();

// `stream` is a hipStream_t of the current device.
void launch_rope_cache(const RopeCacheLaunch& launch, void* stream);

}  // namespace rdna35
