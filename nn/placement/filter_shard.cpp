// Placement of leaves by rules or shardings, and fsdp's rules.
#include "nn/placement/filter_shard.h"

#include <fmt/format.h>

#include "nn/placement/memory_errors.h"
#include "nn/placement/paths.h"
#include "nn/placement/table.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

namespace {

// Rethrows an error of device_put as filter_shard's, with the path: "[device_put] dim 0 ..." becomes "dim 0 ...".
template <class Place>
void place(const Leaf& leaf, const Place& placed) {
  try {
    *leaf.value = placed();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    const size_t verb = text.find("] ");
    const std::string_view rest = text.substr(verb == std::string_view::npos ? 0 : verb + 2);
    fail(error.kind(), "filter_shard", leaf.path.empty() ? std::string(rest) : fmt::format("{}: {}", leaf.path, rest));
  }
}

// Returns the line by which processes compare a mesh or a leaf. An error quotes the first line that differs:
// [filter_shard] process 0 has <line>, process 1 has ...
std::string line_of(const Mesh& mesh) { return tessera::detail::words_of(mesh.impl()) + '\n'; }

std::string line_of(const Leaf& leaf, const PartitionSpec& spec) {
  return fmt::format("{}: {} as {}\n", leaf.path, leaf.value->type_string(), spec.to_string());
}

std::string lines_of(const MeshRules& mesh_rules) {
  std::string lines = line_of(mesh_rules.mesh());
  for (const Rules& table :
       {mesh_rules.rules(), mesh_rules.activations().rules(), mesh_rules.optimizer_state().rules()})
    for (const Rule& rule : table) lines += fmt::format("the rule {}\n", rule.to_string());
  return lines;
}

// Checks, before anything is placed, that all processes of the mesh make the same call.
void check_processes_agree(const Mesh& mesh, const std::string& lines) {
  tessera::detail::check_agreement("filter_shard", mesh.impl(), lines);
}

// Returns the bytes of the arrays by these rules, and by FSDP's rules if they take less.
std::string memory_of_rules(const Leaves& leaves, const MeshRules& mesh_rules) {
  const PlacementTable table = placement_table(leaves, mesh_rules);
  std::string text = largest_arrays("These rules", table);
  for (const std::string& axis : replicated_axes(table)) {
    const MeshRules fully = fsdp(mesh_rules.mesh(), axis, {.rules = mesh_rules.rules()});
    text += fmt::format("With nn::fsdp(mesh, \"{}\", {{.rules = your rules}}): {} bytes on each device.\n", axis,
                        tessera::detail::with_commas(placement_table(leaves, fully).bytes_per_device()));
  }
  return text;
}

}  // namespace

void shard_each(const Leaves& leaves, const std::vector<std::optional<NamedSharding>>& shardings) {
  check_distinct(leaves, "filter_shard");
  std::vector<std::pair<Mesh, std::string>> lines;  // the text to compare, by mesh
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].value->is_absent()) continue;
    const Mesh mesh = shardings[i]->mesh();
    if (mesh.process_count() == 1) continue;
    if (lines.empty() || lines.back().first != mesh) lines.emplace_back(mesh, line_of(mesh));
    lines.back().second += line_of(leaves[i], shardings[i]->spec());
  }
  for (const auto& [mesh, text] : lines) check_processes_agree(mesh, text);
  for (size_t i = 0; i < leaves.size(); ++i)
    if (const Leaf& leaf = leaves[i]; !leaf.value->is_absent())
      place(leaf, [&] { return place_parameter(*leaf.value, *shardings[i], leaf.path); });
}

void shard_alike(const Leaves& leaves, const NamedSharding& sharding) {
  shard_each(leaves, std::vector<std::optional<NamedSharding>>(leaves.size(), sharding));
}

void shard_by_names(const Leaves& leaves, const MeshRules& mesh_rules) try {
  check_distinct(leaves, "filter_shard");
  const std::vector<MeshRules> leaf_rules = stage_mesh_rules(leaves, mesh_rules, "filter_shard");
  if (const Mesh mesh = mesh_rules.mesh(); mesh.process_count() > 1) {
    std::string lines = lines_of(mesh_rules);
    for (size_t i = 0; i < leaves.size(); ++i)
      if (!leaves[i].value->is_absent()) lines += line_of(leaves[i], resolve(leaves[i], leaf_rules[i]).spec);
    check_processes_agree(mesh, lines);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Leaf& leaf = leaves[i];
    if (leaf.value->is_absent()) continue;
    const PartitionSpec spec = resolve(leaf, leaf_rules[i]).spec;
    place(leaf, [&] { return place_parameter(*leaf.value, leaf_rules[i], spec, leaf.path); });
  }
} catch (...) {
  if (!is_out_of_memory()) throw;
  rethrow_with_sections("filter_shard", leaves, [&] { return memory_of_rules(leaves, mesh_rules); });
}

}  // namespace tessera::nn::detail

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
