// The command line of train_transformer: its flags, and the options that they set.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <tessera/nn/models.h>
#include <tessera/nn/transformations.h>
#include <tessera/sharding/base.h>
#include <tessera/sharding/placement.h>

#include "examples/train/metrics.h"
#include "examples/train/run_checkpoints.h"
#include "examples/train/sample.h"
#include "examples/train/step_profile.h"

namespace tessera::examples {

constexpr int64_t byte_values = 256;

// The sizes of any of the models.
struct ModelOptions {
  std::string name = "gpt";  // or llama, or mixtral
  int64_t embed = 128, heads = 8, layers = 4;
  int64_t seq = 128;      // positions: bytes or tokens in a row
  int64_t mlp = -1;       // -1: for gpt 4 embed, else 8/3 embed rounded up to a multiple of 32
  int64_t kv_heads = -1;  // not of gpt; -1: a quarter of the heads, where that divides them
  int64_t experts = 8;    // of mixtral; each token uses two

  std::string title() const { return name == "gpt" ? "GPT" : name == "llama" ? "Llama" : "Mixtral"; }
  // A gpt that learns bytes has a head of its own.
  nn::DecoderConfig decoder(int64_t vocab, bool is_of_bytes) const;
};

// Training on tokens, in place of bytes: of texts by a tokenizer, or of token files.
struct TokenOptions {
  std::string tokenizer;             // a tokenizer.json, or its folder; empty: the data are token files
  std::string end_of_text;           // a token behind each text
  std::string from;                  // a folder of Hugging Face's that has the model to go on from
  std::string export_to;             // where the trained model goes in that form
  std::vector<std::string> eval;     // files of the validation
  int64_t vocab = 0;                 // 0: the tokenizer's
  int64_t lora = 0;                  // the rank of changes that are trained in place of the weights; 0: the weights are
  double router_aux_loss_coef = -1;  // of a Mixtral's balance loss in training; -1: as `from` says
  bool used() const { return !tokenizer.empty() || !from.empty() || vocab > 0; }
};

// Options that trade memory, time and communication; what is learnt stays the same (to rounding, in bfloat16).
struct StepOptions {
  std::vector<std::string> shard_state_over;  // mesh axes over which the optimizer's state is cut as well
  int64_t num_micro_batches = -1;  // parts of each device's rows, one after another; -1: the strategy's, or one
  std::optional<nn::PipelineSchedule>
      schedule;                          // in which they go through layers on stages; none: the layers are on no stages
  DType precision = float32;             // in which the model computes; parameters and their gradients are float32
  bool remat = false;                    // the activations of blocks are computed again in the backward pass
  bool reshard_after_forward = true;     // a gathered weight is freed after its use
  // How attention reads a sequence that devices hold parts of.
  ContextParallelism context = ContextParallelism::automatic;
  int64_t prefetch_groups = 1;  // blocks whose weights are gathered ahead, between processes
  bool graphed_step = false;  // what a GPU computes for loss and gradients is recorded once, and repeated

  // Of one micro-batch nothing: there are no stages.
  void take(const nn::PipelineOptions& pipeline) {
    if (pipeline.num_micro_batches > 1) num_micro_batches = pipeline.num_micro_batches, schedule = pipeline.schedule;
  }
};

// --strategy auto: the library chooses mesh, rules and what lies how (examples/chosen_strategy.h).
struct AutoOptions {
  bool is_on = false;
  int64_t devices = 8;
  int64_t memory = std::numeric_limits<int64_t>::max();  // bytes of each
  std::string hardware;                                  // a file of measured speeds, made if it is missing
};

struct TrainOptions {
  bool help = false;
  std::vector<std::string> arguments;  // as they were given
  std::vector<std::string> data;       // files and folders
  train::MetricsFiles metrics;
  train::ProfileFlags profile;
  train::SaveFlags save;
  std::string keep_failed_step;  // the folder where a step that fails is kept
  std::string replay;            // the folder of such a step, which runs alone
  std::vector<MeshAxis> mesh;
  Rules rules;            // names every logical axis of the model
  std::string placement;  // where mesh and rules come from: "strategy 2d: ..."
  AutoOptions automatic;  // if on, mesh, rules and placement are not known yet

  ModelOptions model;
  TokenOptions tokens;
  StepOptions step;
  int64_t steps = 500;
  int64_t batch = 32;                // windows in a global batch
  double learning_rate = 2e-3;       // at its peak
  int64_t warmup = -1;               // steps; -1: a tenth of all, at most 100
  uint64_t seed = 0;                 // of the parameters, the order of the data and the sample
  train::SampleOptions sample;       // after the training; none if of 0 bytes
  std::vector<std::string> prompts;  // one sample after each; at least one
};

// A wrong command line; the program exits with 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorKind::invalid_argument, message) {}
};

// Errors: UsageError "[command line] --steps: given, expected" for unknown flags, missing values, values that are not
// numbers or out of range, a strategy together with a mesh or rules, a rule for a name that the model does not have, an
// axis that the mesh does not have, and a flag that has no effect; Error for a mesh that cannot be read.
TrainOptions parse_options(const std::vector<std::string>& arguments);

// All flags with their defaults.
std::string usage();

// batch=data,heads=model and so on; the replicated names are left out.
std::string to_flag(const Rules& rules);

}  // namespace tessera::examples
