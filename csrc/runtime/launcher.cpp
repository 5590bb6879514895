// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project

#include "launcher.h"

#include <stddef.h>

#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "gpu_runtime.h"
#include "images.h"

namespace rdna35 {
namespace {

#define RDNA35_NAME(symbol, type, head_dim, normed, pairs) #symbol,
constexpr const char* kKernelNames[] = {RDNA35_KERNELS(RDNA35_NAME)};
constexpr size_t kNumKernels = std::size(kKernelNames);

// What a launch needs of a device.
struct LoadedDevice {
  void* context;
  void* functions[kNumKernels];
};

// By device index; torch has an int8 for it. An entry is written once, under
// the mutex, and read without: a launch takes no lock. Never freed, as the
// modules are in use until the process ends.
constexpr int kMaxDevices = 128;
std::atomic<const LoadedDevice*> devices[kMaxDevices];
std::mutex loading;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("rdna35_rope_cache: " + what);
}

std::string device_name(int device) { return "cuda:" + std::to_string(device); }

const LoadedDevice* load(const GpuRuntime& runtime, int device) {
  const std::string architecture = runtime.architecture(device);
  const Image* const image = find_image(architecture);
  if (image == nullptr) {
    fail(device_name(device) + " is " + architecture +
         "; the library has code for " + built_architectures());
  }
  auto loaded = std::make_unique<LoadedDevice>();
  loaded->context = runtime.context(device);
  const CurrentContext scope(runtime, loaded->context);

  void* module = nullptr;
  GpuStatus status = runtime.load_module(&module, image->begin);
  if (status != 0) {
    runtime.clear_error();
    fail("the code object for " + architecture + " (" +
         std::to_string(image->size()) + " bytes) does not load on " +
         device_name(device) + ": " + runtime.error_name(status));
  }
  for (size_t i = 0; i < kNumKernels; ++i) {
    status =
        runtime.get_function(&loaded->functions[i], module, kKernelNames[i]);
    if (status != 0) {
      runtime.clear_error();
      runtime.unload_module(module);
      fail("the code object for " + architecture + ", loaded on " +
           device_name(device) + ", gives no " + kKernelNames[i] + ": " +
           runtime.error_name(status));
    }
  }
  return loaded.release();
}

const LoadedDevice& loaded_device(const GpuRuntime& runtime, int device) {
  if (device < 0 || device >= kMaxDevices) {
    fail("there is no device " + device_name(device));
  }
  const LoadedDevice* loaded = devices[device].load(std::memory_order_acquire);
  if (loaded == nullptr) {
    const std::lock_guard<std::mutex> lock(loading);
    loaded = devices[device].load(std::memory_order_relaxed);
    if (loaded == nullptr) {
      loaded = load(runtime, device);
      devices[device].store(loaded, std::memory_order_release);
    }
  }
  return *loaded;
}

}  // namespace

void load_rope_cache(int device) {
  loaded_device(GpuRuntime::of_torch(), device);
}

void launch_rope_cache(const RopeCacheLaunch& launch, int device) {
  if (launch.grid_x == 0) return;
  const GpuRuntime& runtime = GpuRuntime::of_torch();
  const LoadedDevice& loaded = loaded_device(runtime, device);
  constexpr uint32_t threads = kWaveSize * kWavesPerGroup;

  GpuStatus status;
  {
    const CurrentContext scope(runtime, loaded.context);
    status = runtime.launch(loaded.functions[launch.kernel], launch.grid_x,
                            launch.grid_y, threads,
                            runtime.current_stream(device), &launch.params);
  }
  if (status != 0) {
    runtime.clear_error();
    fail("the launch of " + std::string(kKernelNames[launch.kernel]) +
         " (grid " + std::to_string(launch.grid_x) + " x " +
         std::to_string(launch.grid_y) + ", " + std::to_string(threads) +
         " threads) on " + device_name(device) +
         " failed: " + runtime.error_name(status));
  }
}

}  // namespace rdna35
