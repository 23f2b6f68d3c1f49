// The cases of docs/jax_differences.md that communicate more bytes than XLA, or whose result has a different sharding.
#include <algorithm>
#include <set>

#include "tests/runner/propagation.h"
#include "tests/runner/reference_values.h"

namespace tessera::runner {
namespace {

// The operation, the shardings of its operands, and its communication.
struct Facts {
  std::string operation;
  std::vector<PartitionSpec> operands;
  std::vector<std::string> mesh_axes;
  bool placed = false;   // out_sharding was given
  bool refused = false;  // JAX's explicit mode refuses the case
  Moved moved;

  std::set<std::string> axes(size_t operand) const {
    std::set<std::string> names;
    for (const SpecEntry& entry : operands.at(operand).entries())
      names.insert(entry.axes().begin(), entry.axes().end());
    return names;
  }
  bool is_product() const { return operation == "matmul" || operation == "einsum" || operation == "dot_general"; }
  bool is_layer() const {
    return operation == "linear" || operation == "sigmoid_layer" || operation == "mlp" || operation == "swiglu";
  }
  bool is_composed() const { return is_layer() || operation == "fma" || operation == "lerp"; }
  bool is_lookup() const { return operation == "take" || operation == "embedding" || operation == "one_hot_matmul"; }
};

bool leaves_an_axis_unused(const Facts& f) {
  std::set<std::string> used;
  for (size_t i = 0; i < f.operands.size(); ++i) used.merge(f.axes(i));
  return f.is_product() && used.size() < f.mesh_axes.size();
}

bool operands_share_an_axis(const Facts& f) {
  const std::set<std::string> first = f.axes(0), second = f.axes(1);
  return std::any_of(first.begin(), first.end(), [&](const std::string& axis) { return second.contains(axis); });
}

constexpr const char* whole_sequences =
    "attention reads whole sequences: a sharded one is exchanged for sharded heads, also of queries alone";

bool shards_queries(const PartitionSpec& query) { return query.entries().size() > 2 && !query.entries()[2].empty(); }

struct Difference {
  bool (*holds)(const Facts&);
  const char* reason;
};

constexpr Difference differences[] = {
    {[](const Facts& f) {
       return (f.is_product() && f.moved.by_operation == 0) || (f.is_layer() && f.moved.sums_alone);
     },
     "operands that agree do not move, though XLA gathers one that is smaller than the pending sum of the result"},
    {leaves_an_axis_unused, "XLA splits a contraction over a mesh axis that divides nothing yet"},
    {[](const Facts& f) { return f.is_lookup() && operands_share_an_axis(f); },
     "a lookup whose ids and table want one axis leaves it to the ids: a dim of the result comes before one that is "
     "summed"},
    {[](const Facts& f) {
       return f.operation.ends_with("_norm") && f.operands.size() > 1 && operands_share_an_axis(f);
     },
     "a scale that wants an axis of another dim is settled by the bytes of both passes, its gradient's included"},
    {[](const Facts& f) { return f.operation == "attention" && shards_queries(f.operands[0]); }, whole_sequences},
    {[](const Facts& f) { return f.placed && (f.is_product() || f.operation == "at_get") && f.moved.by_operation > 0; },
     "what an operation has to move is settled before its result goes to its out_sharding"},
    {[](const Facts& f) { return f.is_composed() && f.refused; },
     "operations after each other are settled one by one, where XLA sees what the next one's operands look like"},
};

Facts facts_of(const Json& file, const Json& c, const Moved& moved) {
  Facts f{.operation = std::string(c.at("op").as_string()), .moved = moved};
  const auto& attributes = c.at("attrs").as_object();
  f.placed = attributes.contains("out_sharding");
  f.refused = !c.at("explicit").at("ok").as_bool();
  for (const Json& input : c.at("inputs").as_array()) f.operands.push_back(spec_of(input.at("spec")));
  for (const Json& axis : file.at("meshes").at(c.at("mesh").as_string()).at("axes").as_array())
    f.mesh_axes.emplace_back(axis.at(0).as_string());
  return f;
}

}  // namespace

const char* documented_difference(const Json& file, const Json& c, const Moved& moved) {
  const Facts facts = facts_of(file, c, moved);
  for (const Difference& difference : differences)
    if (difference.holds(facts)) return difference.reason;
  return nullptr;
}

const char* documented_placement(const Json& c, const PartitionSpec& got, size_t output) {
  const std::string operation(c.at("op").as_string());
  const bool is_product =
      operation == "matmul" || operation == "einsum" || operation == "dot_general" || operation == "attention";
  if (is_product && c.at("auto").at("ok").as_bool() && got == spec_of(c.at("auto").at("out").at(output).at("spec")))
    return "a batch dim of a product keeps the axes of either operand; JAX's types keep those of one of them only";
  if (operation == "attention" && shards_queries(spec_of(c.at("inputs").at(0).at("spec")))) return whole_sequences;
  return nullptr;
}

}  // namespace tessera::runner
