// explain: the reasons why mesh rules place every array of a tree as they do, and the rules without effect.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "nn/tree/tree_summary.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// One array, and how the rules place it.
struct ExplainedArray {
  std::string path;
  std::optional<std::vector<std::string>> axes;  // names of its dimensions; nullopt for a bare array
  Shape shape;
  DType dtype = float32;
  int64_t bytes = 0;                            // global
  PartitionSpec spec;                           // spec that the rules give
  std::string stage;                            // "pipe[1]" if it is on a stage; otherwise empty
  std::vector<RuleResolution::Decision> decisions;  // one per rule that concerns it, in the order of the rules
  std::string error;                                // why there is no spec; filter_shard would throw it
  std::optional<PartitionSpec> moved_to;            // its current spec, if it differs from `spec`
  bool is_whole = false;                        // not sharded, on a mesh of more than one device
  std::vector<std::string> could_use;           // mesh axes that divide one of its dimensions but are not used
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

// Lists the explained arrays in the order of the tree, without absent ones.
class Explanation {
 public:
  Explanation(std::vector<ExplainedArray> arrays, std::vector<IdleRule> idle, std::string mesh, ExplainOptions options)
      : arrays_(std::move(arrays)), idle_(std::move(idle)), mesh_(std::move(mesh)), options_(options) {}

  const std::vector<ExplainedArray>& arrays() const& { return arrays_; }
  std::vector<ExplainedArray> arrays() && { return std::move(arrays_); }
  // Returns the array with this path. Error (invalid_argument): no array has it.
  const ExplainedArray& at(const std::string& path) const;
  // Returns the rules without effect, each with its reason:
  //   no array has the rule's name; the reason suggests the nearest name, if any, because the rule may be for a batch,
  //     which is placed later
  //   no array has the rule's path
  //   the rule was always skipped
  //   the rule names a mesh axis which the mesh does not have; also listed if the rule placed an array
  const std::vector<IdleRule>& idle_rules() const& { return idle_; }
  std::vector<IdleRule> idle_rules() && { return std::move(idle_); }
  // Returns the large arrays that are not sharded, the largest first.
  std::vector<ExplainedArray> large_whole() const;
  // Returns true if any array has an error.
  bool has_errors() const;

  // Returns the spec of each array and, rule by rule, which rule took each dimension and which were skipped. Repeated
  // layers share one entry. The text ends with errors, arrays that have another sharding now, rules without effect, and
  // large arrays that are not sharded.
  std::string to_text() const;
  // Returns {"mesh", "arrays": [{"path", "axes", "shape", "dtype", "bytes", "spec" (null with an error), "stage",
  // "error" (null or text), "moved_to" (null or a spec), "whole", "could_use", "decisions": [{"dim" (null: all),
  // "rule", "matched", "reason"}]}], "idle_rules": [{"rule", "reason"}], "large_whole": [paths]}
  std::string to_json() const;

 private:
  std::vector<ExplainedArray> arrays_;
  std::vector<IdleRule> idle_;
  std::string mesh_;
  ExplainOptions options_;
};

// Returns the decisions of filter_shard(tree, mesh_rules), and their reasons. Nothing is placed. An array that cannot
// be placed does not throw: its entry holds the error.
//   std::cout << nn::explain(model, mesh_rules);
Explanation explain(const Leaves& leaves, const MeshRules& mesh_rules, const ExplainOptions& options = {});
template <class Tree>
Explanation explain(const Tree& tree, const MeshRules& mesh_rules, const ExplainOptions& options = {}) {
  return explain(leaves(tree), mesh_rules, options);
}

// Explains a tree that filter_shard has placed, with the mesh rules that its arrays store. Error (invalid_argument): an
// array that no mesh rules placed, arrays of two sets of mesh rules, or no arrays.
Explanation explain(const Leaves& leaves, const ExplainOptions& options = {});
template <class Tree>
Explanation explain(const Tree& tree, const ExplainOptions& options = {}) {
  return explain(leaves(tree), options);
}

}  // namespace tessera::nn
