// Runs train_transformer: strategies, meshes, rules, metrics, and the message of each error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "examples/train/failed_steps.h"
#include "nn/checkpoint.h"
#include "tests/examples/event_reader.h"
#include "tests/examples/training.h"

namespace tessera::examples::train_transformer_test {
namespace {

struct PlacementCase {
  std::string flags, mesh, rules;
  std::vector<std::string> collectives;  // that its ledger must contain
};

class TrainTransformer : public Training {
 protected:
  // Expects the output that each case lists, and the losses of a mesh of one device.
  void expect_the_same_everywhere(const std::string& model, std::span<const PlacementCase> cases) {
    const Run alone = run(model + "--mesh data=1");
    EXPECT_TRUE(alone.outcome.says("One step communicates\nno communication")) << alone.outcome.output;
    for (const PlacementCase& c : cases) {
      SCOPED_TRACE(c.flags);
      const Run there = run(model + c.flags);
      std::vector<std::string> expected = {"mesh     " + c.mesh, "rules    " + c.rules, "model.layers.0.attn.q.kernel",
                                           "optimizer.state.1.mu.layers.0.attn.q.kernel", "One step communicates"};
      expected.insert(expected.end(), c.collectives.begin(), c.collectives.end());
      for (const std::string& words : expected)
        EXPECT_TRUE(there.outcome.says(words)) << words << "\n" << there.outcome.output;
      expect_losses(there, alone, 1e-4);
    }
  }
};

// ---- placements

const PlacementCase placements[] = {
    {"--strategy dp", "data=8 (8 devices", "batch=data;", {"gradients"}},
    {"--strategy zero1", "data=8 (8 devices", "batch=data;", {"reduce_scatter"}},
    {"--strategy tp",
     "model=8 (8 devices",
     "vocab=model,heads=model,mlp=model,batch=data;",
     {"all_reduce_max", "add x3"}},
    {"--strategy fsdp", "data=8 (8 devices", "embed=data,batch=data;", {"all_gather", "reduce_scatter"}},
    {"--strategy hsdp",
     "replica=2, data=4 (8 devices",
     "batch=replica+data,embed=data;",
     {"all_gather", "reduce_scatter", "all_reduce     replica "}},
    {"--strategy 2d",
     "data=4, model=2 (8 devices",
     "vocab=model,heads=model,mlp=model,batch=data;",
     {"all_reduce_max", "gradients"}},
    {"--strategy sp", "data=4, seq=2 (8 devices", "seq=seq,stream_seq=seq,batch=data;", {"all_to_all     seq "}},
    {"--strategy cp", "data=4, seq=2 (8 devices", "seq=seq,stream_seq=seq,batch=data;", {"permute        seq "}},
    {"--mesh dp=8",
     "dp=8 (8 devices; as given; no rule names an axis of it, so nothing is sharded and all devices do the same work)",
     "batch=data;",
     {}},
    {"--mesh data=4:across,model=2", "data=4, model=2 (8 devices; as given", "batch=data;", {"gradients"}},
    {"--mesh data=4,model=2 --rules mlp=model,embed=data",
     "data=4, model=2",
     "mlp=model,embed=data,batch=data;",
     {"all_gather"}},
    {"--mesh data=4,model=2 --rules embed=data+model",
     "data=4, model=2",
     "embed=data+model,batch=data;",
     {"all_gather"}},
    {"--mesh data=2 --rules batch=replicated,vocab=data", "data=2", "vocab=data;", {"all_reduce_max"}}};

const PlacementCase llama_placements[] = {
    {"--strategy dp", "data=8 (8 devices", "batch=data;", {"gradients"}},
    {"--strategy tp",
     "model=8 (8 devices",
     "vocab=model,heads=model,kv_heads=model,mlp=model,batch=data;",
     {"all_reduce_max"}},
    {"--strategy fsdp", "data=8 (8 devices", "embed=data,batch=data;", {"all_gather", "reduce_scatter"}},
    {"--strategy 2d",
     "data=4, model=2 (8 devices",
     "vocab=model,heads=model,kv_heads=model,mlp=model,batch=data;",
     {"all_reduce_max", "gradients"}},
    {"--mesh model=2 --rules kv_heads=model", "model=2", "kv_heads=model,batch=data;", {"all_gather"}}};

const PlacementCase mixtral_placements[] = {
    {"--strategy hsdp", "replica=2, data=4", "batch=replica+data,embed=data;", {"all_gather", "reduce_scatter"}},
    {"--strategy cp", "data=4, seq=2", "stream_seq=seq,batch=data;", {"permute        seq "}},
    {"--strategy ep", "data=8 (8 devices", "experts=data,batch=data;", {"all_gather", "reduce_scatter"}},
    {"--mesh data=2,experts=4 --rules experts=experts",
     "data=2, experts=4",
     "experts=experts,batch=data;",
     {"all_reduce"}}};

const PlacementCase pipelines[] = {
    {"--strategy pp",
     "pipe=2, data=4 (8 devices",
     "layers=pipe,batch=data;",
     {"stages   4 micro-batches, one_f_one_b", "permute        pipe "}},
    {"--strategy pp --micro-batches 2 --schedule gpipe --shard-state-over data --remat",
     "pipe=2, data=4 (8 devices",
     "layers=pipe,batch=data;",
     {"stages   2 micro-batches, gpipe", "on pipe[1]"}},
    {"--mesh pipe=4,model=2 --rules layers=pipe,heads=model,mlp=model,vocab=model,batch=replicated",
     "pipe=4, model=2 (8 devices",
     "layers=pipe,heads=model,mlp=model,vocab=model;",
     {"stages   1 micro-batches", "on pipe[3]"}}};

TEST_F(TrainTransformer, PrintsAllShardingsAndLearnsTheSameOnEveryMesh) {
  expect_the_same_everywhere("--model gpt ", placements);
}

TEST_F(TrainTransformer, LlamaDoesSoToo) { expect_the_same_everywhere("--model llama ", llama_placements); }

TEST_F(TrainTransformer, MixtralDoesSoTooWithItsExpertsOnDevices) {
  expect_the_same_everywhere("--model mixtral ", mixtral_placements);
}

TEST_F(TrainTransformer, LayersOnStagesDoSoToo) {
  for (const char* model : {"gpt", "llama", "mixtral"})
    expect_the_same_everywhere(fmt::format("--model {} --layers 4 --batch 16 ", model), pipelines);
}

TEST_F(TrainTransformer, ModelsHaveTheSizesTheyAreGiven) {
  const auto expect_shape = [&](const std::string& flags, const std::string& path, const std::string& shape) {
    const std::string table = train("--mesh data=1 --steps 1 --warmup 0 " + flags).output;
    const size_t line = table.find("\nmodel.layers.0." + path + " ");
    ASSERT_NE(line, std::string::npos) << table;
    EXPECT_NE(table.substr(line + 1, table.find('\n', line + 1) - line).find(shape), std::string::npos) << table;
  };
  expect_shape("--model gpt --mlp 48", "mlp.up.kernel", "(32, 48)");
  expect_shape("--model llama --mlp 48", "mlp.gate.kernel", "(32, 48)");
  expect_shape("--model llama", "attn.k.kernel", "(32, 8)");  // 2 of 8 heads, of 4 units each
  expect_shape("--model llama --heads 2", "attn.k.kernel", "(32, 16)");
  expect_shape("--model llama --kv-heads 8", "attn.k.kernel", "(32, 32)");
}

TEST_F(TrainTransformer, AnAxisMayCutThroughAHead) {
  EXPECT_EQ(train("--mesh model=8 --rules heads=model --heads 4").exit_code, 0);
}

// ---- metrics

TEST_F(TrainTransformer, MetricsHaveARowForEveryStepAndValidation) {
  const std::vector<Row> rows = run("--steps 6 --warmup 2").rows;
  int64_t step = 0, validations = 0;
  for (const Row& row : rows) {
    if (row.is_validation()) {
      ++validations;
      EXPECT_EQ(row.values.size(), 4u);
      EXPECT_EQ(row["step"], step);
      EXPECT_LE(row["bigram_entropy"], row["unigram_entropy"]);
      continue;
    }
    EXPECT_EQ(row["step"], ++step);
    EXPECT_EQ(row.values.size(), step == 1 ? 6u : 7u);  // flops_per_second is known from the second step on
    for (const char* key : {"loss", "grad_norm", "tokens_per_second", "peak_bytes"}) EXPECT_GT(row[key], 0) << key;
    EXPECT_GE(row["learning_rate"], 0);
    EXPECT_LE(row["learning_rate"], 2e-3);
  }
  EXPECT_EQ(step, 6);
  EXPECT_GE(validations, 1);
  EXPECT_TRUE(rows.back().is_validation());
}

TEST_F(TrainTransformer, TensorBoardShowsTheMetrics) {
  const auto [outcome, rows] = run("--tensorboard " + folder_.path("runs"));
  const auto events = read_events(std::filesystem::directory_iterator(folder_.path("runs"))->path());
  ASSERT_EQ(events.size(), 1 + rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Event& event = events[i + 1];
    EXPECT_EQ(event.step, rows[i]["step"]);
    for (const auto& [tag, value] : event.scalars) {
      const std::string key = rows[i].is_validation() ? "validation_loss" : tag.substr(tag.find('/') + 1);
      EXPECT_NEAR(value, rows[i][key.c_str()], 1e-5 * std::abs(value) + 0.05 * (key == "tokens_per_second")) << tag;
    }
    EXPECT_EQ(event.scalars.size(), rows[i].is_validation() ? 1u : rows[i]["step"] == 1 ? 5u : 6u);
  }
}

TEST_F(TrainTransformer, APipeOfMetricsThatIsClosedIsAnError) {
  const std::string pipe = folder_.path("pipe");
  const Outcome outcome = run_program("mkfifo " + pipe + "; head -n 1 " + pipe + " & " + program_ + " --data " + text_ +
                                      small + " --steps 100000 --metrics " + pipe);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("error: [metrics] " + pipe + ": the file cannot be written: Broken pipe."))
      << outcome.output;
}

TEST_F(TrainTransformer, AFileLargerThanTheLimitIsAnError) {
  const Outcome outcome = run_program("ulimit -f 16; " + program_ + " --data " + text_ + small + " --steps 2 --save " +
                                      folder_.path("limited"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("Raise the limit on the size of files (ulimit -f)")) << outcome.output;
}

TEST_F(TrainTransformer, LearnsMoreThanPairsOfBytes) {
  const Outcome outcome = train("--mesh data=2 --steps 120 --warmup 10 --lr 1e-2");
  EXPECT_TRUE(outcome.says("after 120 steps; below the bigram entropy")) << outcome.output;
}

// ---- samples

TEST_F(TrainTransformer, ASampleIsTheSameFromTheSameSeed) {
  for (const std::string model : {"gpt", "llama"}) {
    const std::string flags = "--mesh data=2,model=2 --rules embed=data,vocab=model --sample 40 --model " + model;
    const auto sample_of = [&](const std::string& more) {
      const Outcome outcome = train(flags + more);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
      const size_t begin = outcome.output.find("\n40 bytes at temperature ");
      EXPECT_NE(begin, std::string::npos) << outcome.output;
      return outcome.output.substr(begin);
    };
    const std::string once = sample_of("");
    EXPECT_EQ(sample_of(""), once);
    EXPECT_NE(sample_of(" --seed 1"), once);
  }
}

TEST_F(TrainTransformer, ALearntTextIsSampledAgain) {
  for (const std::string model : {"gpt", "llama"}) {
    const Outcome outcome = train(
        "--mesh data=1 --steps 150 --warmup 10 --lr 1e-2 --sample 40 --temperature 0 --prompt '; the num' --model " +
        model);
    EXPECT_TRUE(outcome.says("\n40 bytes at temperature 0:\n; the number ")) << outcome.output;
    EXPECT_TRUE(outcome.says(" follows; the number ")) << outcome.output;
  }
}

// ---- data

TEST_F(TrainTransformer, ReadsFoldersAndTheHeadersOfLibTorch) {
  folder_.write("more/a.txt", some_text());
  EXPECT_TRUE(train("--steps 2 --data " + folder_.path("more")).says("corpus   2 files"));
  const Outcome outcome = run_program(program_ + small + " --steps 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_FALSE(outcome.says("corpus   1 files")) << outcome.output;
}

// ---- the strategy chosen by the library

TEST_F(TrainTransformer, TakesTheStrategyThatTheLibraryFinds) {
  const std::string file = folder_.path("hardware.json");
  const Run alone = run("--mesh data=1");
  for (const std::string& flags : {std::string("--devices 4 --memory 1GB"), "--devices 2 --hardware " + file,
                                   "--devices 2 --precision float32 --hardware " + file}) {
    const Run there = run("--strategy auto " + flags);
    for (const char* words : {" devices of ", "step, ms", "1. ", " less than ", "devices; strategy auto, "})
      EXPECT_TRUE(there.outcome.says(words)) << words << "\n" << there.outcome.output;
    expect_losses(there, alone, 1e-4);
  }
  std::ifstream kept(file);
  EXPECT_NE(std::string(std::istreambuf_iterator<char>(kept), {}).find("flops_per_second"), std::string::npos);
}

TEST_F(TrainTransformer, HelpListsEveryFlagAndStrategy) {
  const Outcome outcome = run_program(program_ + " --help");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* word : {"--data",
                           "--strategy",
                           "--mesh",
                           "--rules",
                           "--metrics",
                           "--tensorboard",
                           "--steps",
                           "--batch",
                           "--seq",
                           "--lr",
                           "--seed",
                           "--warmup",
                           "--layers",
                           "--embed",
                           "--heads",
                           "--mlp",
                           "--shard-state-over AXES",
                           "--remat",
                           "--micro-batches N",
                           "--precision TYPE",
                           "--no-reshard-after-forward",
                           "dp",
                           "tp",
                           "fsdp",
                           "2d",
                           "--mesh data=8 --shard-state-over data"})
    EXPECT_TRUE(outcome.says(word)) << word;
}

// ---- errors

TEST_F(TrainTransformer, AWrongCommandLineIsRefused) {
  const struct {
    std::string flags, words;
  } cases[] = {
      {"--stpes 3", "--stpes: unknown. --help lists all flags."},
      {"--mesh ''", "--mesh: \"\" given, expected axes"},
      {"--metrics a --report b/../a", "--report: b/../a, as for --metrics. Give two paths."},
      {"--export a --save a/", "--save: a/, as for --export. Give two paths."},
      {"--export ./a/b/7/x --save a/b", "--export: ./a/b/7/x, in the folder of a checkpoint of --save. Give another."},
      {"--keep-failed-step ./a --save a", "--save: a, as for --keep-failed-step. Give two paths."},
      {"surplus", "surplus: unknown."},
      {"--steps", "--steps: its value is missing"},
      {"--steps --batch 8", "--steps: its value is missing"},
      {"--steps ten", "--steps: \"ten\" given, expected a whole number from 1 to 1000000000000."},
      {"--steps 0", "\"0\" given, expected a whole number from 1 to 1000000000000."},
      {"--steps 3.5", "\"3.5\" given"},
      {"--batch 99999999999999999999", "expected a whole number"},
      {"--lr fast", "--lr: \"fast\" given, expected a number above 0"},
      {"--lr nan", "--lr: \"nan\" given"},
      {"--lr -1", "--lr: \"-1\" given"},
      {"--seed -1", "--seed: \"-1\" given, expected a whole number from 0 to 1000000000000."},
      {"--model bert", "--model: \"bert\" given, expected one of gpt, llama, mixtral."},
      {"--heads 5", "--heads: 5 given, expected a divisor of --embed = 32."},
      {"--batch 6 --mesh data=4", "--batch: 6 given, expected a multiple of 4, the size of batch=data on the mesh."},
      {"--batch 6 --strategy hsdp", "--batch: 6 given, expected a multiple of 8, the size of batch=replica+data"},
      {"--model llama --embed 32 --heads 32",
       "--heads: 32 of --embed 32 given, expected heads of an even size, whose halves are turned."},
      {"--model llama --kv-heads 3", "--kv-heads: 3 given, expected a divisor of --heads = 8."},
      {"--kv-heads 2", "--kv-heads: gpt has as many as --heads. Give --model llama too"},
      {"--rules kv_heads=data --mesh data=2", "\"kv_heads\" is not a logical axis of the model."},
      {"--model llama --rules seq=data --mesh data=2", "\"seq\" is not a logical axis of the model."},
      {"--sample 0", "--sample: \"0\" given, expected a whole number from 1"},
      {"--profile-steps 3", "--profile-steps: no step is measured. Give --profile FOLDER too."},
      {"--peak-flops 0", "--peak-flops: \"0\" given, expected a number above 0"},
      {"--prompt x", "--prompt: no sample is requested. Give --sample N too."},
      {"--temperature 1", "--temperature: no sample is requested."},
      {"--sample 9 --prompt ''", "--prompt: \"\" given, expected a byte or more"},
      {"--sample 9 --temperature -1", "--temperature: \"-1\" given, expected a number from 0"},
      {"--sample 9 --temperature inf", "--temperature: \"inf\" given"},
      {"--strategy 3d",
       "--strategy: \"3d\" given, expected one of dp, zero1, tp, fsdp, hsdp, 2d, sp, cp, pp, ep, auto."},
      {"--schedule gpipe", "--schedule: the layers are on no stages. Give a rule for layers too."},
      {"--strategy pp --schedule zigzag", "--schedule: \"zigzag\" given, expected one of gpipe, one_f_one_b."},
      {"--strategy ep", "--strategy: ep places experts, and gpt has none. Give --model mixtral too."},
      {"--experts 4", "--experts: gpt has none. Give --model mixtral too, or leave it out."},
      {"--strategy sp --context-parallelism star",
       "--context-parallelism: \"star\" given, expected one of automatic, exchange, gather, ring."},
      {"--context-parallelism ring", "--context-parallelism: the sequence is replicated."},
      {"--strategy auto --memory 4XB", "--memory: \"4XB\" given, expected bytes, as in 4GB, 512MiB or 1000000."},
      {"--strategy auto --memory 0", "--memory: \"0\" given"},
      {"--strategy auto --mesh data=8", "Give either --strategy, or --mesh and --rules."},
      {"--strategy auto --shard-state-over data", "--shard-state-over: --strategy auto sets it. Leave it out."},
      {"--devices 4", "--devices: the mesh is given. Give --strategy auto too"},
      {"--strategy dp --mesh data=8", "Give either --strategy, or --mesh and --rules."},
      {"--rules mlp=model", "rules without a mesh"},
      {"--mesh data=2 --rules mlp=model",
       "\"model\" is not an axis of the mesh. It has: data. Use these, or replicated."},
      {"--mesh data=2 --shard-state-over model",
       "--shard-state-over: \"model\" is not an axis of the mesh. It has: data."},
      {"--strategy tp --shard-state-over data", "\"data\" is not an axis of the mesh. It has: model."},
      {"--shard-state-over data+", "--shard-state-over: \"\" is not an axis of the mesh."},
      {"--shard-state-over --remat", "--shard-state-over: its value is missing, expected AXES."},
      {"--micro-batches 0", "--micro-batches: \"0\" given, expected a whole number from 1"},
      {"--precision float16", "--precision: \"float16\" given, expected one of float32, bfloat16."},
      {"--remat yes", "yes: unknown."},
      {"--mesh data=2 --rules hidden=data", "\"hidden\" is not a logical axis of the model. It has: batch,"},
      {"--mesh data=2 --rules mlp", "\"mlp\" given, expected name=axis"}};
  for (const auto& c : cases) expect_error(c.flags, c.words, 2);
}

TEST_F(TrainTransformer, AProfileHasATraceATableAndTheStepsParts) {
  const std::string folder = folder_.path("profile");
  const Run run =
      this->run("--strategy 2d --layers 2 --steps 7 --profile-steps 2 --peak-flops 1e12 --profile " + folder);
  EXPECT_TRUE(run.outcome.says("2 steps of ")) << run.outcome.output;
  EXPECT_TRUE(run.outcome.says(", MFU ")) << run.outcome.output;
  EXPECT_FALSE(run.rows[0].values.contains("mfu")) << "not known before the first step";
  EXPECT_GT(run.rows[1]["mfu"], 0);
  EXPECT_NEAR(run.rows[1]["mfu"], run.rows[1]["flops_per_second"] / 1e12, 1e-6 * run.rows[1]["mfu"]);
  EXPECT_GT(run.rows[1]["peak_bytes"], 1 << 20);
  const auto profile = parse_json_file(folder + "/profile.json").as_object();
  EXPECT_EQ(profile.at("steps").as_int64(), 2);
  double sum = 0;
  for (const auto& part : profile.at("parts").as_array()) sum += part.at("seconds").to_number<double>();
  EXPECT_NEAR(sum, profile.at("step_seconds").at("mean").to_number<double>(), 1e-9);
  EXPECT_GE(parse_json_file(folder + "/trace.json").as_object().at("traceEvents").as_array().size(), 100u);
  EXPECT_NE(folder_.read("profile/profile.txt").find("layers.{0,1}"), std::string::npos) << run.outcome.output;
}

TEST_F(TrainTransformer, WhatDoesNotFitIsAnErrorOfTheLibrary) {
  expect_error("--mesh data", "expected name=size", 1);
  expect_error("--mesh data=0", "mesh axis \"data\" = 0", 1);
  for (const char* paths : {"--save .", "--save ../x", "--save ../x/../y --tensorboard z"})
    expect_error(std::string(paths) + " --mesh data=0", "mesh axis \"data\" = 0", 1);
  expect_error("--mesh data=2,data=2", "mesh axis \"data\" is given twice", 1);
  expect_error("--mesh data=2 --rules embed=data+data", "data", 1);
  expect_error("--strategy auto --devices 4 --memory 1KB",
               "no strategy fits in 1,000 bytes on each of 4 devices: the smallest found,", 1);
  expect_error("--strategy fsdp --embed 36 --heads 4", "= 36 is not divisible by mesh axis \"data\" = 8", 1);
  expect_error("--micro-batches 3 --mesh data=2", "4 rows on each of 2 devices are not divisible by 3 micro-batches",
               1);
  expect_error("--strategy pp", "layers: 1 elements for mesh axis \"pipe\" = 2, expected at least one for each stage",
               1);
  expect_error("--shard-state-over data+data", "shard_state_over: \"data\" given twice", 1);
  expect_error("--warmup 10", "warmup", 1);
  expect_error("--metrics " + folder_.path("nowhere/m.jsonl"), "the file cannot be written", 1);
  expect_error("--tensorboard " + text_, "this folder cannot be made", 1);
  expect_error("--profile " + text_, "this folder cannot be made", 1);
}

TEST_F(TrainTransformer, AMeshLargerThanTheDevicesIsAnError) {
  program_ = "TESSERA_CPU_DEVICES=4 " + program_;
  expect_error("--strategy dp", "the mesh needs 8 devices, there are 4", 1);
}

TEST_F(TrainTransformer, DataThatIsMissingEmptyOrTooSmallIsAnError) {
  const auto error_of = [&](const std::string& path, const std::string& words) {
    const Outcome outcome = run_program(program_ + small + " --data " + path);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_TRUE(outcome.says("error: [")) << outcome.output;
    EXPECT_TRUE(outcome.says(words)) << path << "\n" << outcome.output;
  };
  error_of(folder_.path("missing.txt"), "No such file or directory");
  error_of(folder_.write("empty.txt", ""), "empty");
  error_of(folder_.write("short.txt", "ten bytes."), "[windows]");
  error_of(folder_.write("few.txt", std::string(60, 'x')), "windows of");
  error_of(folder_.write("one.txt", std::string(20, 'x')), "[train_validation_split]");
  error_of(folder_.write("text.gz", some_text()), "text.gz");  // decompressed, not learned as it is
}

TEST_F(TrainTransformer, ALossThatIsNotFiniteNamesTheStep) {
  expect_error("--lr 1e38 --warmup 0 --steps 20", "[train] step 2: the loss is nan, expected a finite number", 1);
  expect_error("--lr 1e38 --warmup 0 --steps 1", "step 1: the validation loss is nan", 1);
}

TEST_F(TrainTransformer, AStepThatFailsIsKeptAndRunsAgainAlone) {
  const std::pair<std::string, std::string> cases[] = {
      {"--strategy zero1", "[embedding] embed: chosen_strategy.h:"},
      {"--strategy auto --devices 2", "[embedding] embed: chosen_strategy.h:"},
      {"--precision bfloat16 --micro-batches 2", "[astype] embed.tokens: chosen_strategy.h:"}};
  for (const auto& [placement, operation] : cases) {
    const std::string kept = folder_.path("kept " + placement), keep = " --keep-failed-step '" + kept + "'";
    const std::string flags = placement + " --lr 1e38 --warmup 0 --steps 20" + keep;
    expect_error(flags, "step 2: the loss is nan, expected a finite number", 1);
    const Outcome again = run_program(program_ + " --replay '" + kept + "'");
    EXPECT_EQ(again.exit_code, 1);
    for (const std::string& words : {std::string("replays  step 2 alone, on one device"), "error: " + operation,
                                     std::string(", step 2: operand 0")})
      EXPECT_TRUE(again.says(words)) << words << "\n" << again.output;
    expect_error(flags, "step 2 is kept there", 1);
  }
  expect_error("--replay none", "[command line] --replay: the kept step has the flags of its run", 2);
  EXPECT_TRUE(run_program(program_ + " --replay none").says("error: [replay] none: ")) << "no step";
}

// Flags of a kept step that were renamed since are translated.
TEST_F(TrainTransformer, AKeptStepMayHaveFlagsUnderTheirEarlierNames) {
  const std::string kept = folder_.path("kept");
  nn::save(kept, 3, {},
           {.extra = {{"error", R"("the loss is nan")"},
                      {"arguments", R"(["--captured", "--keep-gathers", "--prefetch", "2", "--shard-state", "data"])"}}});
  EXPECT_EQ(train::read_kept_step(kept).arguments,
            (std::vector<std::string>{"--graphed-step", "--no-reshard-after-forward", "--prefetch-groups", "2",
                                      "--shard-state-over", "data"}));
}

}  // namespace
}  // namespace tessera::examples::train_transformer_test
