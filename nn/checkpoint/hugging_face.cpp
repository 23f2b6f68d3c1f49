// Reads and writes weights by a table of names: transposes, splits fused tensors, stacks experts, pads the vocabulary.
#include "nn/checkpoint/hugging_face.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <exception>
#include <functional>
#include <map>
#include <set>

#include "nn/checkpoint/hugging_face_tensors.h"
#include "nn/checkpoint/manifest.h"
#include "nn/checkpoint/save.h"
#include "nn/checkpoint/weight_files.h"
#include "nn/checkpoint/write_plan.h"
#include "nn/placement/filter_shard.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/processes.h"

namespace tessera::nn {

using namespace tessera::detail;
using namespace nn::detail;

namespace {

namespace fs = std::filesystem;

// Inserts the number of an expert: model.layers.0.experts.*.w1.weight -> model.layers.0.experts.3.w1.weight
std::string of_expert(const std::string& name, int64_t expert) {
  const size_t at = name.find('*');
  return fmt::format("{}{}{}", name.substr(0, at), expert, name.substr(at + 1));
}

bool is_per_expert(const HuggingFaceName& from) { return from.name.find('*') != std::string::npos; }

// Returns the names of the tensors of a parameter.
std::vector<std::string> tensors_of(const HuggingFaceName& from, const Leaf& leaf, const WeightFiles& weights) {
  if (!is_per_expert(from))
    return {!from.otherwise.empty() && !weights.contains(from.name) ? from.otherwise : from.name};
  std::vector<std::string> names;
  for (int64_t i = 0; i < leaf.value->shape(0); ++i) names.push_back(of_expert(from.name, i));
  return names;
}

// Returns the vocabulary's dimension of our array; -1 if it has none.
int vocab_dim(const Leaf& leaf) {
  for (size_t d = 0; leaf.axes && d < leaf.axes->size(); ++d)
    if (const AxisName& axis = (*leaf.axes)[d]; !axis.is_none() && axis.name() == "vocab") return static_cast<int>(d);
  return -1;
}

bool is_fused(const FusedPart& part) { return part.blocks > 1; }

bool can_be_divided(const at::Tensor& values, const FusedPart& part) {
  return !is_fused(part) || (values.dim() > 0 && values.size(-1) % (part.groups * part.blocks) == 0);
}

at::Tensor ours(const HuggingFaceName& from, const at::Tensor& theirs) {
  const at::Tensor all = from.transposed ? theirs.transpose(-2, -1) : theirs;
  if (!is_fused(from.part)) return all;
  return all.unflatten(-1, {from.part.groups, from.part.blocks, -1})
      .narrow(-2, from.part.begin, from.part.count)
      .flatten(-3);
}

// Appends zeros along the vocabulary up to the size of our array.
at::Tensor padded(const at::Tensor& values, const Leaf& leaf, int64_t vocab) {
  const int dim = vocab ? vocab_dim(leaf) : -1;
  if (dim < 0 || values.dim() <= dim || values.size(dim) != vocab || leaf.value->shape(dim) <= vocab) return values;
  Shape rest = values.sizes().vec();
  rest[static_cast<size_t>(dim)] = leaf.value->shape(dim) - vocab;
  return at::cat({values, at::zeros(rest, values.options())}, dim);
}

at::Tensor read_one(const std::string& name, const HuggingFaceName& from, const Leaf& leaf, WeightFiles& weights,
                    int64_t vocab) {
  const at::Tensor theirs = to_tensor(weights.read(name));
  if (!theirs.is_floating_point())
    fail(ErrorKind::invalid_file, "load_pretrained", "{}: {} has elements of {}, expected a floating type.", leaf.path,
         name, name_of(static_cast<DType>(theirs.scalar_type())));
  const Shape given = theirs.sizes().vec(), expected = leaf.value->shape();
  const at::IntArrayRef wanted = at::IntArrayRef(expected).slice(is_per_expert(from) && !expected.empty() ? 1 : 0);
  const bool fits = theirs.dim() == static_cast<int64_t>(wanted.size()) && (!from.transposed || theirs.dim() > 1) &&
                    can_be_divided(from.transposed ? theirs.transpose(-2, -1) : theirs, from.part);
  const at::Tensor values = fits ? padded(ours(from, theirs), leaf, vocab) : theirs;
  if (!fits || values.sizes() != wanted)
    fail(ErrorKind::invalid_file, "load_pretrained",
         "{}: {} has the shape {} there, {} here{}. Make the model as large as the weights.", leaf.path, name,
         to_string(given), to_string(wanted.vec()), from.transposed ? " (transposed)" : "");
  return values;
}

at::Tensor read_ours(const HuggingFaceName& from, const Leaf& leaf, WeightFiles& weights, int64_t vocab) {
  std::vector<at::Tensor> read;
  for (const std::string& name : tensors_of(from, leaf, weights))
    read.push_back(read_one(name, from, leaf, weights, vocab));
  const at::Tensor values = is_per_expert(from) ? at::stack(read) : read[0];
  return values.to(static_cast<at::ScalarType>(leaf.value->dtype())).contiguous();
}

Array placed_like(const Leaf& leaf, const Array& values, const std::optional<MeshRules>& place) {
  if (leaf.value->is_lazy() && place)
    return place_parameter(values, *place, resolve(leaf, *place, "load_pretrained").spec, leaf.path);
  return place_parameter_as(values, *leaf.value);
}

bool has_head(const std::vector<HuggingFaceName>& names) {
  return std::any_of(names.begin(), names.end(), [](const auto& name) { return name.path == "head.kernel"; });
}

// Returns Hugging Face's name of a path in the table; "" if it has none.
std::string name_in(const HuggingFaceNames& table, std::string_view path) {
  for (const HuggingFaceName& row : table.rows)
    if (row.path == path) return row.name;
  return "";
}

// Returns the config.json next to the weights, if there is one.
std::optional<boost::json::value> config_at(const fs::path& path) {
  const fs::path file = path / "config.json";
  if (!is_folder(path) || !is_there(file)) return std::nullopt;
  return parse_json(read_text(file, "load_pretrained"), "load_pretrained", file.string());
}

// Returns true if the config ties the head to the embedding; nullopt without one. A missing key has transformers'
// default for the family.
std::optional<bool> is_tied(const std::optional<boost::json::value>& config, const fs::path& path,
                            const HuggingFaceNames& table) {
  if (!config) return std::nullopt;
  const boost::json::value text = text_config(*config);
  return JsonPart{text, (path / "config.json").string(), "load_pretrained"}.flag("tie_word_embeddings", table.tied);
}

// Sets the tensors that replace a missing head or embedding. If they are tied, each can replace the other. Weights
// without a config may belong to a tied model, so the embedding can replace the head.
void set_substitutes(std::vector<HuggingFaceName>& names, const std::string& head_name, std::optional<bool> tied) {
  const bool may_be_head = !has_head(names) || tied.value_or(false);
  for (HuggingFaceName& name : names) {
    if (name.path == "head.kernel" && !tied.value_or(true)) name.otherwise.clear();
    if (name.path == "embed.tokens" && may_be_head) name.otherwise = head_name;
  }
}

void check_all_there(const std::vector<HuggingFaceName>& names, const std::string& head_name, const Leaves& model,
                     const WeightFiles& weights) {
  constexpr size_t enough = 1000;  // to report; a wrong config.json can have 10^8 experts
  std::set<std::string> missing;
  for (size_t i = 0; i < model.size() && missing.size() < enough; ++i)
    for (std::string& name : tensors_of(names[i], model[i], weights))
      if (!weights.contains(name)) missing.insert(std::move(name));
  const bool lacks_only_head = missing == std::set<std::string>{head_name};
  weights.check_has(
      missing, lacks_only_head ? "config.json has no \"tie_word_embeddings\": true, so the head is not the embedding. "
                                 "A base model without head cannot generate."
                               : "Are these weights of this architecture?");
}

void check_tied_head(const HuggingFaceNames& table, const std::vector<HuggingFaceName>& names, WeightFiles& weights) {
  const std::string embedding_name = name_in(table, "embed.tokens"), head_name = name_in(table, "head.kernel");
  if (has_head(names) || !weights.contains(head_name) || !weights.contains(embedding_name)) return;
  const at::Tensor theirs = to_tensor(weights.read(head_name)), embedding = to_tensor(weights.read(embedding_name));
  if (theirs.sizes() != embedding.sizes() || !theirs.equal(embedding))
    fail(ErrorKind::invalid_file, "load_pretrained",
         "{}: {} differs from the embedding, expected the same values for a tied model. For an untied one set "
         "\"tie_word_embeddings\": false in config.json, or give your own model a field `head`.",
         weights.path().string(), head_name);
}

}  // namespace

void load_pretrained(const fs::path& path, const HuggingFaceNames& table, const Leaves& model,
                     const std::optional<MeshRules>& place, int64_t vocab, const std::optional<fs::path>& adapter) {
  const at::AutoGradMode off(false);
  const std::string head_name = name_in(table, "head.kernel");
  std::vector<HuggingFaceName> names = hugging_face_names(table, model);
  const std::optional<boost::json::value> config = config_at(path);
  set_substitutes(names, head_name, is_tied(config, path, table));
  WeightFiles weights(path, config && is_multimodal(*config), adapter);
  check_all_there(names, head_name, model, weights);
  check_tied_head(table, names, weights);
  std::vector<Array> loaded;
  for (size_t i = 0; i < model.size(); ++i)
    loaded.push_back(placed_like(model[i], from_tensor(read_ours(names[i], model[i], weights, vocab)), place));
  weights.check_all_used();
  for (size_t i = 0; i < model.size(); ++i) *model[i].value = loaded[i];
}

namespace {

// The source of a block of a Hugging Face tensor: one of our arrays, or one expert of such an array.
struct Source {
  const Leaf* leaf;
  const HuggingFaceName* from;
  int64_t expert = -1;
  int64_t vocab = 0;

  Shape shape() const {
    Shape all = leaf->value->shape();
    if (const int dim = vocab_dim(*leaf); vocab && dim >= 0) all[static_cast<size_t>(dim)] = vocab;
    if (expert >= 0) all.erase(all.begin());
    return all;
  }
  // Returns the unsharded values in our orientation. This is a collective if the array is on a mesh of several
  // processes.
  at::Tensor values() const {
    const Array part = expert < 0 ? *leaf->value : index_in_dim(*leaf->value, expert, 0, false);
    at::Tensor whole = to_tensor(is_of_several(*leaf) ? gather(part) : part);
    if (const int dim = vocab_dim(*leaf); vocab && dim >= 0) whole = whole.narrow(dim, 0, vocab);
    return whole;
  }
};

using Sources = std::map<std::string, std::vector<Source>>;

void add_sources(Sources& sources, const Leaf& leaf, const HuggingFaceName& from, int64_t vocab) {
  if (const int dim = vocab_dim(leaf); dim >= 0 && (vocab < 0 || vocab > leaf.value->shape(dim)))
    fail(ErrorKind::invalid_argument, "save_pretrained",
         "{}: vocab = {} given, expected 0 to {}, the size of its axis.", leaf.path, vocab, leaf.value->shape(dim));
  if (!is_per_expert(from)) return sources[from.name].push_back({&leaf, &from, -1, vocab});
  for (int64_t i = 0; i < leaf.value->shape(0); ++i)
    sources[of_expert(from.name, i)].push_back({&leaf, &from, i, vocab});
}

// Throws unless all sources have the dimensions of a transposed tensor if it is one, and fill the blocks of the tensor.
void check_sources(const std::string& name, const std::vector<Source>& sources) {
  int64_t filled = 0;
  for (const Source& source : sources) {
    const FusedPart& part = source.from->part;
    const Shape shape = source.shape();
    if (shape.size() < (source.from->transposed ? 2 : 1) || shape.back() % (part.groups * part.count))
      fail(ErrorKind::invalid_argument, "save_pretrained",
           "{}: its shape is {}, {} needs {} dims or more, the last a multiple of {}.", source.leaf->path,
           to_string(shape), name, source.from->transposed ? 2 : 1, part.groups * part.count);
    filled += part.count;
  }
  const Source& first = sources.front();
  if (filled != first.from->part.blocks)
    fail(
        ErrorKind::invalid_argument, "save_pretrained",
        "{}: {} consists of {} blocks, the arrays of the model fill {} of them. nn/checkpoint/hugging_face.h lists the "
        "fields.",
        first.leaf->path, name, first.from->part.blocks, filled);
}

TensorEntry entry_of(const std::string& name, const std::vector<Source>& sources) {
  check_sources(name, sources);
  const Source& first = sources.front();
  Shape shape = first.shape();
  for (const Source& part : std::span(sources).subspan(1)) shape.back() += part.shape().back();
  if (first.from->transposed) std::swap(shape[shape.size() - 2], shape.back());
  return {name, first.leaf->value->dtype(), shape};
}

at::Tensor theirs(const std::vector<Source>& sources) {
  const HuggingFaceName& from = *sources.front().from;
  std::vector<at::Tensor> parts;
  for (const Source& source : sources) {
    const at::Tensor values = source.values();
    const FusedPart& part = source.from->part;
    parts.push_back(is_fused(part) ? values.unflatten(-1, {part.groups, part.count, -1}) : values);
  }
  const at::Tensor all = is_fused(from.part) ? at::cat(parts, -2).flatten(-3) : parts[0];
  return (from.transposed ? all.transpose(-2, -1) : all).contiguous();
}

Sources sources_of(const std::vector<HuggingFaceName>& names, const Leaves& model, int64_t vocab) {
  Sources sources;
  for (size_t i = 0; i < model.size(); ++i) add_sources(sources, model[i], names[i], vocab);
  for (auto& [name, parts] : sources)
    std::sort(parts.begin(), parts.end(),
              [](const auto& a, const auto& b) { return a.from->part.begin < b.from->part.begin; });
  return sources;
}

std::vector<TensorEntry> entries_of(const Sources& sources) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, parts] : sources) entries.push_back(entry_of(name, parts));
  return entries;
}

// Files to write, with their tensors.
using Files = std::vector<std::pair<std::string, SafetensorsPlan>>;

Files files_of(const std::vector<TensorEntry>& entries, int64_t max_file_bytes) {
  Files files;
  for (auto& [file, plan] : plan_files(".", entries, max_file_bytes))
    files.emplace_back(fs::path(file).filename().string(), std::move(plan));
  return files;
}

// Throws if the folder has weights of another model: they would be read instead of these, or in addition to them.
void check_folder(const fs::path& folder, const Files& files) {
  if (!is_folder(folder)) return;
  for (const std::string& name : names_in(folder, "save_pretrained")) {
    const auto is_mine = [&](const auto& plan) { return plan.first == name; };
    if (name.ends_with(".safetensors") && std::none_of(files.begin(), files.end(), is_mine))
      fail(ErrorKind::invalid_file, "save_pretrained",
           "{}: it has weights of another save, {}. Give another folder, or remove them.", folder.string(), name);
  }
}

// Calls `next` once per tensor, in the order of the files and of the tensors in each file.
void write_files(const fs::path& folder, const Files& files, const std::function<at::Tensor()>& next) {
  SafetensorsIndex index;
  check_folder(folder, files);
  if (!is_there(folder)) make_folders(folder, "save_pretrained");
  for (const auto& [file, plan] : files) {
    at::Tensor held;
    write_safetensors(folder / file, plan, [&, &file = file](const TensorEntry& entry) {
      held = next();
      index.files[entry.name] = file;
      index.total_bytes += entry.bytes();
      return std::span(static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes());
    });
  }
  write_text(folder / "model.safetensors.index.json", index.to_json(), "save_pretrained");
}

// Gathers the tensors with all processes, in one order; process 0 writes them. After an error, process 0 continues to
// gather, because the other processes do.
void write_together(const detail::TensorsToWrite& tensors, const std::function<at::Tensor(size_t)>& values) {
  size_t i = 0;
  std::exception_ptr error;
  try {
    if (process_index() == 0) tensors.write([&] { return values(i++); });
  } catch (...) {
    error = std::current_exception();
  }
  while (i < tensors.order.size()) values(i++);
  if (error) std::rethrow_exception(error);
}

}  // namespace

void detail::save_tensors(const fs::path& path, const HuggingFaceNames& table, const Leaves& model, int64_t vocab,
                          const std::function<TensorsToWrite(const std::vector<TensorEntry>&)>& plan) {
  const at::AutoGradMode off(false);
  std::vector<HuggingFaceName> names;
  Sources sources;
  TensorsToWrite tensors;
  const auto make_plan = [&] {
    names = hugging_face_names(table, model);
    sources = sources_of(names, model, vocab);
    tensors = plan(entries_of(sources));
  };
  const auto values = [&](size_t i) { return theirs(sources.at(tensors.order[i])); };
  if (std::none_of(model.begin(), model.end(), [](const Leaf& leaf) { return is_of_several(leaf); })) {
    make_plan();
    return tensors.write([&, i = size_t{0}]() mutable { return values(i++); });
  }
  const auto votes = std::make_shared<Votes>("save", path.string());
  const Processes processes = voting_by(votes);
  together(processes, path, "save", make_plan);
  votes->check_same(tensors.identity, "Save the same model everywhere.");
  together(processes, path, "save", [&] { write_together(tensors, values); });
}

void check_save_pretrained(const fs::path& folder, const HuggingFaceNames& table, const Leaves& model,
                           int64_t max_file_bytes, int64_t vocab) {
  check_folder(folder,
               files_of(entries_of(sources_of(hugging_face_names(table, model), model, vocab)), max_file_bytes));
}

void save_pretrained(const fs::path& folder, const HuggingFaceNames& table, const Leaves& model, int64_t max_file_bytes,
                     int64_t vocab) {
  detail::save_tensors(folder, table, model, vocab, [&](const std::vector<TensorEntry>& entries) {
    const Files files = files_of(entries, max_file_bytes);
    detail::TensorsToWrite tensors;
    std::string headers;
    for (const auto& [file, plan] : files) {
      for (const TensorEntry& entry : plan.tensors()) tensors.order.push_back(entry.name);
      headers += file + plan.header();
    }
    tensors.identity = fmt::format("{} tensors in {} files, mark {:x}", entries.size(), files.size(),
                                   std::hash<std::string>{}(headers));
    tensors.write = [=](const auto& next) { write_files(folder, files, next); };
    return tensors;
  });
}

}  // namespace tessera::nn
