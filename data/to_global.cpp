// Rows by process, from the blocks of its devices; and checksums of what was read.
#include "data/to_global.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "sharding/type.h"

namespace tessera::data {

namespace {

using Range = std::pair<int64_t, int64_t>;

[[noreturn]] void bad(const std::string& message) { fail(ErrorKind::bad_argument, "shard_of", message); }

std::string text_of(const Range& rows, int64_t of) {
  return "rows [" + std::to_string(rows.first) + ", " + std::to_string(rows.second) + ") of " + std::to_string(of);
}

// The rows of each process, where every device holds a run of them.
std::map<int, Range> rows_of_processes(const std::vector<IndexRanges>& blocks, const std::vector<int>& process_of) {
  std::map<int, std::vector<Range>> held;
  for (size_t place = 0; place < blocks.size(); ++place)
    held[process_of[place]].push_back({blocks[place].front().first, blocks[place].front().second});
  std::map<int, Range> rows;
  for (auto& [process, ranges] : held) {
    std::sort(ranges.begin(), ranges.end());
    Range all = ranges.front();
    for (const Range& next : ranges) {
      if (next.first > all.second) {
        bad("the rows of process " + std::to_string(process) +
            " are no run of neighbours; order the mesh's devices by process");
      }
      all.second = std::max(all.second, next.second);
    }
    rows[process] = all;
  }
  return rows;
}

template <class T>
void add(uint64_t& hash, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
}

}  // namespace

ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec, int process, const std::vector<int>& process_of) {
  const int64_t rows = mesh.size();  // every product of axes divides it
  if (static_cast<int64_t>(process_of.size()) != rows)
    bad(std::to_string(process_of.size()) + " processes named for a mesh of " + std::to_string(rows) + " devices");
  const Shape shape(std::max<size_t>(1, spec.entries().size()), rows);
  const auto held = rows_of_processes(NamedSharding(mesh, spec).devices_indices_map(shape), process_of);
  const auto mine = held.find(process);
  if (mine == held.end()) bad("process " + std::to_string(process) + " has no device of the mesh");
  std::vector<Range> distinct;
  for (const auto& [other, range] : held) distinct.push_back(range);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const int64_t each = rows / static_cast<int64_t>(distinct.size());
  for (size_t i = 0; i < distinct.size(); ++i) {
    if (distinct[i] == Range{static_cast<int64_t>(i) * each, static_cast<int64_t>(i + 1) * each}) continue;
    bad(text_of(distinct[i], rows) + " of some process are no " + std::to_string(distinct.size()) +
        "th part: processes overlap or differ in their number of rows; order the mesh's devices by process");
  }
  const auto index = std::find(distinct.begin(), distinct.end(), mine->second) - distinct.begin();
  return {static_cast<int64_t>(index), static_cast<int64_t>(distinct.size())};
}

ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec) {
  std::vector<int> process_of(static_cast<size_t>(mesh.size()), 0);
  for (int place = 0; mesh.process_count() > 1 && place < mesh.size(); ++place)
    process_of[static_cast<size_t>(place)] = mesh.impl()->process_of(place);
  return shard_of(mesh, spec, mesh.process_index(), process_of);
}

// Whether the rules cut a dim depends on its global size, which depends on how it is cut: a guess that is too large, by
// all processes, shrinks until both agree.
Array detail::global_array(const nn::Leaf& leaf, const Layout& layout) {
  const Array& local = *leaf.value;
  const auto resolve = [&](const Shape& shape) {
    return leaf.axes ? layout.activations().resolve(*leaf.axes, shape, "from_process_local", leaf.path).spec
                     : PartitionSpec();
  };
  const Mesh mesh = layout.mesh();
  if (mesh.process_count() == 1) return place_batch(local, layout, resolve(local.shape()));
  Shape shape = local.shape();
  for (int64_t& size : shape) size *= mesh.process_count();
  for (int round = 0; round < 4; ++round) {
    const NamedSharding sharding(mesh, resolve(shape));
    const Shape global = shape_from_process_local(sharding, local.shape());
    if (global == shape)
      return place_batch(make_array_from_process_local_data(sharding, local, global), layout, sharding.spec());
    shape = global;
  }
  fail(ErrorKind::bad_argument, "from_process_local",
       leaf.path + ": " + local.type_string() + " on each of " + std::to_string(mesh.process_count()) +
           " processes is no part of an array that the rules cut alike; give the dims sizes that their mesh axes "
           "divide");
}

ShardByProcess::ShardByProcess(const Layout& layout, const std::string& rows)
    : ShardOptions(
          shard_of(layout.mesh(),
                   layout.activations().resolve(Axes(rows), {layout.mesh().size()}, "ShardByProcess", rows).spec)) {}

uint64_t detail::checksum_of(const nn::Leaves& leaves) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const nn::Leaf& leaf : leaves) {
    add(hash, std::span<const char>(leaf.path));
    if (leaf.value->is_absent()) continue;
    const at::Tensor tensor = to_tensor(*leaf.value).contiguous();
    const std::string type = leaf.value->type_string();
    add(hash, std::span<const char>(type));
    add(hash, std::span(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()));
  }
  return hash;
}

void check_replicas(std::span<const ReplicaChecksum> checksums) {
  for (size_t i = 0; i < checksums.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (checksums[i].shard != checksums[j].shard || checksums[i].checksum == checksums[j].checksum) continue;
      fail(ErrorKind::inconsistent, "check_replicas",
           "processes " + std::to_string(checksums[j].process) + " and " + std::to_string(checksums[i].process) +
               " both read " + to_string(checksums[i].shard) +
               ", and their rows differ; give them the same files, seeds and state");
    }
  }
}

}  // namespace tessera::data
