// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The op in _rocm_C: describes torch's tensors, has them checked, and launches.

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "../ops.h"
#include "checks.h"
#include "rocm.h"

// torch's headers declare it under a macro that only device code sets.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(
    int32_t device_index, void** ret_stream);

namespace {

rdna35::DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return rdna35::DType::kFloat16;
    case at::kBFloat16:
      return rdna35::DType::kBFloat16;
    case at::kFloat:
      return rdna35::DType::kFloat32;
    case at::kLong:
      return rdna35::DType::kInt64;
    case at::kDouble:
      return rdna35::DType::kFloat64;
    case at::kInt:
      return rdna35::DType::kInt32;
    case at::kShort:
      return rdna35::DType::kInt16;
    case at::kChar:
      return rdna35::DType::kInt8;
    case at::kByte:
      return rdna35::DType::kUInt8;
    case at::kBool:
      return rdna35::DType::kBool;
    case at::kFloat8_e4m3fn:
      return rdna35::DType::kFloat8E4M3FN;
    case at::kFloat8_e5m2:
      return rdna35::DType::kFloat8E5M2;
    case at::kFloat8_e4m3fnuz:
      return rdna35::DType::kFloat8E4M3FNUZ;
    case at::kFloat8_e5m2fnuz:
      return rdna35::DType::kFloat8E5M2FNUZ;
    default:
      return rdna35::DType::kOther;
  }
}

rdna35::TensorView view_of(const at::Tensor& tensor) {
  rdna35::TensorView view = {};
  view.data = tensor.data_ptr();
  view.dtype = dtype_of(tensor.scalar_type());
  view.dim = tensor.dim();
  const int64_t dims = std::min<int64_t>(view.dim, 4);
  std::copy_n(tensor.sizes().data(), dims, view.sizes);
  std::copy_n(tensor.strides().data(), dims, view.strides);
  view.device_type = static_cast<int32_t>(tensor.device().type());
  view.device_index = tensor.device().index();
  return view;
}

std::optional<rdna35::TensorView> view_of(
    const std::optional<at::Tensor>& tensor) {
  if (!tensor.has_value()) return std::nullopt;
  return view_of(*tensor);
}

}  // namespace

void rdna35_rope_cache(
    const at::Tensor& positions, const at::Tensor& q,
    const std::optional<at::Tensor>& k, const std::optional<at::Tensor>& v,
    const std::optional<at::Tensor>& cos_sin_cache,
    const std::optional<at::Tensor>& q_weight,
    const std::optional<at::Tensor>& k_weight, bool v_norm, double eps,
    int64_t pos_offset, double q_scale_beta, int64_t q_scale_orig_max,
    const std::optional<at::Tensor>& kv_cache,
    const std::optional<at::Tensor>& slot_mapping,
    const std::optional<at::Tensor>& q_out,
    const std::optional<at::Tensor>& k_out,
    const std::optional<at::Tensor>& v_out, double weight_offset, bool is_neox,
    at::OptionalIntArrayRef mrope_section, bool mrope_interleaved,
    const std::optional<at::Tensor>& k_scale,
    const std::optional<at::Tensor>& v_scale) {
  rdna35::RopeCacheArgs args = {};
  args.positions = view_of(positions);
  args.q = view_of(q);
  args.k = view_of(k);
  args.v = view_of(v);
  args.cos_sin_cache = view_of(cos_sin_cache);
  args.q_weight = view_of(q_weight);
  args.k_weight = view_of(k_weight);
  args.v_norm = v_norm;
  args.eps = eps;
  args.pos_offset = pos_offset;
  args.q_scale_beta = q_scale_beta;
  args.q_scale_orig_max = q_scale_orig_max;
  args.kv_cache = view_of(kv_cache);
  args.slot_mapping = view_of(slot_mapping);
  args.q_out = view_of(q_out);
  args.k_out = view_of(k_out);
  args.v_out = view_of(v_out);
  args.weight_offset = weight_offset;
  args.is_neox = is_neox;
  if (mrope_section.has_value()) args.mrope_section = mrope_section->vec();
  args.mrope_interleaved = mrope_interleaved;
  args.k_scale = view_of(k_scale);
  args.v_scale = view_of(v_scale);
  const rdna35::RopeCacheLaunch launch = rdna35::check_rope_cache(args);

  if (q.is_cpu()) {
    rdna35::run_rope_cache_on_host(launch);
    return;
  }
  const c10::DeviceGuard guard(q.device());
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(q.device().index(), &stream) != 0) {
    throw std::runtime_error("rdna35_rope_cache: torch gives no stream for " +
                             q.device().str());
  }
  rdna35::launch_rope_cache(launch, stream);
}

void rdna35_rope_cache_load(const at::Tensor& like) {
  if (like.is_cpu()) return;
  const c10::DeviceGuard guard(like.device());
  rdna35::load_rope_cache();
}
