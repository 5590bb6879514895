// What ROCm's libtorch_hip has and the launcher looks for: torch's current
// stream, here a number that tells the device. Needs libc10_hip as torch's does.
#include <cstdint>

extern "C" void standin_c10_hip();

extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device,
                                                      void** stream) {
  standin_c10_hip();
  *stream = reinterpret_cast<void*>(static_cast<intptr_t>(0x1000 + device));
  return 0;
}
