// One fault for each tool of compute-sanitizer, which the tool must find before
// its silence about the op means anything:
//
//   planted_faults memcheck|racecheck|initcheck|synccheck
#include <stdio.h>
#include <string.h>

__global__ void write_past_the_end(int* x, int count) {
  x[count + threadIdx.x] = 1;
}

__global__ void write_one_place_from_two_warps(int* x) {
  __shared__ volatile int shared;
  shared = static_cast<int>(threadIdx.x);
  x[threadIdx.x] = shared;
}

__global__ void read_what_nobody_wrote(int* x, int count) {
  x[threadIdx.x] += x[count / 2 + threadIdx.x];
}

__global__ void wait_with_half_a_warp(int* x) {
  if (threadIdx.x % 32 < 16) __syncthreads();
  x[threadIdx.x] = 1;
}

int main(int argc, char** argv) {
  const char* tool = argc > 1 ? argv[1] : "";
  constexpr int kThreads = 64, kCount = 128;
  int* x = nullptr;
  cudaError_t error = cudaMalloc(&x, kCount * sizeof(int));
  if (error == cudaSuccess) {
    if (!strcmp(tool, "memcheck")) {
      write_past_the_end<<<1, kThreads>>>(x, kCount);
    } else if (!strcmp(tool, "racecheck")) {
      write_one_place_from_two_warps<<<1, kThreads>>>(x);
    } else if (!strcmp(tool, "initcheck")) {
      read_what_nobody_wrote<<<1, kThreads>>>(x, kCount);
    } else if (!strcmp(tool, "synccheck")) {
      wait_with_half_a_warp<<<1, kThreads>>>(x);
    } else {
      fprintf(stderr, "planted_faults: no fault for the tool \"%s\"\n", tool);
      return 2;
    }
    error = cudaDeviceSynchronize();
  }
  printf("planted_faults: %s\n", cudaGetErrorString(error));
  return 0;
}
