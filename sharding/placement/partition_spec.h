// PartitionSpec: for each dim of an array, the mesh axes that shard it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

#include "sharding/base/dependent_false.h"
#include "sharding/placement/axis.h"

namespace tessera {

// "This dim stays as it is placed", in the spec of a constraint: P.UNCONSTRAINED in JAX.
struct Unconstrained {};
inline constexpr Unconstrained unconstrained{};

// What becomes of a dim that its mesh axes do not divide: an error, or blocks of equal size of which the last ones are
// padded. A padded array keeps its size: no result, gradient or file ever sees the padding, only the devices' memory
// does. Each device holds a block of ceil(size / devices), what lies beyond the end is zeros.
enum class Uneven : uint8_t { error, pad };

// One dim's entry: no mesh axis (none), one, several from major to minor, or left open (unconstrained). With
// Uneven::pad the axes need not divide the dim: P{{"model", Uneven::pad}}, P{{{"data", "model"}, Uneven::pad}}.
class SpecEntry {
 public:
  SpecEntry() = default;
  SpecEntry(None) {}
  SpecEntry(std::nullptr_t) = delete;  // none is what Python's None is
  SpecEntry(Unconstrained) : unconstrained_(true) {}
  SpecEntry(const char* mesh_axis) : axes_{mesh_axis} {}
  SpecEntry(std::string mesh_axis) : axes_{std::move(mesh_axis)} {}
  SpecEntry(std::initializer_list<const char*> mesh_axes) : axes_(mesh_axes.begin(), mesh_axes.end()) {}
  SpecEntry(std::vector<std::string> mesh_axes) : axes_(std::move(mesh_axes)) {}
  SpecEntry(const char* mesh_axis, Uneven uneven) : axes_{mesh_axis}, pads_(uneven == Uneven::pad) {}
  SpecEntry(std::initializer_list<const char*> mesh_axes, Uneven uneven)
      : axes_(mesh_axes.begin(), mesh_axes.end()), pads_(uneven == Uneven::pad) {}
  SpecEntry(std::vector<std::string> mesh_axes, Uneven uneven)
      : axes_(std::move(mesh_axes)), pads_(uneven == Uneven::pad) {}

  const std::vector<std::string>& axes() const { return axes_; }
  bool pads() const { return pads_; }  // the axes need not divide the dim
  bool is_unconstrained() const { return unconstrained_; }
  bool empty() const { return axes_.empty() && !unconstrained_; }
  friend bool operator==(const SpecEntry&, const SpecEntry&) = default;

 private:
  std::vector<std::string> axes_;
  bool unconstrained_ = false, pads_ = false;
};

// P{"data", none, {"data2", "model"}}: dim 0 over "data", dim 1 whole, dim 2 over "data2" then "model".
// A spec may be shorter than the array has dims: the remaining dims are whole. Trailing nones do not count for
// equality, but a spec with more entries than the array has dims, nones included, does not fit the array.
class PartitionSpec {
 public:
  PartitionSpec() = default;
  PartitionSpec(std::initializer_list<SpecEntry> entries) : entries_(entries) {}
  explicit PartitionSpec(std::vector<SpecEntry> entries) : entries_(std::move(entries)) {}
  template <class... Entry>
  requires(sizeof...(Entry) > 0 &&
           (std::constructible_from<SpecEntry, Entry> && ...)) explicit PartitionSpec(const Entry&...) {
    static_assert(detail::dependent_false<Entry...>, "tessera: a PartitionSpec has braces: P{\"data\", none}.");
  }

  const std::vector<SpecEntry>& entries() const { return entries_; }

  // The same spec with these mesh axes unreduced (a pending sum: adding up over them gives the value) or reduced (equal
  // on all devices along them, and used by work that differs along them). In JAX: P(..., unreduced={...},
  // reduced={...}).
  PartitionSpec unreduced(std::vector<std::string> mesh_axes) const;
  PartitionSpec reduced(std::vector<std::string> mesh_axes) const;
  const std::vector<std::string>& unreduced_axes() const { return unreduced_; }
  const std::vector<std::string>& reduced_axes() const { return reduced_; }

  // The same entries, trailing nones counted: what == says of specs in JAX, where P('x') and P('x', None) differ.
  bool is_spelled_like(const PartitionSpec& other) const;

  // P('data', None, ('data2', 'model')), as it is written in JAX; an entry that pads is 'model' padded.
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec);
  friend bool operator==(const PartitionSpec& a, const PartitionSpec& b);

 private:
  std::vector<SpecEntry> entries_;
  std::vector<std::string> unreduced_, reduced_;
};

using P = PartitionSpec;  // as it is imported in JAX

}  // namespace tessera
