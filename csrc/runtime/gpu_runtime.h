// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The GPU runtime of this process: HIP under ROCm's torch, the CUDA driver
// under NVIDIA's. It is the one that torch itself has loaded, found at run time
// through torch's own libraries; nothing is loaded and nothing of a vendor is
// linked or included.
#pragma once

#include <stdint.h>

#include <string>

namespace rdna35 {

// hipError_t or CUresult; 0 is success in both.
using GpuStatus = int;

class GpuRuntime {
 public:
  // The runtime of the torch in this process. Throws std::runtime_error where
  // torch has none.
  static const GpuRuntime& of_torch();

  virtual ~GpuRuntime() = default;

  // The device's architecture as code objects are named: "gfx1151", "sm_90".
  // Throws where the device cannot be asked.
  virtual std::string architecture(int device) const = 0;

  // What make_current takes to make a device current, kept for the process.
  // Throws where the device has none.
  virtual void* context(int device) const = 0;
  virtual void* current_context() const = 0;
  virtual GpuStatus make_current(void* context) const = 0;

  // hipErrorNoBinaryForGpu, CUDA_ERROR_INVALID_IMAGE, ...
  virtual std::string error_name(GpuStatus status) const = 0;

  // Forgets an error that has been reported: HIP keeps the last one, and torch
  // would find it after a launch of its own.
  virtual void clear_error() const = 0;

  // On the current context, as in both runtimes' module interface.
  GpuStatus load_module(void** module, const void* image) const {
    return module_load_data_(module, image);
  }
  GpuStatus unload_module(void* module) const { return module_unload_(module); }
  GpuStatus get_function(void** function, void* module,
                         const char* name) const {
    return module_get_function_(function, module, name);
  }
  // `params` is copied before the call returns.
  GpuStatus launch(void* function, uint32_t grid_x, uint32_t grid_y,
                   uint32_t block_x, void* stream, const void* params) const {
    void* arguments[] = {const_cast<void*>(params)};
    return launch_kernel_(function, grid_x, grid_y, 1, block_x, 1, 1, 0, stream,
                          arguments, nullptr);
  }

  // torch's current stream of a device.
  void* current_stream(int device) const;

 protected:
  GpuStatus (*module_load_data_)(void** module, const void* image);
  GpuStatus (*module_unload_)(void* module);
  GpuStatus (*module_get_function_)(void** function, void* module,
                                    const char* name);
  GpuStatus (*launch_kernel_)(void* function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, void* stream,
                              void** params, void** extra);
  // aoti_torch_get_current_cuda_stream, which only torch's GPU library has.
  int32_t (*current_stream_)(int32_t device, void** stream);
};

// Makes a context current for a scope, and the former one again at its end.
class CurrentContext {
 public:
  CurrentContext(const GpuRuntime& runtime, void* context);
  ~CurrentContext() {
    if (changed_) runtime_.make_current(previous_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const GpuRuntime& runtime_;
  void* previous_;
  bool changed_;
};

}  // namespace rdna35
