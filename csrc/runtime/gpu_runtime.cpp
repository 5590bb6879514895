// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project

#include "gpu_runtime.h"

#include <dlfcn.h>
#include <string.h>

#include <memory>
#include <stdexcept>

#include "images.h"

namespace rdna35 {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("rdna35_rope_cache: " + what);
}

// A library, only if this process has it already.
void* loaded_library(const char* name) {
  return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

// A function of a library or of what that library was linked to, in link
// order: with two HIP runtimes in the process, the one torch uses.
template <typename Function>
void find(Function*& function, void* library, const char* library_name,
          const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    fail(std::string(library_name) + ", as torch loaded it, gives no " + name +
         "; the library needs torch 2.11 or newer with HIP 6 or newer, or "
         "with CUDA 12 or newer");
  }
}

std::string device_name(int device) { return "cuda:" + std::to_string(device); }

class HipRuntime final : public GpuRuntime {
 public:
  HipRuntime(void* torch, void* c10) {
    const char* const hip = "libc10_hip.so";
    find(module_load_data_, c10, hip, "hipModuleLoadData");
    find(module_unload_, c10, hip, "hipModuleUnload");
    find(module_get_function_, c10, hip, "hipModuleGetFunction");
    find(launch_kernel_, c10, hip, "hipModuleLaunchKernel");
    find(get_device_, c10, hip, "hipGetDevice");
    find(set_device_, c10, hip, "hipSetDevice");
    find(get_properties_, c10, hip, "hipGetDevicePropertiesR0600");
    find(get_error_name_, c10, hip, "hipGetErrorName");
    find(get_last_error_, c10, hip, "hipGetLastError");
    find(current_stream_, torch, "libtorch_hip.so",
         "aoti_torch_get_current_cuda_stream");
  }

  std::string architecture(int device) const override {
    // hipDeviceProp_tR0600, whose layout is part of HIP's ABI: 1472 bytes, the
    // architecture's name at 1160, 256 bytes at most. A test compares this with
    // HIP's headers. The buffer has room for fields added at its end.
    alignas(8) char properties[8192] = {};
    const GpuStatus status = get_properties_(properties, device);
    if (status != 0) {
      clear_error();
      fail("the properties of " + device_name(device) +
           " cannot be read: " + error_name(status));
    }
    const char* name = properties + 1160;
    // "gfx90a:sramecc+:xnack-": what follows the name are features.
    const size_t length = strcspn(name, ":");
    return std::string(name, length < 256 ? length : 0);
  }

  // HIP knows devices by number alone.
  void* context(int device) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(device));
  }
  void* current_context() const override {
    int device = -1;
    get_device_(&device);
    return reinterpret_cast<void*>(static_cast<intptr_t>(device));
  }
  GpuStatus make_current(void* context) const override {
    return set_device_(static_cast<int>(reinterpret_cast<intptr_t>(context)));
  }

  std::string error_name(GpuStatus status) const override {
    const char* name = get_error_name_(status);
    return name != nullptr ? name : "HIP error " + std::to_string(status);
  }
  void clear_error() const override { get_last_error_(); }

 private:
  GpuStatus (*get_device_)(int* device);
  GpuStatus (*set_device_)(int device);
  GpuStatus (*get_properties_)(void* properties, int device);
  const char* (*get_error_name_)(GpuStatus status);
  GpuStatus (*get_last_error_)();
};

class CudaRuntime final : public GpuRuntime {
 public:
  CudaRuntime(void* torch, void* driver) {
    const char* const cuda = "libcuda.so.1";
    find(module_load_data_, driver, cuda, "cuModuleLoadData");
    find(module_unload_, driver, cuda, "cuModuleUnload");
    find(module_get_function_, driver, cuda, "cuModuleGetFunction");
    find(launch_kernel_, driver, cuda, "cuLaunchKernel");
    find(device_get_, driver, cuda, "cuDeviceGet");
    find(get_attribute_, driver, cuda, "cuDeviceGetAttribute");
    find(retain_context_, driver, cuda, "cuDevicePrimaryCtxRetain");
    find(get_current_, driver, cuda, "cuCtxGetCurrent");
    find(set_current_, driver, cuda, "cuCtxSetCurrent");
    find(get_error_name_, driver, cuda, "cuGetErrorName");
    find(current_stream_, torch, "libtorch_cuda.so",
         "aoti_torch_get_current_cuda_stream");
  }

  std::string architecture(int device) const override {
    constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;
    int handle = 0, major = 0, minor = 0;
    GpuStatus status = device_get_(&handle, device);
    if (status == 0) status = get_attribute_(&major, kCapabilityMajor, handle);
    if (status == 0) status = get_attribute_(&minor, kCapabilityMinor, handle);
    if (status != 0) {
      fail("the compute capability of " + device_name(device) +
           " cannot be read: " + error_name(status));
    }
    return "sm_" + std::to_string(major) + std::to_string(minor);
  }

  // The primary context: the one that torch works in.
  void* context(int device) const override {
    int handle = 0;
    void* context = nullptr;
    GpuStatus status = device_get_(&handle, device);
    if (status == 0) status = retain_context_(&context, handle);
    if (status != 0) {
      fail("no context on " + device_name(device) + ": " + error_name(status));
    }
    return context;
  }
  void* current_context() const override {
    void* context = nullptr;
    get_current_(&context);
    return context;
  }
  GpuStatus make_current(void* context) const override {
    return set_current_(context);
  }

  std::string error_name(GpuStatus status) const override {
    const char* name = nullptr;
    get_error_name_(status, &name);
    return name != nullptr ? name : "CUDA error " + std::to_string(status);
  }
  void clear_error() const override {}  // the driver keeps none

 private:
  GpuStatus (*device_get_)(int* device, int ordinal);
  GpuStatus (*get_attribute_)(int* value, int attribute, int device);
  GpuStatus (*retain_context_)(void** context, int device);
  GpuStatus (*get_current_)(void** context);
  GpuStatus (*set_current_)(void* context);
  GpuStatus (*get_error_name_)(GpuStatus status, const char** name);
};

std::unique_ptr<const GpuRuntime> find_runtime() {
  void* const torch_hip = loaded_library("libtorch_hip.so");
  void* const c10_hip = loaded_library("libc10_hip.so");
  if (torch_hip != nullptr && c10_hip != nullptr) {
    return std::make_unique<HipRuntime>(torch_hip, c10_hip);
  }
  void* const torch_cuda = loaded_library("libtorch_cuda.so");
  void* const driver = loaded_library("libcuda.so.1");
  if (torch_cuda != nullptr && driver != nullptr) {
    return std::make_unique<CudaRuntime>(torch_cuda, driver);
  }
  fail(
      "no GPU runtime: this process has neither ROCm's torch (libtorch_hip.so, "
      "libc10_hip.so) nor NVIDIA's (libtorch_cuda.so, libcuda.so.1) loaded; "
      "the library has code for " +
      built_architectures());
}

}  // namespace

const GpuRuntime& GpuRuntime::of_torch() {
  // Kept to the end of the process: destructors of other libraries may launch.
  static const GpuRuntime* const runtime = find_runtime().release();
  return *runtime;
}

void* GpuRuntime::current_stream(int device) const {
  void* stream = nullptr;
  if (current_stream_(device, &stream) != 0) {
    fail("torch gives no current stream for " + device_name(device));
  }
  return stream;
}

CurrentContext::CurrentContext(const GpuRuntime& runtime, void* context)
    : runtime_(runtime),
      previous_(runtime.current_context()),
      changed_(previous_ != context) {
  if (!changed_) return;
  const GpuStatus status = runtime_.make_current(context);
  if (status != 0) {
    runtime_.clear_error();
    fail("the tensors' device cannot be made current: " +
         runtime_.error_name(status));
  }
}

}  // namespace rdna35
