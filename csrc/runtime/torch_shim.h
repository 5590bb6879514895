// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The part of torch's stable C ABI that the library uses, as torch 2.11 and
// later export it from libtorch_cpu. Declared here instead of included:
// torch's headers pull in <iostream>, and from GCC 13 on a library that does
// needs a newer libstdc++ than the oldest that it has to load with. A test
// compiles this file together with torch's own headers, so that a difference
// is a compile error.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The stable ABI whose calling conventions the library follows: torch 2.11.
#ifndef TORCH_TARGET_VERSION
  #define TORCH_TARGET_VERSION 0x020B000000000000ULL
#endif

// All return 0 for success.
using AOTITorchError = int32_t;
using StableIValue = uint64_t;
struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
class TorchLibraryOpaque;
using TorchLibraryHandle = TorchLibraryOpaque*;
struct StableListOpaque;
using StableListHandle = StableListOpaque*;

extern "C" {
AOTITorchError aoti_torch_library_init_fragment(const char* ns,
                                                const char* file, uint32_t line,
                                                TorchLibraryHandle* library);
AOTITorchError aoti_torch_library_init_impl(const char* ns, const char* key,
                                            const char* file, uint32_t line,
                                            TorchLibraryHandle* library);
AOTITorchError aoti_torch_delete_library_object(TorchLibraryHandle library);
AOTITorchError aoti_torch_library_def(TorchLibraryHandle library,
                                      const char* schema);
AOTITorchError torch_library_impl(TorchLibraryHandle library, const char* name,
                                  void (*kernel)(StableIValue*, uint64_t,
                                                 uint64_t),
                                  uint64_t extension_build_version);

int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int16();
int32_t aoti_torch_dtype_int8();
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_float8_e4m3fn();
int32_t aoti_torch_dtype_float8_e5m2();
int32_t aoti_torch_dtype_float8_e4m3fnuz();
int32_t aoti_torch_dtype_float8_e5m2fnuz();

AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
AOTITorchError torch_list_size(StableListHandle list, size_t* size);
AOTITorchError torch_list_get_item(StableListHandle list, size_t index,
                                   StableIValue* element);
AOTITorchError torch_delete_list(StableListHandle list);
AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* dtype);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* dim);
// Sizes and strides are borrowed from the tensor.
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** sizes);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor,
                                      int64_t** strides);
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor,
                                          int32_t* type);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor,
                                           int32_t* index);
}
