# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
#
# cmake -DOBJECTS="gfx1151/name.hsaco;..." -DOUTPUT=manifest.json -P manifest.cmake
#
# Writes what the library embeds: for each architecture, in the order given, the
# code object's name, size (bytes) and sha256, and the section of the library
# that holds it.

set(entries "")
foreach(object IN LISTS OBJECTS)
  get_filename_component(arch ${object} DIRECTORY)
  get_filename_component(name ${object} NAME_WE)
  file(SIZE ${object} size)
  file(SHA256 ${object} hash)
  if(entries)
    string(APPEND entries ",\n")
  endif()
  string(APPEND entries
    "    \"${arch}\": {\"name\": \"${name}\", \"section\": \".rdna35.${arch}\", "
    "\"size\": ${size}, \"sha256\": \"${hash}\"}")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "{\n  \"code_objects\": {\n${entries}\n  }\n}\n")
