// Layout: a mesh and the rules that send logical axes to its axes. Everything that is placed by name follows one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/axis.h"
#include "sharding/named_sharding.h"

namespace tessera {

namespace detail {
struct LayoutImpl;
}

// "Whole on every device", in a rule: {"embed", replicated}.
struct Replicated {};
inline constexpr Replicated replicated{};

// One line of the table: a logical axis and the mesh axes it is cut over (several: major to minor; none: replicated).
struct Rule {
  std::string logical;
  std::vector<std::string> mesh_axes;

  Rule(std::string name, Replicated) : logical(std::move(name)) {}
  Rule(std::string name, const char* axis) : logical(std::move(name)), mesh_axes{axis} {}
  Rule(std::string name, std::string axis) : logical(std::move(name)), mesh_axes{std::move(axis)} {}
  Rule(std::string name, std::initializer_list<const char*> axes)
      : logical(std::move(name)), mesh_axes(axes.begin(), axes.end()) {}
  Rule(std::string name, std::vector<std::string> axes) : logical(std::move(name)), mesh_axes(std::move(axes)) {}

  // "hidden" -> "model"
  std::string to_string() const;
  friend bool operator==(const Rule&, const Rule&) = default;
};

// An ordered list of rules. For one array the rules are walked in order; a rule takes the dim of its name if its mesh
// axes are still free on this array and divide the dim; a later rule of the same name is the fallback. A mesh axis that
// the mesh does not have counts as size one. (Flax Linen's logical_to_mesh_axes, without its silences.)
class Rules : public std::vector<Rule> {
 public:
  Rules() = default;
  Rules(std::initializer_list<Rule> rules) : std::vector<Rule>(rules) {}
  explicit Rules(std::vector<Rule> rules) : std::vector<Rule>(std::move(rules)) {}

  std::string to_string() const;
};

// A spec, and how the rules came to it.
struct Resolution {
  // What became of one rule on one dim.
  struct Decision {
    int dim = 0;
    std::string rule;  // "hidden" -> "model"
    bool matched = false;
    std::string reason;  // why it was passed over
  };
  PartitionSpec spec;
  std::vector<Decision> decisions;
};

// A handle to an interned mesh and rules.
//   const Layout layout{make_mesh({{"data", 4}, {"model", 2}}), {{"batch", "data"}, {"embed", replicated}}};
class Layout {
 public:
  Layout(Mesh mesh, Rules rules);
  explicit Layout(const detail::LayoutImpl* impl) : impl_(impl) {}

  Mesh mesh() const;
  const Rules& rules() const;

  // The spec of an array with these names and this shape. `verb` and `path` begin the message of an error: a name in
  // no rule (unknown_axis), a dim that no rule of its name divides (uneven), names that are not as many as the dims
  // (rank_mismatch), a mesh axis named directly that the mesh lacks (unknown_axis) or that is taken (duplicate_axis).
  Resolution resolve(const Axes& axes, const Shape& shape, std::string_view verb = "Layout",
                     std::string_view path = "") const;

  friend bool operator==(const Layout& a, const Layout& b) { return a.impl_ == b.impl_; }
  const detail::LayoutImpl* impl() const { return impl_; }

 private:
  const detail::LayoutImpl* impl_;
};

}  // namespace tessera
