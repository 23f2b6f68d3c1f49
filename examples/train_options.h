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

// The sizes of a model of any family.
struct ModelOptions {
  std::string name = "gpt";  // or "llama" or "mixtral"
  int64_t embed = 128, heads = 8, layers = 4;
  int64_t seq = 128;      // positions: bytes or tokens in a row
  int64_t mlp = -1;       // -1: for gpt 4 embed, else 8/3 embed rounded up to a multiple of 32
  int64_t kv_heads = -1;  // not for gpt; -1: a quarter of the heads if that divides them
  int64_t experts = 8;    // only for mixtral; each token uses two

  std::string title() const { return name == "gpt" ? "GPT" : name == "llama" ? "Llama" : "Mixtral"; }
  // A gpt of bytes has an untied head.
  nn::DecoderConfig decoder(int64_t vocab, bool is_of_bytes) const;
};

// Training on tokens instead of bytes: on texts with a tokenizer, or on token files.
struct TokenOptions {
  std::string tokenizer;            // a tokenizer.json, or its folder; empty: the data are token files
  std::string end_of_text;          // a token after each text
  bool chat = false;                // the data are conversations, written by the chat template of `from` or `tokenizer`
  std::string text_field = "text";  // the field of JSON lines
  std::string from;                 // a Hugging Face folder with the model to start from
  std::string adapter;              // a folder with a PEFT LoRA adapter to merge into `from`
  std::string export_to;            // folder for the trained model in Hugging Face's format
  std::string export_gguf;          // file for the trained model and its tokenizer in llama.cpp's format
  std::vector<std::string> eval;    // files for validation
  int64_t vocab = 0;                // 0: the tokenizer's
  int64_t lora = 0;  // rank of LoRA adapters that are trained instead of the weights; 0: trains the weights
  double router_aux_loss_coef = -1;  // weight of Mixtral's balance loss in training; -1: the value in `from`
  bool used() const { return !tokenizer.empty() || !from.empty() || vocab > 0; }
};

// Options that trade memory, time and communication. Results stay the same, up to rounding with bfloat16.
struct StepOptions {
  std::vector<std::string> shard_state_over;     // mesh axes over which the optimizer's state is also sharded
  int64_t num_micro_batches = -1;                // parts of each device's rows; -1: the strategy's number, or one
  std::optional<nn::PipelineSchedule> schedule;  // order of micro-batches in the stages; nullopt: no pipeline
  DType precision = float32;          // element type of the computation; parameters and their gradients are float32
  bool remat = false;                 // recomputes the activations of blocks in the backward pass
  bool reshard_after_forward = true;  // frees a gathered weight after its use
  // How attention reads a sequence that is sharded over devices.
  ContextParallelism context = ContextParallelism::automatic;
  int64_t prefetch_groups = 1;  // blocks whose weights are gathered ahead, between processes
  bool graphed_step = false;    // records a GPU's loss and gradients as a CUDA graph and replays it

  // With one micro-batch there are no stages, so nothing changes.
  void take(const nn::PipelineOptions& pipeline) {
    if (pipeline.num_micro_batches > 1) num_micro_batches = pipeline.num_micro_batches, schedule = pipeline.schedule;
  }
};

// --strategy auto: the library chooses mesh, rules and shardings (examples/chosen_strategy.h).
struct AutoOptions {
  bool is_on = false;
  int64_t devices = 8;
  int64_t memory = std::numeric_limits<int64_t>::max();  // bytes per device
  std::string hardware;                                  // a file of measured speeds, made if it is missing
};

struct TrainOptions {
  bool help = false;
  std::vector<std::string> arguments;  // as given
  std::vector<std::string> data;       // files and folders
  train::MetricsFiles metrics;
  train::ProfileFlags profile;
  train::SaveFlags save;
  std::string keep_failed_step;  // folder for a failed step
  std::string replay;            // folder of a failed step, which runs alone
  std::vector<MeshAxis> mesh;
  Rules rules;            // names every logical axis of the model
  std::string placement;  // origin of mesh and rules: "strategy 2d: ..."
  AutoOptions automatic;  // if on, mesh, rules and placement are still unknown

  ModelOptions model;
  TokenOptions tokens;
  StepOptions step;
  int64_t steps = 500;
  int64_t batch = 32;                // windows in a global batch
  double learning_rate = 2e-3;       // the peak
  int64_t warmup = -1;               // steps; -1: a tenth of all, at most 100
  uint64_t seed = 0;                 // seed of the parameters, the order of the data, and the sample
  train::SampleOptions sample;       // after the training; no sample if its length is 0
  std::vector<std::string> prompts;  // one sample after each; at least one
};

// An invalid command line; the program exits with status 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorKind::invalid_argument, message) {}
};

// Parses the command line. Errors: UsageError "[command line] --steps: given, expected" for an unknown flag; a missing
// value; a value that is not a number or out of range; a strategy combined with a mesh or rules; a rule for a name that
// the model lacks; an axis that the mesh lacks; a flag without effect. Error: an invalid mesh.
TrainOptions parse_options(const std::vector<std::string>& arguments);

// Returns all flags with their defaults.
std::string usage();

// Returns batch=data,heads=model and so on, without replicated names.
std::string to_flag(const Rules& rules);

}  // namespace tessera::examples
