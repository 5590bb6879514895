// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// Embeds the code objects, each in a section of its own, and their manifest, so
// that both can be read from the library's file without loading it:
//   .rdna35.<architecture>  the code object as it was built
//   .rdna35.manifest        manifest.json: name, architecture, section, size
//                           and sha256 of each

.macro image arch, file
  .section .rdna35.\arch,"a",@progbits
  .balign 4096
  .globl rdna35_image_\arch
  .hidden rdna35_image_\arch
  .type rdna35_image_\arch,@object
rdna35_image_\arch:
  .incbin "\file"
  .size rdna35_image_\arch, . - rdna35_image_\arch
  .globl rdna35_image_end_\arch
  .hidden rdna35_image_end_\arch
rdna35_image_end_\arch:
.endm

#define RDNA35_IMAGE(arch, file) image arch, file
#include "images.inc"

  .section .rdna35.manifest,"a",@progbits
  .incbin "manifest.json"

  .section .note.GNU-stack,"",@progbits
