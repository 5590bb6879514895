// ROCm's libc10_hip: needs the HIP runtime and gives the launcher nothing else.
extern "C" int hipGetDevice(int* device);

extern "C" void standin_c10_hip() {
  int device = 0;
  hipGetDevice(&device);
}
