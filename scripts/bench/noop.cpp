// An op with the schema of rdna35_rope_cache that takes its arguments and does
// nothing: what any op with these arguments costs on the host.
// NOOP_SCHEMA: "noop(Tensor positions, ...) -> ()". NOOP_KINDS: a letter for each
// argument; T: a tensor, t: an optional one, l: an optional list, '.': a number.

#include <string.h>

#include <initializer_list>

#include "../../csrc/runtime/torch_shim.h"

namespace {

// Owned by the callee, whether it looks at them or not.
void free_arguments(StableIValue* values) {
  for (const char* kind = NOOP_KINDS; *kind != 0; ++kind, ++values) {
    void* pointer = nullptr;
    memcpy(&pointer, values, sizeof(pointer));
    if (*kind == 'T') {
      aoti_torch_delete_tensor_object(static_cast<AtenTensorHandle>(pointer));
    } else if ((*kind == 't' || *kind == 'l') && pointer != nullptr) {
      auto* const boxed = static_cast<StableIValue*>(pointer);
      void* inner = nullptr;
      memcpy(&inner, boxed, sizeof(inner));
      delete boxed;
      if (*kind == 't') {
        aoti_torch_delete_tensor_object(static_cast<AtenTensorHandle>(inner));
      } else {
        torch_delete_list(static_cast<StableListHandle>(inner));
      }
    }
  }
}

void noop(StableIValue* values, uint64_t, uint64_t) { free_arguments(values); }

const bool registered = [] {
  TorchLibraryHandle library = nullptr;
  if (aoti_torch_library_init_fragment("rdna35_bench", __FILE__, __LINE__,
                                       &library) != 0 ||
      aoti_torch_library_def(library, NOOP_SCHEMA) != 0) {
    return false;
  }
  for (const char* key : {"CPU", "CUDA"}) {
    TorchLibraryHandle implementations = nullptr;
    if (aoti_torch_library_init_impl("rdna35_bench", key, __FILE__, __LINE__,
                                     &implementations) != 0 ||
        torch_library_impl(implementations, "noop", noop,
                           TORCH_TARGET_VERSION) != 0) {
      return false;
    }
  }
  return true;
}();

}  // namespace
