// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project

#include "checks.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "kernel.h"
#include "overlap.h"

namespace rdna35 {

const char* const kRopeCacheSchema =
    "rdna35_rope_cache("
    "Tensor positions, Tensor(a!) q, Tensor(b!)? k, Tensor? v, "
    "Tensor? cos_sin_cache, Tensor? q_weight, Tensor? k_weight, "
    "bool v_norm, float eps, int pos_offset, "
    "float q_scale_beta, int q_scale_orig_max, "
    "Tensor(c!)? kv_cache, Tensor? slot_mapping, "
    "Tensor(d!)? q_out, Tensor(e!)? k_out, Tensor(f!)? v_out, "
    "float weight_offset=0.0, "
    "bool is_neox=True, int[]? mrope_section=None, "
    "bool mrope_interleaved=False, "
    "Tensor? k_scale=None, Tensor? v_scale=None) -> ()";

namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
// A grid has a token for each x, and HIP counts its threads in 32 bits; it has
// four waves for each y, of which CUDA allows 65535, and a wave serves at least
// one of Hq + 2 Hkv heads.
constexpr int64_t kMaxTokens = (int64_t{1} << 32) / (32 * kWavesPerGroup) - 1;
constexpr int64_t kMaxHeads = 65535;
// A lane's byte offset from its wave's first head is 32 bits, over 8 heads.
constexpr int64_t kMaxHeadStride = int64_t{1} << 27;
constexpr int64_t kMaxRowStride = (int64_t{1} << 29) - 1;
constexpr int64_t kMaxTableBytes = (int64_t{1} << 32) - 1;

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  message << "rdna35_rope_cache: ";
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat32:
      return "float32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt16:
      return "int16";
    case DType::kInt8:
      return "int8";
    case DType::kUInt8:
      return "uint8";
    case DType::kBool:
      return "bool";
    case DType::kFloat8E4M3FN:
      return "float8_e4m3fn";
    case DType::kFloat8E5M2:
      return "float8_e5m2";
    case DType::kFloat8E4M3FNUZ:
      return "float8_e4m3fnuz";
    case DType::kFloat8E5M2FNUZ:
      return "float8_e5m2fnuz";
    case DType::kOther:
      break;
  }
  return "a dtype that the op knows nothing of";
}

std::string device_name(const TensorView& t) {
  // torch's numbers of the CPU and of CUDA, which ROCm's torch uses too.
  if (t.device_type == 0) return "cpu";
  return (t.device_type == 1
              ? "cuda:"
              : "device type " + std::to_string(t.device_type) + ", index ") +
         std::to_string(t.device_index);
}

std::string list(const int64_t* values, int64_t count) {
  std::ostringstream out;
  out << '[';
  for (int64_t i = 0; i < std::min<int64_t>(count, 4); ++i)
    out << (i ? ", " : "") << values[i];
  out << (count > 4 ? ", ...]" : "]");
  return out.str();
}

bool is_fp8(DType dtype) {
  return dtype == DType::kFloat8E4M3FN || dtype == DType::kFloat8E5M2;
}

// Of the dtypes that arguments have.
int64_t element_bytes(DType dtype) {
  return dtype == DType::kInt64     ? 8
         : dtype == DType::kFloat32 ? 4
         : is_fp8(dtype)            ? 1
                                    : 2;
}

int64_t number_of_elements(const TensorView& t) {
  int64_t n = 1;
  for (int64_t i = 0; i < t.dim; ++i) n *= t.sizes[i];
  return n;
}

// A checked argument: its name for messages, and its view.
struct Argument {
  const char* name;
  const TensorView& t;

  void dtype(DType wanted, const char* why) const {
    if (t.dtype != wanted) {
      fail(name, " must be ", dtype_name(wanted), why, ", got ",
           dtype_name(t.dtype));
    }
  }
  void dim(int64_t wanted, const char* shape) const {
    if (t.dim != wanted) {
      fail(name, " must be ", shape, ", got ", t.dim, " dimensions of sizes ",
           list(t.sizes, t.dim));
    }
  }
  void size(int64_t i, int64_t wanted, const char* shape) const {
    if (t.sizes[i] != wanted) {
      fail(name, " must be ", shape, ": dimension ", i, " must be ", wanted,
           ", got sizes ", list(t.sizes, t.dim));
    }
  }
  void last_stride_one() const {
    const int64_t last = t.dim - 1;
    if (t.sizes[last] > 1 && t.strides[last] != 1) {
      fail(name, " must have last stride 1, got strides ",
           list(t.strides, t.dim));
    }
  }
  void contiguous() const {
    int64_t wanted = 1;
    for (int64_t i = t.dim - 1; i >= 0; --i) {
      if (t.sizes[i] > 1 && t.strides[i] != wanted) {
        fail(name, " must be contiguous, got sizes ", list(t.sizes, t.dim),
             " and strides ", list(t.strides, t.dim));
      }
      wanted *= t.sizes[i];
    }
  }
  void fits(int64_t i, int64_t limit, const char* what) const {
    if (t.sizes[i] > limit) {
      fail(name, " has ", t.sizes[i], " ", what, ", more than the kernel's ",
           limit);
    }
  }
  void stride_fits(int64_t i, int64_t limit) const {
    if (t.sizes[i] > 1 && t.strides[i] > limit) {
      fail(name, " has stride ", t.strides[i], " in dimension ", i,
           ", more than the kernel's ", limit, " elements");
    }
  }
};

HeadsView heads_view(const Argument& a) {
  const TensorView& t = a.t;
  // The stride of a dimension of one element means nothing.
  return {a.name,
          static_cast<const char*>(t.data),
          t.sizes[0],
          t.sizes[1],
          t.sizes[2],
          t.sizes[0] > 1 ? t.strides[0] : 0,
          t.sizes[1] > 1 ? t.strides[1] : 0};
}

void check_written_heads(const HeadsView& h) {
  if (!h.empty() && meets_itself(h.tokens, h.token_stride, h.heads,
                                 h.head_stride, h.head_dim)) {
    fail(h.name, " is written and must not overlap itself, got strides [",
         h.token_stride, ", ", h.head_stride, ", 1]");
  }
}

struct Bytes {
  const char* name;
  const char* begin;
  const char* end;
};

Bytes bytes_of(const Argument& a) {
  const char* begin = static_cast<const char*>(a.t.data);
  if (number_of_elements(a.t) == 0) return {a.name, begin, begin};
  int64_t last = 0;
  for (int64_t i = 0; i < a.t.dim; ++i)
    last += (a.t.sizes[i] - 1) * a.t.strides[i];
  return {a.name, begin, begin + (last + 1) * element_bytes(a.t.dtype)};
}

Bytes bytes_of(const HeadsView& h) {
  return {h.name, h.begin, h.empty() ? h.begin : h.end()};
}

// By the bytes from first to last: nobody lays another tensor into the gaps of
// a cache or between the rows of positions.
void check_apart(const Bytes& written, const Bytes& other) {
  if (written.begin < written.end && other.begin < other.end &&
      written.begin < other.end && other.begin < written.end) {
    fail(written.name, " is written and must not overlap ", other.name);
  }
}

struct Kernel {
  DType dtype;
  int head_dim;
  bool normed;
  int pairs;
};

#define RDNA35_ROW(symbol, type, head_dim, normed, pairs)                 \
  Kernel{std::is_same_v<type, Half> ? DType::kFloat16 : DType::kBFloat16, \
         head_dim, normed, pairs},
constexpr Kernel kKernels[] = {RDNA35_KERNELS(RDNA35_ROW)};
#undef RDNA35_ROW

// The pairs of a lane that end a batch of this many heads of Q, K and V
// soonest, of any head size, as measured. With the extras, which take a lane
// longer the more pairs it has, the lines cross later.
int pairs_for(int64_t heads, bool extended) {
  if (extended) heads /= 2;
  return heads < 1024 ? 2 : heads < 4096 ? 4 : 8;
}

// The index in kKernels: the widest of at most `pairs` that `allowed` admits,
// else the narrowest that it admits.
template <class Allowed>
int kernel_index(DType dtype, int64_t head_dim, bool normed, int pairs,
                 const Allowed& allowed) {
  int found = -1, index = 0;
  const auto better = [=](int a, int b) {
    return a <= pairs && b <= pairs ? a > b : a < b;
  };
  for (const Kernel& kernel : kKernels) {
    if (kernel.dtype == dtype && kernel.head_dim == head_dim &&
        kernel.normed == normed && allowed(kernel.pairs) &&
        (found < 0 || better(kernel.pairs, kKernels[found].pairs))) {
      found = index;
    }
    ++index;
  }
  return found;
}

std::string built_head_sizes() {
  std::ostringstream out;
  int last = 0;
  for (const Kernel& kernel : kKernels) {
    if (kernel.head_dim > last) out << (last ? ", " : "") << kernel.head_dim;
    last = std::max(last, kernel.head_dim);
  }
  return out.str();
}

bool aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

int64_t saturated_add(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    return b > 0 ? std::numeric_limits<int64_t>::max()
                 : std::numeric_limits<int64_t>::min();
  return sum;
}

// Divisions by a multiplication and a shift by b + the least s with
// 2^s >= divisor, for dividends under 2^b: with the magic number rounded up the
// product's error stays below one.
int least_shift(int64_t divisor) {
  int shift = 0;
  while ((uint64_t{1} << shift) < static_cast<uint64_t>(divisor)) ++shift;
  return shift;
}

void set_block_division(RopeCacheParams& p, int64_t block_size) {
  const int shift = least_shift(block_size);
  const uint64_t power = uint64_t{1} << (31 + shift);
  p.block_shift = static_cast<uint16_t>(31 + shift);
  p.block_magic = static_cast<uint32_t>((power + block_size - 1) / block_size);
  p.block_size = static_cast<uint32_t>(block_size);
}

void set_scale_division(RopeCacheParams& p, int64_t orig_max) {
  const int shift = least_shift(orig_max);
  // Of 2^(63 + shift), which 64 bits hold not.
  const auto power = static_cast<unsigned __int128>(1) << (63 + shift);
  p.scale_shift = static_cast<uint16_t>(shift);
  p.scale_magic = static_cast<uint64_t>((power + orig_max - 1) / orig_max);
}

// M-RoPE: three rows of positions, and which pairs take which.
void set_sections(RopeCacheParams& p, const Argument& positions,
                  const std::vector<int64_t>& section,
                  const RopeCacheArgs& args) {
  positions.dim(2, "[3, T] with mrope_section");
  if (positions.t.strides[0] > kMaxRowStride) {
    fail("positions has stride ", positions.t.strides[0],
         " from row to row, more than the kernel's ", kMaxRowStride);
  }
  // Each pair's own row is found by a 32-bit offset.
  const TensorView& table = *args.cos_sin_cache;
  if (2 * number_of_elements(table) > kMaxTableBytes) {
    fail("cos_sin_cache must have at most ", kMaxTableBytes,
         " bytes with mrope_section, got ", 2 * number_of_elements(table));
  }
  const int64_t size = static_cast<int64_t>(section.size());
  if (size != 3 || section[0] < 0 || section[1] < 0 || section[2] < 0 ||
      section[0] > p.rot_half || section[1] > p.rot_half ||
      section[2] != p.rot_half - section[0] - section[1]) {
    fail("mrope_section must be three numbers of pairs, ", p.rot_half,
         " (rot / 2) in all, got ", list(section.data(), size));
  }
  p.positions_stride = static_cast<uint32_t>(8 * positions.t.strides[0]);
  if (args.mrope_interleaved) p.flags |= kInterleaved;
  const auto t = static_cast<int32_t>(section[0]);
  const auto h = static_cast<uint32_t>(section[1]);
  const auto w = static_cast<uint32_t>(section[2]);
  p.extras.second = {t, h};
  p.extras.third = {t + static_cast<int32_t>(h), w};
  if (args.mrope_interleaved) {
    p.extras.second = {0, 3 * h};
    p.extras.third = {0, 3 * w};
  }
}

}  // namespace

bool has_head_size(int64_t head_dim) {
  return std::any_of(
      std::begin(kKernels), std::end(kKernels),
      [=](const Kernel& kernel) { return kernel.head_dim == head_dim; });
}

RopeCacheLaunch check_rope_cache(const RopeCacheArgs& args) {
  const Argument positions{"positions", args.positions};
  const Argument q{"q", args.q};
  RopeCacheLaunch launch = {};
  RopeCacheParams& p = launch.params;

  // Shapes and dtypes.
  q.dim(3, "[T, Hq, D]");
  if (q.t.dtype != DType::kFloat16 && q.t.dtype != DType::kBFloat16)
    fail("q must be float16 or bfloat16, got ", dtype_name(q.t.dtype));
  const DType dtype = q.t.dtype;
  const int64_t tokens = q.t.sizes[0], head_dim = q.t.sizes[2];
  if (!has_head_size(head_dim)) {
    fail("q must have a head size that is built (", built_head_sizes(),
         "), got ", head_dim);
  }
  q.fits(0, kMaxTokens, "tokens");
  q.fits(1, kMaxHeads, "heads");

  positions.dtype(DType::kInt64, "");
  if (positions.t.dim == 2) {
    positions.size(0, 3, "[T] or [3, T]");
  } else {
    positions.dim(1, "[T] or [3, T]");
  }
  positions.size(positions.t.dim - 1, tokens, "[T] or [3, T] with q's T");
  positions.last_stride_one();

  const auto on_one_device = [&](const Argument& a) {
    if (a.t.device_type != q.t.device_type ||
        a.t.device_index != q.t.device_index) {
      fail(a.name, " must be on q's device, ", device_name(q.t), ", got ",
           device_name(a.t));
    }
  };
  const auto heads = [&](const Argument& a, int64_t num_heads,
                         const char* shape) {
    on_one_device(a);
    a.dtype(dtype, " as q");
    a.dim(3, shape);
    a.size(0, tokens, shape);
    if (num_heads >= 0) a.size(1, num_heads, shape);
    a.fits(1, kMaxHeads, "heads");
    a.size(2, head_dim, shape);
    a.last_stride_one();
    a.stride_fits(0, kMaxInt);
    a.stride_fits(1, kMaxHeadStride);
    return heads_view(a);
  };
  const auto needs = [&](bool given, const char* name, bool other_given,
                         const char* other) {
    if (given && !other_given) fail(name, " needs ", other, ", got None");
  };

  on_one_device(positions);
  const HeadsView q_heads = heads(q, -1, "[T, Hq, D]");

  needs(args.k_weight.has_value(), "k_weight", args.k.has_value(), "k");
  needs(args.k_out.has_value(), "k_out", args.k.has_value(), "k");
  needs(args.v.has_value(), "v", args.k.has_value(), "k");
  needs(args.kv_cache.has_value(), "kv_cache", args.k.has_value(), "k");
  needs(args.kv_cache.has_value(), "kv_cache", args.v.has_value(), "v");
  needs(args.kv_cache.has_value(), "kv_cache", args.slot_mapping.has_value(),
        "slot_mapping");
  needs(args.v_out.has_value(), "v_out", args.v.has_value(), "v");
  needs(args.v_norm, "v_norm", args.v.has_value(), "v");
  needs(args.mrope_interleaved, "mrope_interleaved",
        args.mrope_section.has_value(), "mrope_section");
  needs(args.mrope_section.has_value(), "mrope_section",
        args.cos_sin_cache.has_value(), "cos_sin_cache");
  const bool fp8 = args.kv_cache && is_fp8(args.kv_cache->dtype);
  needs(fp8, "a kv_cache of fp8", args.k_scale.has_value(), "k_scale");
  needs(fp8, "a kv_cache of fp8", args.v_scale.has_value(), "v_scale");
  if (args.k) {
    needs(args.q_weight.has_value(), "q_weight", args.k_weight.has_value(),
          "k_weight");
    needs(args.k_weight.has_value(), "k_weight", args.q_weight.has_value(),
          "q_weight");
  }

  HeadsView k_heads = {}, v_heads = {}, q_out = q_heads, k_out = {}, v_out = {};
  int64_t num_kv_heads = 0;
  if (args.k) {
    k_heads = k_out = heads({"k", *args.k}, -1, "[T, Hkv, D] with q's T and D");
    num_kv_heads = k_heads.heads;
  }
  if (args.v) v_heads = heads({"v", *args.v}, num_kv_heads, "[T, Hkv, D] as k");
  if (args.q_out)
    q_out = heads({"q_out", *args.q_out}, q_heads.heads, "[T, Hq, D] as q");
  if (args.k_out)
    k_out = heads({"k_out", *args.k_out}, num_kv_heads, "[T, Hkv, D] as k");
  if (args.v_out)
    v_out = heads({"v_out", *args.v_out}, num_kv_heads, "[T, Hkv, D] as v");

  if (args.cos_sin_cache) {
    const Argument cos_sin{"cos_sin_cache", *args.cos_sin_cache};
    on_one_device(cos_sin);
    cos_sin.dtype(dtype, " as q");
    cos_sin.dim(2, "[max_pos, rot]");
    const int64_t rot = cos_sin.t.sizes[1];
    if (rot % 2 != 0 || rot < 2 || rot > head_dim) {
      fail("cos_sin_cache must have an even rot of 2 to ", head_dim,
           " in its last dimension, got ", rot);
    }
    cos_sin.contiguous();
    cos_sin.fits(0, kMaxInt, "rows");
    if (cos_sin.t.sizes[0] < 1 && tokens > 0)
      fail("cos_sin_cache must have at least one row, got 0");
    p.cos_sin = cos_sin.t.data;
    p.rot_half = static_cast<int32_t>(rot / 2);
    p.row_low = args.pos_offset == std::numeric_limits<int64_t>::min()
                    ? std::numeric_limits<int64_t>::max()
                    : -args.pos_offset;
    p.row_high =
        saturated_add(p.row_low, std::max<int64_t>(cos_sin.t.sizes[0], 1) - 1);
  }

  if (args.mrope_section) set_sections(p, positions, *args.mrope_section, args);

  const auto weight = [&](const char* name,
                          const std::optional<TensorView>& view) {
    if (!view) return;
    const Argument a{name, *view};
    on_one_device(a);
    if (a.t.dtype != dtype && a.t.dtype != DType::kFloat32) {
      fail(name, " must be ", dtype_name(dtype), " as q, or float32, got ",
           dtype_name(a.t.dtype));
    }
    a.dim(1, "[D]");
    a.size(0, head_dim, "[D] with q's D");
    a.contiguous();
  };
  weight("q_weight", args.q_weight);
  weight("k_weight", args.k_weight);
  if (args.k_weight && args.k_weight->dtype != args.q_weight->dtype) {
    fail("k_weight must be ", dtype_name(args.q_weight->dtype),
         " as q_weight, got ", dtype_name(args.k_weight->dtype));
  }

  p.scale_beta = static_cast<float>(args.q_scale_beta);
  if (args.q_scale_beta != 0.0 && args.q_scale_orig_max <= 0) {
    fail("q_scale_orig_max must be positive with q_scale_beta ",
         args.q_scale_beta, ", got ", args.q_scale_orig_max);
  }
  if (args.q_scale_beta != 0.0) set_scale_division(p, args.q_scale_orig_max);

  if (args.kv_cache) {
    // The stride of a dimension of one element means nothing.
    TensorView view = *args.kv_cache;
    for (int i = 0; i < 3; ++i)
      if (view.dim == 4 && view.sizes[i] <= 1) view.strides[i] = 0;
    const Argument cache{"kv_cache", view};
    const char* shape = "[blocks, Hkv, block_size, 2 * D] as k";
    on_one_device(cache);
    if (cache.t.dtype != dtype && !fp8) {
      fail("kv_cache must be ", dtype_name(dtype),
           " as q, float8_e4m3fn or float8_e5m2, got ",
           dtype_name(cache.t.dtype));
    }
    cache.dim(4, shape);
    cache.size(1, num_kv_heads, shape);
    cache.size(3, 2 * head_dim, shape);
    cache.last_stride_one();
    if (cache.t.sizes[2] < 1)
      fail("kv_cache must have a block size of at least 1, got 0");
    const int64_t blocks = cache.t.sizes[0], block_size = cache.t.sizes[2];
    cache.fits(0, kMaxInt, "blocks");
    cache.fits(2, kMaxInt, "tokens a block");
    if (blocks * block_size > kMaxInt) {
      fail("kv_cache has ", blocks, " blocks of ", block_size,
           " slots, more than the kernel's ", kMaxInt);
    }
    if (number_of_elements(cache.t) > 0 &&
        cache_meets_itself(cache.t, 2 * head_dim)) {
      fail("kv_cache is written and must not overlap itself, got strides ",
           list(cache.t.strides, 4));
    }

    const Argument slots{"slot_mapping", *args.slot_mapping};
    on_one_device(slots);
    slots.dtype(DType::kInt64, "");
    slots.dim(1, "[S]");
    if (slots.t.sizes[0] > tokens) {
      fail("slot_mapping must have at most q's ", tokens, " tokens, got ",
           slots.t.sizes[0]);
    }
    slots.contiguous();

    p.cache = cache.t.data;
    const uint64_t bytes = element_bytes(cache.t.dtype);
    p.cache_block_stride = bytes * cache.t.strides[0];
    p.cache_head_stride = bytes * cache.t.strides[1];
    p.cache_slot_stride = bytes * cache.t.strides[2];
    p.num_slots = static_cast<uint32_t>(blocks * block_size);
    p.slot_mapping = static_cast<const int64_t*>(slots.t.data);
    p.num_mapped = static_cast<uint32_t>(slots.t.sizes[0]);
    set_block_division(p, block_size);
  }
  const auto scale = [&](const char* name,
                         const std::optional<TensorView>& view) {
    if (!view) return positions.t.data;
    if (!fp8) fail(name, " needs a kv_cache of fp8, got none");
    const Argument a{name, *view};
    on_one_device(a);
    a.dtype(DType::kFloat32, "");
    if (number_of_elements(a.t) != 1) {
      fail(name, " must have one element, got sizes ",
           list(a.t.sizes, a.t.dim));
    }
    return a.t.data;
  };
  p.extras.scales[0] =
      static_cast<const float*>(scale("k_scale", args.k_scale));
  p.extras.scales[1] =
      static_cast<const float*>(scale("v_scale", args.v_scale));
  if (fp8) p.flags |= kFp8Cache;
  if (fp8 && args.kv_cache->dtype == DType::kFloat8E5M2) p.flags |= kE5M2;

  p.positions = static_cast<const int64_t*>(positions.t.data);
  if (p.num_mapped == 0) p.slot_mapping = p.positions;
  if (!args.kv_cache) p.cache = positions.t.data;

  // What is written meets neither itself nor anything else, except an output
  // that is its own input.
  struct Written {
    const HeadsView& heads;
    const HeadsView& input;
  };
  const Written written[] = {
      {q_out, q_heads}, {k_out, k_heads}, {v_out, v_heads}};
  const HeadsView* const read[] = {&q_heads, &k_heads, &v_heads};
  for (const Written& w : written) {
    check_written_heads(w.heads);
    for (const HeadsView* other : read) {
      if (!(other == &w.input && same_heads(w.heads, *other)) &&
          heads_meet(w.heads, *other)) {
        fail(w.heads.name, " is written and must not overlap ", other->name,
             " unless it is exactly its input");
      }
    }
    for (const Written& other : written) {
      if (&other != &w && heads_meet(w.heads, other.heads)) {
        fail(w.heads.name, " is written and must not overlap ",
             other.heads.name);
      }
    }
  }
  std::array<Bytes, 7> small;
  int num_small = 0;
  small[num_small++] = bytes_of(positions);
  if (args.cos_sin_cache)
    small[num_small++] = bytes_of({"cos_sin_cache", *args.cos_sin_cache});
  if (args.q_weight)
    small[num_small++] = bytes_of({"q_weight", *args.q_weight});
  if (args.k_weight)
    small[num_small++] = bytes_of({"k_weight", *args.k_weight});
  if (args.kv_cache)
    small[num_small++] = bytes_of({"slot_mapping", *args.slot_mapping});
  if (args.k_scale) small[num_small++] = bytes_of({"k_scale", *args.k_scale});
  if (args.v_scale) small[num_small++] = bytes_of({"v_scale", *args.v_scale});
  for (int i = 0; i < num_small; ++i) {
    for (const Written& w : written) check_apart(bytes_of(w.heads), small[i]);
  }
  if (args.kv_cache) {
    const Bytes cache = bytes_of({"kv_cache", *args.kv_cache});
    for (int i = 0; i < num_small; ++i) check_apart(cache, small[i]);
    for (const HeadsView* h : read) check_apart(cache, bytes_of(*h));
    for (const Written& w : written) check_apart(cache, bytes_of(w.heads));
  }

  // The launch.
  const auto heads_params = [](const HeadsView& src, const HeadsView& dst,
                               const std::optional<TensorView>& weight) {
    return HeadsParams{src.begin,
                       const_cast<char*>(dst.begin),
                       weight ? weight->data : nullptr,
                       static_cast<uint32_t>(2 * src.token_stride),
                       static_cast<uint32_t>(2 * src.head_stride),
                       static_cast<uint32_t>(2 * dst.token_stride),
                       static_cast<uint32_t>(2 * dst.head_stride)};
  };
  p.heads[kQ] = heads_params(q_heads, q_out, args.q_weight);
  p.heads[kK] = heads_params(k_heads, k_out, args.k_weight);
  p.heads[kV] = heads_params(v_heads, v_out, std::nullopt);
  if (!args.cos_sin_cache)
    p.cos_sin = q_heads.empty() ? k_heads.begin : q_heads.begin;
  p.eps = static_cast<float>(args.eps);
  // -0.0 is what can be added to any weight, -0.0 too, without a change.
  p.weight_offset = args.weight_offset == 0.0
                        ? -0.0f
                        : static_cast<float>(args.weight_offset);

  p.num_q_heads = static_cast<uint32_t>(q_heads.heads);
  p.num_kv_heads = static_cast<uint32_t>(num_kv_heads);

  const bool weights_fp32 =
      args.q_weight && args.q_weight->dtype == DType::kFloat32;
  if (args.v_norm) p.flags |= kNormV;
  if (weights_fp32) p.flags |= kWeightsFp32;
  if (weights_fp32 || args.weight_offset != 0.0) p.flags |= kNormInFp32;

  // Whether a lane can move its pairs in vectors.
  const bool normed = args.q_weight.has_value();
  const auto vectors = [&](int pairs) {
    const int64_t bytes = 2 * pairs;
    const auto heads = [&](const HeadsView& h) {
      return aligned(h.begin, bytes) && 2 * h.token_stride % bytes == 0 &&
             2 * h.head_stride % bytes == 0;
    };
    const auto weight = [&](Role role) {
      return aligned(p.heads[role].weight, weights_fp32 ? 16 : bytes);
    };
    return p.rot_half % pairs == 0 && heads(q_heads) && heads(k_heads) &&
           heads(v_heads) && heads(q_out) && heads(k_out) && heads(v_out) &&
           weight(kQ) && weight(kK) && aligned(p.cos_sin, bytes) &&
           aligned(p.cache, bytes) && p.cache_block_stride % bytes == 0 &&
           p.cache_head_stride % bytes == 0 && p.cache_slot_stride % bytes == 0;
  };
  const int64_t heads_in_all = q_heads.heads + 2 * num_kv_heads;
  const bool adjacent = !args.is_neox && args.cos_sin_cache;
  const bool extended = fp8 || args.mrope_section;
  // With vectors, the kernel that the size of the batch asks for; without, or
  // for adjacent pairs, the narrowest.
  const auto allowed = [&](int pairs) {
    return vectors(pairs) && !adjacent &&
           (!extended || has_extended_vectors(head_dim, pairs));
  };
  launch.kernel =
      kernel_index(dtype, head_dim, normed,
                   pairs_for(tokens * heads_in_all, extended), allowed);
  if (launch.kernel >= 0) {
    p.flags |= extended ? kExtendedVectors : kVectors;
  } else {
    launch.kernel =
        kernel_index(dtype, head_dim, normed, 0, [](int) { return true; });
    if (adjacent) p.flags |= kAdjacentPairs;
    const int pairs = kKernels[launch.kernel].pairs;
    if (adjacent && !extended && has_vectors_of_pairs(pairs) && vectors(pairs))
      p.flags |= kAdjacentVectors;
  }

  const int lanes = power_of_two_from(static_cast<int>(head_dim) / 2 /
                                      kKernels[launch.kernel].pairs);
  const auto waves = [&](uint32_t num_heads) {
    const int heads_per_wave = kWaveSize / lanes;
    return (num_heads + heads_per_wave - 1) / heads_per_wave;
  };
  p.num_waves = waves(p.num_q_heads) + (args.v ? 2 : 1) * waves(p.num_kv_heads);
  launch.grid_x = p.num_waves > 0 ? static_cast<uint32_t>(tokens) : 0;
  launch.grid_y = (p.num_waves + kWavesPerGroup - 1) / kWavesPerGroup;
  return launch;
}

}  // namespace rdna35
