// Two tables of names, and the transpositions and columns between them and ours.
#include "nn/checkpoint/hugging_face.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <set>

#include "nn/checkpoint/manifest.h"
#include "nn/checkpoint/save.h"
#include "nn/checkpoint/write_plan.h"
#include "nn/placement/filter_shard.h"
#include "sharding/array/array_impl.h"
#include "sharding/diagnostics/fail.h"
#include "sharding/distributed/processes.h"
#include "sharding/files/file.h"
#include "sharding/files/safetensors.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

using namespace tessera::detail;

namespace {

namespace fs = std::filesystem;

// # stands for a layer's number.
const std::vector<HuggingFaceName>& rows_of(HuggingFaceLayout layout) {
  static const std::vector<HuggingFaceName> gpt2{
      {"embed.tokens", "transformer.wte.weight"},
      {"embed.positions", "transformer.wpe.weight"},
      {"layers.#.ln1.scale", "transformer.h.#.ln_1.weight"},
      {"layers.#.ln1.bias", "transformer.h.#.ln_1.bias"},
      {"layers.#.attn.q.kernel", "transformer.h.#.attn.c_attn.weight", false, 0, 3},
      {"layers.#.attn.k.kernel", "transformer.h.#.attn.c_attn.weight", false, 1, 3},
      {"layers.#.attn.v.kernel", "transformer.h.#.attn.c_attn.weight", false, 2, 3},
      {"layers.#.attn.q.bias", "transformer.h.#.attn.c_attn.bias", false, 0, 3},
      {"layers.#.attn.k.bias", "transformer.h.#.attn.c_attn.bias", false, 1, 3},
      {"layers.#.attn.v.bias", "transformer.h.#.attn.c_attn.bias", false, 2, 3},
      {"layers.#.attn.o.kernel", "transformer.h.#.attn.c_proj.weight"},
      {"layers.#.attn.o.bias", "transformer.h.#.attn.c_proj.bias"},
      {"layers.#.ln2.scale", "transformer.h.#.ln_2.weight"},
      {"layers.#.ln2.bias", "transformer.h.#.ln_2.bias"},
      {"layers.#.mlp.up.kernel", "transformer.h.#.mlp.c_fc.weight"},
      {"layers.#.mlp.up.bias", "transformer.h.#.mlp.c_fc.bias"},
      {"layers.#.mlp.down.kernel", "transformer.h.#.mlp.c_proj.weight"},
      {"layers.#.mlp.down.bias", "transformer.h.#.mlp.c_proj.bias"},
      {"final_ln.scale", "transformer.ln_f.weight"},
      {"final_ln.bias", "transformer.ln_f.bias"},
      {"head.kernel", "lm_head.weight", true, 0, 1, "transformer.wte.weight"}};
  static const std::vector<HuggingFaceName> llama{
      {"embed.tokens", "model.embed_tokens.weight"},
      {"layers.#.norm1.scale", "model.layers.#.input_layernorm.weight"},
      {"layers.#.attn.q.kernel", "model.layers.#.self_attn.q_proj.weight", true},
      {"layers.#.attn.k.kernel", "model.layers.#.self_attn.k_proj.weight", true},
      {"layers.#.attn.v.kernel", "model.layers.#.self_attn.v_proj.weight", true},
      {"layers.#.attn.o.kernel", "model.layers.#.self_attn.o_proj.weight", true},
      {"layers.#.norm2.scale", "model.layers.#.post_attention_layernorm.weight"},
      {"layers.#.mlp.gate.kernel", "model.layers.#.mlp.gate_proj.weight", true},
      {"layers.#.mlp.up.kernel", "model.layers.#.mlp.up_proj.weight", true},
      {"layers.#.mlp.down.kernel", "model.layers.#.mlp.down_proj.weight", true},
      {"final_norm.scale", "model.norm.weight"},
      {"head.kernel", "lm_head.weight", true, 0, 1, "model.embed_tokens.weight"}};
  return layout == HuggingFaceLayout::gpt2 ? gpt2 : llama;
}

const std::string& embedding_of(HuggingFaceLayout layout) { return rows_of(layout)[0].name; }

// layers.12.ln1.scale -> layers.#.ln1.scale, and the 12.
std::pair<std::string, std::string> without_number(const std::string& path) {
  constexpr std::string_view before = "layers.";
  if (!path.starts_with(before)) return {path, ""};
  const size_t end = path.find_first_not_of("0123456789", before.size());
  if (end == before.size() || end == path.npos) return {path, ""};
  return {fmt::format("{}#{}", before, path.substr(end)), path.substr(before.size(), end - before.size())};
}

std::string with_number(std::string_view pattern, const std::string& number) {
  const size_t at = pattern.find('#');
  if (at == pattern.npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), number, pattern.substr(at + 1));
}

// Computed, not learnt: kept in older files.
bool is_computed(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

// The tensors of one file or many, each by the name in the map.
class Weights {
 public:
  explicit Weights(const fs::path& path) : path_(path) {
    const fs::path index = path / "model.safetensors.index.json";
    if (!fs::is_directory(path)) {
      add(SafetensorsFile::open(path));
    } else if (!fs::exists(index)) {
      add(SafetensorsFile::open(path / "model.safetensors"));
    } else {
      const auto listed = SafetensorsIndex::from_json(read_text(index, "load_hugging_face"), index.string());
      std::set<std::string> files;
      for (const auto& [tensor, file] : listed.files) files.insert(file);
      for (const std::string& file : files) add(SafetensorsFile::open(path / file));
    }
  }

  bool contains(const std::string& name) const { return find(name) != tensors_.end(); }

  at::Tensor read(const std::string& name) {
    const auto found = find(name);
    if (found == tensors_.end())
      fail(ErrorKind::bad_file, "load_hugging_face", "{}: it has no \"{}\". Are these weights of this architecture?",
           path_.string(), name);
    used_.insert(found->first);
    return to_tensor(found->second.array(found->first));
  }

  void check_all_used() const {
    std::vector<std::string> left;
    for (const auto& [name, file] : tensors_)
      if (!used_.contains(name) && !is_computed(name)) left.push_back(name);
    if (!left.empty())
      fail(ErrorKind::bad_file, "load_hugging_face",
           "{}: {} of its tensors have no place in the model: {}. Make the model as large as the weights.",
           path_.string(), left.size(), fmt::join(std::span(left).first(std::min<size_t>(8, left.size())), ", "));
  }

 private:
  using Tensors = std::map<std::string, SafetensorsFile>;

  void add(const SafetensorsFile& file) {
    for (const std::string& name : file.names())
      if (const auto [there, fresh] = tensors_.emplace(name, file); !fresh)
        fail(ErrorKind::bad_file, "load_hugging_face",
             "{}: \"{}\" is in {} and in {}. Keep the file that belongs to the weights.", path_.string(), name,
             there->second.path().filename().string(), file.path().filename().string());
  }
  Tensors::const_iterator find(const std::string& name) const {
    constexpr std::string_view prefix = "transformer.";
    const auto found = tensors_.find(name);
    return found == tensors_.end() && name.starts_with(prefix) ? tensors_.find(name.substr(prefix.size())) : found;
  }

  fs::path path_;
  Tensors tensors_;
  std::set<std::string> used_;
};

at::Tensor ours(const HuggingFaceName& from, at::Tensor theirs) {
  if (from.parts > 1) {
    const int64_t size = theirs.size(-1) / from.parts;
    theirs = theirs.narrow(-1, from.part * size, size);
  }
  return from.transposed ? theirs.t() : theirs;
}

at::Tensor read_ours(const HuggingFaceName& from, const Leaf& leaf, Weights& weights) {
  const bool instead = !from.otherwise.empty() && !weights.contains(from.name);
  const at::Tensor theirs = weights.read(instead ? from.otherwise : from.name);
  const Shape given = theirs.sizes().vec();
  const bool can_turn = !from.transposed || theirs.dim() == 2;
  const bool can_cut = from.parts == 1 || (theirs.dim() > 0 && theirs.size(-1) % from.parts == 0);
  const at::Tensor values = can_turn && can_cut ? ours(from, theirs) : theirs;
  if (!can_turn || !can_cut || values.sizes() != at::IntArrayRef(leaf.value->shape()))
    fail(ErrorKind::bad_file, "load_hugging_face",
         "{}: {} has the shape {} there, {} here{}. Make the model as large as the weights.", leaf.path, from.name,
         to_string(given), to_string(leaf.value->shape()), from.transposed ? " (transposed)" : "");
  return values.to(static_cast<at::ScalarType>(leaf.value->dtype())).contiguous();
}

Array placed_like(const Leaf& leaf, const Array& values, const std::optional<Layout>& place) {
  if (leaf.value->is_recipe() && place)
    return place_parameter(values, *place, resolve(leaf, *place, "load_hugging_face").spec, leaf.path);
  if (!leaf.value->is_committed()) return values;
  Array placed = place_parameter(values, leaf.value->sharding(), leaf.value->path());
  placed.impl()->layout = leaf.value->impl()->layout;
  return placed;
}

void check_tied_head(HuggingFaceLayout layout, const std::vector<HuggingFaceName>& names, Weights& weights) {
  constexpr const char* head = "lm_head.weight";
  const bool has_head = std::any_of(names.begin(), names.end(), [&](const auto& name) { return name.name == head; });
  if (has_head || !weights.contains(head)) return;
  const at::Tensor theirs = weights.read(head), embedding = weights.read(embedding_of(layout));
  if (theirs.sizes() != embedding.sizes() || !theirs.equal(embedding))
    fail(ErrorKind::bad_file, "load_hugging_face",
         "lm_head.weight differs from the embedding, and the model has no head of its own. Give it a field `head`.");
}

}  // namespace

std::vector<HuggingFaceName> hugging_face_names(HuggingFaceLayout layout, const Leaves& model) {
  std::vector<HuggingFaceName> names;
  for (const Leaf& leaf : model) {
    const auto [pattern, number] = without_number(leaf.path);
    const auto& rows = rows_of(layout);
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.path == pattern; });
    if (row == rows.end())
      fail(ErrorKind::bad_argument, "hugging_face",
           "{}: this path is not in the map of {}. nn/checkpoint/hugging_face.h lists the fields.", leaf.path,
           layout == HuggingFaceLayout::gpt2 ? "gpt2" : "llama");
    names.push_back(*row);
    names.back().path = leaf.path, names.back().name = with_number(row->name, number);
  }
  return names;
}

void load_hugging_face(const fs::path& path, HuggingFaceLayout layout, const Leaves& model,
                       const std::optional<Layout>& place) {
  const at::AutoGradMode off(false);
  const std::vector<HuggingFaceName> names = hugging_face_names(layout, model);
  Weights weights(path);
  check_tied_head(layout, names, weights);
  std::vector<Array> loaded;
  for (size_t i = 0; i < model.size(); ++i)
    loaded.push_back(placed_like(model[i], from_tensor(read_ours(names[i], model[i], weights)), place));
  weights.check_all_used();
  for (size_t i = 0; i < model.size(); ++i) *model[i].value = loaded[i];
}

namespace {

// Of one tensor there, the arrays of ours that it is made of, in order.
using Sources = std::map<std::string, std::vector<std::pair<const Leaf*, const HuggingFaceName*>>>;

// Kernels are matrices, and what is cut into parts there needs all of them here.
void check_sources(const std::string& name, const Sources::mapped_type& sources) {
  for (const auto& [leaf, from] : sources)
    if (const Shape shape = leaf->value->shape(); shape.size() < (from->transposed ? 2 : 1) || shape.size() > 2)
      fail(ErrorKind::bad_argument, "save_hugging_face",
           "{}: its shape is {}, {} needs {} dims. nn/checkpoint/hugging_face.h lists the fields.", leaf->path,
           to_string(shape), name, from->transposed ? "2" : "1 or 2");
  const auto& [first, from] = sources.front();
  if (static_cast<int64_t>(sources.size()) != from->parts)
    fail(ErrorKind::bad_argument, "save_hugging_face",
         "{}: {} is made of {} arrays, the model has {} of them. nn/checkpoint/hugging_face.h lists the fields.",
         first->path, name, from->parts, sources.size());
}

TensorEntry entry_of(const std::string& name, const Sources::mapped_type& sources) {
  check_sources(name, sources);
  const auto& [leaf, from] = sources.front();
  Shape shape = leaf->value->shape();
  if (from->transposed) std::swap(shape[0], shape[1]);
  shape.back() = 0;
  for (const auto& [part, unused] : sources) shape.back() += part->value->shape(from->transposed ? 0 : -1);
  return {name, leaf->value->dtype(), shape};
}

// Of one tensor there; on processes of one mesh a collective.
at::Tensor theirs(const Sources::mapped_type& sources) {
  std::vector<at::Tensor> parts;
  for (const auto& [leaf, from] : sources) {
    const at::Tensor whole = to_tensor(is_of_several(*leaf) ? gather(*leaf->value) : *leaf->value);
    parts.push_back(from->transposed ? whole.t() : whole);
  }
  return (parts.size() == 1 ? parts[0] : at::cat(parts, -1)).contiguous();
}

// What is written, and where.
struct Files {
  Files(const std::vector<HuggingFaceName>& names, const Leaves& model, int64_t most_file_bytes) {
    for (size_t i = 0; i < model.size(); ++i) sources[names[i].name].emplace_back(&model[i], &names[i]);
    for (auto& [name, parts] : sources)
      std::sort(parts.begin(), parts.end(),
                [](const auto& a, const auto& b) { return a.second->part < b.second->part; });
    std::vector<TensorEntry> entries;
    for (const auto& [name, parts] : sources) entries.push_back(entry_of(name, parts));
    for (auto& [file, plan] : plan_files(".", entries, most_file_bytes))
      plans.emplace_back(fs::path(file).filename().string(), std::move(plan));
  }

  // What all processes that save must have alike, on one line.
  std::string identity() const {
    std::string all;
    for (const auto& [file, plan] : plans) all += file + plan.header();
    return fmt::format("{} tensors in {} files, mark {:x}", sources.size(), plans.size(),
                       std::hash<std::string>{}(all));
  }

  Sources sources;
  std::vector<std::pair<std::string, SafetensorsPlan>> plans;
};

// `values` is called once for each tensor, file after file in their order.
void write_files(const fs::path& folder, const Files& files,
                 const std::function<at::Tensor(const TensorEntry& entry)>& values) {
  SafetensorsIndex index;
  if (!fs::exists(folder)) make_folder(folder, "save_hugging_face");
  for (const auto& [file, plan] : files.plans) {
    at::Tensor held;
    write_safetensors(folder / file, plan, [&, &file = file](const TensorEntry& entry) {
      held = values(entry);
      index.files[entry.name] = file;
      index.total_bytes += entry.bytes();
      return std::span(static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes());
    });
  }
  write_text(folder / "model.safetensors.index.json", index.to_json(), "save_hugging_face");
}

// Every process takes part in reading every tensor, in one order, and process 0 writes them. Where it cannot, it reads
// on, since the others do.
void write_together(const fs::path& folder, const Files& files) {
  std::vector<const TensorEntry*> unread;
  for (auto plan = files.plans.rbegin(); plan != files.plans.rend(); ++plan)
    for (auto entry = plan->second.tensors().rbegin(); entry != plan->second.tensors().rend(); ++entry)
      unread.push_back(&*entry);
  const auto next = [&](const TensorEntry&) {
    const TensorEntry* entry = unread.back();
    unread.pop_back();
    return theirs(files.sources.at(entry->name));
  };
  std::exception_ptr error;
  try {
    if (process_index() == 0) write_files(folder, files, next);
  } catch (...) {
    error = std::current_exception();
  }
  while (!unread.empty()) next(*unread.back());
  if (error) std::rethrow_exception(error);
}

}  // namespace

void save_hugging_face(const fs::path& folder, HuggingFaceLayout layout, const Leaves& model, int64_t most_file_bytes) {
  const at::AutoGradMode off(false);
  const std::vector<HuggingFaceName> names = hugging_face_names(layout, model);
  if (std::none_of(model.begin(), model.end(), [](const Leaf& leaf) { return is_of_several(leaf); })) {
    const Files files(names, model, most_file_bytes);
    return write_files(folder, files, [&](const TensorEntry& entry) { return theirs(files.sources.at(entry.name)); });
  }
  const auto votes = std::make_shared<Votes>("save", folder.string());
  const Processes processes = voting_by(votes);
  std::optional<Files> files;
  std::string identity;
  together(processes, folder, "save", [&] { identity = files.emplace(names, model, most_file_bytes).identity(); });
  votes->check_same(identity, "Save the same model everywhere.");
  together(processes, folder, "save", [&] { write_together(folder, *files); });
}

}  // namespace tessera::nn
