// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project

#include "images.h"

// images.inc, written by CMake, has RDNA35_IMAGE(architecture, file) for each
// architecture built. images.S gives the symbols.
#define RDNA35_IMAGE(arch, file)                      \
  extern "C" const unsigned char rdna35_image_##arch; \
  extern "C" const unsigned char rdna35_image_end_##arch;
#include "images.inc"
#undef RDNA35_IMAGE

namespace rdna35 {
namespace {

#define RDNA35_IMAGE(arch, file) \
  {#arch, &rdna35_image_##arch, &rdna35_image_end_##arch},
constexpr Image kImages[] = {
#include "images.inc"
};
#undef RDNA35_IMAGE

}  // namespace

const Image* find_image(const std::string& architecture) {
  for (const Image& image : kImages) {
    if (architecture == image.architecture) return &image;
  }
  return nullptr;
}

std::string built_architectures() {
  std::string names;
  for (const Image& image : kImages) {
    if (!names.empty()) names += ", ";
    names += image.architecture;
  }
  return names;
}

}  // namespace rdna35
