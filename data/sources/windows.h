// windows: splits a long sequence of bytes or tokens into windows of equal length.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/sources/source.h"

namespace tessera::data {

// The requirements of windows() on a source: a sequence of values that threads may read at any offset.
template <class S>
concept SequenceSource = requires(const S& source, int64_t offset, std::span<typename S::value_type> out) {
  { source.size() } -> std::convertible_to<int64_t>;
  source.read(offset, out);
};

namespace detail {

int64_t window_count(int64_t source_size, int64_t length, int64_t stride);
int64_t window_stride(int64_t length, int64_t stride);

template <class S>
struct WindowsNode {
  using value_type = std::vector<typename S::value_type>;
  S source;
  int64_t length, stride, count;

  int64_t size() const { return count; }
  int64_t round() const { return count; }
  bool reorders() const { return false; }
  bool draws() const { return false; }
  std::string describe() const {
    std::string text = std::to_string(source.size()) + " values";
    if constexpr (requires {
                    { source.describe() } -> std::same_as<std::string>;
                  })
      text = source.describe();
    return text + " | windows(" + std::to_string(length) + ", " + std::to_string(stride) + ")";
  }
  value_type get(int64_t, int64_t index) const {
    value_type window(static_cast<size_t>(length));
    source.read(index * stride, std::span(window));
    return window;
  }
};

}  // namespace detail

// Returns the windows of `length` values of a source, one every `stride` values. The values after the last complete
// window are dropped. stride = 0 means length - 1 (1 if length is 1). A language model's windows are one value longer
// than its sequences, so that every value but the first is predicted once.
// Errors (invalid_argument): length < 1; stride < 0; a source shorter than one window (the message has both sizes).
template <SequenceSource S>
auto windows(S source, int64_t length, int64_t stride = 0) {
  const int64_t count = detail::window_count(source.size(), length, stride);
  using Node = detail::WindowsNode<S>;
  return Dataset<typename Node::value_type, Node>(
      Node{std::move(source), length, detail::window_stride(length, stride), count});
}

}  // namespace tessera::data
