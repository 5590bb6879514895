// What _rocm_C and torch lack for the part of _rocm_C that a test builds: the
// other op that torch_bindings.cpp names, and a GPU for torch, which is the
// stand-in's.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include "rocm/ops.h"

void paged_attention(
    torch::Tensor&, torch::Tensor&, torch::Tensor&, torch::Tensor&,
    torch::Tensor&, torch::Tensor&, torch::Tensor&, int64_t, double,
    torch::Tensor&, torch::Tensor&, const std::optional<torch::Tensor>&,
    int64_t, int64_t, const std::optional<torch::Tensor>&, const std::string&,
    torch::Tensor&, torch::Tensor&, const std::optional<torch::Tensor>&,
    const std::string&, bool) {
  TORCH_CHECK(false, "not built");
}

extern "C" int hipGetDevice(int* device);
extern "C" int hipSetDevice(int device);

namespace {

struct Guard final
    : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    int index = 0;
    hipGetDevice(&index);
    return c10::Device(c10::DeviceType::CUDA,
                       static_cast<c10::DeviceIndex>(index));
  }
  void setDevice(c10::Device device) const override {
    if (device != getDevice()) hipSetDevice(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    setDevice(device);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 4; }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace
