// A table of flags, read from left to right; strategies are spelled in the words of --mesh and --rules.
#include "examples/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>

namespace tessera::examples {
namespace {

[[noreturn]] void refuse(const std::string& flag, const std::string& message) {
  throw UsageError(fmt::format("[command line] {}: {}", flag, message));
}

// ---- values

template <class T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

int64_t whole_number(const std::string& flag, const std::string& text, int64_t least) {
  const auto value = number_in<int64_t>(text);
  constexpr int64_t most = 1'000'000'000'000;
  if (!value || *value < least || *value > most)
    refuse(flag, fmt::format("\"{}\" given, expected a whole number from {} to {}.", text, least, most));
  return *value;
}

double positive_number(const std::string& flag, const std::string& text) {
  const auto value = number_in<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0)
    refuse(flag, fmt::format("\"{}\" given, expected a number above 0, as in 0.001 or 1e-3.", text));
  return *value;
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// ---- rules

std::vector<std::string> names_of(const Rules& rules) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.push_back(rule.logical);
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> mesh_axes_of(const std::string& value, const std::vector<MeshAxis>& mesh) {
  if (value == "replicated") return {};
  std::vector<std::string> known, axes = split_at(value, '+');
  for (const MeshAxis& axis : mesh) known.push_back(axis.name);
  for (const std::string& axis : axes)
    if (!contains(known, axis))
      refuse("--rules", fmt::format("\"{}\" is no axis of the mesh. It has: {}. Use these, or replicated.", axis,
                                    fmt::join(known, ", ")));
  return axes;
}

// "mlp=model,embed=data+model": what it says comes first, in its order; then batch=data, then every other name whole.
Rules rules_of(const std::string& text, const std::vector<MeshAxis>& mesh) {
  const std::vector<std::string> names = names_of(with_all_names({}));
  Rules rules;
  for (const std::string& entry : split_at(text, ',')) {
    if (entry.empty()) continue;
    const size_t equals = entry.find('=');
    if (equals == 0 || equals >= entry.size() - 1)
      refuse("--rules", fmt::format("\"{}\" given, expected name=axis, as in mlp=model or embed=data+model.", entry));
    const std::string name = entry.substr(0, equals);
    if (!contains(names, name))
      refuse("--rules",
             fmt::format("\"{}\" is no logical axis of the model. It has: {}.", name, fmt::join(names, ", ")));
    rules.push_back(Rule(name, mesh_axes_of(entry.substr(equals + 1), mesh)));
  }
  if (!contains(names_of(rules), "batch")) rules.push_back({"batch", "data"});
  return with_all_names(std::move(rules));
}

// ---- strategies

struct Strategy {
  const char *name, *mesh, *rules, *meaning;
};

constexpr Strategy strategies[] = {
    {"dp", "data=8", "", "data parallel: each device has the whole model, and its rows of the batch"},
    {"tp", "model=8", "vocab=model,heads=model,mlp=model",
     "tensor parallel: each device has its heads, its hidden units"},
    {"fsdp", "data=8", "embed=data", "fully sharded: data parallel, and each device keeps an eighth of every matrix"},
    {"2d", "data=4,model=2", "vocab=model,heads=model,mlp=model",
     "tensor parallel along model, data parallel along data"}};

const Strategy& strategy_of(const std::string& name) {
  std::vector<std::string> known;
  for (const Strategy& strategy : strategies) {
    if (name == strategy.name) return strategy;
    known.push_back(strategy.name);
  }
  refuse("--strategy", fmt::format("\"{}\" given, expected one of {}.", name, fmt::join(known, ", ")));
}

struct Placement {
  std::optional<std::string> strategy, mesh, rules;
};

void resolve(const Placement& given, TrainOptions& options) {
  if (given.strategy && (given.mesh || given.rules))
    refuse("--strategy", "it stands for a mesh and rules of its own. Give either it, or --mesh and --rules.");
  if (given.rules && !given.mesh)
    refuse("--rules", "rules without a mesh. Give --mesh too, as in --mesh data=4,model=2.");
  if (given.mesh) {
    options.mesh = parse_mesh_axes(*given.mesh);
    options.rules = rules_of(given.rules.value_or(""), options.mesh);
    options.placement = "as given";
  } else {
    const Strategy& strategy = strategy_of(given.strategy.value_or("2d"));
    options.mesh = parse_mesh_axes(strategy.mesh);
    options.rules = rules_of(strategy.rules, options.mesh);
    options.placement = fmt::format("strategy {}, {}", strategy.name, strategy.meaning);
  }
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

std::vector<Flag> flags_of(TrainOptions& o, Placement& placement) {
  std::vector<Flag> flags = {
      {"--data", "PATH...", "files and folders whose bytes are learnt (the headers of LibTorch)",
       [&](const std::string& path) { o.data.push_back(path); }},
      {"--strategy", "NAME", "where the model lies, one of the four below (2d)",
       [&](const std::string& name) { placement.strategy = name; }},
      {"--mesh", "AXES", "or a mesh, as in data=4,model=2, with batch=data and all else replicated",
       [&](const std::string& axes) { placement.mesh = axes; }},
      {"--rules", "RULES", "changes to these rules, as in mlp=model,embed=data or embed=data+model",
       [&](const std::string& rules) { placement.rules = rules; }},
      {"--metrics", "FILE", "writes one JSON object a line: every step, every validation",
       [&](const std::string& file) { o.metrics.json_lines = file; }},
      {"--tensorboard", "FOLDER", "writes the same as an event file there, for tensorboard --logdir FOLDER",
       [&](const std::string& folder) { o.metrics.tensorboard = folder; }},
      {"--svg", "FILE", "draws the loss curve, anew at every validation",
       [&](const std::string& file) { o.metrics.svg = file; }},
      {"--lr", "X", fmt::format("peak learning rate ({})", o.learning_rate),
       [&](const std::string& text) { o.learning_rate = positive_number("--lr", text); }},
      {"--seed", "N", "of the parameters and the order of the data (0)",
       [&](const std::string& text) { o.seed = static_cast<uint64_t>(whole_number("--seed", text, 0)); }},
      {"--help", "", "this text", {}}};
  const Flag sizes[] = {integer("--steps", o.steps, 1, "optimizer steps"),
                        integer("--warmup", o.warmup, 0, "steps until the peak (a tenth of all, at most 100)"),
                        integer("--batch", o.batch, 1, "windows in a batch, on all devices together"),
                        integer("--seq", o.model.seq, 1, "bytes in a window"),
                        integer("--layers", o.model.layers, 1, "blocks of attention and MLP"),
                        integer("--embed", o.model.embed, 1, "width of the residual stream"),
                        integer("--heads", o.model.heads, 1, "attention heads, which divide --embed"),
                        integer("--mlp", o.model.mlp, 1, "hidden units of an MLP")};
  flags.insert(flags.end() - 1, std::begin(sizes), std::end(sizes));
  return flags;
}

bool is_flag(const std::string& argument) { return argument.starts_with("--"); }

}  // namespace

TrainOptions parse_options(const std::vector<std::string>& arguments) {
  TrainOptions options;
  Placement placement;
  const std::vector<Flag> flags = flags_of(options, placement);
  for (size_t i = 0; i < arguments.size();) {
    const std::string& name = arguments[i++];
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return f.name == name; });
    if (flag == flags.end()) refuse(name, "unknown. --help lists all flags.");
    if (name == "--help") return {.help = true};
    if (i == arguments.size() || is_flag(arguments[i]))
      refuse(name, fmt::format("its value is missing, expected {}.", flag->value));
    do flag->set(arguments[i++]);
    while (flag->value.ends_with("...") && i < arguments.size() && !is_flag(arguments[i]));
  }
  if (options.data.empty()) options.data = {TESSERA_LIBTORCH_INCLUDE};
  if (options.warmup < 0) options.warmup = std::min<int64_t>(100, options.steps / 10);
  resolve(placement, options);
  return options;
}

std::string usage() {
  TrainOptions defaults;
  Placement placement;
  std::string text = "Trains a GPT-2 style decoder on the bytes of any files, on any mesh, by any rules.\n\n";
  for (const Flag& flag : flags_of(defaults, placement))
    text += fmt::format("  {:<22}{}\n", flag.name + " " + flag.value, flag.help);
  text += "\nStrategies\n";
  for (const Strategy& s : strategies) {
    text += fmt::format("  {:<22}{}\n", s.name, s.meaning);
    text += fmt::format("  {:<22}--mesh {}{}{}\n", "", s.mesh, *s.rules ? " --rules " : "", s.rules);
  }
  return text;
}

std::string to_flag(const Rules& rules) {
  std::vector<std::string> entries;
  for (const Rule& rule : rules)
    if (!rule.mesh_axes.empty()) entries.push_back(fmt::format("{}={}", rule.logical, fmt::join(rule.mesh_axes, "+")));
  return fmt::format("{}", fmt::join(entries, ","));
}

}  // namespace tessera::examples
