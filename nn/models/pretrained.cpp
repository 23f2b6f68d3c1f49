// Loads a folder (config, model, sharding, weights) and saves one.
#include "nn/models/pretrained.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <system_error>

#include "nn/checkpoint/hugging_face.h"
#include "nn/checkpoint/save.h"
#include "nn/checkpoint/weight_files.h"
#include "nn/models/families.h"
#include "nn/placement/filter_shard.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"
#include "sharding/runtime/processes.h"

namespace tessera::nn {

HuggingFaceNames hugging_face_names(const DecoderConfig& config) {
  const detail::Family& family = detail::family_of("hugging_face", config.model_type);
  return {config.model_type, family.names(config), family.defaults.tie_word_embeddings};
}

namespace {

namespace fs = std::filesystem;

// Returns the model's name on the Hugging Face Hub, or "" if `folder` cannot be such a name. GPT-2's has no owner.
std::string name_on_hub(const std::string& folder) {
  constexpr std::string_view first = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const bool is_name = folder.find_first_of(first) == 0 && folder.back() != '/' &&
                       folder.find_first_not_of(std::string(first) + "-_./") == folder.npos;
  const auto slashes = std::count(folder.begin(), folder.end(), '/');
  if (!is_name || slashes > 1) return "";
  if (slashes == 1) return folder;
  return (folder.starts_with("gpt2") ? "openai-community/" : "OWNER/") + folder;
}

void check_folder(const fs::path& folder) {
  constexpr const char* verb = "from_pretrained";
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return detail::check_model_folder(folder, verb);
  constexpr const char* given = "{}: not a folder, expected one with a model's config.json and .safetensors files. {}";
  if (fs::exists(folder, ignored))
    fail(ErrorKind::invalid_file, verb, given, folder.string(), "Give the file's folder.");
  if (folder.string().starts_with("~"))
    fail(ErrorKind::invalid_file, verb, given, folder.string(),
         "~ is not expanded here. Give $HOME, or the whole path.");
  const std::string name = name_on_hub(folder.string());
  fail(ErrorKind::invalid_file, verb, given, folder.string(),
       fmt::format("To download a model, run: hf download {} --local-dir {}", name.empty() ? "OWNER/NAME" : name,
                   name.empty() ? "FOLDER" : folder.string()));
}

DecoderConfig config_in(const fs::path& folder, const PretrainedOptions& options) {
  check_folder(folder);
  const fs::path file = folder / "config.json";
  DecoderConfig config = config_from_hugging_face(read_text(file, "from_pretrained"), file.string());
  config.dtypes.params = options.dtype;
  return config;
}

// Returns the ids of generation_config.json that end a text; none without this file.
std::vector<int32_t> eos_token_ids(const fs::path& folder) {
  constexpr const char* verb = "from_pretrained";
  const fs::path file = folder / "generation_config.json";
  if (!is_there(file)) return {};
  const boost::json::value value = parse_json(read_text(file, verb), verb, file.string());
  const auto ids = tessera::detail::JsonPart(value, file.string(), verb).at_or_null("eos_token_id");
  std::vector<int32_t> all;
  const auto add = [&](const auto& id) { all.push_back(static_cast<int32_t>(id.integer(0, INT32_MAX))); };
  if (ids.value.is_array())
    std::ranges::for_each(ids.items(), add);
  else if (!ids.is_null())
    add(ids);
  return all;
}

CausalLM loaded(const fs::path& folder, const PretrainedOptions& options, const std::optional<MeshRules>& mesh_rules) {
  const DecoderConfig config = config_in(folder, options);
  CausalLM model = CausalLM::init(Key(0), config);
  model.eos_token_id = eos_token_ids(folder);
  load_pretrained(folder, hugging_face_names(config), leaves(model), mesh_rules, config.vocab_size, options.adapter);
  return model;
}

constexpr int64_t max_file_bytes = int64_t{4} << 30;

// Files that belong to a model next to its config and weights. None of them is a program.
constexpr std::array copied_files{"tokenizer.json",
                                  "tokenizer_config.json",
                                  "tokenizer.model",
                                  "vocab.json",
                                  "vocab.txt",
                                  "merges.txt",
                                  "added_tokens.json",
                                  "special_tokens_map.json",
                                  "generation_config.json",
                                  "chat_template.jinja",
                                  "chat_template.json",
                                  "README.md",
                                  "LICENSE",
                                  "LICENSE.txt",
                                  "LICENSE.md",
                                  "NOTICE",
                                  "NOTICE.txt",
                                  "USE_POLICY.md"};

// Removes the keys that name Python code for transformers to run (trust_remote_code). Returns true if there were any.
bool remove_code(boost::json::value& config) {
  auto* all = config.if_object();
  return all && all->erase("auto_map") + all->erase("custom_pipelines") > 0;
}

// Returns whether the text of a config.json is of the same model.
bool is_config_of(const std::string& text, const fs::path& file, const DecoderConfig& config, DType dtype) {
  const std::string written = config_to_hugging_face(config, dtype);
  if (text == written) return true;  // if the text is read and written again, rounding may change its last digits
  DecoderConfig there = config_from_hugging_face(text, file.string());
  there.router_aux_loss_coef = config.router_aux_loss_coef;  // a training option: it may differ from the folder's
  return config_to_hugging_face(there, dtype) == written;
}

// Throws if the folder has another model, whose files would be replaced.
void check_has_no_other_model(const fs::path& folder, const DecoderConfig& config, DType dtype) {
  const fs::path file = folder / "config.json";
  if (!is_there(file)) return;
  bool is_same = false;
  try {
    is_same = is_config_of(read_text(file, "save_pretrained"), file, config, dtype);
  } catch (const Error&) {  // not a config that is read here
  }
  if (!is_same)
    fail(ErrorKind::invalid_file, "save_pretrained",
         "{}: it is the config of another model. Give another folder, or remove that model.", file.string());
}

// Returns the folder's config with the weights' current element type.
std::string config_of(const fs::path& from, const DecoderConfig& config, DType dtype) {
  const fs::path file = from / "config.json";
  std::string text = read_text(file, "save_pretrained");
  if (!is_config_of(text, file, config, dtype))
    fail(ErrorKind::invalid_argument, "save_pretrained",
         "{}: it is the config of another model than the one to save. Give the folder that it was read from.",
         file.string());
  boost::json::value value = parse_json(text, "save_pretrained", file.string());
  if (detail::is_multimodal(value)) return config_to_hugging_face(config, dtype);  // only its decoder is saved
  bool is_changed = remove_code(value);
  boost::json::object& all = value.as_object();
  // Published folders of Llama 4 have 4, which transformers 5.24 refuses.
  if (auto* tuning = all.if_contains("attn_temperature_tuning"); tuning && tuning->is_int64())
    *tuning = tuning->get_int64() != 0, is_changed = true;
  const std::string type(name_of(dtype));
  const char* key = all.contains("torch_dtype") ? "torch_dtype" : "dtype";
  const auto* given_type = all.if_contains(key);
  if (!is_changed && given_type && given_type->is_string() && given_type->get_string() == type) return text;
  all[key] = type;
  return boost::json::serialize(value) + "\n";
}

// Files to write next to the weights: names and texts.
using TextFiles = std::vector<std::pair<std::string, std::string>>;

TextFiles files_to_copy(const fs::path& from) {
  constexpr const char* verb = "save_pretrained";
  TextFiles all;
  for (const char* name : copied_files) {
    const fs::path file = from / name;
    if (!is_there(file)) continue;
    detail::check_belongs_to(file, from, verb);
    std::string text = read_text(file, verb, max_tokenizer_bytes);
    if (file.filename() == "tokenizer_config.json")
      if (boost::json::value config = parse_json(text, verb, file.string()); remove_code(config))
        text = boost::json::serialize(config) + "\n";
    all.emplace_back(name, std::move(text));
  }
  return all;
}

// Returns config.json, and on process 0 the files of `from`, unless it is the folder itself.
TextFiles text_files(const CausalLM& model, const Leaves& all, const std::optional<fs::path>& from,
                     const fs::path& folder) {
  TextFiles files;
  together(all, folder, "save", [&] {
    const DType dtype = all.front().value->dtype();
    check_has_no_other_model(folder, model.config, dtype);
    std::error_code unknown;
    if (from && process_index() == 0 && !fs::equivalent(*from, folder, unknown)) files = files_to_copy(*from);
    files.emplace_back("config.json",
                       from ? config_of(*from, model.config, dtype) : config_to_hugging_face(model.config, dtype));
  });
  return files;
}

}  // namespace

CausalLM from_pretrained(const fs::path& folder, const MeshRules& mesh_rules, const PretrainedOptions& options) {
  return loaded(folder, options, mesh_rules);
}

CausalLM from_pretrained(const fs::path& folder, const PretrainedOptions& options) {
  return loaded(folder, options, {});
}

void check_save_pretrained(const fs::path& folder, const CausalLM& model, const std::optional<fs::path>& from) {
  CausalLM copy = model;
  const Leaves all = leaves(copy);
  text_files(copy, all, from, folder);
  together(all, folder, "save", [&] {
    check_save_pretrained(folder, hugging_face_names(copy.config), all, max_file_bytes, copy.config.vocab_size);
  });
}

void save_pretrained(const fs::path& folder, const CausalLM& model, const std::optional<fs::path>& from) {
  CausalLM copy = model;
  const DecoderConfig& config = copy.config;
  const Leaves all = leaves(copy);
  const TextFiles files = text_files(copy, all, from, folder);
  save_pretrained(folder, hugging_face_names(config), all, max_file_bytes, config.vocab_size);
  together(all, folder, "save", [&] {
    if (process_index() != 0) return;
    for (const auto& [name, text] : files) write_text(folder / name, text, "save_pretrained");
  });
}

}  // namespace tessera::nn
