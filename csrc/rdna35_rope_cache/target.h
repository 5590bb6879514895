// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// All that differs between the kernel's targets: gfx11 device code, CUDA and
// the host, each with the same names. The kernel itself has no #ifdef.
//
// The kernel is written for a wave of 32 lanes. Code between two cross-lane
// steps stands in for_each_lane, and what a lane keeps from one step to the
// next in PerLane: a device runs its own lane and keeps it in registers, the
// host runs the 32 lanes in turn and keeps an array.
#pragma once

#include <stdint.h>

#include "params.h"

// RDNA35_RARE: a function that few models call. On CUDA it stays out of the
// way of the instructions that all fetch; a call on gfx11 would cost scratch.

// RDNA35_UNROLL: before a loop over an array that must stay in registers.
// RDNA35_LOOP: before one that must stay a loop.
#if defined(__HIP__) || defined(__CUDACC__)
  #define RDNA35_UNROLL _Pragma("unroll")
  #define RDNA35_LOOP _Pragma("unroll 1")
#else
  #define RDNA35_UNROLL
  #define RDNA35_LOOP
#endif

#if defined(__HIP__)
  #define RDNA35_DEVICE __attribute__((device)) __attribute__((always_inline))
  #define RDNA35_RARE RDNA35_DEVICE
  #define RDNA35_KERNEL     \
    __attribute__((global)) \
    __attribute__((amdgpu_flat_work_group_size(32, 256)))
#elif defined(__CUDACC__)
  #define RDNA35_DEVICE __device__ __forceinline__
  #define RDNA35_RARE __device__ __noinline__
  #define RDNA35_KERNEL __global__ __launch_bounds__(256)
#else
  #include <math.h>
  #include <string.h>
  #define RDNA35_DEVICE inline
  #define RDNA35_RARE inline
#endif

namespace rdna35 {

// 32-bit words as they are loaded: one vector of a lane.
template <int kWords>
struct Words {
  uint32_t w[kWords];
};

RDNA35_DEVICE float as_float(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

RDNA35_DEVICE uint32_t as_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// bf16 by integer arithmetic, nearest even; the upper half of the result's
// word is the value. Neither gfx11 nor the host has an instruction for it.
RDNA35_DEVICE uint32_t round_bf16_word(float x) {
  const uint32_t bits = as_bits(x);
  return bits + 0x7fff + (bits >> 16 & 1);
}

#if defined(__HIP__)

// ---- gfx11 ----------------------------------------------------------------

// Whether the compiler is told that a wave of one head has that head. Told so,
// gfx11's finds the stores unconditional, and arranges the branches before them
// so that the loads of the weights wait for those of the activations.
constexpr bool kKnowsSingleHeads = false;

// Pointers in a kernel's argument are to global memory; without the address
// space the compiler emits flat accesses, which wait on two counters.
  #define RDNA35_GLOBAL __attribute__((address_space(1)))

RDNA35_DEVICE uint32_t grid_x() { return __builtin_amdgcn_workgroup_id_x(); }
RDNA35_DEVICE uint32_t grid_y() { return __builtin_amdgcn_workgroup_id_y(); }
RDNA35_DEVICE uint32_t thread() { return __builtin_amdgcn_workitem_id_x(); }

// A value that all lanes share, into a scalar register.
RDNA35_DEVICE uint32_t uniform(uint32_t x) {
  return __builtin_amdgcn_readfirstlane(x);
}

// At the end of a branch that is the same for all lanes: keeps the argument's
// fields that it reads in it. Merged with the other side's, they would become
// loads from a computed address: on gfx11 another round trip to memory, and on
// CUDA the slower kind of access to constant memory.
RDNA35_DEVICE void keep_branch() { asm volatile("" : : : "memory"); }

// Two loads under way in scalar registers are waited for here, together. The
// compiler would sink the load that is used later below this wait.
RDNA35_DEVICE void arrive_together(int64_t a, int64_t b) {
  asm volatile("" : : "s"(a), "s"(b));
}

// The loads of round trip 2 are under way by here: they are, in source order.
RDNA35_DEVICE void loads_first() {}

// Not to be told apart from another value: what was made from it before is not
// kept in registers.
RDNA35_DEVICE int forgotten(int x) { return x; }

// No instruction moves past this point. After loads: they are under way before
// anything waits for an earlier one, and are not sunk into the branch that
// needs them. Between independent pieces of work: their registers are not all
// live at once.
RDNA35_DEVICE void in_order() {
  asm volatile("" : : : "memory");
  __builtin_amdgcn_sched_barrier(0);
}

// The whole argument but the extras in scalar registers at once. Left to itself
// the compiler loads each field where it is first used: a round trip after each
// wait.
RDNA35_DEVICE RopeCacheParams load_params(const RopeCacheParams& p) {
  typedef uint32_t Line __attribute__((ext_vector_type(16)));
  Line lines[4];
  __builtin_memcpy(lines, &p, sizeof(lines));
  asm volatile(""
               : "+s"(lines[0]), "+s"(lines[1]), "+s"(lines[2]),
                 "+s"(lines[3]));
  RopeCacheParams loaded;
  __builtin_memcpy(&loaded, lines, sizeof(lines));
  return loaded;
}

template <int kLaneMask>
RDNA35_DEVICE float from_lane_xor(float x) {
  const int bits = static_cast<int>(as_bits(x));
  if constexpr (kLaneMask < 16) {
    // DPP row_xmask, folded into the addition that follows.
    return as_float(__builtin_amdgcn_update_dpp(0, bits, 0x160 + kLaneMask, 0xf,
                                                0xf, true));
  } else {
    // The same lane of the other row of 16.
    return as_float(__builtin_amdgcn_permlanex16(bits, bits, 0x76543210,
                                                 0xfedcba98, false, false));
  }
}

// An element that all lanes share and the launch does not write: through the
// scalar cache into scalar registers.
template <class V>
RDNA35_DEVICE V load_uniform(const V* base, int64_t index) {
  return ((const __attribute__((address_space(4))) V*)base)[index];
}

// `bytes` past a base that all lanes share: the offset of a lane is 32 bits, so
// that the base stays in scalar registers.
template <class V>
RDNA35_DEVICE V load(const void* base, uint32_t bytes) {
  return *(const RDNA35_GLOBAL V*)((const RDNA35_GLOBAL char*)base + bytes);
}

template <class V>
RDNA35_DEVICE void store(void* base, uint32_t bytes, V value) {
  *(RDNA35_GLOBAL V*)((RDNA35_GLOBAL char*)base + bytes) = value;
}

template <int kWords>
RDNA35_DEVICE Words<kWords> load_words(const void* base, uint32_t bytes) {
  typedef uint32_t Vector __attribute__((ext_vector_type(kWords)));
  const Vector v = load<Vector>(base, bytes);
  Words<kWords> words;
  RDNA35_UNROLL
  for (int i = 0; i < kWords; ++i) words.w[i] = v[i];
  return words;
}

template <int kWords>
RDNA35_DEVICE void store_words(void* base, uint32_t bytes,
                               const Words<kWords>& words) {
  typedef uint32_t Vector __attribute__((ext_vector_type(kWords)));
  Vector v;
  RDNA35_UNROLL
  for (int i = 0; i < kWords; ++i) v[i] = words.w[i];
  store<Vector>(base, bytes, v);
}

RDNA35_DEVICE float fused_multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
// The instruction takes denormals for zero; only an eps of 0 leads there.
RDNA35_DEVICE float inverse_sqrt(float x) {
  const bool tiny = x < 0x1p-126f;
  const float root = __builtin_amdgcn_rsqf(tiny ? x * 0x1p24f : x);
  return tiny ? root * 0x1p12f : root;
}
RDNA35_DEVICE float log_of(float x) {
  return __builtin_amdgcn_logf(x) * 0.693147180559945f;
}

RDNA35_DEVICE float widen_half(uint16_t bits) {
  _Float16 value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return static_cast<float>(value);
}
RDNA35_DEVICE uint32_t narrow_half(float x) {
  const _Float16 value = static_cast<_Float16>(x);
  uint16_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}
RDNA35_DEVICE uint32_t pack_half(float low, float high) {
  return narrow_half(low) | narrow_half(high) << 16;
}
RDNA35_DEVICE uint32_t product_half(uint32_t a, uint32_t b) {
  typedef _Float16 Pair __attribute__((ext_vector_type(2)));
  Pair x, y;
  __builtin_memcpy(&x, &a, sizeof(x));
  __builtin_memcpy(&y, &b, sizeof(y));
  x *= y;
  __builtin_memcpy(&a, &x, sizeof(x));
  return a;
}

#elif defined(__CUDACC__)

// ---- CUDA -----------------------------------------------------------------

constexpr bool kKnowsSingleHeads = true;

// The index of a thread in y is 0, but ptxas does not know that: it would take
// what all lanes load from one place to uniform registers, and wait for it, at
// once.
RDNA35_DEVICE uint32_t grid_x() { return blockIdx.x + threadIdx.y; }
RDNA35_DEVICE uint32_t grid_y() { return blockIdx.y; }
RDNA35_DEVICE uint32_t thread() { return threadIdx.x; }
RDNA35_DEVICE uint32_t uniform(uint32_t x) { return x; }
RDNA35_DEVICE void keep_branch() { asm volatile("" : : : "memory"); }
RDNA35_DEVICE void in_order() { asm volatile("" : : : "memory"); }
RDNA35_DEVICE void arrive_together(int64_t, int64_t) {
  asm volatile("" : : : "memory");
}
// Without it ptxas issues the loads of the activations only after the wait for
// the position, and the norm waits with them.
RDNA35_DEVICE void loads_first() { __syncwarp(); }
// The registers of the rarest path are every wave's.
RDNA35_DEVICE int forgotten(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
RDNA35_DEVICE const RopeCacheParams& load_params(const RopeCacheParams& p) {
  return p;  // in constant memory already
}

template <int kLaneMask>
RDNA35_DEVICE float from_lane_xor(float x) {
  return __shfl_xor_sync(0xffffffff, x, kLaneMask);
}

template <class V>
RDNA35_DEVICE V load_uniform(const V* base, int64_t index) {
  return base[index];
}

template <class V>
RDNA35_DEVICE V load(const void* base, uint32_t bytes) {
  return *reinterpret_cast<const V*>(static_cast<const char*>(base) + bytes);
}

template <class V>
RDNA35_DEVICE void store(void* base, uint32_t bytes, V value) {
  *reinterpret_cast<V*>(static_cast<char*>(base) + bytes) = value;
}

template <int kWords>
RDNA35_DEVICE Words<kWords> load_words(const void* base, uint32_t bytes) {
  Words<kWords> words;
  if constexpr (kWords == 4) {
    const uint4 v = load<uint4>(base, bytes);
    words.w[0] = v.x, words.w[1] = v.y, words.w[2] = v.z, words.w[3] = v.w;
  } else if constexpr (kWords == 2) {
    const uint2 v = load<uint2>(base, bytes);
    words.w[0] = v.x, words.w[1] = v.y;
  } else {
    static_assert(kWords == 1);
    words.w[0] = load<uint32_t>(base, bytes);
  }
  return words;
}

template <int kWords>
RDNA35_DEVICE void store_words(void* base, uint32_t bytes,
                               const Words<kWords>& words) {
  const uint32_t (&w)[kWords] = words.w;
  if constexpr (kWords == 4) {
    store(base, bytes, make_uint4(w[0], w[1], w[2], w[3]));
  } else if constexpr (kWords == 2) {
    store(base, bytes, make_uint2(w[0], w[1]));
  } else {
    static_assert(kWords == 1);
    store(base, bytes, w[0]);
  }
}

RDNA35_DEVICE float fused_multiply_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
RDNA35_DEVICE float inverse_sqrt(float x) { return rsqrtf(x); }
RDNA35_DEVICE float log_of(float x) { return logf(x); }

RDNA35_DEVICE float widen_half(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
RDNA35_DEVICE uint32_t pack_half(float low, float high) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
RDNA35_DEVICE uint32_t product_half(uint32_t a, uint32_t b) {
  uint32_t word;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  return word;
}

#else

// ---- the host -------------------------------------------------------------

constexpr bool kKnowsSingleHeads = true;

template <class F>
inline void for_each_lane(F f) {
  for (int lane = 0; lane < kWaveSize; ++lane) f(lane);
}

template <class V>
struct PerLane {
  V value[kWaveSize];
  V& operator[](int lane) { return value[lane]; }
};

template <int kLaneMask>
inline void add_from_lane_xor(PerLane<float>& x) {
  const PerLane<float> before = x;
  for_each_lane([&](int lane) {
    x[lane] = before.value[lane] + before.value[lane ^ kLaneMask];
  });
}

template <class V>
inline void leave_unset(V& x) {
  x = {};
}

inline void keep_branch() {}
inline void in_order() {}
inline void arrive_together(int64_t, int64_t) {}
inline void loads_first() {}
inline int forgotten(int x) { return x; }

template <class V>
inline V load_uniform(const V* base, int64_t index) {
  return base[index];
}

template <class V>
inline V load(const void* base, uint32_t bytes) {
  V value;
  memcpy(&value, static_cast<const char*>(base) + bytes, sizeof(V));
  return value;
}

template <class V>
inline void store(void* base, uint32_t bytes, V value) {
  memcpy(static_cast<char*>(base) + bytes, &value, sizeof(V));
}

template <int kWords>
inline Words<kWords> load_words(const void* base, uint32_t bytes) {
  return load<Words<kWords> >(base, bytes);
}

template <int kWords>
inline void store_words(void* base, uint32_t bytes,
                        const Words<kWords>& words) {
  store(base, bytes, words);
}

inline float fused_multiply_add(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline float inverse_sqrt(float x) { return 1.0f / sqrtf(x); }
inline float log_of(float x) { return logf(x); }

inline float widen_half(uint16_t bits) {
  // Exponent and mantissa moved into place, then rebiased by a multiplication
  // that is exact for denormals too; infinity and NaN keep their exponent.
  const uint32_t magnitude = bits & 0x7fff;
  uint32_t wide = magnitude << 13;
  wide = magnitude >= 0x7c00 ? wide | 0x7f800000
                             : as_bits(as_float(wide) * 0x1p112f);
  return as_float(wide | (bits & 0x8000) << 16);
}
inline uint32_t narrow_half(float x) {
  const uint32_t sign = as_bits(x) >> 16 & 0x8000;
  const uint32_t magnitude = as_bits(x) & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds past 65504
  if (magnitude < 0x38800000) {
    // Below the smallest normal: the addition aligns the mantissa to 2^-24
    // and rounds to nearest even.
    return sign | (as_bits(as_float(magnitude) + 0.5f) - as_bits(0.5f));
  }
  return sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
}
inline uint32_t pack_half(float low, float high) {
  return narrow_half(low) | narrow_half(high) << 16;
}
inline uint32_t product_half(uint32_t a, uint32_t b) {
  return pack_half(widen_half(static_cast<uint16_t>(a)) *
                       widen_half(static_cast<uint16_t>(b)),
                   widen_half(static_cast<uint16_t>(a >> 16)) *
                       widen_half(static_cast<uint16_t>(b >> 16)));
}

#endif

// ---- what targets share ---------------------------------------------------

// The high half of the product. A device has it as an instruction or four.
RDNA35_DEVICE uint64_t multiply_high(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

#if defined(__HIP__) || defined(__CUDACC__)

// What is then set in part, the rest of it never read. The host's compiler
// cannot tell that and warns; a device would spend instructions on zeros.
template <class V>
RDNA35_DEVICE void leave_unset(V&) {}

template <class F>
RDNA35_DEVICE void for_each_lane(F f) {
  f(static_cast<int>(thread() % kWaveSize));
}

template <class V>
struct PerLane {
  V value;
  RDNA35_DEVICE V& operator[](int) { return value; }
};

template <int kLaneMask>
RDNA35_DEVICE void add_from_lane_xor(PerLane<float>& x) {
  x.value += from_lane_xor<kLaneMask>(x.value);
}

#endif

// The activation types: the two elements of a word as floats, and two floats
// or the product of two words, rounded once, as a word.
struct Half {
  static RDNA35_DEVICE float low(uint32_t word) {
    return widen_half(static_cast<uint16_t>(word));
  }
  static RDNA35_DEVICE float high(uint32_t word) {
    return widen_half(static_cast<uint16_t>(word >> 16));
  }
  static RDNA35_DEVICE uint32_t pack(float low, float high) {
    return pack_half(low, high);
  }
  static RDNA35_DEVICE uint32_t pack_any(float low, float high) {
    return pack_half(low, high);
  }
  static RDNA35_DEVICE uint32_t product(uint32_t a, uint32_t b) {
    return product_half(a, b);
  }
};

// bf16 on all targets. Rounding adds to the word as an integer, which keeps a
// NaN a NaN as long as the lower half of its word is not all ones. The NaNs
// that meet it come from bf16 operands (lower half zero) or from an operation
// itself (0x7fc00000), except where an fp32 weight brings its own: pack_any.
struct BFloat16 {
  static RDNA35_DEVICE float low(uint32_t word) { return as_float(word << 16); }
  static RDNA35_DEVICE float high(uint32_t word) {
    return as_float(word & 0xffff0000);
  }
#if defined(__CUDACC__) && !defined(__HIP__)
  // Hopper converts and multiplies in hardware; its NaN is 0x7fffffff.
  static RDNA35_DEVICE uint32_t pack(float low, float high) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  static RDNA35_DEVICE uint32_t pack_any(float low, float high) {
    return pack(low, high);
  }
  static RDNA35_DEVICE uint32_t product(uint32_t a, uint32_t b) {
    uint32_t word;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
    return word;
  }
#else
  static RDNA35_DEVICE uint32_t pack(float low, float high) {
    return round_bf16_word(low) >> 16 | (round_bf16_word(high) & 0xffff0000);
  }
  static RDNA35_DEVICE uint32_t pack_any(float low, float high) {
    return pack(low == low ? low : as_float(0x7fc00000),
                high == high ? high : as_float(0x7fc00000));
  }
  static RDNA35_DEVICE uint32_t product(uint32_t a, uint32_t b) {
    return pack(low(a) * low(b), high(a) * high(b));
  }
#endif
};

// x / scale as IEEE rounds it, for an x of at most 11 significant bits (all
// that an activation has), in a few instructions: a quotient from the rounded
// reciprocal, corrected once by its exact remainder. Scales from which the
// remainder would underflow, or the reciprocal, are brought nearer to 1.
struct Divisor {
  float factor;  // of dividend and divisor: a power of two, with its sign
  float value, inverse;
};
RDNA35_DEVICE Divisor divisor(float scale) {
  const float size = scale < 0 ? -scale : scale;
  const float nearer = size < 0x1p-60f  ? 0x1p90f
                       : size > 0x1p60f ? 0x1p-90f
                                        : 1.0f;
  const float factor = scale < 0 ? -nearer : nearer;
  return {factor, factor * scale, 1.0f / (factor * scale)};
}
RDNA35_DEVICE float divide(float x, const Divisor& by) {
  x *= by.factor;
  const float rough = x * by.inverse;
  // In this order a zero keeps its sign, as the divisor is positive.
  const float excess = fused_multiply_add(rough, by.value, -x);
  const float exact = fused_multiply_add(-excess, by.inverse, rough);
  // Not so for infinities and zeros, nor past any fp8's range.
  return exact < 0x1p18f && exact > -0x1p18f ? exact : rough;
}

// An 8-bit float of the OCP: how fp32 is rounded to it.
struct Fp8Format {
  int mantissa_shift;  // fp32's mantissa bits beyond its own
  float largest;       // finite
  float smallest_normal;
  float subnormal_step;  // times 2^23
  uint32_t bias;         // between the exponents, as a code
};
RDNA35_DEVICE Fp8Format fp8_format(bool e5m2) {
  return {e5m2 ? 21 : 20, e5m2 ? 57344.0f : 448.0f, e5m2 ? 0x1p-14f : 0x1p-6f,
          e5m2 ? 0x1p7f : 0x1p14f, e5m2 ? (127u - 15) << 2 : (127u - 7) << 3};
}
// To nearest even, past the range to its ends; a NaN to a NaN. gfx11 has no
// instruction for it.
RDNA35_DEVICE uint32_t to_fp8(const Fp8Format& f, float x) {
  const float any = as_float(as_bits(x) & 0x7fffffff);
  const float size = any < f.largest ? any : f.largest;
  const uint32_t nan = x == x ? 0 : 0x7f;
  // Below the normal ones the addition aligns the mantissa to their step and
  // rounds.
  const uint32_t subnormal =
      as_bits(size + f.subnormal_step) - as_bits(f.subnormal_step);
  const uint32_t bits = as_bits(size);
  const uint32_t up =
      (1u << (f.mantissa_shift - 1)) - 1 + (bits >> f.mantissa_shift & 1);
  const uint32_t normal = ((bits + up) >> f.mantissa_shift) - f.bias;
  const uint32_t code = size < f.smallest_normal ? subnormal : normal;
  return (as_bits(x) >> 24 & 0x80) | code | nan;
}

}  // namespace rdna35
