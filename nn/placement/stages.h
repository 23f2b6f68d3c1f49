// Stages: the elements of a vector dealt out to the sub-meshes along a mesh axis.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn::detail {

// Returns the mesh rules of each leaf. Where a rule of `mesh_rules` sends the name of a vector to a mesh axis
// of S devices, as {"layers", "pipe"}, the leaves in element i of its L elements get the mesh rules on the sub-mesh at
// i * S / L of that axis. Other leaves that a rule puts on a stage get the mesh rules there, the rest `mesh_rules`.
// Errors, which begin with `verb`: fewer elements than stages (not_divisible), a rule of several mesh axes, a stage out
// of range or along another axis than a vector's (invalid_argument).
std::vector<MeshRules> stage_mesh_rules(const Leaves& leaves, const MeshRules& mesh_rules, std::string_view verb);
// The same for the arrays of these paths.
std::vector<MeshRules> stage_mesh_rules(const std::vector<std::string>& paths, const MeshRules& mesh_rules,
                                        std::string_view verb);
// Whether this rule, one of the mesh rules', deals out a vector of this tree, or puts an array of it on a stage.
bool puts_on_stages(const Rule& rule, const Leaves& leaves, const MeshRules& mesh_rules);
// "pipe[1]" of a sub-mesh; empty of any other mesh.
std::string stage_name(const Mesh& mesh);

}  // namespace tessera::nn::detail
