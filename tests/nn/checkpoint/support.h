// Helpers for the tests of checkpoints: a tree with every kind of leaf, folders as bytes, and threads as processes.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "nn/checkpoint/checkpoint.h"
#include "nn/placement/filter_shard.h"
#include "sharding/operations.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"
#include "tests/data/scratch_folder.h"
#include "tests/nn/support.h"

namespace tessera::nn::testing {

namespace fs = std::filesystem;
using data::ScratchFolder;

// A model with every element type that matters. Its first array is slightly larger than two chunks.
struct Saved {
  Param kernel;               // (embed, hidden), 2.3 MiB
  std::optional<Param> bias;  // (hidden)
  Param half;                 // bfloat16
  std::vector<Param> scales;  // (norm)
  Buffer count;               // int32 scalar
  Array seen;                 // bool, no names
  double rate = 0.1;
  bool trained = false;

  static Saved init(const Key& key, int64_t scales = 2) {
    const auto keys = split(key, 6);
    Saved model{.kernel = {normal(keys[0], {400, 1500}), {"embed", "hidden"}},
                .bias = Param{normal(keys[1], {1500}), {"hidden"}},
                .half = {normal(keys[2], {40, 12}, bfloat16), {"vocab", "embed"}},
                .scales = {},
                .count = {array<int32_t>(std::vector<int32_t>{7}, {}), Axes()},
                .seen = array<bool>({true, false, true})};
    for (int64_t i = 0; i < scales; ++i) model.scales.push_back({normal(keys[3 + i % 3], {20}), {"norm"}});
    return model;
  }
};

// A tree with the structure of an optimizer of that model.
struct SavedState {
  int64_t count = 0;
  Saved mu;
  Key key = Key(5);
  std::string note = "adam";
  float norm = 0.3f;
};

inline NamedState named_state_of(Saved& model, SavedState& optimizer) {
  return named_state("model", model, "optimizer", optimizer);
}

inline std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// Returns the bytes of every file in a folder and its subfolders, by relative path.
inline std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder).string()] = text_of(entry.path());
  return files;
}

inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Limits the process to this much of a resource while the object exists.
class Limit {
 public:
  Limit(decltype(RLIMIT_NOFILE) resource, rlim_t most) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    const rlimit limit{most, before_.rlim_max};
    ::setrlimit(resource_, &limit);
  }
  ~Limit() { ::setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;

 private:
  decltype(RLIMIT_NOFILE) resource_;
  rlimit before_{};
};

// Prevents the process from opening files and folders while the object exists.
class NoDescriptors {
  static rlim_t lowest_free() {
    const int free = ::dup(0);
    ::close(free);
    return static_cast<rlim_t>(free);
  }
  Limit limit_{RLIMIT_NOFILE, lowest_free()};
};

// Checks that both trees have the same values, whatever their shardings.
inline void expect_same_values(const Leaves& got, const Leaves& expected, const std::string& what) {
  ASSERT_EQ(paths_of(got), paths_of(expected)) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const Array &a = *got[i].value, &b = *expected[i].value;
    ASSERT_EQ(a.dtype(), b.dtype()) << what << ' ' << got[i].path;
    ASSERT_EQ(a.shape(), b.shape()) << what << ' ' << got[i].path;
    if (a.dtype() == int32) {
      EXPECT_EQ(a.to_host<int32_t>(), b.to_host<int32_t>()) << what << ' ' << got[i].path;
    } else if (a.dtype() == boolean) {
      EXPECT_EQ(a.to_host<bool>(), b.to_host<bool>()) << what << ' ' << got[i].path;
    } else {
      EXPECT_EQ(a.to_host<float>(), b.to_host<float>()) << what << ' ' << got[i].path;
    }
  }
}

// Processes simulated by threads of this one. They share arrays that are placed or computed already. Only one thread at
// a time may read a lazy initializer, which the first read computes.
class Crowd {
 public:
  explicit Crowd(int count) : count_(count) {}

  // Calls f(processes) in one thread per process. Returns each process's error message, "" without an error. A process
  // that has ended no longer takes part in all_ok, so the others do not wait for it.
  template <class F>
  std::vector<std::string> run(F f) {
    std::vector<std::string> errors(count_);
    std::vector<std::thread> threads;
    for (int i = 0; i < count_; ++i)
      threads.emplace_back([&, i] {
        try {
          f(Processes{.process_index = i, .num_processes = count_, .all_ok = [this](bool ok) { return all_ok(ok); }});
        } catch (const std::exception& error) {
          errors[i] = error.what();
        }
        leave();
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  bool all_ok(bool ok) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    all_ = all_ && ok;
    ++here_;
    end_round_if_all_are_here();
    changed_.wait(lock, [&] { return round_ != round; });
    return result_;
  }

  void leave() {
    const std::unique_lock lock(mutex_);
    ++left_;
    if (here_ > 0) end_round_if_all_are_here();
  }

  void end_round_if_all_are_here() {
    if (here_ + left_ < count_) return;
    result_ = all_ && left_ == 0;
    here_ = 0, all_ = true, ++round_;
    changed_.notify_all();
  }

  int count_, here_ = 0, left_ = 0, round_ = 0;
  bool all_ = true, result_ = true;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace tessera::nn::testing
