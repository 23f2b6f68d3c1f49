// Pipeline stages by the paths of arrays, and one folded path for the arrays of repeated layers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn::detail {

// Returns the mesh rules of each leaf:
//   in a vector that a rule such as {"layers", "pipe"} splits into stages: the rules on the sub-mesh of its stage,
//     i * S / L for element i of L and a mesh axis of S devices; with v virtual stages, i * S * v / L modulo S
//   assigned to a stage by an on_stage rule: the rules on that stage
//   otherwise: `mesh_rules`
// Errors, which begin with `verb`
//   not_divisible: fewer elements than stages; elements that stages times virtual stages do not divide
//   invalid_argument: a rule of several mesh axes; a stage out of range; an on_stage rule for an array outside such
//     vectors whose mesh axis differs from the first vector's rule
std::vector<MeshRules> stage_mesh_rules(const Leaves& leaves, const MeshRules& mesh_rules, std::string_view verb);
// Returns the mesh rules of the arrays with these paths.
std::vector<MeshRules> stage_mesh_rules(const std::vector<std::string>& paths, const MeshRules& mesh_rules,
                                        std::string_view verb);
// Returns true if this rule of `mesh_rules` assigns elements of a vector, or an array, of the tree to stages.
bool puts_on_stages(const Rule& rule, const Leaves& leaves, const MeshRules& mesh_rules);
// Returns "pipe[1]" for a sub-mesh, and "" for any other mesh.
std::string stage_name(const Mesh& mesh);

// Entries of a list that share one folded path.
struct Folded {
  std::string path;             // layers.{0..79}.mlp.up.kernel, or the path of a single entry
  std::vector<size_t> members;  // indices into the list, in its order
};

// Folds similar entries into one: layers.0.kernel and layers.1.kernel become layers.{0..1}.kernel. Their paths differ
// only in numbers, and their `looks` (the other displayed text) are equal. Every combination of the numbers must have
// an entry. The result is ordered by the first entry of each fold.
std::vector<Folded> fold_paths(const std::vector<std::string>& paths, const std::vector<std::string>& looks);

// Returns the path in at most `width` characters. It drops middle names first (model.layers..up.kernel), then the
// second to last name. If the path is still too long, only its last characters remain.
std::string elided(const std::string& path, size_t width);

}  // namespace tessera::nn::detail
