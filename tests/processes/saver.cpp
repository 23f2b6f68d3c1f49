// Saves steps 1 and 2 from several processes, one of which dies: saver FOLDER VICTIM PATH.
//
// The process VICTIM is killed as soon as PATH appears in FOLDER, for example 2.tmp or 2.tmp/checksums-1.
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>

#include "nn/checkpoint/checkpoint.h"
#include "nn/placement/filter_shard.h"
#include "sharding/random/random.h"
#include "sharding/runtime/processes.h"

namespace {

using namespace tessera;

struct Model {
  nn::Param up, down;
  int64_t seen = 0;

  static Model init(const Key& key) {
    const auto [k1, k2] = split<2>(key);
    return {.up = {normal(k1, {768, 4096}), {"embed", "hidden"}},
            .down = {normal(k2, {4096, 768}), {"hidden", "embed"}}};
  }
};

void die_when_there(const std::filesystem::path& path) {
  std::thread([path] {
    std::error_code ignored;
    while (!std::filesystem::exists(path, ignored)) std::this_thread::yield();
    ::raise(SIGKILL);
  }).detach();
}

void save_two(const std::filesystem::path& folder, int victim, const char* when) {
  const MeshRules mesh_rules(make_mesh({{"data", 2 * process_count()}}), {{"embed", "data"}, {"hidden", replicated}});
  Model model = nn::filter_shard(Model::init(Key(1)), mesh_rules);
  nn::Checkpointer checkpoints(folder);
  checkpoints.save(1, nn::named_state("model", model));
  checkpoints.wait();
  if (process_index() == victim) die_when_there(folder / when);
  checkpoints.save(2, nn::named_state("model", model));
  checkpoints.wait();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    initialize();
    if (argc == 4) save_two(argv[1], std::atoi(argv[2]), argv[3]);
    return argc == 4 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
