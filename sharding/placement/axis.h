// Logical axes: the names that a model gives to its dimensions ("embed", "hidden"), independent of any mesh.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "sharding/base/error.h"

namespace tessera {

// Marks a dimension without a name in Axes, and a dimension that is not sharded in a PartitionSpec.
struct None {
  friend constexpr bool operator==(None, None) { return true; }
};
inline constexpr None none{};

// A logical axis with its size, from which a layer creates a parameter.
//   nn::Linear::init(key, Axis{"embed", 512}, Axis{"hidden", 2048})
struct Axis {
  std::string name;
  int64_t size = -1;  // -1: not given; layers throw

  Axis() = default;
  Axis(std::string name, int64_t size = -1);
  // Diagnostic for a common mistake: the size before the name.
  template <std::integral Size, std::convertible_to<std::string> Name>
  Axis(Size, const Name&) {
    static_assert(detail::dependent_false<Size>,
                  "tessera: an axis has a name and a size, in this order: Axis{\"embed\", 64}.");
  }

  friend std::ostream& operator<<(std::ostream& out, const Axis& axis);  // prints embed=512
  friend bool operator==(const Axis&, const Axis&) = default;
};

// The name of one dimension of a parameter or a batch: a logical axis, a mesh axis, or none.
class AxisName {
 public:
  AxisName(const char* logical);
  AxisName(std::nullptr_t) = delete;  // use `none` where Python has None
  AxisName(std::string logical) : name_(std::move(logical)) {}
  AxisName(None) {}
  AxisName(const Axis& axis) : name_(axis.name) {}

  bool is_none() const { return name_.empty(); }
  bool is_mesh_axis() const { return mesh_axis_; }
  const std::string& name() const { return name_; }

  // Returns "embed", "none", or "@model" for a mesh axis.
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const AxisName& name);
  friend bool operator==(const AxisName&, const AxisName&) = default;

 private:
  friend AxisName mesh_axis(std::string name);
  std::string name_;
  bool mesh_axis_ = false;
};

// Names a mesh axis directly, without a rule: Axes{"embed", mesh_axis("model")}.
AxisName mesh_axis(std::string name);

// One name for each dimension, in order.
class Axes : public std::vector<AxisName> {
 public:
  Axes() = default;
  // Takes any number of names. It is not an initializer_list: with {"batch", "seq"} as a field's default, g++ 12 then
  // crashes where PFR counts the fields.
  template <class... Name>
  requires(sizeof...(Name) > 0 && (std::convertible_to<const Name&, AxisName> && ...)) Axes(const Name&... names) {
    reserve(sizeof...(names));
    (append(names), ...);
  }
  explicit Axes(std::vector<AxisName> names) : std::vector<AxisName>(std::move(names)) {}
  // Defined in the .cpp file, like the members of Rule, Rules and Array: all models use them, and compile a quarter
  // faster this way.
  Axes(const Axes& axes);
  Axes(Axes&& axes) noexcept;
  Axes& operator=(const Axes& axes);
  Axes& operator=(Axes&& axes) noexcept;
  ~Axes();

  // Returns "(embed, hidden)".
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Axes& axes);

 private:
  void append(const AxisName& name);
};

}  // namespace tessera
