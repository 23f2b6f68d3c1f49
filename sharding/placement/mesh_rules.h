// MeshRules: a mesh, and the rules by which logical axes, and with them arrays, are placed on its mesh axes.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sharding/base/dependent_false.h"
#include "sharding/placement/axis.h"
#include "sharding/placement/named_sharding.h"

namespace tessera {

namespace detail {
struct MeshRulesImpl;
}

// In a rule: whole on every device: {"embed", replicated}.
struct Replicated {};
inline constexpr Replicated replicated{};

// The parameters that a rule by path and size applies to.
struct ParamPattern {
  std::string path = "**";  // a pattern of paths: "**.kernel", "layers.*.mlp.**" (path_pattern.h)
  int64_t min_size = 0;     // only parameters of at least this many elements

  // **.kernel of at least 1024 elements
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const ParamPattern& arrays);
  friend bool operator==(const ParamPattern&, const ParamPattern&) = default;
};

// In a rule for a ParamPattern: sharded on the longest dim that these mesh axes divide (of equally long ones, the
// first), as fully sharded data parallelism does with its parameters.
struct LongestDim {
  std::vector<std::string> mesh_axes;
};
template <class... Names>
LongestDim longest_dim(const Names&... mesh_axes) {
  return {{mesh_axes...}};
}

// In a rule for a ParamPattern: stored on one stage of this mesh axis (sub_mesh.h), placed there by the other rules;
// counted from the end below zero.
struct OnStage {
  std::string mesh_axis;
  int64_t at = 0;
};
inline OnStage on_stage(std::string mesh_axis, int64_t at) { return {std::move(mesh_axis), at}; }

// One rule. By name: a logical axis and the mesh axes that shard it (several: major to minor; none: replicated). Or by
// path and size: a ParamPattern, and a spec for all dims of such a parameter, or for its longest dim:
//   {ParamPattern{"**.kernel"}, P{none, "model"}}    {ParamPattern{.min_size = 1024}, longest_dim("data")}
//   {ParamPattern{}, replicated}
// Or the stage of what lies in no vector that a rule deals out, which is on all stages otherwise:
//   {ParamPattern{"**.embedding.**"}, on_stage("pipe", 0)}    {ParamPattern{"**.head.**"}, on_stage("pipe", -1)}
// With Uneven::pad the mesh axes need not divide the dim, whose blocks are then padded; a longest dim is one that they
// divide where there is one: {"vocab", "model", Uneven::pad}. In a spec each entry says it for itself.
struct Rule {
  std::string logical;                 // empty: a rule for a ParamPattern
  std::vector<std::string> mesh_axes;  // that shard the logical axis, or the longest dim
  ParamPattern arrays = {};
  std::optional<PartitionSpec> spec = {};  // for a ParamPattern; without one, mesh_axes shard the longest dim
  std::optional<int64_t> stage = {};       // for a ParamPattern: along the one of mesh_axes
  Uneven uneven = Uneven::error;

  Rule(std::string name, Replicated);
  Rule(std::string name, const char* mesh_axis, Uneven uneven = Uneven::error);
  Rule(std::string name, std::string mesh_axis, Uneven uneven = Uneven::error);
  Rule(std::string name, std::initializer_list<const char*> mesh_axes, Uneven uneven = Uneven::error);
  Rule(std::string name, std::vector<std::string> mesh_axes, Uneven uneven = Uneven::error);
  Rule(ParamPattern which, PartitionSpec all_dims);
  Rule(ParamPattern which, LongestDim dim, Uneven uneven = Uneven::error);
  Rule(ParamPattern which, Replicated);
  Rule(ParamPattern which, OnStage stage);
  template <class Other>
    requires(std::same_as<Other, None> || std::is_arithmetic_v<Other> || std::is_null_pointer_v<Other>)
  Rule(std::string name, Other) : logical(std::move(name)) {
      static_assert(detail::dependent_false<Other>,
                    "tessera: a rule is a logical axis and the mesh axes that shard it, or replicated: {\"embed\", "
                    "\"data\"}, {\"embed\", replicated}.");
  }
  Rule(const Rule& rule);
  Rule(Rule&& rule) noexcept;
  Rule& operator=(const Rule& rule);
  Rule& operator=(Rule&& rule) noexcept;
  ~Rule();

  bool is_by_name() const { return !logical.empty(); }
  // Every mesh axis that the rule names.
  std::vector<std::string> all_mesh_axes() const;

  // "hidden" -> "model"
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Rule& rule);
  friend bool operator==(const Rule&, const Rule&) = default;
};

// An ordered list of rules, tried in this order for each array. A rule by name shards the dim of that name if its mesh
// axes are still unused on this array and divide the dim (or may pad it); a later rule of the same name is the
// fallback. A rule for a ParamPattern with a spec places every dim that is still open, all or none; one for the longest
// dim places that dim. A dim whose rules all found their mesh axes used stays whole. A mesh axis that the mesh does not
// have is an error, or counts as size one (see MissingAxes). (As Flax Linen's logical_to_mesh_axes, but with errors
// where that is silent.)
class Rules : public std::vector<Rule> {
 public:
  Rules() = default;
  Rules(std::initializer_list<Rule> rules);
  template <std::same_as<char>... Other>
    requires(sizeof...(Other) > 0)
  Rules(const char*, const Other*...) {
      static_assert(detail::dependent_false<Other...>,
                    "tessera: rules are a list, also of one: {{\"batch\", \"data\"}}.");
  }
  explicit Rules(std::vector<Rule> rules);
  Rules(const Rules& rules);
  Rules(Rules&& rules) noexcept;
  Rules& operator=(const Rules& rules);
  Rules& operator=(Rules&& rules) noexcept;
  ~Rules();

  // "batch" -> "data", "embed" -> replicated
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Rules& rules);
};

// A spec, and how the rules led to it.
struct RuleResolution {
  // What one rule did on one dim.
  struct Decision {
    int dim = 0;       // -1: a rule for a ParamPattern, on all dims
    std::string rule;  // "hidden" -> "model"
    bool matched = false;
    std::string reason;  // why it was passed over
    size_t number = 0;   // the rule's place in the order of trying
  };
  PartitionSpec spec;
  std::vector<Decision> decisions;
};

namespace detail {
struct LooseRule : Rule {
  using Rule::Rule;
};
}  // namespace detail

// What a rule that names a mesh axis which the mesh lacks is: a mistake, or (ok) a rule for an axis of size one, so
// that one table of rules serves many meshes.
enum class MissingAxes { error, ok };

// Rules for arrays that are not parameters. A rule here replaces all of the parameters' rules for its logical axis, and
// is tried before the others; logical axes that are not named here follow the parameters' rules. Rules for a
// ParamPattern apply to parameters and their optimizer state only, never to activations.
struct MeshRulesOptions {
  Rules activations = {};      // batches, and what with_sharding_constraint pins by names
  Rules optimizer_state = {};  // moments: filter_shard(optimizer, mesh_rules.optimizer_state())
  MissingAxes missing_axes = MissingAxes::error;
  Uneven uneven = Uneven::error;  // pad: all of the rules' dims may be padded
};

// A handle to an interned mesh and rules.
//   const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}), {{"batch", "data"}, {"embed", replicated}}};
// Weights sharded over `data`, the same logical axes of activations whole:
//   const MeshRules mesh_rules{mesh, {{"batch", "data"}, {"embed", "data"}}, {.activations = {{"embed", replicated}}}};
// Error (unknown_axis): a rule names an axis that the mesh lacks, unless missing_axes is ok.
class MeshRules {
  using Loose = const detail::LooseRule&;
  static detail::LooseRule none();

 public:
  MeshRules(Mesh mesh, Rules rules, MeshRulesOptions options = {});
  template <class Options = MeshRulesOptions>
  MeshRules(const Rules&, const Mesh&, const Options& = {}) {
    static_assert(detail::dependent_false<Options>, "tessera: the mesh comes first: MeshRules(mesh, rules).");
  }
  template <class Nothing = void>
  MeshRules(const Mesh&, Loose, Loose = none(), Loose = none(), Loose = none(), Loose = none(), Loose = none(),
            Loose = none()) {
    static_assert(detail::dependent_false<Nothing>, "tessera: rules are a list, also of one: {{\"batch\", \"data\"}}.");
  }
  explicit MeshRules(const detail::MeshRulesImpl* impl) : impl_(impl) {}

  Mesh mesh() const;
  const Rules& rules() const;

  // The same mesh with the rules for activations, or for optimizer state. If MeshRulesOptions has none for
  // them, activations() returns these rules without those for a ParamPattern, and optimizer_state() returns *this.
  MeshRules activations() const;
  MeshRules optimizer_state() const;

  // The spec of an array with these names and this shape. `verb` and `path` begin the message of an error: a name
  // without a rule, if no other rule placed its dim (unknown_axis); a dim that none of its rules divides
  // (not_divisible); another number of names than dims, or a spec of a ParamPattern that is longer than the array has
  // dims where no other rule places it (rank_mismatch); a directly named mesh axis that the mesh lacks (unknown_axis)
  // or that is used already (duplicate_axis).
  RuleResolution resolve(const Axes& axes, const Shape& shape, std::string_view verb = "MeshRules",
                         std::string_view path = "") const;
  // The same with rules `own` of one parameter, which are tried before the mesh rules'.
  RuleResolution resolve(const Rules& own, const Axes& axes, const Shape& shape, std::string_view verb,
                         std::string_view path) const;

  // data=4, model=2; rules "batch" -> "data", "hidden" -> "model"; and the rules of activations and optimizer state
  friend std::ostream& operator<<(std::ostream& out, const MeshRules& mesh_rules);
  friend bool operator==(const MeshRules& a, const MeshRules& b) { return a.impl_ == b.impl_; }
  const detail::MeshRulesImpl* impl() const { return impl_; }

 private:
  const detail::MeshRulesImpl* impl_;
};

}  // namespace tessera
