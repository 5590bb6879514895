// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The op's host checks, free of torch: they turn described tensors into a
// launch, or throw std::runtime_error naming the argument, what it must be and
// what it is. Nothing is written before they pass.
#pragma once

#include <stdint.h>

#include <optional>
#include <vector>

#include "params.h"

namespace rdna35 {

// The op's schema, registered by every binding.
extern const char* const kRopeCacheSchema;

enum class DType {
  kFloat16,
  kBFloat16,
  kFloat32,
  kInt64,
  kFloat8E4M3FN,
  kFloat8E5M2,
  // What is told apart for messages alone.
  kFloat64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kOther
};

// A tensor as the checks see it. Strides in elements. `dim` beyond 4 is
// reported as found, and its sizes past the fourth are not looked at.
struct TensorView {
  void* data;
  DType dtype;
  int64_t dim;
  int64_t sizes[4];
  int64_t strides[4];
  int32_t device_type;  // torch's device type number
  int32_t device_index;
};

struct RopeCacheArgs {
  TensorView positions, q;
  std::optional<TensorView> k, v, cos_sin_cache, q_weight, k_weight;
  bool v_norm;
  double eps;
  int64_t pos_offset;
  double q_scale_beta;
  int64_t q_scale_orig_max;
  std::optional<TensorView> kv_cache, slot_mapping, q_out, k_out, v_out;
  double weight_offset;
  bool is_neox;
  std::optional<std::vector<int64_t>> mrope_section;
  bool mrope_interleaved;
  std::optional<TensorView> k_scale, v_scale;
};

RopeCacheLaunch check_rope_cache(const RopeCacheArgs& args);

// Whether there are kernels for heads of this size.
bool has_head_size(int64_t head_dim);

// The host build of the kernel: runs every wave of the launch, on tensors in
// host memory.
void run_rope_cache_on_host(const RopeCacheLaunch& launch);

}  // namespace rdna35
