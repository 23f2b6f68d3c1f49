// MeshRules: a mesh and the rules that map logical axes to its mesh axes, and so place arrays.
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

#include "sharding/base/error.h"
#include "sharding/placement/axis.h"
#include "sharding/placement/named_sharding.h"

namespace tessera {

namespace detail {
struct MeshRulesImpl;
}

// In a rule: replicated on every device, as in {"embed", replicated}.
struct Replicated {};
inline constexpr Replicated replicated{};

// Selects the parameters to which a rule by path and size applies.
struct ParamPattern {
  std::string path = "**";  // a path pattern: "**.kernel", "layers.*.mlp.**" (path_matches)
  int64_t min_size = 0;     // only parameters of at least this many elements

  // Returns, for example, "**.kernel of at least 1024 elements".
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const ParamPattern& arrays);
  friend bool operator==(const ParamPattern&, const ParamPattern&) = default;
};

// In a rule for a ParamPattern: shards the longest dimension that these mesh axes divide (the first of equally long
// ones), as FSDP shards its parameters.
struct LongestDim {
  std::vector<std::string> mesh_axes;
};
template <class... Names>
LongestDim longest_dim(const Names&... mesh_axes) {
  return {{mesh_axes...}};
}

// In a rule for a ParamPattern: stores the parameter on one stage of this mesh axis, a sub_mesh. The other rules give
// its sharding within the stage. A negative `at` counts from the last stage.
struct OnStage {
  std::string mesh_axis;
  int64_t at = 0;
};
inline OnStage on_stage(std::string mesh_axis, int64_t at) { return {std::move(mesh_axis), at}; }

// In a rule for the name of a vector: splits its elements into S * num_virtual_stages blocks of equal size, where S is
// the number of stages along this mesh axis. Block i is on stage i mod S, as the interleaved pipeline schedule needs.
struct Interleaved {
  std::string mesh_axis;
  int64_t num_virtual_stages = 1;
};
inline Interleaved interleaved(std::string mesh_axis, int64_t num_virtual_stages) {
  return {std::move(mesh_axis), num_virtual_stages};
}

// One rule, of one of four kinds.
// - By name: maps a logical axis to the mesh axes that shard it (several: major to minor; none: replicated).
// - By path and size: gives a ParamPattern, and a spec for all dimensions of such a parameter, or mesh axes for its
//   longest dimension:
//     {ParamPattern{"**.kernel"}, P{none, "model"}}    {ParamPattern{.min_size = 1024}, longest_dim("data")}
//     {ParamPattern{}, replicated}
// - With on_stage: gives the stage of parameters outside the vectors that a rule distributes. Without such a rule,
//   these parameters are on all stages:
//     {ParamPattern{"**.embedding.**"}, on_stage("pipe", 0)}    {ParamPattern{"**.head.**"}, on_stage("pipe", -1)}
// - With interleaved: distributes a vector of layers over virtual stages: {"layers", interleaved("pipe", 2)}
// With Uneven::pad the mesh axes need not divide the dimension, whose blocks are then padded: {"vocab", "model",
// Uneven::pad}. longest_dim still prefers dimensions that the axes divide. In a spec each entry has its own Uneven.
struct Rule {
  std::string logical;                 // empty: a rule for a ParamPattern
  std::vector<std::string> mesh_axes;  // that shard the logical axis, or the longest dimension
  ParamPattern arrays = {};
  std::optional<PartitionSpec> spec = {};  // for a ParamPattern; without a spec, mesh_axes shard the longest dimension
  std::optional<int64_t> stage = {};       // for a ParamPattern: the stage along the only axis of mesh_axes
  Uneven uneven = Uneven::error;
  int64_t num_virtual_stages = 1;  // of a vector whose elements are on stages

  Rule(std::string name, Replicated);
  Rule(std::string name, const char* mesh_axis, Uneven uneven = Uneven::error);
  Rule(std::string name, std::string mesh_axis, Uneven uneven = Uneven::error);
  Rule(std::string name, std::initializer_list<const char*> mesh_axes, Uneven uneven = Uneven::error);
  Rule(std::string name, std::vector<std::string> mesh_axes, Uneven uneven = Uneven::error);
  Rule(ParamPattern which, PartitionSpec all_dims);
  Rule(ParamPattern which, LongestDim dim, Uneven uneven = Uneven::error);
  Rule(ParamPattern which, Replicated);
  Rule(ParamPattern which, OnStage stage);
  Rule(std::string name, Interleaved stages);
  template <class Other>
    requires(std::same_as<Other, None> || std::is_arithmetic_v<Other> || std::is_null_pointer_v<Other>)
  Rule(std::string name, Other) : logical(std::move(name)) {
      static_assert(detail::dependent_false<Other>,
                    "tessera: a rule maps a logical axis to the mesh axes that shard it, or to replicated: {\"embed\", "
                    "\"data\"}, {\"embed\", replicated}.");
  }
  Rule(const Rule& rule);
  Rule(Rule&& rule) noexcept;
  Rule& operator=(const Rule& rule);
  Rule& operator=(Rule&& rule) noexcept;
  ~Rule();

  bool is_by_name() const { return !logical.empty(); }
  // Returns every mesh axis that the rule names.
  std::vector<std::string> all_mesh_axes() const;

  // Returns, for example, "hidden" -> "model", with the quotation marks.
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Rule& rule);
  friend bool operator==(const Rule&, const Rule&) = default;
};

// An ordered list of rules, which are tried in this order for each array (as Flax Linen's logical_to_mesh_axes, but
// with errors where Flax is silent).
// - A rule by name shards the dimension of that name if its mesh axes are unused on this array and divide the dimension
//   (or may pad it). A later rule of the same name is the fallback.
// - A rule for a ParamPattern with a spec determines all dimensions that no rule has determined yet, or none of them. A
//   rule for the longest dimension determines only that dimension.
// - A dimension is not sharded if the mesh axes of all its rules were already used.
// - A mesh axis that the mesh does not have is an error, or counts as size one (see MissingAxes).
class Rules : public std::vector<Rule> {
 public:
  Rules() = default;
  Rules(std::initializer_list<Rule> rules);
  template <std::same_as<char>... Other>
    requires(sizeof...(Other) > 0)
  Rules(const char*, const Other*...) {
      static_assert(detail::dependent_false<Other...>,
                    "tessera: rules must be a list, even for one rule: {{\"batch\", \"data\"}}.");
  }
  explicit Rules(std::vector<Rule> rules);
  Rules(const Rules& rules);
  Rules(Rules&& rules) noexcept;
  Rules& operator=(const Rules& rules);
  Rules& operator=(Rules&& rules) noexcept;
  ~Rules();

  // Returns, for example, "batch" -> "data", "embed" -> replicated.
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Rules& rules);
};

// The spec that rules give to an array, and the decisions that led to it.
struct RuleResolution {
  // The effect of one rule on one dimension.
  struct Decision {
    int dim = 0;       // -1: a rule for a ParamPattern, on all dimensions
    std::string rule;  // "hidden" -> "model"
    bool matched = false;
    std::string reason;  // if not matched: why the rule was passed over
    size_t number = 0;   // the rule's index in the order of trying
  };
  PartitionSpec spec;
  std::vector<Decision> decisions;
};

namespace detail {
struct LooseRule : Rule {
  using Rule::Rule;
};
}  // namespace detail

// The treatment of a rule's mesh axis that the mesh lacks: an error, or (ok) an axis of size one. With `ok` one table
// of rules serves many meshes.
enum class MissingAxes { error, ok };

// Rules for arrays that are not parameters. An activation rule replaces all parameter rules for its logical axis, and
// is tried before all other rules. Logical axes without a rule here follow the parameter rules. Rules for a
// ParamPattern apply to parameters and their optimizer state only, never to activations.
struct MeshRulesOptions {
  Rules activations = {};      // batches, and arrays that with_sharding_constraint places by names
  Rules optimizer_state = {};  // moments: filter_shard(optimizer, mesh_rules.optimizer_state())
  MissingAxes missing_axes = MissingAxes::error;
  Uneven uneven = Uneven::error;  // pad: all dimensions of the rules may be padded
};

// A handle to an interned mesh and rules.
//   const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}), {{"batch", "data"}, {"embed", replicated}}};
// Weights sharded over `data`, the same logical axes of activations replicated:
//   const MeshRules mesh_rules{mesh, {{"batch", "data"}, {"embed", "data"}}, {.activations = {{"embed", replicated}}}};
// Error (unknown_axis): a rule names an axis that the mesh lacks, unless missing_axes is ok.
class MeshRules {
  using Loose = const detail::LooseRule&;
  static detail::LooseRule none();

 public:
  MeshRules(Mesh mesh, Rules rules, MeshRulesOptions options = {});
  template <class Options = MeshRulesOptions>
  MeshRules(const Rules&, const Mesh&, const Options& = {}) {
    static_assert(detail::dependent_false<Options>,
                  "tessera: the mesh must be the first argument: MeshRules(mesh, rules).");
  }
  template <class Nothing = void>
  MeshRules(const Mesh&, Loose, Loose = none(), Loose = none(), Loose = none(), Loose = none(), Loose = none(),
            Loose = none()) {
    static_assert(detail::dependent_false<Nothing>,
                  "tessera: rules must be a list, even for one rule: {{\"batch\", \"data\"}}.");
  }
  explicit MeshRules(const detail::MeshRulesImpl* impl) : impl_(impl) {}

  Mesh mesh() const;
  const Rules& rules() const;

  // Return the same mesh with the rules for activations, or for optimizer state. If MeshRulesOptions has none for them,
  // activations() returns these rules without those for a ParamPattern, and optimizer_state() returns *this.
  MeshRules activations() const;
  MeshRules optimizer_state() const;

  // Returns the spec of an array with these names and this shape. `verb` and `path` begin the message of an error.
  //
  // Errors
  //   unknown_axis: a name without a rule, if no other rule placed its dimension; a directly named mesh axis that the
  //     mesh lacks
  //   not_divisible: a dimension that none of its rules divides
  //   rank_mismatch: a different number of names than dimensions; a spec of a ParamPattern with more entries than the
  //     array has dimensions, if no other rule places the array
  //   duplicate_axis: a directly named mesh axis that is used already
  RuleResolution resolve(const Axes& axes, const Shape& shape, std::string_view verb = "MeshRules",
                         std::string_view path = "") const;
  // Returns the spec of a parameter with rules of its own, which are tried before the mesh rules.
  RuleResolution resolve(const Rules& own, const Axes& axes, const Shape& shape, std::string_view verb,
                         std::string_view path) const;

  // Prints data=4, model=2; rules "batch" -> "data", "hidden" -> "model"; and the rules of activations and optimizer
  // state.
  friend std::ostream& operator<<(std::ostream& out, const MeshRules& mesh_rules);
  friend bool operator==(const MeshRules& a, const MeshRules& b) { return a.impl_ == b.impl_; }
  const detail::MeshRulesImpl* impl() const { return impl_; }

 private:
  const detail::MeshRulesImpl* impl_;
};

}  // namespace tessera
