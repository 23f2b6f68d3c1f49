// Compares saving and restoring with plain write + fsync and plain read of the same bytes: checkpoint [MiB] [DIR].
//
// The measurements alternate in one run; the figures are medians. The arrays are a model and two moments over 8
// devices. While a save is running, every array is updated once, as in a training run.
#include "nn/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "nn/placement/filter_shard.h"
#include "optim/optimizer.h"
#include "sharding/operations.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;
using benchmarks::median, benchmarks::seconds_of;
namespace fs = std::filesystem;

constexpr int rounds = 7;
constexpr int64_t rows = 1024, columns = 1024, matrix_bytes = rows * columns * 4;

struct Model {
  std::vector<nn::Param> kernels;

  static Model init(const Key& key, int64_t count) {
    Model model;
    for (const Key& k : split(key, count)) model.kernels.push_back({normal(k, {rows, columns}), {"embed", "hidden"}});
    return model;
  }
};

// Returns this process's memory without the page cache, in MiB: the peak since the last reset, or the present value.
double memory(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return std::strtod(line.c_str() + std::string(field).size() + 1, nullptr) / 1024;
  return 0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

void check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

double plain_write(const fs::path& file, const std::vector<char>& bytes) {
  return seconds_of([&] {
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    check(fd >= 0, "open");
    for (size_t at = 0; at < bytes.size(); at += matrix_bytes)
      check(::write(fd, bytes.data() + at, matrix_bytes) == matrix_bytes, "write");
    check(::fsync(fd) == 0, "fsync");
    ::close(fd);
  });
}

double plain_read(const fs::path& file, int64_t size) {
  return seconds_of([&] {
    const int fd = ::open(file.c_str(), O_RDONLY);
    std::vector<void*> blocks;
    for (int64_t at = 0; at < size; at += matrix_bytes) {
      blocks.push_back(std::malloc(matrix_bytes));
      check(::read(fd, blocks.back(), matrix_bytes) == matrix_bytes, "read");
    }
    for (void* block : blocks) std::free(block);
    ::close(fd);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t mib = argc > 1 ? std::atoll(argv[1]) : 216;
  const fs::path folder = fs::path(argc > 2 ? argv[2] : ".") / "checkpoint_benchmark";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const int64_t count = std::max<int64_t>(1, mib * (1 << 20) / (3 * matrix_bytes)), bytes = 3 * count * matrix_bytes;
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}), {{"embed", "data"}, {"hidden", "model"}}};
  auto model = nn::filter_shard(Model::init(Key(0), count), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}));
  const Model grads = model;
  optimizer.update(model, grads);
  std::vector<char> plain(static_cast<size_t>(bytes));
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<char>(i * 2654435761u >> 13);

  std::vector<double> write, save, blocked, read, restored, save_memory, restore_memory;
  for (int round = 0; round < rounds; ++round) {
    write.push_back(plain_write(folder / "plain", plain));
    ::sync();
    nn::Checkpointer checkpoints(folder / "run", {.keep = {.latest = 1}});
    const auto begin = [&](int64_t step) {
      checkpoints.save(step, nn::named_state("model", model, "optimizer", optimizer));
    };
    save.push_back(seconds_of([&] {
      blocked.push_back(seconds_of([&] { begin(2 * round); }));
      checkpoints.wait();
    }));
    reset_peak();
    const double before = memory("VmRSS:");
    begin(2 * round + 1);
    optimizer.update(model, grads);
    checkpoints.wait();
    save_memory.push_back(memory("VmHWM:") - before);
    ::sync();
    read.push_back(plain_read(folder / "plain", bytes));
    Model other = Model::init(Key(1), count), mu = other, nu = other;
    reset_peak();
    const double empty = memory("VmRSS:");
    restored.push_back(seconds_of([&] {
      nn::restore(folder / "run", nn::named("model", other, "optimizer.state.0.mu", mu, "optimizer.state.0.nu", nu),
                  {.mesh_rules = mesh_rules, .ignore_unused = true});
    }));
    restore_memory.push_back(memory("VmHWM:") - empty - static_cast<double>(bytes) / (1 << 20));
  }
  fs::remove_all(folder);
  const double w = median(write), r = median(read);
  std::printf("%.0f MiB in %lld arrays on 8 devices (fsdp and tensor parallel), %d rounds, medians\n",
              static_cast<double>(bytes) / (1 << 20), static_cast<long long>(3 * count), rounds);
  std::printf("write + fsync   %7.3f s\nsave            %7.3f s  %.2f of it\n", w, median(save), median(save) / w);
  std::printf("blocked         %7.3f s  %.3f of write + fsync\n", median(blocked), median(blocked) / w);
  std::printf("read            %7.3f s\nrestore         %7.3f s  %.2f of it\n", r, median(restored),
              median(restored) / r);
  std::printf("memory above the arrays: save %.0f MiB, restore %.0f MiB\n",
              *std::max_element(save_memory.begin(), save_memory.end()),
              *std::max_element(restore_memory.begin(), restore_memory.end()));
}
