// Compares the loader with a bare loop and with Grain: shuffled windows of 256 bytes into batches of 32.
//
//   loader [PYTHON]      the interpreter that runs Grain; default python3
//
// The loaders alternate in many short rounds, over one file of 64 MB in the page cache; figures are medians. "bytes":
// rows of 256 bytes in one block of memory. "tokens": inputs and targets of 256 int32 each, for a language model.
#include "data/loader.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "data/batches/stack.h"
#include "data/batches/token_batch.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;
using benchmarks::median;
using namespace tessera::data;

constexpr int64_t window = 256, batch_size = 32, file_bytes = 64 << 20, batches = 2000, rounds = 15;

class BenchmarkFile {
 public:
  BenchmarkFile() : path_(std::filesystem::temp_directory_path() / ("tessera_loader_" + std::to_string(::getpid()))) {
    Philox random(1, 0, 0);
    std::vector<uint64_t> words(file_bytes / 8);
    for (auto& word : words) word = random();
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(words.data()), file_bytes);
  }
  ~BenchmarkFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

volatile uint64_t sink = 0;  // prevents the compiler from removing reads

// Returns the seconds of `batches` calls.
double seconds(const std::function<void()>& next) {
  return benchmarks::seconds_of([&] {
    for (int64_t i = 0; i < batches; ++i) next();
  });
}

// The bare loop: the same order and bytes without layers; rows are appended to `out`.
class BareLoop {
 public:
  BareLoop(const ByteSource& source, int64_t length) : bytes_(static_cast<size_t>(source.size())) {
    source.read(0, bytes_);
    count_ = (static_cast<int64_t>(bytes_.size()) - length) / window + 1;
  }

  template <class Copy>
  void next(Copy copy) {
    for (int64_t row = 0; row < batch_size; ++row) {
      if (at_ % count_ == 0) order_ = Permutation(count_, epoch_seed(1, at_ / count_));
      copy(row, bytes_.data() + order_(at_++ % count_) * window);
    }
  }

 private:
  std::vector<uint8_t> bytes_;
  int64_t count_ = 0, at_ = 0;
  Permutation order_{1, 0};
};

void print(const char* what, double bare, const std::vector<std::pair<const char*, double>>& loaders) {
  const auto mtokens = [](double s) { return static_cast<double>(batches * batch_size * window) / s / 1e6; };
  std::printf("%-8s %-34s %9.0f\n", what, "bare loop", mtokens(bare));
  for (const auto& [name, s] : loaders)
    std::printf("%-8s %-34s %9.0f  1/%.2f of the bare loop\n", what, name, mtokens(s), s / bare);
}

// Runs the bare loop and each loader alternately.
template <class Make>
void compare(const char* what, const std::function<void()>& bare, Make make) {
  auto alone = make(LoaderOptions{.batch_size = batch_size, .prefetch = 0});
  auto ahead = make(LoaderOptions{.batch_size = batch_size, .prefetch = 4, .num_threads = 1});
  std::vector<double> of_bare, of_alone, of_ahead;
  for (int64_t round = 0; round < rounds; ++round) {
    of_bare.push_back(seconds(bare));
    of_alone.push_back(seconds([&] { alone.next(); }));
    of_ahead.push_back(seconds([&] { ahead.next(); }));
  }
  print(what, median(of_bare),
        {{"loader, no thread", median(of_alone)}, {"loader, one thread ahead of use", median(of_ahead)}});
}

}  // namespace

int main(int argc, char** argv) {
  const BenchmarkFile file;
  const auto source = ByteSource::open({file.path()});
  std::printf("%-8s %-34s %9s\n", "", "", "Mtokens/s");

  BareLoop bytes(source, window);
  std::vector<uint8_t> block(batch_size * window);
  compare(
      "bytes",
      [&] {
        bytes.next([&](int64_t row, const uint8_t* from) { std::memcpy(block.data() + row * window, from, window); });
        sink = sink + block[17];
      },
      [&](const LoaderOptions& o) { return Loader(windows(source, window, window).shuffle(1).repeat(), stack, o); });

  BareLoop tokens(source, window + 1);
  std::vector<int32_t> inputs(batch_size * window), targets(inputs.size());
  compare(
      "tokens",
      [&] {
        tokens.next([&](int64_t row, const uint8_t* from) {
          std::copy_n(from, window, inputs.data() + row * window);
          std::copy_n(from + 1, window, targets.data() + row * window);
        });
        sink = sink + static_cast<uint64_t>(inputs[17] + targets[18]);
      },
      [&](const LoaderOptions& o) { return Loader(windows(source, window + 1).shuffle(1).repeat(), token_batch, o); });

  std::fflush(stdout);
  const std::string python = argc > 1 ? argv[1] : "python3";
  return std::system((python + " " + TESSERA_BENCHMARKS_DIR + "/loader_grain.py " + file.path()).c_str()) == 0 ? 0 : 1;
}
