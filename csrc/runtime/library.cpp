// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The binding of the op library: registers the op in torch's `_rocm_C`
// namespace, for CPU tensors (the host build of the kernel) and for GPU tensors
// (the launcher), on torch's stable C ABI. Takes the arguments from torch's
// boxed stack, describes the tensors, and calls.

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../rdna35_rope_cache/checks.h"
#include "launcher.h"
#include "torch_shim.h"

namespace rdna35 {
namespace {

constexpr char kNamespace[] = "_rocm_C";
constexpr char kOp[] = "rdna35_rope_cache";

// Loads the code object for the device of `like` (nothing to do for a CPU
// tensor), or raises what the op would raise. For the time when weights are
// processed: a launch does it too, but inside graph capture it may be refused.
constexpr char kLoadOp[] = "rdna35_rope_cache_load";
constexpr char kLoadSchema[] = "rdna35_rope_cache_load(Tensor like) -> ()";

// Whether the op takes heads of this size: what callers plan with, on a machine
// whose GPU they must not touch yet.
constexpr char kHeadSizeOp[] = "rdna35_rope_cache_has_head_size";
constexpr char kHeadSizeSchema[] =
    "rdna35_rope_cache_has_head_size(int head_size) -> bool";

// A tensor handle that this call owns; null for an optional one not given.
class Tensor {
 public:
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  AtenTensorHandle handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  AtenTensorHandle handle_;
};

// The arguments of one call, in the schema's order. What is taken is owned by
// the taker, so all are taken before anything can throw.
class Stack {
 public:
  explicit Stack(const StableIValue* values) : next_(values) {}

  Tensor tensor() { return Tensor(as<AtenTensorHandle>(*next_++)); }
  Tensor optional_tensor() {
    const std::optional<StableIValue> value = optional();
    return Tensor(value ? as<AtenTensorHandle>(*value) : nullptr);
  }
  bool boolean() { return as<bool>(*next_++); }
  int64_t integer() { return as<int64_t>(*next_++); }
  double number() { return as<double>(*next_++); }
  std::optional<std::vector<int64_t>> optional_integers() {
    const std::optional<StableIValue> value = optional();
    if (!value) return std::nullopt;
    const auto list = as<StableListHandle>(*value);
    size_t size = 0;
    torch_list_size(list, &size);
    std::vector<int64_t> integers(size);
    for (size_t i = 0; i < size; ++i) {
      StableIValue item = 0;
      torch_list_get_item(list, i, &item);
      integers[i] = as<int64_t>(item);
    }
    torch_delete_list(list);
    return integers;
  }

 private:
  // The ABI of torch 2.11: null, or a value on the heap, ours to delete.
  std::optional<StableIValue> optional() {
    StableIValue* const pointer = as<StableIValue*>(*next_++);
    if (pointer == nullptr) return std::nullopt;
    const StableIValue value = *pointer;
    delete pointer;
    return value;
  }

  template <typename T>
  static T as(StableIValue value) {
    T result;
    memcpy(&result, &value, sizeof(T));
    return result;
  }

  const StableIValue* next_;
};

DType dtype_of(int32_t dtype) {
  struct Known {
    int32_t torch;
    DType ours;
  };
  static const Known known[] = {
      {aoti_torch_dtype_float16(), DType::kFloat16},
      {aoti_torch_dtype_bfloat16(), DType::kBFloat16},
      {aoti_torch_dtype_float32(), DType::kFloat32},
      {aoti_torch_dtype_int64(), DType::kInt64},
      {aoti_torch_dtype_float64(), DType::kFloat64},
      {aoti_torch_dtype_int32(), DType::kInt32},
      {aoti_torch_dtype_int16(), DType::kInt16},
      {aoti_torch_dtype_int8(), DType::kInt8},
      {aoti_torch_dtype_uint8(), DType::kUInt8},
      {aoti_torch_dtype_bool(), DType::kBool},
      {aoti_torch_dtype_float8_e4m3fn(), DType::kFloat8E4M3FN},
      {aoti_torch_dtype_float8_e5m2(), DType::kFloat8E5M2},
      {aoti_torch_dtype_float8_e4m3fnuz(), DType::kFloat8E4M3FNUZ},
      {aoti_torch_dtype_float8_e5m2fnuz(), DType::kFloat8E5M2FNUZ},
  };
  for (const Known& each : known)
    if (dtype == each.torch) return each.ours;
  return DType::kOther;
}

TensorView view_of(const char* name, const Tensor& tensor) {
  const AtenTensorHandle handle = tensor.handle();
  TensorView view = {};
  int32_t dtype = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  if (aoti_torch_get_dim(handle, &view.dim) != 0 ||
      aoti_torch_get_sizes(handle, &sizes) != 0 ||
      aoti_torch_get_strides(handle, &strides) != 0 ||
      aoti_torch_get_dtype(handle, &dtype) != 0 ||
      aoti_torch_get_device_type(handle, &view.device_type) != 0 ||
      aoti_torch_get_device_index(handle, &view.device_index) != 0 ||
      aoti_torch_get_data_ptr(handle, &view.data) != 0) {
    throw std::runtime_error(
        std::string("rdna35_rope_cache: ") + name +
        " must be a strided tensor with memory of its own; its metadata or "
        "its address cannot be read");
  }
  view.dtype = dtype_of(dtype);
  const int64_t dims = std::min<int64_t>(view.dim, 4);
  std::copy_n(sizes, dims, view.sizes);
  std::copy_n(strides, dims, view.strides);
  return view;
}

std::optional<TensorView> optional_view_of(const char* name,
                                           const Tensor& tensor) {
  if (!tensor) return std::nullopt;
  return view_of(name, tensor);
}

// Checks one call of the op and hands the launch, with the index of the
// tensors' device, to `run`.
template <typename Run>
void call(StableIValue* values, Run run) {
  Stack stack(values);
  const Tensor positions = stack.tensor();
  const Tensor q = stack.tensor();
  const Tensor k = stack.optional_tensor();
  const Tensor v = stack.optional_tensor();
  const Tensor cos_sin_cache = stack.optional_tensor();
  const Tensor q_weight = stack.optional_tensor();
  const Tensor k_weight = stack.optional_tensor();
  RopeCacheArgs args = {};
  args.v_norm = stack.boolean();
  args.eps = stack.number();
  args.pos_offset = stack.integer();
  args.q_scale_beta = stack.number();
  args.q_scale_orig_max = stack.integer();
  const Tensor kv_cache = stack.optional_tensor();
  const Tensor slot_mapping = stack.optional_tensor();
  const Tensor q_out = stack.optional_tensor();
  const Tensor k_out = stack.optional_tensor();
  const Tensor v_out = stack.optional_tensor();
  args.weight_offset = stack.number();
  args.is_neox = stack.boolean();
  args.mrope_section = stack.optional_integers();
  args.mrope_interleaved = stack.boolean();
  const Tensor k_scale = stack.optional_tensor();
  const Tensor v_scale = stack.optional_tensor();

  args.positions = view_of("positions", positions);
  args.q = view_of("q", q);
  args.k = optional_view_of("k", k);
  args.v = optional_view_of("v", v);
  args.cos_sin_cache = optional_view_of("cos_sin_cache", cos_sin_cache);
  args.q_weight = optional_view_of("q_weight", q_weight);
  args.k_weight = optional_view_of("k_weight", k_weight);
  args.kv_cache = optional_view_of("kv_cache", kv_cache);
  args.slot_mapping = optional_view_of("slot_mapping", slot_mapping);
  args.q_out = optional_view_of("q_out", q_out);
  args.k_out = optional_view_of("k_out", k_out);
  args.v_out = optional_view_of("v_out", v_out);
  args.k_scale = optional_view_of("k_scale", k_scale);
  args.v_scale = optional_view_of("v_scale", v_scale);

  run(check_rope_cache(args), args.q.device_index);
}

void rope_cache_on_cpu(StableIValue* values, uint64_t, uint64_t) {
  call(values, [](const RopeCacheLaunch& launch, int) {
    run_rope_cache_on_host(launch);
  });
}

void rope_cache_on_gpu(StableIValue* values, uint64_t, uint64_t) {
  call(values, launch_rope_cache);
}

void load_on_cpu(StableIValue* values, uint64_t, uint64_t) {
  Stack(values).tensor();
}

void load_on_gpu(StableIValue* values, uint64_t, uint64_t) {
  const Tensor like = Stack(values).tensor();
  int32_t device = -1;
  if (aoti_torch_get_device_index(like.handle(), &device) != 0) {
    throw std::runtime_error("rdna35_rope_cache_load: `like` has no device");
  }
  load_rope_cache(device);
}

void has_head_size_anywhere(StableIValue* values, uint64_t, uint64_t) {
  const bool has = has_head_size(Stack(values).integer());
  values[0] = 0;
  memcpy(&values[0], &has, sizeof(has));
}

// What torch says of the last call that failed; torch 2.13 and newer can say.
const char* torch_reason() {
  using What = const char*();
  What* const what = reinterpret_cast<What*>(
      dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  return what != nullptr ? what() : "";
}

// The registration, undone when the library is unloaded. Nothing is thrown: it
// would end the process, as this runs inside dlopen.
class Registration {
 public:
  Registration() {
    if (!define()) return;
    implement("CPU", {{kOp, rope_cache_on_cpu}, {kLoadOp, load_on_cpu}});
    // ROCm's torch calls its devices CUDA.
    implement("CUDA", {{kOp, rope_cache_on_gpu}, {kLoadOp, load_on_gpu}});
    implement("CompositeExplicitAutograd",
              {{kHeadSizeOp, has_head_size_anywhere}});
  }
  ~Registration() {
    for (TorchLibraryHandle library : libraries_) {
      if (library != nullptr) aoti_torch_delete_library_object(library);
    }
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  using Kernel = void (*)(StableIValue*, uint64_t, uint64_t);

  // False where the process has the op already: that one stays as it is, and
  // this library registers nothing.
  bool define() {
    TorchLibraryHandle& fragment = libraries_[0];
    if (aoti_torch_library_init_fragment(kNamespace, __FILE__, __LINE__,
                                         &fragment) == 0 &&
        aoti_torch_library_def(fragment, kRopeCacheSchema) == 0 &&
        aoti_torch_library_def(fragment, kLoadSchema) == 0 &&
        aoti_torch_library_def(fragment, kHeadSizeSchema) == 0) {
      return true;
    }
    fprintf(stderr,
            "librdna35.so: torch does not take %s::%s from this library; one "
            "that it has already, from vLLM's _rocm_C or another copy of the "
            "library, stays in use. %s\n",
            kNamespace, kOp, torch_reason());
    return false;
  }

  struct Implementation {
    const char* op;
    Kernel kernel;
  };

  void implement(const char* key,
                 std::initializer_list<Implementation> implementations) {
    TorchLibraryHandle& library = libraries_[++last_];
    bool taken = aoti_torch_library_init_impl(kNamespace, key, __FILE__,
                                              __LINE__, &library) == 0;
    for (const Implementation& i : implementations) {
      taken = taken && torch_library_impl(library, i.op, i.kernel,
                                          TORCH_TARGET_VERSION) == 0;
    }
    if (!taken) {
      fprintf(
          stderr,
          "librdna35.so: torch does not take the %s kernels of %s::%s. %s\n",
          key, kNamespace, kOp, torch_reason());
    }
  }

  TorchLibraryHandle libraries_[4] = {};
  int last_ = 0;
};

const Registration registration;

}  // namespace
}  // namespace rdna35
