// Finds a folder's set of weights, explains folders without one, and removes prefixes of tensor names.
#include "nn/checkpoint/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <span>
#include <string_view>

#include "nn/checkpoint/manifest.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::nn::detail {

namespace {

namespace fs = std::filesystem;
using std::string_view;
using tessera::detail::JsonPart;

constexpr const char* verb = "load_pretrained";
constexpr int64_t max_rank = int64_t{1} << 31;  // as for the sizes of a model
constexpr const char *single_file = "model.safetensors", *index_file = "model.safetensors.index.json";

// ---- folders

// Weights in other formats, by the begin and the end of their names.
struct OtherFormat {
  string_view begin, end, advice;
};
constexpr OtherFormat other_formats[] = {
    {"model-", ".safetensors", "Its index, model.safetensors.index.json, is missing. Download it too."},
    {"model.", ".safetensors", "This is a variant. Rename it to model.safetensors to read it."},
    {"adapter_model", "",
     "This is an adapter of PEFT. Give it as the adapter of its base model, or merge it with peft's merge_and_unload."},
    {"pytorch_model", "",
     "Convert it with transformers: from_pretrained(folder), then save_pretrained(another folder)."},
    {"", ".gguf",
     "Convert it with transformers: from_pretrained(folder, gguf_file=NAME), then save_pretrained(another folder)."},
    {"consolidated", "", "This is the format of Meta and Mistral. Give a folder with the Hugging Face version."},
    {"tf_model", ".h5", "Convert it with transformers 4: from_pretrained(folder, from_tf=True), then save_pretrained."},
    {"flax_model", ".msgpack",
     "Convert it with transformers 4: from_pretrained(folder, from_flax=True), then save_pretrained."}};

void check_formats(const fs::path& folder, const std::vector<std::string>& names, const char* by) {
  for (const OtherFormat& other : other_formats)
    for (const std::string& name : names)
      if (name.starts_with(other.begin) && name.ends_with(other.end) && name != single_file)
        fail(ErrorKind::invalid_file, by, "{}: it has {}, expected {}. {}", folder.string(), name, single_file,
             other.advice);
}

std::vector<std::string> sorted_names(const fs::path& folder, const char* by) {
  std::vector<std::string> names = names_in(folder, by);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_of_a_set(const std::string& name) {
  return name == single_file || (name.starts_with("model-") && name.ends_with(".safetensors"));
}

// Returns the files that the index lists, which must be there.
std::set<std::string> listed_files(const fs::path& folder) {
  const fs::path index = folder / index_file;
  std::set<std::string> files;
  for (const auto& [tensor, file] : SafetensorsIndex::from_json(read_text(index, verb), index.string()).files)
    files.insert(file);
  for (const std::string& file : files)
    if (!is_there(folder / file))
      fail(ErrorKind::invalid_file, verb, "{}: it lists {}, which is missing. Download that file too.", index.string(),
           file);
  return files;
}

// Returns the set of files that transformers reads. Throws if there are weights of another set: they could be newer.
std::set<std::string> files_in(const fs::path& folder) {
  const std::vector<std::string> names = sorted_names(folder, verb);
  const auto in_sets = std::count_if(names.begin(), names.end(), is_of_a_set);
  const bool has_single = is_there(folder / single_file);
  if (!has_single && !is_there(folder / index_file)) {
    check_formats(folder, names, verb);
    fail(ErrorKind::invalid_file, verb, "{}: it has no weights, expected {}, or {} and its files. Download them.",
         folder.string(), single_file, index_file);
  }
  const bool is_only = has_single && in_sets == 1;
  const std::set<std::string> files =
      is_only || !is_there(folder / index_file) ? std::set<std::string>{single_file} : listed_files(folder);
  for (const std::string& name : names)
    if (is_of_a_set(name) && !files.empty() && !files.contains(name))
      fail(ErrorKind::invalid_file, verb, "{}: it has two sets of weights: {} and {}. Remove one of them.",
           folder.string(), *files.begin(), name);
  return files;
}

constexpr string_view merge_advice =
    "Or merge it with peft: "
    "AutoPeftModelForCausalLM.from_pretrained(folder).merge_and_unload().save_pretrained(other).";

[[noreturn]] void refuse_adapter(const fs::path& folder, const char* by) {
  const fs::path file = folder / "adapter_config.json";
  const boost::json::value config = parse_json(read_text(file, by), by, file.string());
  const auto* all = config.if_object();
  const auto* base = all ? all->if_contains("base_model_name_or_path") : nullptr;
  fail(ErrorKind::invalid_file, by,
       "{}: an adapter of PEFT for {}, expected a model. Give the folder of its base model, and this one as "
       "PretrainedOptions::adapter (--adapter). {}",
       folder.string(), base && base->is_string() ? string_view(base->get_string()) : "a model", merge_advice);
}

// ---- names of tensors

constexpr string_view wrappers[] = {"module.", "_orig_mod.", "base_model.model."};
constexpr string_view base_models[] = {"model.", "transformer.", "gpt_neox."};
constexpr std::pair<string_view, string_view> text_parts[] = {{"model.language_model.", "model."},
                                                              {"model.text_model.", "model."},
                                                              {"language_model.model.", "model."},
                                                              {"language_model.lm_head.", "lm_head."}};
constexpr string_view other_parts[] = {"vision_tower.", "vision_model.",          "visual.",
                                       "audio_tower.",  "multi_modal_projector.", "connector."};

// Returns the prefixes that all names have in common, of those that wrappers of torch add.
std::string common_wrappers(const std::vector<SafetensorsFile>& files) {
  std::string prefix;
  const auto is_on_all = [&](string_view wrapper) {
    const std::string longer = prefix + std::string(wrapper);
    return std::all_of(files.begin(), files.end(), [&](const SafetensorsFile& file) {
      return std::all_of(file.names().begin(), file.names().end(),
                         [&](const std::string& name) { return name.starts_with(longer); });
    });
  };
  constexpr size_t most = 64;  // bytes of the prefix: files without tensors have every prefix
  const string_view* wrapper = nullptr;
  while (prefix.size() < most &&
         (wrapper = std::find_if(std::begin(wrappers), std::end(wrappers), is_on_all)) != std::end(wrappers))
    prefix += *wrapper;
  return prefix;
}

std::string name_in_text_part(const std::string& name) {
  for (const auto& [theirs, ours] : text_parts)
    if (name.starts_with(theirs)) return std::string(ours) + name.substr(theirs.size());
  return name;
}

bool is_of_other_part(string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return std::any_of(std::begin(other_parts), std::end(other_parts),
                     [&](string_view part) { return name.starts_with(part); });
}

// Tensors in older files that are computed, not trained.
bool is_computed(string_view name) {
  constexpr string_view ends[] = {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
                                  ".rotary_emb.inv_freq"};
  return std::any_of(std::begin(ends), std::end(ends), [&](string_view end) { return name.ends_with(end); });
}

std::string first_of(const std::vector<std::string>& names) {
  constexpr size_t most = 8;
  const std::string first = fmt::format("{}", fmt::join(std::span(names).first(std::min(most, names.size())), ", "));
  return names.size() <= most ? first : fmt::format("{} and {} more", first, names.size() - most);
}

}  // namespace

bool is_multimodal(const boost::json::value& config) {
  const auto* all = config.if_object();
  const auto* text = all ? all->if_contains("text_config") : nullptr;
  return text && text->is_object();
}

boost::json::value text_config(const boost::json::value& config) {
  if (!is_multimodal(config)) return config;
  boost::json::object text = config.at("text_config").get_object();
  for (const char* key : {"tie_word_embeddings", "quantization_config"})
    if (const auto* shared = config.get_object().if_contains(key)) text[key] = *shared;
  return text;
}

void check_model_folder(const fs::path& folder, const char* by) {
  const std::vector<std::string> names = sorted_names(folder, by);
  const auto has = [&](const char* name) { return std::binary_search(names.begin(), names.end(), name); };
  if (has("adapter_config.json")) refuse_adapter(folder, by);
  if (has("config.json")) return;
  if (is_folder(folder / "snapshots"))
    fail(ErrorKind::invalid_file, by,
         "{}: a folder of the Hugging Face cache, expected one of its snapshots. Give one of {}/snapshots: {}.",
         folder.string(), folder.string(), first_of(sorted_names(folder / "snapshots", by)));
  if (has(single_file) || has(index_file))
    fail(ErrorKind::invalid_file, by, "{}: it has weights and no config.json. Download that file too.",
         folder.string());
  check_formats(folder, names, by);
}

namespace {

// Options of adapters that are not the sum of the base and scale B A, or have a scale for each layer.
constexpr const char* other_adapters[] = {
    "alora_invocation_tokens", "alpha_pattern", "arrow_config", "kasa_config", "layer_replication",
    "monteclora_config",       "rank_pattern",  "use_bdlora",   "use_dora",    "use_qalora"};

bool is_unset(const boost::json::value& value) {
  return value == false || (value.is_object() && value.get_object().empty()) ||
         (value.is_array() && value.get_array().empty());
}

}  // namespace

struct WeightFiles::Adapter {
  WeightFiles tensors;
  int64_t rank = 0;
  double scale = 1;            // of the product of the two matrices
  bool is_transposed = false;  // the base has (in, out), as GPT-2

  static Adapter open(const fs::path& folder, bool is_multimodal);

  // Returns a tensor of the base plus scale B A, if the adapter has these matrices for its layer.
  Array added_to(const Array& base, const std::string& name) {
    const std::string layer = name.substr(0, name.rfind('.'));
    const std::string a_name = layer + ".lora_A.weight", b_name = layer + ".lora_B.weight";
    if (!name.ends_with(".weight") || !tensors.contains(a_name) || !tensors.contains(b_name)) return base;
    const Array a = astype(tensors.read(a_name), float32), b = astype(tensors.read(b_name), float32);
    Shape expected = base.shape();
    if (is_transposed) std::reverse(expected.begin(), expected.end());
    if (expected.size() != 2 || a.shape() != Shape{rank, expected[1]} || b.shape() != Shape{expected[0], rank})
      fail(ErrorKind::invalid_file, verb,
           "{}: {} has the shape {} and lora_B {}, expected rank {} and a product like the weight, {}. Give the base "
           "model of this adapter.",
           tensors.path().string(), a_name, to_string(a.shape()), to_string(b.shape()), rank, to_string(base.shape()));
    const Array change = matmul(b, a);
    return astype(base, float32) + scale * (is_transposed ? transpose(change) : change);
  }
};

WeightFiles::Adapter WeightFiles::Adapter::open(const fs::path& folder, bool is_multimodal) {
  const fs::path file = folder / "adapter_config.json", weights = folder / "adapter_model.safetensors";
  const boost::json::value text = parse_json(read_text(file, verb), verb, file.string());
  const JsonPart config{text, file.string(), verb};
  const auto refuse = [&](const char* key, string_view expected) {
    config.at(key).refuse(fmt::format("is not supported, expected {}. {}", expected, merge_advice));
  };
  if (config.at("peft_type").text() != "LORA") refuse("peft_type", "LORA");
  for (const char* key : other_adapters)
    if (config.has(key) && !is_unset(config.at(key).value)) refuse(key, "none");
  if (const char* key = "init_lora_weights"; config.has(key) && config.at(key).value.is_string())
    if (config.at(key).text() != "gaussian") refuse(key, "true or gaussian: other values change the base model");
  const int64_t rank = config.at("r").integer(1, max_rank);
  const auto ranks = static_cast<double>(rank);
  const double scale = config.number("lora_alpha", 8) / (config.flag("use_rslora", false) ? std::sqrt(ranks) : ranks);
  return {WeightFiles(weights, is_multimodal), rank, scale, config.flag("fan_in_fan_out", false)};
}

void check_belongs_to(const fs::path& file, const fs::path& folder, const char* verb) {
  const fs::path target = fs::canonical(file), end = target.parent_path(), snapshot = fs::canonical(folder / ".");
  const bool is_cache = snapshot.parent_path().filename() == "snapshots";
  if (end != snapshot && !(is_cache && end == snapshot.parent_path().parent_path() / "blobs"))
    fail(ErrorKind::invalid_file, verb, "{}: a link to {}, outside the folder. Put a copy of the file in its place.",
         file.string(), target.string());
}

WeightFiles::WeightFiles(const fs::path& path, bool is_multimodal, const std::optional<fs::path>& adapter)
    : path_(path), is_multimodal_(is_multimodal) {
  if (adapter) adapter_ = std::make_shared<Adapter>(Adapter::open(*adapter, is_multimodal));
  std::vector<SafetensorsFile> files;
  if (is_folder(path))
    for (const std::string& file : files_in(path)) files.push_back(SafetensorsFile::open(path / file));
  else
    files.push_back(SafetensorsFile::open(path));
  const std::string prefix = common_wrappers(files);
  for (const SafetensorsFile& file : files) add(file, prefix);
}

void WeightFiles::add(const SafetensorsFile& file, const std::string& prefix) {
  for (const std::string& name : file.names()) {
    std::string ours = name.substr(prefix.size());
    if (is_multimodal_ && is_of_other_part(ours)) continue;
    if (is_multimodal_) ours = name_in_text_part(ours);
    if (const auto [there, fresh] = tensors_.emplace(ours, Tensor{file, name}); !fresh)
      fail(ErrorKind::invalid_file, verb, "{}: \"{}\" is in {} and in {}. Keep the file that belongs to the weights.",
           path_.string(), name, there->second.file.path().filename().string(), file.path().filename().string());
  }
}

void WeightFiles::check_has(const std::set<std::string>& names, const std::string& advice) const {
  std::vector<std::string> missing;
  for (const std::string& name : names)
    if (!contains(name)) missing.push_back(fmt::format("\"{}\"", name));
  if (!missing.empty())
    fail(ErrorKind::invalid_file, verb, "{}: it has no {}. {}", path_.string(), first_of(missing), advice);
}

Array WeightFiles::read(const std::string& name) {
  const auto& [found, tensor] = *find(name);
  used_.insert(found);
  const Array values = tensor.file.array(tensor.name);
  return adapter_ && is_floating(values.dtype()) ? adapter_->added_to(values, name) : values;
}

std::vector<std::string> WeightFiles::unread() const {
  std::vector<std::string> left;
  for (const auto& [name, tensor] : tensors_)
    if (!used_.contains(name) && !is_computed(name)) left.push_back(tensor.name);
  return left;
}

void WeightFiles::check_all_used() const {
  if (const auto left = adapter_ ? adapter_->tensors.unread() : std::vector<std::string>(); !left.empty())
    fail(ErrorKind::invalid_file, verb,
         "{}: {} cannot be added to the base model, expected only lora_A and lora_B of its layers. {}",
         adapter_->tensors.path().string(), first_of(left), merge_advice);
  if (const auto left = unread(); !left.empty())
    fail(ErrorKind::invalid_file, verb, "{}: the model has no place for {}. Make the model as large as the weights.",
         path_.string(), first_of(left));
}

WeightFiles::Tensors::const_iterator WeightFiles::find(const std::string& name) const {
  auto found = tensors_.find(name);
  for (const string_view base : base_models)
    if (found == tensors_.end() && name.starts_with(base)) found = tensors_.find(name.substr(base.size()));
  return found;
}

}  // namespace tessera::nn::detail
