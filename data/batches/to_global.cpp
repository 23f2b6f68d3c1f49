// Derives each process's rows from the blocks of its devices, and compares the rows that processes read.
#include "data/batches/to_global.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>

#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/placement/type.h"
#include "sharding/runtime/process_group.h"

namespace tessera::data {

namespace {

using Range = std::pair<int64_t, int64_t>;

constexpr auto invalid = ErrorKind::invalid_argument;

// Returns the rows of each process, whose devices each hold a run of rows.
std::map<int, Range> rows_of_processes(const std::vector<IndexRanges>& blocks, const std::vector<int>& process_of) {
  std::map<int, std::vector<Range>> held;
  for (size_t place = 0; place < blocks.size(); ++place)
    held[process_of[place]].push_back({blocks[place].front().first, blocks[place].front().second});
  std::map<int, Range> rows;
  for (auto& [process, ranges] : held) {
    std::sort(ranges.begin(), ranges.end());
    Range all = ranges.front();
    for (const Range& next : ranges) {
      if (next.first > all.second)
        fail(invalid, "shard_of", "the rows of process {} are not contiguous; order the mesh's devices by process",
             process);
      all.second = std::max(all.second, next.second);
    }
    rows[process] = all;
  }
  return rows;
}

}  // namespace

ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec, int process, const std::vector<int>& process_of) {
  const int64_t rows = mesh.size();  // every product of mesh axes divides it
  if (static_cast<int64_t>(process_of.size()) != rows)
    fail(invalid, "shard_of", "{} processes named for a mesh of {} devices", process_of.size(), rows);
  const Shape shape(std::max<size_t>(1, spec.entries().size()), rows);
  const auto held = rows_of_processes(NamedSharding(mesh, spec).devices_indices_map(shape), process_of);
  const auto mine = held.find(process);
  if (mine == held.end()) fail(invalid, "shard_of", "process {} has no device of the mesh", process);
  std::vector<Range> distinct;
  for (const auto& [other, range] : held) distinct.push_back(range);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const int64_t each = rows / static_cast<int64_t>(distinct.size());
  for (size_t i = 0; i < distinct.size(); ++i) {
    if (distinct[i] == Range{static_cast<int64_t>(i) * each, static_cast<int64_t>(i + 1) * each}) continue;
    fail(invalid, "shard_of",
         "rows [{}, {}) of {} of some process are not one of {} equal parts: processes overlap or differ in their "
         "number of rows; order the mesh's devices by process",
         distinct[i].first, distinct[i].second, rows, distinct.size());
  }
  const auto index = std::find(distinct.begin(), distinct.end(), mine->second) - distinct.begin();
  return {static_cast<int64_t>(index), static_cast<int64_t>(distinct.size())};
}

ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec) {
  const tessera::detail::MeshImpl& impl = *mesh.impl();
  std::vector<int> process_of;
  for (int place = 0; place < mesh.size(); ++place) process_of.push_back(impl.process_of(place));
  return shard_of(mesh, spec, impl.elsewhere ? process_of[0] : impl.process, process_of);
}

// ---- rows to global arrays ------------------------------------------------------------------------------------------

namespace {

// Returns the sharding of dimension 0 alone.
NamedSharding row_sharding(const NamedSharding& sharding) {
  PartitionSpec rows;
  if (!sharding.spec().entries().empty()) rows = PartitionSpec{sharding.spec().entries()[0]};
  return {sharding.mesh(), rows};
}

// Returns the total number of rows if `local` has this process's rows.
int64_t all_rows(const Array& local, const NamedSharding& sharding) {
  return shape_from_process_local(row_sharding(sharding), {local.shape()[0]})[0];
}

Range rows_here(int64_t rows, const NamedSharding& sharding) {
  return process_local_part(row_sharding(sharding), {rows})[0];
}

// Returns the global array with `all` rows. `local` has this process's rows and is complete along the other dimensions,
// because the process's devices may store any block of these.
Array from_rows(const Array& local, const NamedSharding& sharding, int64_t all) {
  Shape shape = local.shape();
  shape[0] = all;
  const int64_t first = rows_here(all, sharding).first;
  const at::Tensor rows = to_tensor(local);
  return make_array_from_callback(shape, sharding, [&](const IndexRanges& block) {
    at::Tensor part = rows.slice(0, block[0].first - first, block[0].second - first);
    for (size_t d = 1; d < block.size(); ++d)
      part = part.slice(static_cast<int64_t>(d), block[d].first, block[d].second);
    return from_tensor(part.clone(at::MemoryFormat::Contiguous));
  });
}

// Places the array by the rules. Whether they shard the rows depends on the total number of rows, which depends on how
// the rows are sharded. So all processes start with a number that is too large, and lower it until it fits its
// sharding.
Array placed_by_rules(const nn::Leaf& leaf, const MeshRules& mesh_rules) {
  const Array& local = *leaf.value;
  const auto resolve = [&](const Shape& shape) {
    return leaf.axes ? mesh_rules.activations().resolve(*leaf.axes, shape, "from_process_local", leaf.path).spec
                     : PartitionSpec();
  };
  const Mesh mesh = mesh_rules.mesh();
  if (mesh.process_count() == 1 || local.ndim() == 0) return place_batch(local, mesh_rules, resolve(local.shape()));
  int64_t rows = local.shape()[0] * mesh.process_count();
  for (int round = 0; round < 4; ++round) {
    Shape shape = local.shape();
    shape[0] = rows;
    const NamedSharding sharding(mesh, resolve(shape));
    rows = all_rows(local, sharding);
    if (rows == shape[0]) return place_batch(from_rows(local, sharding, rows), mesh_rules, sharding.spec());
  }
  fail(ErrorKind::invalid_argument, "from_process_local",
       "{}: {} on each of {} processes are not rows of an array that the rules split consistently; give a number of "
       "rows that their mesh axes divide",
       leaf.path, local.type_string(), mesh.process_count());
}

}  // namespace

Array detail::global_array(const Array& local, const NamedSharding& sharding) {
  if (sharding.mesh().process_count() == 1 || local.ndim() == 0) return device_put(local, sharding);
  return from_rows(local, sharding, all_rows(local, sharding));
}

void detail::check_same_types(const nn::Leaves& batch, const Mesh& mesh) {
  if (mesh.process_count() == 1) return;
  std::string types;
  for (const nn::Leaf& leaf : batch)
    if (!leaf.value->is_absent()) types += (types.empty() ? "" : ", ") + leaf.path + " " + leaf.value->type_string();
  check_same_input("from_process_local", "the batch " + types, mesh);
}

void detail::make_global(const nn::Leaves& batch, const MeshRules& mesh_rules) {
  for (const nn::Leaf& leaf : batch)
    if (!leaf.value->is_absent()) *leaf.value = placed_by_rules(leaf, mesh_rules);
}

ShardByProcess::ShardByProcess(const MeshRules& mesh_rules, const std::string& batch_axis)
    : ShardOptions(shard_of(mesh_rules.mesh(),
                            mesh_rules.activations()
                                .resolve(Axes(batch_axis), {mesh_rules.mesh().size()}, "ShardByProcess", batch_axis)
                                .spec)) {}

// ---- replicas -------------------------------------------------------------------------------------------------------

std::vector<detail::ReadRows> detail::read_rows(const nn::Leaves& local, const nn::Leaves& global) {
  std::vector<ReadRows> all;
  for (size_t i = 0; i < local.size(); ++i) {
    if (local[i].value->is_absent()) continue;
    const Array& array = *global[i].value;
    const NamedSharding sharding = array.sharding();
    const at::Tensor rows = to_tensor(*local[i].value).contiguous();
    all.push_back({.array = (local[i].path.empty() ? "" : local[i].path + ": ") + array.type_string(),
                   .begin = array.ndim() == 0 ? 0 : rows_here(sharding.mesh().size(), sharding).first,
                   .checksum = crc32c({static_cast<const std::byte*>(rows.const_data_ptr()), rows.nbytes()})});
  }
  return all;
}

namespace {

// All-gathers a tensor (n, ...) of each of `processes` into (processes, n, ...).
at::Tensor from_all(const char* verb, const at::Tensor& mine, const std::vector<int>& processes) {
  std::vector<int64_t> sizes = mine.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(processes.size()));
  at::Tensor table = at::empty(sizes, at::kLong);
  tessera::detail::process_group(processes).all_gather(mine, table, {.operation = verb, .where = {}})->wait();
  return table;
}

// Returns [process, array, {begin, checksum}] of `processes`.
at::Tensor gathered(const char* verb, const std::vector<detail::ReadRows>& rows, const std::vector<int>& processes) {
  const at::Tensor mine = at::empty({static_cast<int64_t>(rows.size()), 2}, at::kLong);
  auto* to = mine.mutable_data_ptr<int64_t>();
  for (const detail::ReadRows& read : rows) *to++ = read.begin, *to++ = read.checksum;
  return from_all(verb, mine, processes);
}

}  // namespace

void detail::check_same_input(const char* verb, const std::string& input, const Mesh& mesh) {
  tessera::detail::check_agreement(verb, mesh.impl(), input);
}

std::vector<std::string> detail::gathered_texts(const char* verb, const std::string& mine, const Mesh& mesh) {
  const std::vector<int> processes = mesh.impl()->members();
  const auto size = static_cast<int64_t>(mine.size());
  const at::Tensor sizes = from_all(verb, at::full({1}, size, at::kLong), processes);
  const at::Tensor bytes = at::zeros({sizes.max().item<int64_t>() / 8 + 1}, at::kLong);
  std::memcpy(bytes.mutable_data_ptr(), mine.data(), mine.size());
  const at::Tensor all = from_all(verb, bytes, processes);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < all.size(0); ++i)
    texts.emplace_back(static_cast<const char*>(all[i].const_data_ptr()),
                       static_cast<size_t>(sizes[i].item<int64_t>()));
  return texts;
}

void detail::check_rows(const char* verb, const std::string& batch, const std::vector<ReadRows>& rows,
                        const Mesh& mesh) {
  if (mesh.process_count() == 1 || mesh.impl()->elsewhere) return;
  const std::vector<int> processes = mesh.impl()->members();
  std::string arrays = batch + "\n";
  for (const ReadRows& read : rows) arrays += read.array + "\n";
  tessera::detail::check_agreement(verb, mesh.impl(), arrays);
  const at::Tensor table = gathered(verb, rows, processes);
  const auto at = table.accessor<int64_t, 3>();
  for (int64_t i = 0; i < at.size(1); ++i) {
    std::map<int64_t, int64_t> first;  // begin of the rows -> entry of the first process that has them
    for (int64_t entry = 0; entry < at.size(0); ++entry) {
      const int64_t other = first.try_emplace(at[entry][i][0], entry).first->second;
      if (at[entry][i][1] == at[other][i][1]) continue;
      fail(ErrorKind::inconsistent, verb,
           "{}, {}: processes {} and {} hold the same rows of it and have read different ones. Give them the "
           "same files, seeds and state.",
           batch, rows[static_cast<size_t>(i)].array, processes[static_cast<size_t>(other)],
           processes[static_cast<size_t>(entry)]);
    }
  }
}

}  // namespace tessera::data
