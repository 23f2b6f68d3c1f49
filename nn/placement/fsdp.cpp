// The table of fully sharded data parallelism.
#include "nn/placement/fsdp.h"

#include "sharding/base/fail.h"

namespace tessera::nn {

MeshRules fsdp(Mesh mesh, const std::string& mesh_axis, const FsdpOptions& options) {
  if (!mesh.empty() && !mesh.has_axis(mesh_axis))
    fail(ErrorKind::unknown_axis, "fsdp", "\"{}\" given, expected an axis of the mesh ({}).", mesh_axis,
         mesh.to_string());
  if (options.min_size < 0)
    fail(ErrorKind::invalid_argument, "fsdp", "min_size = {}, expected a number of elements, 0 for all.",
         options.min_size);
  Rules rules, whole;
  for (const Rule& rule : options.rules) (rule.all_mesh_axes().empty() ? whole : rules).push_back(rule);
  rules.emplace_back(ParamPattern{.min_size = options.min_size}, longest_dim(mesh_axis));
  rules.insert(rules.end(), whole.begin(), whole.end());
  rules.emplace_back(ParamPattern{}, replicated);
  return MeshRules(mesh, std::move(rules), {.activations = options.rules});
}

}  // namespace tessera::nn
