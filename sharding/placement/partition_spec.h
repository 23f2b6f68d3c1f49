// PartitionSpec: for each dimension of an array, the mesh axes that shard it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

#include "sharding/base/error.h"
#include "sharding/placement/axis.h"

namespace tessera {

// Leaves a dimension as it is sharded, in the spec of a constraint: P.UNCONSTRAINED in JAX.
struct Unconstrained {};
inline constexpr Unconstrained unconstrained{};

// Whether a dimension that its mesh axes do not divide is an error, or is padded to blocks of equal size. With `pad`
// each device stores a block of ceil(size / devices) elements, and the elements past the end of the array are zeros.
// The array keeps its size: padding takes memory, but never appears in a result, a gradient or a file.
enum class Uneven : uint8_t { error, pad };

// The entry of one dimension: no mesh axis (none), one, several from major to minor, or unconstrained. With Uneven::pad
// the axes need not divide the dimension: P{{"model", Uneven::pad}}, P{{{"data", "model"}, Uneven::pad}}.
class SpecEntry {
 public:
  SpecEntry() = default;
  SpecEntry(None) {}
  SpecEntry(std::nullptr_t) = delete;  // use `none` where Python has None
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
  bool pads() const { return pads_; }  // true if the axes need not divide the dimension
  bool is_unconstrained() const { return unconstrained_; }
  bool empty() const { return axes_.empty() && !unconstrained_; }
  friend bool operator==(const SpecEntry&, const SpecEntry&) = default;

 private:
  std::vector<std::string> axes_;
  bool unconstrained_ = false, pads_ = false;
};

// The sharding of each dimension. In P{"data", none, {"data2", "model"}}, dimension 0 is sharded over "data", dimension
// 1 is not sharded, and dimension 2 is sharded over "data2" then "model". A spec may be shorter than the array's rank:
// the remaining dimensions are not sharded. Equality ignores trailing nones. A spec with more entries than the array
// has dimensions does not fit the array, even if the extra entries are none.
class PartitionSpec {
 public:
  PartitionSpec() = default;
  PartitionSpec(std::initializer_list<SpecEntry> entries) : entries_(entries) {}
  explicit PartitionSpec(std::vector<SpecEntry> entries) : entries_(std::move(entries)) {}
  template <class... Entry>
  requires(sizeof...(Entry) > 0 &&
           (std::constructible_from<SpecEntry, Entry> && ...)) explicit PartitionSpec(const Entry&...) {
    static_assert(detail::dependent_false<Entry...>, "tessera: write a PartitionSpec with braces: P{\"data\", none}.");
  }

  const std::vector<SpecEntry>& entries() const { return entries_; }

  // Returns the same spec, unreduced or reduced over these mesh axes. Unreduced: each device holds a partial sum, and
  // the sum over the axes is the value. Reduced: the value is equal on all devices along the axes, and is used by
  // computations that differ along them. In JAX: P(..., unreduced={...}, reduced={...}).
  PartitionSpec unreduced(std::vector<std::string> mesh_axes) const;
  PartitionSpec reduced(std::vector<std::string> mesh_axes) const;
  const std::vector<std::string>& unreduced_axes() const { return unreduced_; }
  const std::vector<std::string>& reduced_axes() const { return reduced_; }

  // Compares entries including trailing nones, as == of JAX's specs, where P('x') and P('x', None) differ.
  bool is_spelled_like(const PartitionSpec& other) const;

  // Returns JAX's spelling, P('data', None, ('data2', 'model')); an entry that pads is 'model' padded.
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec);
  friend bool operator==(const PartitionSpec& a, const PartitionSpec& b);

 private:
  std::vector<SpecEntry> entries_;
  std::vector<std::string> unreduced_, reduced_;
};

using P = PartitionSpec;  // the alias that JAX programs use

}  // namespace tessera
