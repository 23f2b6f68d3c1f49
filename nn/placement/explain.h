// explain: why every array of a tree lies where it lies, or would lie, and which rules did nothing.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/layout.h"

namespace tessera::nn {

// One array, and what the rules made of it.
struct ExplainedArray {
  std::string path;
  std::optional<std::vector<std::string>> axes;  // its dims' names; nothing for a bare array
  Shape shape;
  DType dtype = float32;
  int64_t bytes = 0;                            // global
  PartitionSpec spec;                           // what the rules say
  std::vector<Resolution::Decision> decisions;  // of each rule that speaks of it, in the order of the rules
  std::string error;                            // why there is no spec: filter_shard would throw it
  std::optional<PartitionSpec> lies;            // where it lies, if elsewhere
  bool is_whole = false;                        // on every device of a mesh of more than one
  std::vector<std::string> could_use;           // mesh axes that divide one of its dims and that it does not use
};

// A rule that placed nothing, or a mesh axis that no mesh here has.
struct IdleRule {
  std::string rule;
  std::string reason;
};

struct ExplainOptions {
  // A whole array is large from this part of the tree's bytes on (MaxText's sharding_tolerance).
  double large_fraction = 0.02;
};

// The arrays in the order of the tree, absent ones left out.
class Explanation {
 public:
  Explanation(std::vector<ExplainedArray> arrays, std::vector<IdleRule> idle, std::string mesh, ExplainOptions options)
      : arrays_(std::move(arrays)), idle_(std::move(idle)), mesh_(std::move(mesh)), options_(options) {}

  const std::vector<ExplainedArray>& arrays() const& { return arrays_; }
  std::vector<ExplainedArray> arrays() && { return std::move(arrays_); }
  // The array at a path. Error (bad_argument): none is there.
  const ExplainedArray& at(const std::string& path) const;
  // Rules that placed nothing: no array has the name or the path (with the nearest name that there is), or another rule
  // always came first; and rules that name a mesh axis which the mesh does not have, used or not.
  const std::vector<IdleRule>& idle_rules() const& { return idle_; }
  std::vector<IdleRule> idle_rules() && { return std::move(idle_); }
  // What stayed whole although it is large, the largest first.
  std::vector<ExplainedArray> large_whole() const;
  // Whether any array has an error.
  bool has_errors() const;

  // For each array its spec and, rule by rule, what took each dim and what was passed over, the same layers in one
  // entry; then errors, what lies elsewhere, rules that did nothing, and large arrays that stayed whole.
  std::string to_text() const;
  // {"mesh", "arrays": [{"path", "axes", "shape", "dtype", "bytes", "spec" (null with an error), "error" (null or
  // text), "lies" (null or a spec), "whole", "could_use", "decisions": [{"dim" (null: all), "rule", "matched",
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

// What filter_shard(tree, layout) does, or would do, and why. Nothing is placed, and nothing is thrown for an array
// that cannot be: its error stands in its entry, beside those of all others.
//   std::cout << nn::explain(model, layout);
Explanation explain(const Leaves& leaves, const Layout& layout, const ExplainOptions& options = {});
template <class Tree>
Explanation explain(const Tree& tree, const Layout& layout, const ExplainOptions& options = {}) {
  return explain(leaves(tree), layout, options);
}
template <class Tree>
Explanation explain(const Tree& tree, const Mesh& mesh, const Rules& rules, const ExplainOptions& options = {}) {
  return explain(leaves(tree), Layout(mesh, rules), options);
}

// Of a tree that filter_shard placed, by the layout that rides on its arrays. Error (bad_argument): an array that no
// layout placed, or arrays of two layouts.
Explanation explain(const Leaves& leaves, const ExplainOptions& options = {});
template <class Tree>
Explanation explain(const Tree& tree, const ExplainOptions& options = {}) {
  return explain(leaves(tree), options);
}

}  // namespace tessera::nn
