// Input for several processes: each reads its slice of every global batch, and any number of processes can resume.
//
// In JAX with Grain, jax.process_index() and process_count() identify the process, and ShardByJaxProcess selects its
// slice. Here one program runs the processes one after another.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/sources.h>

using namespace tessera;
using data::Loader, data::LoaderState, data::ShardOptions;

namespace {

// Prints the contiguous slice that ShardByJaxProcess gives to each process.
void print_slices(int64_t records, int64_t processes, bool drop_remainder) {
  fmt::print("{} records over {} processes, drop_remainder={}:", records, processes, drop_remainder);
  for (int64_t i = 0; i < processes; ++i) {
    const auto [begin, end] = data::even_split(records, {i, processes, drop_remainder});
    fmt::print(" [{}, {})", begin, end);
  }
  fmt::print("\n");
}

using Rows = std::vector<int64_t>;

auto open_loader(const ShardOptions& shard) {
  const auto records = data::range(48).shuffle(42).repeat();  // the loader shards after the shuffle
  return Loader(records, data::as_vector, {.batch_size = 12, .shard = shard, .num_threads = 2});
}

// Returns the next global batches after `state`, as `count` processes read them, and advances `state`.
std::vector<Rows> global_batches(LoaderState& state, int64_t count, size_t batches) {
  std::vector<Rows> joined(batches);
  LoaderState after;
  for (int64_t process = 0; process < count; ++process) {
    auto loader = open_loader({process, count});
    loader.restore(state);
    for (Rows& batch : joined) {
      const Rows local = *loader.next();
      batch.insert(batch.end(), local.begin(), local.end());
    }
    after = loader.state();
  }
  state = after;
  return joined;
}

// Compares 1, then 2, 4 and 3 processes, each resuming where the others stopped, with one that never stops.
bool resumes_on_any_number_of_processes() {
  LoaderState state;
  auto alone = open_loader({0, 1});
  bool equal = true;
  for (const int64_t count : {1, 2, 4, 3}) {
    const auto batches = global_batches(state, count, 2);
    for (const Rows& batch : batches) equal = equal && batch == *alone.next();
    fmt::print("{} process{}: {}, ...\n", count, count == 1 ? "  " : "es", fmt::join(batches.front(), " "));
  }
  fmt::print("state: {}\n", state.to_json());
  return equal;
}

// Prints which rows each of eight processes with one device reads, on different meshes of the same devices.
void print_shards(int64_t data, int64_t model) {
  const Mesh mesh = make_mesh({{"batch", data}, {"model", model}});
  const std::vector<int> process_of = {0, 1, 2, 3, 4, 5, 6, 7};
  fmt::print("mesh {}: processes read parts", mesh.to_string());
  for (const int process : process_of) {
    const ShardOptions shard = data::shard_of(mesh, P{"batch"}, process, process_of);
    fmt::print(" {}/{}", shard.index, shard.count);
  }
  fmt::print("\n");
}

void print_global_batch() {
  const MeshRules mesh_rules{make_mesh({{"batch", 4}, {"model", 2}}), {{"batch", "batch"}, {"seq", replicated}}};
  const auto text = data::ByteSource::from_string("Distributed training only helps if accelerators stay fed.");
  Loader loader = data::shard_batches(Loader(data::windows(text, 9).shuffle(0).repeat(), data::token_batch,
                                             {.batch_size = 8, .shard = data::ShardByProcess(mesh_rules)}),
                                      mesh_rules);
  const data::TokenBatch batch = *loader.next();
  fmt::print("inputs {}, targets {}\n", batch.inputs.value.type_string(), batch.targets.value.type_string());
}

}  // namespace

int main() {
  for (const auto& [records, processes] : {std::pair{16, 4}, {10, 4}, {8, 1}})
    for (const bool drop_remainder : {false, true}) print_slices(records, processes, drop_remainder);
  for (const auto& [data, model] : {std::pair{4, 2}, {2, 4}, {1, 8}, {8, 1}}) print_shards(data, model);
  print_global_batch();
  const bool equal = resumes_on_any_number_of_processes();
  fmt::print("every global batch as if never stopped: {}\n", equal ? "yes" : "no");
  return equal ? 0 : 1;
}
