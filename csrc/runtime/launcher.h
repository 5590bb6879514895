// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// Launches the embedded kernels on a GPU of torch's. Both functions throw
// std::runtime_error with one line that says what was found and what is built.
#pragma once

#include "../rdna35_rope_cache/params.h"

namespace rdna35 {

// Loads the device's code object and finds its kernels, once per device and
// process. To be called outside graph capture, where a runtime may refuse to
// load; a launch on a device that is not loaded yet does it too.
void load_rope_cache(int device);

// Launches on torch's current stream of the device, whatever device is current.
void launch_rope_cache(const RopeCacheLaunch& launch, int device);

}  // namespace rdna35
