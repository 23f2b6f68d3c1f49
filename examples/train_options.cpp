// Parses flags from left to right by a table; strategies are written as values of --mesh and --rules.
#include "examples/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "examples/flag_values.h"
#include "examples/transformer.h"

namespace tessera::examples {
namespace {

// ---- rules

std::vector<std::string> names_of(const Rules& rules) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.push_back(rule.logical);
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Parses "data+model"; `hint` ends the message for an unknown mesh axis.
std::vector<std::string> mesh_axes_of(const std::string& flag, const std::string& value,
                                      const std::vector<MeshAxis>& mesh, const char* hint = "") {
  std::vector<std::string> known, axes = split_at(value, '+');
  for (const MeshAxis& axis : mesh) known.push_back(axis.name);
  for (const std::string& axis : axes)
    if (!contains(known, axis))
      refuse(flag, fmt::format("\"{}\" is not an axis of the mesh. It has: {}.{}", axis, fmt::join(known, ", "), hint));
  return axes;
}

Rule rule_of(const std::string& name, const std::string& value, const std::vector<MeshAxis>& mesh) {
  if (value == "replicated") return {name, replicated};
  // The vocabulary may be padded to fit any mesh, because its size is the tokenizer's choice.
  return {name, mesh_axes_of("--rules", value, mesh, " Use these, or replicated."),
          name == "vocab" ? Uneven::pad : Uneven::error};
}

// The vector of blocks, whose rule puts blocks on pipeline stages; no dim has this name.
constexpr const char* layers = "layers";

std::vector<std::string> logical_axes_of(const TrainOptions& options) {
  std::vector<std::string> names = names_of(with_all_names({}));
  names.push_back(layers);
  if (options.tokens.used()) return names;
  std::erase(names, options.model.name == "gpt" ? "kv_heads" : "seq");  // gpt: one name for heads; else no positions
  std::erase(names, "positions");                                       // follow seq
  if (options.model.name != "mixtral") std::erase(names, "experts");
  return names;
}

// Parses "mlp=model,embed=data+model". These rules come first; then batch=data; then all other names, replicated.
Rules rules_of(const std::string& text, const std::vector<MeshAxis>& mesh, const std::vector<std::string>& names) {
  Rules rules;
  for (const std::string& entry : split_at(text, ',')) {
    if (entry.empty()) continue;
    const size_t equals = entry.find('=');
    if (equals == 0 || equals >= entry.size() - 1)
      refuse("--rules", fmt::format("\"{}\" given, expected name=axis, as in mlp=model or embed=data+model.", entry));
    const std::string name = entry.substr(0, equals);
    if (!contains(names, name))
      refuse("--rules",
             fmt::format("\"{}\" is not a logical axis of the model. It has: {}.", name, fmt::join(names, ", ")));
    rules.push_back(rule_of(name, entry.substr(equals + 1), mesh));
  }
  if (!contains(names_of(rules), "batch")) rules.push_back({"batch", "data"});
  const std::vector<std::string> named = names_of(rules);
  for (const std::string& name : names)
    if (!contains(named, name) && name != layers) rules.push_back({name, replicated});
  return with_all_names(std::move(rules));
}

// Returns whether a rule names a mesh axis. Otherwise, the devices along it all repeat the same work.
bool is_divided(const std::vector<MeshAxis>& mesh, const Rules& rules) {
  return std::any_of(mesh.begin(), mesh.end(), [&](const MeshAxis& axis) {
    const auto names_it = [&](const Rule& rule) { return contains(rule.mesh_axes, axis.name); };
    return axis.size > 1 && std::any_of(rules.begin(), rules.end(), names_it);
  });
}

bool is_cut(const std::string& name, const Rules& rules) {
  return std::any_of(rules.begin(), rules.end(),
                     [&](const Rule& rule) { return rule.logical == name && !rule.mesh_axes.empty(); });
}

// Returns the product of the sizes of these axes.
int64_t size_of(const std::vector<std::string>& axes, const std::vector<MeshAxis>& mesh) {
  int64_t size = 1;
  for (const MeshAxis& axis : mesh)
    if (contains(axes, axis.name)) size *= axis.size;
  return size;
}

bool has_devices(const std::vector<MeshAxis>& mesh) {
  return std::any_of(mesh.begin(), mesh.end(), [](const MeshAxis& axis) { return axis.size > 1; });
}

// ---- strategies

// Returns a strategy's rules for the names that the model has.
std::string rules_for(const std::vector<std::string>& names, const std::string& rules) {
  std::vector<std::string> entries = split_at(rules, ',');
  std::erase_if(entries, [&](const std::string& entry) { return !contains(names, entry.substr(0, entry.find('='))); });
  return fmt::format("{}", fmt::join(entries, ","));
}

struct Placement {
  std::optional<std::string> strategy, mesh, rules, shard_state_over, context;
};

void resolve(Placement given, TrainOptions& options) {
  if (given.strategy && (given.mesh || given.rules))
    refuse("--strategy", "it sets mesh and rules. Give either --strategy, or --mesh and --rules.");
  if (given.rules && !given.mesh)
    refuse("--rules", "rules without a mesh. Give --mesh too, as in --mesh data=4,model=2.");
  if (given.context) options.step.context = context_parallelism(*given.context);
  if (given.strategy == automatic) {
    options.automatic.is_on = true;
    return;
  }
  const std::vector<std::string> names = logical_axes_of(options);
  if (given.mesh) {
    options.mesh = parse_mesh_axes(*given.mesh);
    options.rules = rules_of(given.rules.value_or(""), options.mesh, names);
    options.placement = "as given";
    if (has_devices(options.mesh) && !is_divided(options.mesh, options.rules))
      options.placement += "; no rule names an axis of it, so nothing is sharded and all devices do the same work";
  } else {
    const Strategy& strategy = strategy_of(given.strategy.value_or("2d"));
    if (strategy.needs_experts && !contains(names, "experts"))
      refuse("--strategy", fmt::format("{} places experts, and {} has none. Give --model mixtral too.", strategy.name,
                                       options.model.name));
    options.mesh = parse_mesh_axes(strategy.mesh);
    options.rules = rules_of(rules_for(names, strategy.rules), options.mesh, names);
    options.placement = fmt::format("strategy {}, {}", strategy.name, strategy.meaning);
    if (!given.shard_state_over && *strategy.shard_state_over) given.shard_state_over = strategy.shard_state_over;
    if (!given.context && *strategy.context) options.step.context = context_parallelism(strategy.context);
    if (options.step.num_micro_batches < 0) options.step.num_micro_batches = strategy.num_micro_batches;
  }
  if (is_cut(layers, options.rules) && !options.step.schedule)
    options.step.schedule = nn::PipelineSchedule::one_f_one_b;
  if (given.shard_state_over)
    options.step.shard_state_over =
        mesh_axes_of("--shard-state-over", *given.shard_state_over, options.mesh, " Join several with +.");
}

// ---- flags

struct Flag {
  std::string name, value, help;
  std::function<void(const std::string&)> set;
};

Flag integer(const std::string& name, int64_t& field, int64_t least, const std::string& help) {
  const std::string shown = field < least ? help : fmt::format("{} ({})", help, field);
  return {name, "N", shown,
          [&field, name, least](const std::string& text) { field = whole_number(name, text, least); }};
}

template <class Text>
Flag words(const std::string& name, const std::string& value, Text& field, const std::string& help) {
  const bool is_path = value == "FOLDER" || value == "DIR" || value == "FILE" || value == "PATH";
  return {name, value, help, [&field, name, is_path](const std::string& text) {
            if (is_path && text.empty()) refuse(name, "\"\" given, expected a path.");
            field = text;
          }};
}

Flag sets(const std::string& name, bool& field, bool value, const std::string& help) {
  return {name, "", help, [&field, value](const std::string&) { field = value; }};
}

std::vector<Flag> flags_of(TrainOptions& o, Placement& placement) {
  return {
      {"--data", "PATH...", "files and folders of training data, read as bytes or tokens (the headers of LibTorch)",
       [&](const std::string& path) { o.data.push_back(path); }},
      words("--tokenizer", "PATH", o.tokens.tokenizer, "trains on the tokens of a tokenizer.json instead of bytes"),
      words("--end-of-text", "TOKEN", o.tokens.end_of_text, "a token that ends each text"),
      words("--text-field", "FIELD", o.tokens.text_field, "the field of .jsonl files that has the text (text)"),
      {"--vocab", "N", "ids of the model's tokens (the tokenizer's); without a tokenizer the data are token files",
       [&](const std::string& text) { o.tokens.vocab = whole_number("--vocab", text, 1); }},
      {"--eval", "PATH...", "files of the validation of tokens (the last hundredth of the documents)",
       [&](const std::string& path) { o.tokens.eval.push_back(path); }},
      sets("--chat", o.tokens.chat, true,
           "trains on the assistant's turns of conversations (.jsonl); a --prompt is the message of a user"),
      words("--from", "FOLDER", o.tokens.from, "continues from a Hugging Face model, with its tokenizer unless given"),
      words("--adapter", "FOLDER", o.tokens.adapter, "merges a LoRA adapter of PEFT into the weights of --from"),
      {"--lora", "RANK", "trains LoRA adapters of this rank instead of the weights of --from",
       [&](const std::string& text) { o.tokens.lora = whole_number("--lora", text, 1); }},
      {"--router-aux-loss-coef", "X",
       "the weight of the routers' balance loss of a Mixtral model (as in --from, or none)",
       [&](const std::string& text) {
         o.tokens.router_aux_loss_coef = positive_number("--router-aux-loss-coef", text);
       }},
      words("--export", "FOLDER", o.tokens.export_to, "writes the trained model for transformers"),
      words("--export-gguf", "FILE", o.tokens.export_gguf, "writes the trained model and its tokenizer for llama.cpp"),
      {"--model", "NAME",
       "gpt (GPT-2 style), llama (rotary positions, grouped queries, SwiGLU) or mixtral (llama of experts) (gpt)",
       [&](const std::string& name) { o.model.name = model_name(name); }},
      words("--strategy", "NAME", placement.strategy, "how the model is sharded, one of those below (2d)"),
      integer("--devices", o.automatic.devices, 1, "the number of devices for --strategy auto"),
      {"--memory", "BYTES", "memory of each device, the limit for --strategy auto, as in 4GB (any)",
       [&](const std::string& text) { o.automatic.memory = bytes_of("--memory", text); }},
      words("--hardware", "FILE", o.automatic.hardware,
            "speeds for --strategy auto; measured and kept there if it is missing (a GPU's)"),
      words("--mesh", "AXES", placement.mesh,
            "or a mesh, as in data=4,model=2 or model=2,data=4:across (across machines), with batch=data and all else "
            "replicated"),
      words("--rules", "RULES", placement.rules,
            "changes to these rules, as in mlp=model,embed=data or embed=data+model"),
      words("--shard-state-over", "AXES", placement.shard_state_over,
            "also shards the optimizer's state over these axes of the mesh, as in data or data+model"),
      words("--context-parallelism", "HOW", placement.context,
            "exchange, gather or ring: how attention reads a sharded sequence (the least communication)"),
      sets("--remat", o.step.remat, true, "computes the activations of blocks again in the backward pass"),
      integer("--micro-batches", o.step.num_micro_batches, 1,
              "micro-batches of each device's rows, computed one after another"),
      {"--schedule", "NAME", "gpipe or one_f_one_b: the order of micro-batches on stages (one_f_one_b)",
       [&](const std::string& name) { o.step.schedule = schedule_of(name); }},
      {"--precision", "TYPE", "float32 or bfloat16: what the model computes in; parameters stay float32 (float32)",
       [&](const std::string& name) { o.step.precision = precision_of(name); }},
      sets("--no-reshard-after-forward", o.step.reshard_after_forward, false,
           "keeps a gathered weight until the step ends, instead of a second gather"),
      integer("--prefetch-groups", o.step.prefetch_groups, 0, "blocks whose weights are prefetched, between processes"),
      sets("--graphed-step", o.step.graphed_step, true,
           "records loss and gradients as a CUDA graph, and replays it without the host"),
      words("--metrics", "FILE", o.metrics.json_lines, "writes one JSON object a line: every step, every validation"),
      words("--tensorboard", "FOLDER", o.metrics.tensorboard,
            "writes the same as an event file there, for tensorboard --logdir FOLDER"),
      words("--report", "FILE", o.metrics.report,
            "writes a page of placement, communication and curves, again at every validation"),
      words("--profile", "FOLDER", o.profile.folder,
            "measures some steps: a trace for ui.perfetto.dev, and tables of where the time goes"),
      integer("--profile-steps", o.profile.steps, 1, "the number of steps to measure"),
      {"--peak-flops", "X", "operations a second of one device at its peak, as in 989e12, for the MFU",
       [&](const std::string& text) { o.profile.flops_per_second = positive_number("--peak-flops", text); }},
      words("--save", "DIR", o.save.folder, "saves checkpoints there: the newest two, and the last step's"),
      integer("--save-every", o.save.every, 1, "steps between checkpoints (a tenth of all)"),
      sets("--resume", o.save.resume, true, "continues from the newest checkpoint in --save, if any, on any mesh"),
      sets("--save-on-signal", o.save.on_signal, true, "SIGTERM saves a checkpoint and ends the run with status 75"),
      words("--keep-failed-step", "DIR", o.keep_failed_step,
            "keeps a training step that fails there: state, batch, flags"),
      words("--replay", "DIR", o.replay, "runs a kept step alone, on one device, and prints which operation fails"),
      {"--lr", "X", fmt::format("peak learning rate ({})", o.learning_rate),
       [&](const std::string& text) { o.learning_rate = positive_number("--lr", text); }},
      {"--seed", "N", "of the parameters, the order of the data and the sample (0)",
       [&](const std::string& text) { o.seed = static_cast<uint64_t>(whole_number("--seed", text, 0)); }},
      integer("--steps", o.steps, 1, "optimizer steps"),
      integer("--warmup", o.warmup, 0, "steps until the peak (a tenth of all, at most 100)"),
      integer("--batch", o.batch, 1, "windows in a batch, on all devices together"),
      integer("--seq", o.model.seq, 1, "bytes or tokens in a row"),
      integer("--layers", o.model.layers, 1, "blocks of attention and MLP"),
      integer("--embed", o.model.embed, 1, "width of the residual stream"),
      integer("--heads", o.model.heads, 1, "attention heads, which divide --embed"),
      integer("--kv-heads", o.model.kv_heads, 1, "heads of keys and values, not of gpt (a quarter of --heads)"),
      integer("--experts", o.model.experts, 2, "experts of mixtral, of which each token uses two"),
      integer("--mlp", o.model.mlp, 1, "hidden units of an MLP (of gpt 4 --embed, else 8/3, rounded up to 32s)"),
      {"--sample", "N", "prints so many bytes or tokens that the trained model generates",
       [&](const std::string& text) { o.sample.length = whole_number("--sample", text, 1); }},
      {"--prompt", "TEXT...", "the text that the sample continues, one sample for each (a line break)",
       [&](const std::string& text) { o.prompts.push_back(text); }},
      words("--stop", "TEXT", o.sample.stop, "ends the sample at this text"),
      {"--top-k", "N", "draws the sample from so many of the likeliest tokens (all)",
       [&](const std::string& text) { o.sample.sampling.top_k = whole_number("--top-k", text, 1); }},
      {"--top-p", "X", "draws the sample from the likeliest whose probabilities sum to this (1)",
       [&](const std::string& text) { o.sample.sampling.top_p = share_of(text); }},
      {"--temperature", "X",
       fmt::format("of the sample: lower is likelier, 0 always the likeliest ({})", o.sample.sampling.temperature),
       [&](const std::string& text) { o.sample.sampling.temperature = temperature_of(text); }},
      sets("--help", o.help, true, "this text")};
}

// Throws if no rule of the batch divides its rows evenly.
void check_batch(const TrainOptions& options) {
  const Rule* first = nullptr;
  for (const Rule& rule : options.rules) {
    if (rule.logical != "batch") continue;
    const int64_t size = size_of(rule.mesh_axes, options.mesh);
    if (size < 1 || options.batch % size == 0) return;  // make_mesh throws for an axis of size 0
    if (!first) first = &rule;
  }
  if (first)
    refuse("--batch",
           fmt::format("{} given, expected a multiple of {}, the size of batch={} on the mesh.", options.batch,
                       size_of(first->mesh_axes, options.mesh), fmt::join(first->mesh_axes, "+")));
}

// Throws for a flag that has no effect.
void check_used(const std::vector<std::string>& given, const TrainOptions& options) {
  if (!options.replay.empty() && given.size() > 1)
    refuse("--replay", "the kept step has the flags of its run. Leave the others out.");
  for (const char* flag : {"--save-every", "--resume", "--save-on-signal"})
    if (options.save.folder.empty() && contains(given, flag)) refuse(flag, "nothing is saved. Give --save DIR too.");
  if (options.profile.folder.empty() && contains(given, "--profile-steps"))
    refuse("--profile-steps", "no step is measured. Give --profile FOLDER too.");
  for (const char* flag : {"--devices", "--memory", "--hardware"})
    if (!options.automatic.is_on && contains(given, flag))
      refuse(flag, "the mesh is given. Give --strategy auto too, which chooses one.");
  for (const char* flag : {"--shard-state-over", "--no-reshard-after-forward"})
    if (options.automatic.is_on && contains(given, flag)) refuse(flag, "--strategy auto sets it. Leave it out.");
  if (options.model.name == "gpt" && contains(given, "--kv-heads"))
    refuse("--kv-heads", "gpt has as many as --heads. Give --model llama too, or leave it out.");
  const ModelOptions& model = options.model;
  if (model.embed % model.heads)
    refuse("--heads", fmt::format("{} given, expected a divisor of --embed = {}.", model.heads, model.embed));
  if (model.name != "gpt" && model.embed / model.heads % 2)
    refuse("--heads", fmt::format("{} of --embed {} given, expected heads of an even size, whose halves are turned.",
                                  model.heads, model.embed));
  if (model.kv_heads > 0 && model.heads % model.kv_heads)
    refuse("--kv-heads", fmt::format("{} given, expected a divisor of --heads = {}.", model.kv_heads, model.heads));
  if (options.model.name != "mixtral" && contains(given, "--experts"))
    refuse("--experts", fmt::format("{} has none. Give --model mixtral too, or leave it out.", options.model.name));
  if (!options.automatic.is_on && contains(given, "--context-parallelism") && !is_cut("stream_seq", options.rules))
    refuse("--context-parallelism", "the sequence is replicated. Give a rule for stream_seq too.");
  if (contains(given, "--schedule") && !is_cut(layers, options.rules))
    refuse("--schedule", "the layers are on no stages. Give a rule for layers too.");
  for (const char* flag : {"--prompt", "--temperature", "--top-k", "--top-p", "--stop"})
    if (!options.sample.length && contains(given, flag)) refuse(flag, "no sample is requested. Give --sample N too.");
  if (contains(options.prompts, "")) refuse("--prompt", "\"\" given, expected a byte or more to continue.");
}

// Returns whether the folder has a tokenizer in addition to the model.
bool is_tokenizer(const std::filesystem::path& folder) {
  return !folder.empty() && (exists(folder / "tokenizer.json") || exists(folder / "merges.txt"));
}

// Checks flags of tokens, and flags that conflict with a model's folder.
void check_tokens(const std::vector<std::string>& given, const TrainOptions& options) {
  const TokenOptions& tokens = options.tokens;
  for (const char* flag : {"--end-of-text", "--text-field", "--eval", "--chat", "--adapter", "--lora",
                           "--router-aux-loss-coef", "--export", "--export-gguf"})
    if (!tokens.used() && contains(given, flag))
      refuse(flag, "the model is trained on bytes. Give --tokenizer, --from or --vocab too, to train on tokens.");
  if (tokens.used() && options.data.empty())
    refuse("--data", "no files, expected texts, or token files (.bin, .idx, .npy).");
  if (!tokens.adapter.empty() && tokens.from.empty())
    refuse("--adapter", "no weights to merge into. Give --from FOLDER, its base model, too.");
  if (tokens.chat && tokens.tokenizer.empty())
    refuse("--chat", "no chat template. Give --from FOLDER or --tokenizer FOLDER with tokenizer.json and a template.");
  if (tokens.chat && !tokens.end_of_text.empty())
    refuse("--end-of-text", "the chat template ends turns and texts. Leave it out.");
  if (tokens.lora && tokens.from.empty()) refuse("--lora", "no weights to adapt. Give --from FOLDER too.");
  if (tokens.router_aux_loss_coef > 0 && tokens.from.empty() && options.model.name != "mixtral")
    refuse("--router-aux-loss-coef", "no routers to balance. Give --model mixtral or --from FOLDER of one too.");
  for (const char* flag : {"--model", "--layers", "--embed", "--heads", "--kv-heads", "--mlp", "--experts", "--vocab"})
    if (!tokens.from.empty() && contains(given, flag))
      refuse(flag, fmt::format("{} sets it too. Leave one of them out.", tokens.from));
}

bool is_flag(const std::string& argument) { return argument.starts_with("--"); }

// Sets the values of a flag from arguments[next] on.
void set_values(const Flag& flag, const std::vector<std::string>& arguments, size_t& next) {
  if (flag.value.empty()) return flag.set("");
  if (next == arguments.size() || is_flag(arguments[next]))
    refuse(flag.name, fmt::format("its value is missing, expected {}.", flag.value));
  do flag.set(arguments[next++]);
  while (flag.value.ends_with("...") && next < arguments.size() && !is_flag(arguments[next]));
}

// Returns the absolute path without links.
std::filesystem::path resolved(const std::string& path) {
  std::error_code unknown;
  const auto all = std::filesystem::weakly_canonical(std::filesystem::absolute(path + "/."), unknown);
  return unknown ? std::filesystem::path(path) : all;
}

// Throws if two outputs are the same file or folder, or if the export would be in a checkpoint.
void check_outputs(const TrainOptions& o) {
  std::map<std::string, std::string> flags;
  for (const auto& [flag, path] : {std::pair("--metrics", o.metrics.json_lines),
                                   {"--tensorboard", o.metrics.tensorboard},
                                   {"--report", o.metrics.report},
                                   {"--export", o.tokens.export_to},
                                   {"--export-gguf", o.tokens.export_gguf},
                                   {"--profile", o.profile.folder},
                                   {"--keep-failed-step", o.keep_failed_step},
                                   {"--save", o.save.folder}}) {
    if (path.empty()) continue;
    const auto [other, is_new] = flags.emplace(resolved(path).string(), flag);
    if (!is_new) refuse(flag, fmt::format("{}, as for {}. Give two paths.", path, other->second));
  }
  if (o.save.folder.empty() || o.tokens.export_to.empty()) return;
  const auto relative = resolved(o.tokens.export_to).lexically_relative(resolved(o.save.folder));
  const std::string first = relative.empty() ? "" : relative.begin()->string();
  if (!first.empty() && first.find_first_not_of("0123456789") == std::string::npos)
    refuse("--export", fmt::format("{}, in the folder of a checkpoint of --save. Give another.", o.tokens.export_to));
}

}  // namespace

TrainOptions parse_options(const std::vector<std::string>& arguments) {
  TrainOptions options{.arguments = arguments};
  Placement placement;
  std::vector<std::string> given;
  const std::vector<Flag> flags = flags_of(options, placement);
  for (size_t i = 0; i < arguments.size();) {
    const std::string& name = arguments[i++];
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return f.name == name; });
    if (flag == flags.end()) refuse(name, "unknown. --help lists all flags.");
    given.push_back(name);
    set_values(*flag, arguments, i);
  }
  if (options.help) return options;
  if (placement.mesh && placement.mesh->empty()) refuse("--mesh", "\"\" given, expected axes, as in data=4.");
  check_outputs(options);
  if (options.tokens.tokenizer.empty() && is_tokenizer(options.tokens.from))
    options.tokens.tokenizer = options.tokens.from;
  check_tokens(given, options);
  if (options.data.empty()) options.data = {TESSERA_LIBTORCH_INCLUDE};
  if (options.prompts.empty()) options.prompts = {options.sample.prompt};
  if (options.warmup < 0) options.warmup = std::min<int64_t>(100, options.steps / 10);
  if (options.save.every < 0) options.save.every = std::max<int64_t>(1, options.steps / 10);
  resolve(placement, options);
  options.step.num_micro_batches = std::max<int64_t>(1, options.step.num_micro_batches);
  check_used(given, options);
  check_batch(options);
  return options;
}

std::string usage() {
  TrainOptions defaults;
  Placement placement;
  std::string text = "Trains a transformer on the bytes or tokens of any files, on any mesh, by any rules.\n\n";
  for (const Flag& flag : flags_of(defaults, placement)) {
    const std::string left = flag.name + " " + flag.value;
    text += fmt::format("  {:<22}{}{}\n", left, left.size() < 22 ? "" : "\n" + std::string(24, ' '), flag.help);
  }
  text += "\nStrategies\n" + strategies_usage();
  return text;
}

std::string to_flag(const Rules& rules) {
  std::vector<std::string> entries;
  for (const Rule& rule : rules)
    if (!rule.mesh_axes.empty())
      entries.push_back(fmt::format("{}={}", rule.is_by_name() ? rule.logical : rule.arrays.to_string(),
                                    fmt::join(rule.mesh_axes, "+")));
  return fmt::format("{}", fmt::join(entries, ","));
}

}  // namespace tessera::examples
