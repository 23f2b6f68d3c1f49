// Layout: a mesh and the rules that send logical axes to its axes. Everything that is placed by name follows one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement/axis.h"
#include "sharding/placement/named_sharding.h"

namespace tessera {

namespace detail {
struct LayoutImpl;
}

// "Whole on every device", in a rule: {"embed", replicated}.
struct Replicated {};
inline constexpr Replicated replicated{};

// The parameters that a rule without a name speaks of.
struct Arrays {
  std::string path = "**";  // a pattern of paths: "**.kernel", "layers.*.mlp.**" (path_pattern.h)
  int64_t min_size = 0;     // only those of at least this many elements

  // **.kernel of at least 1024 elements
  std::string to_string() const;
  friend bool operator==(const Arrays&, const Arrays&) = default;
};

// "Over the longest dim that these mesh axes divide", the first of equals, in a rule for Arrays: what fully sharded
// data parallelism does with its parameters.
struct LongestDim {
  std::vector<std::string> mesh_axes;
};
template <class... Names>
LongestDim longest_dim(const Names&... mesh_axes) {
  return {{mesh_axes...}};
}

// One line of the table. By name, a logical axis and the mesh axes it is cut over (several: major to minor; none:
// replicated); or by path and size, with a spec for all dims of such a parameter or for its longest dim:
//   {"hidden", "model"}    {"embed", {"data", "model"}}    {"norm", replicated}
//   {Arrays{"**.kernel"}, P{none, "model"}}    {Arrays{.min_size = 1024}, longest_dim("data")}
//   {Arrays{}, replicated}
struct Rule {
  std::string logical;                 // empty: a rule for Arrays
  std::vector<std::string> mesh_axes;  // of the name, or of the longest dim
  Arrays arrays = {};
  std::optional<PartitionSpec> spec = {};  // of Arrays; without one, mesh_axes go to the longest dim

  Rule(std::string name, Replicated);
  Rule(std::string name, const char* axis);
  Rule(std::string name, std::string axis);
  Rule(std::string name, std::initializer_list<const char*> axes);
  Rule(std::string name, std::vector<std::string> axes);
  Rule(Arrays which, PartitionSpec all_dims);
  Rule(Arrays which, LongestDim dim);
  Rule(Arrays which, Replicated);
  Rule(const Rule& rule);
  Rule(Rule&& rule) noexcept;
  Rule& operator=(const Rule& rule);
  Rule& operator=(Rule&& rule) noexcept;
  ~Rule();

  bool is_by_name() const { return !logical.empty(); }
  // Every mesh axis that the rule speaks of.
  std::vector<std::string> all_mesh_axes() const;

  // "hidden" -> "model"
  std::string to_string() const;
  friend bool operator==(const Rule&, const Rule&) = default;
};

// An ordered list of rules. For one array the rules are walked in order. A rule by name takes the dim of its name if
// its mesh axes are still free on this array and divide the dim; a later rule of the same name is the fallback. A rule
// for Arrays with a spec takes every dim that is still open, all or none; one for the longest dim takes that dim. A dim
// whose rules all found their mesh axes taken stays whole. A mesh axis that the mesh does not have counts as size one.
// (Flax Linen's logical_to_mesh_axes, without its silences.)
class Rules : public std::vector<Rule> {
 public:
  Rules() = default;
  Rules(std::initializer_list<Rule> rules);
  explicit Rules(std::vector<Rule> rules);
  Rules(const Rules& rules);
  Rules(Rules&& rules) noexcept;
  Rules& operator=(const Rules& rules);
  Rules& operator=(Rules&& rules) noexcept;
  ~Rules();

  std::string to_string() const;
};

// A spec, and how the rules came to it.
struct Resolution {
  // What became of one rule on one dim.
  struct Decision {
    int dim = 0;       // -1: a rule for Arrays, on all dims
    std::string rule;  // "hidden" -> "model"
    bool matched = false;
    std::string reason;  // why it was passed over
    size_t number = 0;   // of the rule, in the order in which they were walked
  };
  PartitionSpec spec;
  std::vector<Decision> decisions;
};

// Tables for what is no parameter. A rule here replaces all rules by name of its logical axis, and goes before the
// others; names that are not here follow the parameters' rules. Rules for Arrays are the parameters' (and their
// optimizer state's) own and never apply to activations.
struct OtherRules {
  Rules activations = {};      // batches, and what with_sharding_constraint pins by names
  Rules optimizer_state = {};  // moments: filter_shard(optimizer, layout.optimizer_state())
};

// A handle to an interned mesh and rules.
//   const Layout layout{make_mesh({{"data", 4}, {"model", 2}}), {{"batch", "data"}, {"embed", replicated}}};
// Weights over `data`, the same dims of activations whole:
//   const Layout layout{mesh, {{"batch", "data"}, {"embed", "data"}}, {.activations = {{"embed", replicated}}}};
class Layout {
 public:
  Layout(Mesh mesh, Rules rules, OtherRules others = {});
  explicit Layout(const detail::LayoutImpl* impl) : impl_(impl) {}

  Mesh mesh() const;
  const Rules& rules() const;

  // The same mesh with the rules for activations, for optimizer state; without a table of their own, this layout less
  // its rules for Arrays, and this layout.
  Layout activations() const;
  Layout optimizer_state() const;

  // The spec of an array with these names and this shape. `verb` and `path` begin the message of an error: a name in
  // no rule whose dim no other rule took (unknown_axis), a dim that no rule of its divides (uneven), names that are not
  // as many as the dims, or a spec of Arrays that is longer than the array has dims where nothing else places it
  // (rank_mismatch), a mesh axis named directly that the mesh lacks (unknown_axis) or that is taken (duplicate_axis).
  Resolution resolve(const Axes& axes, const Shape& shape, std::string_view verb = "Layout",
                     std::string_view path = "") const;
  // With rules that go before the layout's: those of one parameter.
  Resolution resolve(const Rules& own, const Axes& axes, const Shape& shape, std::string_view verb,
                     std::string_view path) const;

  friend bool operator==(const Layout& a, const Layout& b) { return a.impl_ == b.impl_; }
  const detail::LayoutImpl* impl() const { return impl_; }

 private:
  const detail::LayoutImpl* impl_;
};

}  // namespace tessera
