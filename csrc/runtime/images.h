// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// The code objects embedded in the library, one per architecture built.
#pragma once

#include <stddef.h>

#include <string>

namespace rdna35 {

struct Image {
  const char* architecture;  // "gfx1151", "sm_90"
  const unsigned char* begin;
  const unsigned char* end;

  size_t size() const { return static_cast<size_t>(end - begin); }
};

// The image for an architecture; null where it is not built.
const Image* find_image(const std::string& architecture);

// The architectures built, for messages: "gfx1150, gfx1151".
std::string built_architectures();

}  // namespace rdna35
