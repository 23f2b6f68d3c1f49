// Checkpoints of several processes: the files of one process, restored to any sharding, by all processes or by none.
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "nn/checkpoint/hugging_face.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/gguf.h"
#include "nn/models/pretrained.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/consensus.h"
#include "tests/nn/checkpoint/support.h"
#include "tests/processes/ways.h"

namespace tessera::nn::testing::checkpoints_test {
namespace {

using tessera::testing::on_every_way;

// A folder that all processes share until the test ends. Its name is the process id of their launcher, which all
// processes on a machine have in common.
class SharedFolder {
 public:
  SharedFolder() : path_(fs::temp_directory_path() / fmt::format("tessera_checkpoints_{}", ::getppid())) {
    if (process_index() == 0) {
      fs::remove_all(path_);
      fs::create_directories(path_);
    }
    wait_for_all();
  }
  ~SharedFolder() {
    wait_for_all();
    if (process_index() == 0) fs::remove_all(path_);
  }

  fs::path operator/(const std::string& name) const { return path_ / name; }
  void wait_for_all() { votes_.all(true); }

 private:
  fs::path path_;
  tessera::detail::Votes votes_{"test", "shared folder"};
};

class ProcessCheckpoints : public ::testing::Test {
 protected:
  // Returns the files that a single process saves of unplaced values. All processes may read them afterwards.
  std::map<std::string, std::string> files_of_one() {
    if (process_index() == 0) {
      Checkpointer checkpoints(folder_ / "one", {.max_file_bytes = 1 << 20, .processes = {.num_processes = 1}});
      checkpoints.save(12, named_state_of(model_, optimizer_), {.extra = {{"loader", R"({"next": 3})"}}});
    }
    folder_.wait_for_all();
    return files_of(folder_ / "one");
  }

  static MeshRules mesh_rules_on(const Mesh& mesh, bool cut) {
    const std::vector<std::string> embed = cut ? std::vector<std::string>{"a"} : std::vector<std::string>();
    return {mesh,
            {{"embed", embed}, {"embed", replicated}, {"hidden", "b"}, {"vocab", replicated}, {"norm", replicated}},
            {.missing_axes = MissingAxes::ok}};
  }

  // Returns the message of the error that `call` throws on this process; "" without an error.
  template <class F>
  static std::string error_of(F call) {
    try {
      call();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  Saved model_ = Saved::init(Key(1));
  SavedState optimizer_{.count = 41, .mu = Saved::init(Key(2))};
  SharedFolder folder_;
};

void expect_values(const Leaves& got, const Leaves& expected) {
  ASSERT_EQ(paths_of(got), paths_of(expected));
  for (size_t i = 0; i < got.size(); ++i) {
    Array whole = gather(*got[i].value);
    expect_same_values({{.path = got[i].path, .value = &whole}}, {{.path = got[i].path, .value = expected[i].value}},
                       got[i].path);
  }
}

TEST_F(ProcessCheckpoints, BytesAreThoseOfOneProcessAndComeBackOnEveryWay) {
  const auto expected = files_of_one();
  EXPECT_TRUE(expected.contains("12/params/model-00002-of-00002.safetensors"));
  int number = 0;
  on_every_way([&](Mesh mesh, Mesh) {
    for (const bool cut : {false, true}) {
      const MeshRules mesh_rules = mesh_rules_on(mesh, cut);
      Saved model = filter_shard(model_, mesh_rules);
      SavedState optimizer = optimizer_;
      optimizer.mu = filter_shard(optimizer_.mu, mesh_rules);
      const fs::path to = folder_ / std::to_string(number++);
      {
        Checkpointer checkpoints(to, {.max_file_bytes = 1 << 20, .max_pending_bytes = process_index() * 100'000});
        checkpoints.save(12, named_state_of(model, optimizer), {.extra = {{"loader", R"({"next": 3})"}}});
      }
      EXPECT_TRUE(files_of(to) == expected);

      Saved other = filter_shard(Saved::init(Key(8)), mesh_rules), recipes = Saved::init(Key(9));
      SavedState state{.count = 0, .mu = filter_shard(Saved::init(Key(7)), mesh_rules), .key = {}};
      EXPECT_EQ(restore(folder_ / "one", named_state_of(other, state)).step, 12);
      expect_values(leaves(other), leaves(model_));
      expect_values(leaves(state.mu), leaves(optimizer_.mu));
      EXPECT_EQ(state.count, 41);
      EXPECT_EQ(other.kernel.value.type_string(), model.kernel.value.type_string());
      restore(to, named_state("model", recipes), {.mesh_rules = mesh_rules, .ignore_unused = true});
      expect_values(leaves(recipes), leaves(model_));
      folder_.wait_for_all();
    }
  });
  std::cout << number << " placements\n";
}

// The first and the last fields of Llama.
struct Llama {
  Embedding embed;
  RMSNorm final_norm;
  Linear head;

  static Llama init(const Key& key) {
    const auto [k1, k2] = split<2>(key);
    return {.embed = Embedding::init(k1, {"vocab", 16}, {"embed", 8}),
            .final_norm = RMSNorm::init({"norm", 8}),
            .head = Linear::init(k2, {"embed", 8}, {"vocab", 16}, {.bias = false})};
  }
};

void save_llama(const fs::path& folder, Llama& model, int64_t max_file_bytes = 600) {
  save_pretrained(folder, hugging_face_names({.model_type = "llama"}), leaves(model), max_file_bytes);
}

TEST_F(ProcessCheckpoints, HuggingFacesFilesAreThoseOfOneProcess) {
  Llama model = Llama::init(Key(1));
  if (process_index() == 0) save_llama(folder_ / "one", model);
  folder_.wait_for_all();
  const auto expected = files_of(folder_ / "one");
  EXPECT_EQ(expected.size(), 3u) << "two files and an index";
  int number = 0;
  on_every_way([&](Mesh mesh, Mesh) {
    Llama placed = filter_shard(model, mesh_rules_on(mesh, true)), other = Llama::init(Key(2));
    const fs::path to = folder_ / std::to_string(number++);
    save_llama(to, placed);
    EXPECT_TRUE(files_of(to) == expected);
    Llama loaded = filter_shard(other, mesh_rules_on(mesh, true));
    load_pretrained(to, hugging_face_names({.model_type = "llama"}), leaves(loaded));
    expect_values(leaves(loaded), leaves(model));
    folder_.wait_for_all();
  });
}

TEST_F(ProcessCheckpoints, AGgufFileIsThatOfOneProcess) {
  const CausalLM model = CausalLM::init(Key(0), {});
  if (process_index() == 0) {
    fs::create_directories(folder_ / "one");
    fs::create_directories(folder_ / "all");
    save_gguf(folder_ / "one/x.gguf", model);
  }
  folder_.wait_for_all();
  const Mesh mesh = make_mesh({{"model", process_count()}});
  save_gguf(folder_ / "all/x.gguf", filter_shard(model, MeshRules{mesh, decoder_rules(mesh)}));
  EXPECT_TRUE(read_text(folder_ / "all/x.gguf", "test") == read_text(folder_ / "one/x.gguf", "test"));
}

TEST_F(ProcessCheckpoints, TwoAreSavedAtOnceWhileTheProgramComputes) {
  const Mesh mesh = make_mesh({{"a", process_count()}, {"b", 2}});
  Saved model = filter_shard(model_, mesh_rules_on(mesh, true));
  Checkpointer first(folder_ / "first"), second(folder_ / "second", {.keep = {.latest = 1}});
  for (int64_t step = 1; step <= 3; ++step) {
    first.save(step, named_state("model", model));
    second.save(step, named_state("model", model));
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(gather(sum(model.kernel.value * 0.0)).item<float>(), 0.0f) << "a collective while files are written";
  }
  first.wait();
  second.wait();
  folder_.wait_for_all();
  EXPECT_EQ(checkpoint_steps(folder_ / "first"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(names_in(folder_ / "second"), (std::vector<std::string>{".lock", "3"}));
}

// ---- all or none

constexpr int odd_one = 1;  // the process that differs from the others
bool is_odd_one() { return process_index() == odd_one; }

class OddOne : public ProcessCheckpoints {
 protected:
  void SetUp() override {
    if (process_count() == 1) GTEST_SKIP() << "one process: none is different";
  }

  // Restoring from `path` fails on each process with `words`, and changes nothing.
  void expect_refused(const fs::path& path, const std::string& words) {
    Saved model = filter_shard(Saved::init(Key(5)), mesh_rules_on(make_mesh({{"a", process_count()}}), true));
    model.rate = 7;
    const Array kernel = model.kernel.value;
    const std::string error = error_of([&] { restore(path, named_state("model", model)); });
    EXPECT_NE(error.find(words), std::string::npos) << error;
    EXPECT_TRUE(model.kernel.value.is_same(kernel) && model.rate == 7) << error;
  }

  // Saves two checkpoints with different values, equal on all processes.
  void save_two() {
    Saved model = filter_shard(model_, mesh_rules_on(make_mesh({{"a", process_count()}}), true));
    Checkpointer checkpoints(folder_ / "run");
    for (const int64_t step : {1, 2}) {
      model.rate = static_cast<double>(step);
      checkpoints.save(step, named_state("model", model));
    }
  }
};

const char* const kAnother = "another process could not restore its part. Its own error gives the reason.";

TEST_F(OddOne, ThatWouldRestoreAnotherStepIsFound) {
  save_two();
  expect_refused(folder_ / (is_odd_one() ? "run/1" : "run/2"), ": process 0 has step 2, of checksum ");
  expect_refused(is_odd_one() ? folder_ / "nowhere" : folder_ / "run",
                 is_odd_one() ? "no complete checkpoint is here" : kAnother);
}

TEST_F(OddOne, WhoseFilesAreDamagedRefusesForAll) {
  save_two();
  const fs::path mine = folder_ / fmt::format("copy{}", process_index());
  fs::copy(folder_ / "run/2", mine, fs::copy_options::recursive);
  const fs::path tensors = mine / "params/model-00001-of-00001.safetensors";
  if (is_odd_one()) {
    std::string bytes = text_of(tensors);
    bytes.back() = static_cast<char>(~bytes.back());
    overwrite(tensors, bytes);
  }
  expect_refused(mine, is_odd_one() ? "the file is damaged" : kAnother);
  fs::remove(tensors);
  expect_refused(mine, "it cannot be opened");
}

TEST_F(OddOne, ThatSeesAnotherFolderIsFoundAtTheStart) {
  save_two();
  const fs::path mine = folder_ / (is_odd_one() ? "elsewhere" : "run");
  EXPECT_EQ(error_of([&] { Checkpointer checkpoints(mine); }),
            fmt::format("[save] {}: process 0 has 2 there, the last of step 2, process 1 has no checkpoint there. Give "
                        "all processes one folder, on a filesystem that they share.",
                        mine.string()));
}

TEST_F(OddOne, ThatCannotListTheFolderFailsAllAtTheStart) {
  save_two();
  std::optional<NoDescriptors> none;
  if (is_odd_one()) none.emplace();
  const std::string error = error_of([&] { Checkpointer checkpoints(folder_ / "run"); });
  none.reset();
  const char* const words = is_odd_one() ? "this folder cannot be listed" : "another process could not save its part";
  EXPECT_NE(error.find(words), std::string::npos) << error;
}

TEST_F(OddOne, ThatMayNotWriteToTheFolderFailsAllAtTheStart) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  save_two();
  constexpr uid_t nobody = 65534;
  ASSERT_EQ(::seteuid(is_odd_one() ? nobody : 0), 0);
  const std::string error = error_of([&] { Checkpointer checkpoints(folder_ / "run"); });
  ASSERT_EQ(::seteuid(0), 0);
  const char* const words =
      is_odd_one() ? "run: it cannot be written to (Permission denied)" : "another process could not save its part";
  EXPECT_NE(error.find(words), std::string::npos) << error;
}

TEST_F(OddOne, WhoseSaveFailsFailsAllAndTheNextSaveIsWhole) {
  Saved model = filter_shard(model_, mesh_rules_on(make_mesh({{"a", process_count()}}), true));
  Checkpointer checkpoints(folder_ / "run");
  const std::string error = error_of([&] { checkpoints.save(is_odd_one() ? -1 : 1, named_state("model", model)); });
  EXPECT_NE(error.find(is_odd_one() ? "step -1 given" : "another process could not save its part"), std::string::npos)
      << error;
  checkpoints.save(2, named_state("model", model));
  checkpoints.wait();
  EXPECT_EQ(names_in(folder_ / "run"), (std::vector<std::string>{".lock", "2"}));
}

// The other processes must not wait in the reduction of the partial sum.
TEST_F(OddOne, WhoseMetricsAreNoNumbersFailsAllAlsoWithPartialSums) {
  const Mesh mesh = make_mesh({{"a", process_count()}});
  const Array pending = sum(device_put(ones({process_count(), 2}), NamedSharding(mesh, P{"a"})), {0});
  Array x = pending;
  Checkpointer checkpoints(folder_ / "run");
  const std::string error = error_of([&] {
    checkpoints.save(1, named("x", x), {.metrics = {{"loss", is_odd_one() ? NAN : 1.0}}});
  });
  EXPECT_NE(error.find(is_odd_one() ? "nan given" : "another process could not save its part"), std::string::npos)
      << error;
  checkpoints.save(2, named("x", x));
  checkpoints.wait();
  restore(folder_ / "run", named("x", x));
  EXPECT_EQ(x.to_host<float>(), std::vector<float>(2, static_cast<float>(process_count())));
}

TEST_F(OddOne, WithAnotherModelIsFoundBeforeHuggingFacesFilesAreWritten) {
  Llama model = filter_shard(Llama::init(Key(1)), mesh_rules_on(make_mesh({{"a", process_count()}}), true));
  const std::string error = error_of([&] { save_llama(folder_ / "theirs", model, is_odd_one() ? 1 << 20 : 600); });
  EXPECT_NE(error.find(": process 0 has 3 tensors in 2 files, mark "), std::string::npos) << error;
  EXPECT_NE(error.find(", process 1 has 3 tensors in 1 files, mark "), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(folder_ / "theirs"));
}

TEST_F(OddOne, ThatCannotWriteHuggingFacesFilesFailsAll) {
  Llama model = filter_shard(Llama::init(Key(1)), mesh_rules_on(make_mesh({{"a", process_count()}}), true));
  if (process_index() == 0) overwrite(folder_ / "file", "in the way");
  folder_.wait_for_all();
  const std::string error = error_of([&] { save_llama(folder_ / "file/theirs", model); });
  EXPECT_NE(error.find(process_index() == 0 ? "[save_pretrained] " : "another process could not save its part"),
            std::string::npos)
      << error;
  save_llama(folder_ / "theirs", model);  // all are in step
  folder_.wait_for_all();
  EXPECT_EQ(files_of(folder_ / "theirs").size(), 3u);
}

TEST_F(OddOne, WhoseOptionsAreWrongFailsAllAtTheStart) {
  const std::string error =
      error_of([&] { Checkpointer(folder_ / "run", {.keep = {.latest = is_odd_one() ? -1 : 1}}); });
  EXPECT_NE(error.find(is_odd_one() ? "keep: latest -1" : "another process could not save its part"), std::string::npos)
      << error;
  Checkpointer(folder_ / "run").save(1, named_state("model", model_));  // all are in step
}

// Process 1 would write a whole array that the others write in blocks.
TEST_F(OddOne, WhoseArraysAreOnNoMeshIsFound) {
  setenv("TESSERA_CPU_DEVICES", "2", 1);
  const int first = 2 * process_index();
  const Mesh own = make_mesh({{"a", 2}}, {.devices = {first, first + 1}});
  Array x = arange(8), y = device_put(x, NamedSharding(own, P{"a"}));
  Checkpointer checkpoints(folder_ / "run");
  const std::string error = error_of([&] { checkpoints.save(1, named("x", is_odd_one() ? x : y)); });
  EXPECT_NE(error.find("process 0 has step 1 of 1 arrays, of checksum "), std::string::npos) << error;
  EXPECT_NE(error.find("Save the same trees at the same steps everywhere."), std::string::npos) << error;
  checkpoints.save(2, named("x", y));
  checkpoints.wait();
  Array z = zeros({8}, int32);
  restore(folder_ / "run", named("x", z));
  EXPECT_EQ(z.to_host<int32_t>(), x.to_host<int32_t>());
  unsetenv("TESSERA_CPU_DEVICES");
}

// All processes must fail: otherwise the others would write an incomplete model.
TEST_F(OddOne, WithoutTheConfigOfItsModelFailsAll) {
  const Mesh mesh = make_mesh({{"model", process_count()}});
  const CausalLM model = filter_shard(CausalLM::init(Key(0), {}), MeshRules{mesh, decoder_rules(mesh)});
  const std::optional<fs::path> from = is_odd_one() ? std::optional(folder_ / "nowhere") : std::nullopt;
  const std::string error = error_of([&] { save_pretrained(folder_ / "theirs", model, from); });
  EXPECT_NE(error.find(is_odd_one() ? "nowhere/config.json" : "another process could not save its part"),
            std::string::npos)
      << error;
  save_pretrained(folder_ / "theirs", model);
  EXPECT_TRUE(fs::exists(folder_ / "theirs/config.json"));
}

TEST_F(OddOne, CannotSaveAloneWhatOthersHold) {
  Saved model = filter_shard(model_, mesh_rules_on(make_mesh({{"a", process_count()}}), true));
  const fs::path mine = folder_ / std::to_string(process_index());
  const std::string error =
      error_of([&] { Checkpointer(mine, {.processes = {.num_processes = 1}}).save(1, named_state("model", model)); });
  EXPECT_EQ(error, fmt::format("[save] model.kernel: {} is on devices of {} processes, 1 process saves. Leave "
                               "Processes as it is, so that all save, or save gather(x).",
                               model.kernel.value.type_string(), process_count()));
}

}  // namespace
}  // namespace tessera::nn::testing::checkpoints_test
