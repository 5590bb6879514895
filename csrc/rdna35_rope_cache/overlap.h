// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
//
// Which strided tensors share memory, with themselves or with each other.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <array>
#include <utility>

#include "checks.h"

namespace rdna35 {

// Heads [T, H, D] as sets of D consecutive elements.
struct HeadsView {
  const char* name;
  const char* begin;
  int64_t tokens, heads, head_dim;
  int64_t token_stride, head_stride;

  bool empty() const { return tokens == 0 || heads == 0; }
  int64_t row() const { return (heads - 1) * head_stride + head_dim; }
  const char* end() const {
    return begin + 2 * ((tokens - 1) * token_stride + row());
  }
};

// Whether i * a + j * b + [0, length) meets [0, length) for an |i| < n, |j| < m
// that are not both 0.
inline bool meets_itself(int64_t n, int64_t a, int64_t m, int64_t b,
                         int64_t length) {
  if ((m <= 1 || b >= length) && (n <= 1 || a >= (m - 1) * b + length))
    return false;
  if ((n <= 1 || a >= length) && (m <= 1 || b >= (n - 1) * a + length))
    return false;
  if (n > 1 && a < length) return true;
  for (int64_t j = 1; j < m; ++j) {
    const int64_t nearest = a > 0 ? std::min(n - 1, j * b / a) : 0;
    for (int64_t i = nearest; i <= std::min(nearest + 1, n - 1); ++i) {
      const int64_t distance = j * b - i * a;
      if (distance < length && -distance < length) return true;
    }
  }
  return false;
}

inline bool same_heads(const HeadsView& a, const HeadsView& b) {
  return a.begin == b.begin && a.tokens == b.tokens && a.heads == b.heads &&
         a.token_stride == b.token_stride && a.head_stride == b.head_stride;
}

// Whether the runs of two rows that begin `shift` elements apart meet.
inline bool rows_meet(const HeadsView& a, const HeadsView& b, int64_t shift) {
  if (shift >= a.row() || shift + b.row() <= 0) return false;
  for (int64_t i = 0; i < a.heads; ++i) {
    for (int64_t j = 0; j < b.heads; ++j) {
      const int64_t distance = shift + j * b.head_stride - i * a.head_stride;
      if (distance < b.head_dim && -distance < a.head_dim) return true;
    }
  }
  return false;
}

// The same elements with the wider stride first: rows of runs. Tokens and heads
// play one part in what overlaps.
inline HeadsView by_rows(HeadsView h) {
  if (h.tokens <= 1 || (h.heads > 1 && h.head_stride > h.token_stride)) {
    std::swap(h.tokens, h.heads);
    std::swap(h.token_stride, h.head_stride);
  }
  return h;
}

inline bool heads_meet(const HeadsView& a_heads, const HeadsView& b_heads) {
  if (a_heads.empty() || b_heads.empty() || a_heads.end() <= b_heads.begin ||
      b_heads.end() <= a_heads.begin) {
    return false;
  }
  const HeadsView a = by_rows(a_heads), b = by_rows(b_heads);
  const int64_t bytes = b.begin - a.begin;
  if (bytes % 2 != 0) return true;
  const int64_t shift = bytes / 2;
  if (a.tokens == 1 && b.tokens == 1) return rows_meet(a, b, shift);
  const int64_t stride = a.tokens > 1 ? a.token_stride : b.token_stride;
  const bool rows_apart = (a.tokens == 1 || a.token_stride == stride) &&
                          (b.tokens == 1 || b.token_stride == stride) &&
                          a.row() <= stride && b.row() <= stride;
  if (rows_apart) {
    // A row of one against those of the other that it can touch.
    int64_t in_row = shift % stride;
    if (in_row < 0) in_row += stride;
    return rows_meet(a, b, in_row) || rows_meet(a, b, in_row - stride);
  }
  // Rows of different strides: for each of a's, the few of b's that reach it.
  for (int64_t i = 0; i < a.tokens; ++i) {
    const int64_t first = shift - i * a.token_stride;
    int64_t j = 0, last = b.tokens - 1;
    if (b.token_stride > 0) {
      j = std::max<int64_t>(j, (-first - b.row()) / b.token_stride);
      last = std::min(last, (a.row() - first) / b.token_stride);
    }
    for (; j <= last; ++j)
      if (rows_meet(a, b, first + j * b.token_stride)) return true;
  }
  return false;
}

// Whether rows of 2D elements of a cache meet each other: exact where its
// dimensions nest, as all of vLLM's layouts do, by trial where not.
inline bool cache_meets_itself(const TensorView& t, int64_t row) {
  struct Dimension {
    int64_t size, stride;
  };
  std::array<Dimension, 3> dims;  // the outer ones, by stride
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    if (t.sizes[i] <= 1) continue;
    int at = count++;
    for (; at > 0 && dims[at - 1].stride > t.strides[i]; --at)
      dims[at] = dims[at - 1];
    dims[at] = {t.sizes[i], t.strides[i]};
  }
  int64_t reach = row;
  bool nested = true;
  for (int i = 0; i < count; ++i) {
    nested = nested && dims[i].stride >= reach;
    reach += (dims[i].size - 1) * dims[i].stride;
  }
  if (nested) return false;
  if (dims[0].stride < row) return true;
  if (count < 3) {
    return meets_itself(dims[0].size, dims[0].stride, dims[1].size,
                        dims[1].stride, row);
  }
  for (int64_t i = 1 - dims[0].size; i < dims[0].size; ++i) {
    for (int64_t j = 1 - dims[1].size; j < dims[1].size; ++j) {
      const int64_t at = i * dims[0].stride + j * dims[1].stride;
      if ((i || j) && at > -row && at < row) return true;
      const int64_t k = std::clamp<int64_t>(-at / dims[2].stride,
                                            1 - dims[2].size, dims[2].size - 1);
      for (int64_t near = k - 1; near <= k + 1; ++near) {
        const int64_t distance = at + near * dims[2].stride;
        if ((i || j || near) && near > -dims[2].size && near < dims[2].size &&
            distance > -row && distance < row) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace rdna35
