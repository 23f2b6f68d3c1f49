// Checkpoints: every sharding saves the same bytes, and every other sharding restores the same values.
#include "nn/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "nn/placement/table.h"
#include "sharding/accounting/forecast.h"
#include "sharding/files/safetensors.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/checkpoint/support.h"

namespace tessera::nn::testing::checkpoint_test {
namespace {

SavedState optimizer_of(const Saved& model) {
  SavedState state{.count = 41, .mu = model};
  for (const Leaf& leaf : leaves(state.mu))
    if (leaf.is_param()) *leaf.value = *leaf.value * 0.5;
  return state;
}

class CheckpointTest : public ::testing::Test {
 protected:
  fs::path folder(const std::string& name = "run") const { return folder_.path(name); }

  // Saves `model_` under these mesh rules with this many processes.
  void save_placed(const fs::path& to, const MeshRules& mesh_rules, int processes) {
    Saved model = filter_shard(model_, mesh_rules);
    SavedState optimizer = filter_shard(optimizer_, mesh_rules);
    const std::vector<std::string> errors = Crowd(processes).run([&](const Processes& mine) {
      Checkpointer checkpoints(to,
                               {.max_file_bytes = 1 << 20,  // process 0 writes most of its part before save returns
                                .max_pending_bytes = mine.process_index == 0 ? 100'000 : 1 << 30,
                                .processes = mine});
      checkpoints.save(12, named_state_of(model, optimizer), {.extra = {{"loader", R"({"next": 3})"}}});
      checkpoints.wait();
    });
    EXPECT_EQ(errors, std::vector<std::string>(processes));
  }

  Saved model_ = Saved::init(Key(1));
  SavedState optimizer_ = optimizer_of(model_);
  ScratchFolder folder_;
};

TEST_F(CheckpointTest, BytesDependNeitherOnThePlacementNorOnTheNumberOfProcesses) {
  save_placed(folder("one"), strategies()[0].mesh_rules, 1);
  const auto expected = files_of(folder("one"));
  EXPECT_TRUE(expected.contains("12/params/model-00002-of-00002.safetensors"));
  EXPECT_TRUE(expected.contains("12/state/model-00003-of-00003.safetensors"));
  for (const Strategy& strategy : strategies())
    for (const int processes : {1, 2, 4}) {
      const fs::path to = folder(strategy.name + std::to_string(processes));
      save_placed(to, strategy.mesh_rules, processes);
      EXPECT_EQ(files_of(to) == expected, true) << strategy.name << ", " << processes << " processes";
    }
}

TEST_F(CheckpointTest, ValuesComeBackOnEveryOtherPlacement) {
  save_placed(folder(), strategies()[4].mesh_rules, 1);
  for (const Strategy& strategy : strategies()) {
    Saved model = filter_shard(Saved::init(Key(2)), strategy.mesh_rules);
    SavedState optimizer{
        .count = 0, .mu = filter_shard(Saved::init(Key(3)), strategy.mesh_rules), .key = {}, .norm = 0};
    const auto table = placement_table(named("model", model, "optimizer", optimizer));
    model.rate = 0;
    const Restored restored = restore(folder(), named_state_of(model, optimizer));
    expect_same_values(leaves(model), leaves(model_), strategy.name);
    expect_same_values(leaves(optimizer), leaves(optimizer_), strategy.name);
    EXPECT_EQ(placement_table(named("model", model, "optimizer", optimizer)), table) << strategy.name;
    EXPECT_EQ(restored.step, 12);
    EXPECT_EQ(restored.extra.at("loader"), R"({"next":3})");
    EXPECT_EQ(model.rate, 0.1);
    EXPECT_EQ(optimizer.count, 41);
    EXPECT_EQ(optimizer.key, Key(5));
    EXPECT_EQ(optimizer.norm, 0.3f);
    EXPECT_EQ(leaves(model)[0].value->path(), "kernel");
  }
}

TEST_F(CheckpointTest, LazyInitializersArePlacedByMeshRulesAsByFilterShard) {
  save(folder(), 1, named_state("model", model_));
  for (const Strategy& strategy : strategies()) {
    Saved model = Saved::init(Key(2)), placed = filter_shard(model_, strategy.mesh_rules);
    restore(folder(), named_state("model", model), {.mesh_rules = strategy.mesh_rules});
    expect_same_values(leaves(model), leaves(model_), strategy.name);
    EXPECT_EQ(model.kernel.value.type_string(), placed.kernel.value.type_string());
    EXPECT_EQ(model.kernel.value.sharding(), placed.kernel.value.sharding());
    EXPECT_EQ(model.kernel.value.path(), "model.kernel");
  }
}

TEST_F(CheckpointTest, AbstractModelsAreComparedAndHoldNoData) {
  save(folder(), 1, named_state("model", model_));
  const MeshRules mesh_rules{
      make_mesh({{"data", 1024}}, {.abstract = true}),
      {{"embed", replicated}, {"hidden", replicated}, {"vocab", replicated}, {"norm", replicated}}};
  Saved model = filter_shard(Saved::init(Key(2)), mesh_rules);
  model.rate = 0;
  EXPECT_EQ(restore(folder(), named_state("model", model)).step, 1);
  EXPECT_EQ(model.rate, 0.1);
  EXPECT_TRUE(model.kernel.value.sharding().mesh().is_abstract());
  expect_error(ErrorKind::invalid_argument,
               "[save] model.kernel: float32[400,1500] is on an abstract mesh, which holds no values.",
               [&] { save(folder("abstract"), 1, named_state("model", model)); });
}

TEST_F(CheckpointTest, FilesHoldFloatsOfTheModelInParamsAndNoScalarAnywhere) {
  save(folder(), 5, named_state_of(model_, optimizer_));
  const auto params = SafetensorsFile::open(folder() / "5/params/model-00001-of-00001.safetensors");
  EXPECT_EQ(params.names(),
            (std::vector<std::string>{"model.bias", "model.kernel", "model.scales.0", "model.scales.1", "model.half"}));
  const auto state = SafetensorsFile::open(folder() / "5/state/model-00001-of-00001.safetensors");
  EXPECT_EQ(state.info("model.count").shape, Shape({1}));
  EXPECT_EQ(state.info("model.seen").dtype, boolean);
  for (const SafetensorsFile& file : {params, state})
    for (const std::string& name : file.names()) EXPECT_FALSE(file.info(name).shape.empty()) << name;
  const std::string index = text_of(folder() / "5/params/model.safetensors.index.json");
  EXPECT_EQ(SafetensorsIndex::from_json(index, "index").files.at("model.half"), "model-00001-of-00001.safetensors");
  EXPECT_EQ(read_manifest(folder() / "5").tensors[0].axes, (std::vector<std::string>{"embed", "hidden"}));
}

TEST_F(CheckpointTest, TheNewestIsRestoredUnlessOneIsNamed) {
  for (const int64_t step : {2, 10, 9}) {
    model_.rate = static_cast<double>(step);
    save(folder(), step, named_state("model", model_));
  }
  fs::create_directory(folder() / "11");      // without a commit mark
  fs::create_directory(folder() / "12.tmp");  // left by an interrupted save
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{2, 9, 10}));
  EXPECT_EQ(restore(folder(), named_state("model", model_)).step, 10);
  EXPECT_EQ(restore(folder() / "9", named_state("model", model_)).step, 9);
  EXPECT_EQ(model_.rate, 9);
  expect_error_with(ErrorKind::invalid_file, {"[restore] ", "no complete checkpoint is here"},
                    [&] { restore(folder("nowhere"), named_state("model", model_)); });
}

TEST_F(CheckpointTest, ADifferenceIsOneMessage) {
  save(folder(), 1, named_state("model", model_));
  Saved other = Saved::init(Key(2), 3);
  other.bias.reset();
  other.half.value = zeros({40, 12});
  const Array kernel = other.kernel.value;
  expect_error(
      ErrorKind::invalid_file,
      "[restore] " + (folder() / "1").string() +
          ": it differs from the tree in 3 places.\n"
          "  the checkpoint lacks model.scales.2\n"
          "  the tree lacks model.bias\n"
          "  other shapes or types: model.half is bfloat16 (40, 12) in the checkpoint, float32 (40, 12) in the tree\n"
          "  Restore into the tree that was saved, or keep_missing to leave what the checkpoint lacks as it "
          "is, or ignore_unused to skip what the tree lacks, or rename paths.",
      [&] { restore(folder(), named_state("model", other)); });
  EXPECT_TRUE(other.kernel.value.is_same(kernel));
}

TEST_F(CheckpointTest, PartsAndOtherNamesOnRequest) {
  save(folder(), 1, named_state_of(model_, optimizer_));
  Saved other = Saved::init(Key(2), 3);
  const std::vector<float> third = other.scales[2].value.to_host<float>();
  const Restored restored =
      restore(folder(), named("net", other),
              {.keep_missing = true, .ignore_unused = true, .rename = [](const std::string& path) {
                 return "model" + path.substr(3);
               }});
  EXPECT_EQ(other.kernel.value.to_host<float>(), model_.kernel.value.to_host<float>());
  EXPECT_EQ(other.scales[2].value.to_host<float>(), third);
  EXPECT_EQ(restored.kept, std::vector<std::string>{"net.scales.2"});
  EXPECT_EQ(std::count(restored.unused.begin(), restored.unused.end(), "optimizer.mu.kernel"), 1);
}

TEST_F(CheckpointTest, TwoPathsMayHaveTheValuesOfOneName) {
  save(folder(), 1, named_state("model", model_));
  Saved left = Saved::init(Key(2)), right = Saved::init(Key(3));
  left.rate = right.rate = 0;
  const Restored restored =
      restore(folder(), named_state("left", left, "right", right),
              {.rename = [](const std::string& path) { return "model" + path.substr(path.find('.')); }});
  expect_same_values(leaves(left), leaves(model_), "left");
  expect_same_values(leaves(right), leaves(model_), "right");
  EXPECT_EQ(left.rate, 0.1);
  EXPECT_EQ(right.rate, 0.1);
  EXPECT_EQ(restored.unused, std::vector<std::string>());
}

TEST_F(CheckpointTest, SettingsAreTheCheckpointsUnlessArraysAloneAreNamed) {
  save(folder(), 1, named_state("model", model_));
  Saved other = Saved::init(Key(2));
  other.trained = true;
  const Restored restored = restore(folder(), named("model", other), {.ignore_unused = true});
  EXPECT_TRUE(other.trained);
  EXPECT_EQ(restored.unused, (std::vector<std::string>{"model.rate", "model.trained"}));
  expect_same_values(leaves(other), leaves(model_), "arrays alone");
  restore(folder(), named_state("model", other));
  EXPECT_FALSE(other.trained);
}

TEST_F(CheckpointTest, ExtraComesBackAsTheSameValues) {
  save(folder(), 1, named_state("model", model_),
       {.extra = {{"a", "0.1"}, {"b", "18446744073709551616"}, {"c", "-9007199254740993"}, {"d", "\"1e400\""}}});
  const std::map<std::string, std::string> expected = {
      {"a", "1E-1"}, {"b", "1.8446744073709552E19"}, {"c", "-9007199254740993"}, {"d", "\"1e400\""}};
  EXPECT_EQ(restore(folder(), named_state("model", model_)).extra, expected);
}

// A partial sum is saved and restored as its reduced sum.
TEST_F(CheckpointTest, APartialSumIsSavedAsItsSum) {
  const Mesh mesh = make_mesh({{"data", 2}});
  Array x = device_put(array<float>({1, 2}), NamedSharding(mesh, P{}.unreduced({"data"})));
  save(folder(), 1, named("x", x));
  EXPECT_NE(x.type_string().find("{U:data}"), std::string::npos) << "as it was";
  restore(folder(), named("x", x));
  EXPECT_EQ(x.to_host<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(x.type_string(), "float32[2]");
  EXPECT_EQ(x.sharding().spec().to_string(), P{}.to_string());
}

TEST_F(CheckpointTest, ThrowsAfterAMove) {
  Checkpointer checkpoints(folder());
  const Checkpointer other(std::move(checkpoints));
  const auto gone = [](const auto& call) {
    expect_error(ErrorKind::invalid_argument, "[save] this Checkpointer was moved into another; use that one.", call);
  };
  gone([&] { checkpoints.save(1, named_state("model", model_)); });
  gone([&] { checkpoints.wait(); });
  gone([&] { checkpoints.folder(); });
  EXPECT_EQ(other.folder(), folder());
}

TEST_F(CheckpointTest, TheFolderIsTheOneThatWasMeantWhenItWasGiven) {
  const fs::path before = fs::current_path();
  fs::create_directories(folder("here"));
  fs::create_directories(folder("there"));
  fs::current_path(folder("here"));
  Checkpointer checkpoints("run");
  fs::current_path(folder("there"));
  checkpoints.save(1, named_state("model", model_));
  checkpoints.wait();
  fs::current_path(before);
  EXPECT_EQ(checkpoint_steps(folder("here") / "run"), std::vector<int64_t>{1});
  EXPECT_EQ(names_in(folder("there")), std::vector<std::string>());
}

TEST_F(CheckpointTest, WhatAnotherPlacesReadsIsItsOwn) {
  Saved model = Saved::init(Key(4));
  Array held = model.kernel.value;
  {
    Checkpointer checkpoints(folder());
    checkpoints.save(1, named_state("model", model));
    model.kernel.value = model.kernel.value * 2.0;  // while the background thread writes
  }
  Saved back = Saved::init(Key(2));
  restore(folder(), named_state("model", back));
  EXPECT_EQ(back.kernel.value.to_host<float>(), held.to_host<float>());
}

TEST_F(CheckpointTest, DescribesItselfWithoutItsArrays) {
  save(folder(), 5, named_state_of(model_, optimizer_), {.extra = {}, .metrics = {{"loss", 1.5}}});
  for (const char* file : {"params", "state"}) fs::remove(folder() / "5" / file / "model-00001-of-00001.safetensors");
  const std::string text = describe_checkpoint(folder());
  for (const char* words : {"step 5", "model.kernel ", "(400, 1500)", "2,400,000", "embed, hidden", "14 arrays",
                            "optimizer.count = 41", "loss = 1.5", "optimizer.note = \"adam\""})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST_F(CheckpointTest, DescribesItselfWithoutWordsThatATerminalObeys) {
  const std::string strange = "a\x1b]0;title\x07 \xc2\x9b[2J\nstep 99";
  save(folder(), 5, named_state("model", model_),
       {.extra = {{strange, "\"\xc2\x9b[2J\x7f\""}}, .metrics = {{strange, 1}}});
  const std::string text = describe_checkpoint(folder()), shown = "a\\u001b]0;title\\u0007 \\u009b[2J\\u000astep 99";
  EXPECT_NE(text.find(shown + " = \"\\u009b[2J\\u007f\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find(shown + " = 1\n"), std::string::npos) << text;
}

// ---- retention

TEST(Retention, KeepsTheUnionAndAlwaysTheNewest) {
  const std::vector<StepMetric> saved = {{10, 3.0}, {20, 1.0}, {30, 2.0}, {40, {}}, {50, 5.0}};
  const struct {
    RetentionPolicy keep;
    std::vector<int64_t> gone;
  } cases[] = {{{}, {}},
               {{.latest = 1}, {10, 20, 30, 40}},
               {{.latest = 2}, {10, 20, 30}},
               {{.latest = 9}, {}},
               {{.every = 20}, {10, 30}},
               {{.best = 2, .metric = "loss"}, {10, 40}},
               {{.best = 1, .metric = "loss", .higher_is_better = true}, {10, 20, 30, 40}},
               {{.latest = 2, .every = 30, .best = 1, .metric = "loss"}, {10}}};
  for (const auto& [keep, gone] : cases) EXPECT_EQ(steps_to_delete(saved, keep), gone);
  EXPECT_EQ(steps_to_delete({}, {.latest = 1}), std::vector<int64_t>());
}

TEST_F(CheckpointTest, OlderOnesGoWhenANewerIsComplete) {
  Checkpointer checkpoints(folder(), {.keep = {.latest = 1, .best = 1, .metric = "loss"}});
  const double losses[] = {3, 1, 2, 5};
  for (int64_t step = 0; step < 4; ++step)
    checkpoints.save(step, named_state("model", model_), {.extra = {}, .metrics = {{"loss", losses[step]}}});
  checkpoints.wait();
  EXPECT_EQ(names_in(folder()), (std::vector<std::string>{".lock", "1", "3"}));
}

TEST_F(CheckpointTest, NoSaveDeletesItself) {
  for (const int64_t step : {3, 5}) save(folder(), step, named_state("model", model_));
  Checkpointer checkpoints(folder(), {.keep = {.latest = 1}});
  checkpoints.save(4, named_state("model", model_));
  checkpoints.wait();
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{4, 5}));
}

TEST_F(CheckpointTest, MetricsAmongWhichTheOneOfKeepIsNotAreRefused) {
  Checkpointer checkpoints(folder(), {.keep = {.best = 2, .metric = "validation_loss"}});
  expect_error(ErrorKind::invalid_argument,
               "[save] keep: the best 2 are to be kept by \"validation_loss\", and the metrics of this step are "
               "\"accuracy\", \"val_loss\". Give it among them, or none.",
               [&] {
                 checkpoints.save(1, named_state("model", model_),
                                  {.extra = {}, .metrics = {{"val_loss", 1}, {"accuracy", 2}}});
               });
  checkpoints.save(1, named_state("model", model_));
  checkpoints.save(2, named_state("model", model_),
                   {.extra = {}, .metrics = {{"validation_loss", 1}, {"accuracy", 2}}});
  checkpoints.wait();
  EXPECT_EQ(checkpoint_steps(folder()), std::vector<int64_t>{2});
}

}  // namespace
}  // namespace tessera::nn::testing::checkpoint_test
