// explain: why mesh rules place every array of a tree where it does, and which rules did nothing.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// One array, and how the rules place it.
struct ExplainedArray {
  std::string path;
  std::optional<std::vector<std::string>> axes;  // names of its dims; nullopt for a bare array
  Shape shape;
  DType dtype = float32;
  int64_t bytes = 0;                            // global
  PartitionSpec spec;                           // what the rules say
  std::string stage;                            // "pipe[1]", of a vector's element on a stage; else empty
  std::vector<RuleResolution::Decision> decisions;  // of each rule that concerns it, in the order of the rules
  std::string error;                            // why there is no spec; filter_shard would throw this
  std::optional<PartitionSpec> lies;            // its current spec, if it is another
  bool is_whole = false;                        // not sharded, on a mesh of more than one device
  std::vector<std::string> could_use;           // mesh axes that divide one of its dims but are not used
};

// A rule that placed nothing, or that names a mesh axis which the mesh does not have.
struct IdleRule {
  std::string rule;
  std::string reason;
};

struct ExplainOptions {
  // An array that is not sharded counts as large from this fraction of the tree's bytes (MaxText's sharding_tolerance).
  double large_fraction = 0.02;
};

// The explained arrays in the order of the tree, without absent ones.
class Explanation {
 public:
  Explanation(std::vector<ExplainedArray> arrays, std::vector<IdleRule> idle, std::string mesh, ExplainOptions options)
      : arrays_(std::move(arrays)), idle_(std::move(idle)), mesh_(std::move(mesh)), options_(options) {}

  const std::vector<ExplainedArray>& arrays() const& { return arrays_; }
  std::vector<ExplainedArray> arrays() && { return std::move(arrays_); }
  // The array with this path. Error (invalid_argument): there is none.
  const ExplainedArray& at(const std::string& path) const;
  // Rules that placed nothing, because no array has the name (the nearest name is suggested; what is near none may be a
  // batch's, which is placed later) or the path, or because they were always passed over; and rules that name a mesh
  // axis which the mesh does not have, used or not.
  const std::vector<IdleRule>& idle_rules() const& { return idle_; }
  std::vector<IdleRule> idle_rules() && { return std::move(idle_); }
  // The large arrays that are not sharded, the largest first.
  std::vector<ExplainedArray> large_whole() const;
  // Whether any array has an error.
  bool has_errors() const;

  // For each array its spec and, rule by rule, which rule took each dim and which were passed over; repeated layers
  // share one entry. Then errors, arrays that are now placed elsewhere, rules that did nothing, and large arrays that
  // are not sharded.
  std::string to_text() const;
  // {"mesh", "arrays": [{"path", "axes", "shape", "dtype", "bytes", "spec" (null with an error), "stage", "error" (null
  // or text), "lies" (null or a spec), "whole", "could_use", "decisions": [{"dim" (null: all), "rule", "matched",
  // "reason"}]}], "idle_rules": [{"rule", "reason"}], "large_whole": [paths]}
  std::string to_json() const;

 private:
  std::vector<ExplainedArray> arrays_;
  std::vector<IdleRule> idle_;
  std::string mesh_;
  ExplainOptions options_;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const Explanation& explanation);

// Returns the decisions of filter_shard(tree, mesh_rules), and their reasons. Nothing is placed. An array that cannot
// be placed does not throw: its entry holds the error.
//   std::cout << nn::explain(model, mesh_rules);
Explanation explain(const Leaves& leaves, const MeshRules& mesh_rules, const ExplainOptions& options = {});
template <class Tree>
Explanation explain(const Tree& tree, const MeshRules& mesh_rules, const ExplainOptions& options = {}) {
  return explain(leaves(tree), mesh_rules, options);
}
template <class Tree>
Explanation explain(const Tree& tree, const Mesh& mesh, const Rules& rules, const ExplainOptions& options = {}) {
  return explain(leaves(tree), MeshRules(mesh, rules, {.missing_axes = MissingAxes::ok}), options);
}

// The same for a tree that filter_shard has placed, with the mesh rules that its arrays remember. Error
// (invalid_argument): an array that no mesh rules placed, arrays of two sets of mesh rules, no arrays.
Explanation explain(const Leaves& leaves, const ExplainOptions& options = {});
template <class Tree>
Explanation explain(const Tree& tree, const ExplainOptions& options = {}) {
  return explain(leaves(tree), options);
}

}  // namespace tessera::nn
