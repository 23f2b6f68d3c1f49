// checkpoint_writer FOLDER INDEX COUNT FILE: one of several processes that save the same values under every sharding.
//
// The processes synchronize through FILE, which is mapped as shared memory and initially zero. Each sharding is saved
// to FOLDER/<its name>.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include "nn/checkpoint/checkpoint.h"
#include "nn/placement/filter_shard.h"
#include "sharding/operations.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"

namespace {

using namespace tessera;

struct Shared {
  std::atomic<int> here, round, failed, ok[2];
};
static_assert(std::atomic<int>::is_always_lock_free);

// Returns whether all processes passed true. Throws if a process does not arrive within two minutes.
class Agreement {
 public:
  Agreement(const char* file, int count) : count_(count) {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, ::open(file, O_RDWR), 0);
    if (memory == MAP_FAILED) throw std::runtime_error(fmt::format("{} cannot be mapped", file));
    shared_ = static_cast<Shared*>(memory);
  }

  bool operator()(bool ok) const {
    const int round = shared_->round;
    if (!ok) shared_->failed = 1;
    if (++shared_->here == count_) {
      shared_->ok[round % 2] = !shared_->failed.exchange(0);
      shared_->here = 0;
      ++shared_->round;
    }
    const auto last = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (shared_->round == round) {
      if (std::chrono::steady_clock::now() > last) throw std::runtime_error("a process is missing");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return shared_->ok[round % 2];
  }

 private:
  Shared* shared_;
  int count_;
};

struct Model {
  nn::Param table, up, half, scale;
  nn::Buffer count;  // a scalar
  Array seen;        // no names

  static Model init(const Key& key) {
    const auto [k1, k2, k3, k4] = split<4>(key);
    return {.table = {normal(k1, {96, 64}), {"vocab", "embed"}},
            .up = {normal(k2, {64, 9000}), {"embed", "hidden"}},  // slightly larger than two chunks
            .half = {normal(k3, {9000 / 5, 64}, bfloat16), {"hidden", "embed"}},
            .scale = {normal(k4, {40}), {"norm"}},
            .count = {array<int32_t>(std::vector<int32_t>{7}, {}), Axes()},
            .seen = array<bool>({true, false, true})};
  }
};

void save_all(const std::filesystem::path& folder, const nn::Processes& processes) {
  const struct {
    const char* name;
    std::vector<MeshAxis> mesh;
    Rule embed, hidden;
  } placements[] = {
      {"one", {{"data", 1}}, {"embed", replicated}, {"hidden", replicated}},
      {"dp8", {{"data", 8}}, {"embed", replicated}, {"hidden", replicated}},
      {"fsdp8", {{"data", 8}}, {"embed", "data"}, {"hidden", replicated}},
      {"tp8", {{"model", 8}}, {"embed", replicated}, {"hidden", "model"}},
      {"2x4", {{"data", 2}, {"model", 4}}, {"embed", "data"}, {"hidden", "model"}},
  };
  for (const auto& [name, mesh, embed, hidden] : placements) {
    const MeshRules mesh_rules(make_mesh(mesh),
                               {{"batch", "data"}, embed, hidden, {"vocab", hidden.mesh_axes}, {"norm", replicated}},
                               {.missing_axes = MissingAxes::ok});
    Model model = nn::filter_shard(Model::init(Key(1)), mesh_rules),
          moments = nn::filter_shard(Model::init(Key(2)), mesh_rules);
    nn::Checkpointer checkpoints(folder / name, {.max_file_bytes = 2 << 20, .processes = processes});
    checkpoints.save(12, nn::named_state("model", model, "optimizer", moments),
                     {.extra = {{"loader", R"({"next": 3})"}}});
    checkpoints.wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw std::runtime_error("FOLDER INDEX COUNT FILE expected");
    const int index = std::atoi(argv[2]), count = std::atoi(argv[3]);
    save_all(argv[1], {.process_index = index, .num_processes = count, .all_ok = Agreement(argv[4], count)});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
