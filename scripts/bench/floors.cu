// Kernels that no kernel of this kind can beat, for the GPU that is measured:
// one that does nothing, one that makes only the dependent loads, one that only
// moves the bytes. Built like the op's kernel, with its primitives.

#include "../../csrc/rdna35_rope_cache/target.h"

using namespace rdna35;

extern "C" RDNA35_KERNEL void floor_empty() {}

// A workgroup a token: position, the row of cos/sin that it names, a store.
extern "C" RDNA35_KERNEL void floor_load(const int64_t* positions,
                                         const void* cos_sin, void* out,
                                         uint32_t row_bytes) {
  const uint32_t token = grid_x();
  const int64_t position = load_uniform<int64_t>(positions, token);
  const uint32_t bytes = 8 * thread();
  if (bytes >= row_bytes) return;
  const void* const row =
      static_cast<const char*>(cos_sin) + position * row_bytes;
  store_words<2>(out, token * row_bytes + bytes, load_words<2>(row, bytes));
}

// Reads num_read vectors of 16 bytes and writes num_written, which are more:
// the first ones twice. A thread moves kVectors, all loads before all stores.
template <int kVectors>
RDNA35_DEVICE void move(const void* src, void* dst, uint32_t num_read,
                        uint32_t num_written, uint32_t threads) {
  const uint32_t first = grid_x() * threads * kVectors + thread();
  Words<4> words[kVectors];
  RDNA35_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = first + i * threads;
    if (at < num_read) words[i] = load_words<4>(src, 16 * at);
  }
  RDNA35_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = first + i * threads;
    if (at < num_read) store_words<4>(dst, 16 * at, words[i]);
    if (at < num_written - num_read) {
      store_words<4>(dst, 16 * (num_read + at), words[i]);
    }
  }
}

#define RDNA35_FLOOR_MOVE(vectors)                                       \
  extern "C" RDNA35_KERNEL void floor_move_##vectors(                    \
      const void* src, void* dst, uint32_t num_read, uint32_t num_written, \
      uint32_t threads) {                                                \
    move<vectors>(src, dst, num_read, num_written, threads);             \
  }

RDNA35_FLOOR_MOVE(1)
RDNA35_FLOOR_MOVE(2)
RDNA35_FLOOR_MOVE(4)
