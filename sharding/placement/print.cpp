// Stream output of axes, meshes, specs, shardings, rules, mesh rules and element types.
#include <ostream>

#include "sharding/placement/axis.h"
#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/placement/named_sharding.h"
#include "sharding/placement/partition_spec.h"

namespace tessera {

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }
std::ostream& operator<<(std::ostream& out, const AxisName& name) { return out << name.to_string(); }
std::ostream& operator<<(std::ostream& out, const Axes& axes) { return out << axes.to_string(); }
std::ostream& operator<<(std::ostream& out, const Mesh& mesh) { return out << mesh.to_string(); }
std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec) { return out << spec.to_string(); }
std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding) { return out << sharding.to_string(); }
std::ostream& operator<<(std::ostream& out, const ParamPattern& arrays) { return out << arrays.to_string(); }
std::ostream& operator<<(std::ostream& out, const Rule& rule) { return out << rule.to_string(); }
std::ostream& operator<<(std::ostream& out, const Rules& rules) { return out << rules.to_string(); }

std::ostream& operator<<(std::ostream& out, const Axis& axis) {
  return axis.size < 0 ? out << axis.name : out << axis.name << '=' << axis.size;
}

std::ostream& operator<<(std::ostream& out, const MeshAxis& axis) {
  return out << axis.name << '=' << axis.size << (axis.locality == across ? ":across" : "");
}

std::ostream& operator<<(std::ostream& out, const MeshRules& mesh_rules) {
  out << mesh_rules.mesh() << "; rules " << mesh_rules.rules();
  if (!(mesh_rules.activations() == mesh_rules)) out << "; rules of activations " << mesh_rules.activations().rules();
  if (!(mesh_rules.optimizer_state() == mesh_rules))
    out << "; rules of optimizer state " << mesh_rules.optimizer_state().rules();
  return out;
}

}  // namespace tessera
