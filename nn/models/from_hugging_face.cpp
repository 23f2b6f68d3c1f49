// The folder: config, model, placement, weights; and back.
#include "nn/models/from_hugging_face.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <system_error>

#include "nn/checkpoint/hugging_face.h"
#include "nn/checkpoint/save.h"
#include "nn/models/hugging_face_config.h"
#include "nn/placement/filter_shard.h"
#include "sharding/diagnostics/fail.h"
#include "sharding/distributed/processes.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"

namespace tessera::nn {

namespace {

namespace fs = std::filesystem;

HuggingFaceLayout names_of(DecoderFamily family) {
  switch (family) {
    case DecoderFamily::gpt2:
      return HuggingFaceLayout::gpt2;
    case DecoderFamily::gemma2:
      return HuggingFaceLayout::gemma2;
    case DecoderFamily::mixtral:
      return HuggingFaceLayout::mixtral;
    default:
      return HuggingFaceLayout::llama;
  }
}

Leaves leaves_of(CausalLm& model) {
  return std::visit([](auto& decoder) { return leaves(decoder); }, model.decoder);
}

DecoderConfig config_in(const fs::path& folder, const FromHuggingFace& options) {
  const fs::path file = folder / "config.json";
  DecoderConfig config = config_from_hugging_face(read_text(file, "from_hugging_face"), file.string());
  config.dtypes.params = options.dtype;
  return config;
}

CausalLm loaded(const fs::path& folder, const DecoderConfig& config, const std::optional<MeshRules>& mesh_rules) {
  CausalLm model = CausalLm::init(Key(0), config);
  load_hugging_face(folder, names_of(config.family), leaves_of(model), mesh_rules, config.vocab);
  return model;
}

// The files that belong to a model next to its config and weights. No program is among them.
constexpr std::array copied_files{
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt",
    "added_tokens.json", "special_tokens_map.json", "generation_config.json", "chat_template.jinja",
    "chat_template.json", "README.md", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt",
    "USE_POLICY.md"};

// Removes the keys that name Python code for transformers to run (trust_remote_code); whether there were any.
bool remove_code(boost::json::value& config) {
  auto* all = config.if_object();
  return all && all->erase("auto_map") + all->erase("custom_pipelines") > 0;
}

// The folder's config, with the element type that the weights have now.
std::string config_of(const fs::path& from, const DecoderConfig& config, DType dtype) {
  const fs::path file = from / "config.json";
  std::string text = read_text(file, "save_hugging_face");
  DecoderConfig there = config_from_hugging_face(text, file.string());
  there.router_aux_loss_coef = config.router_aux_loss_coef;  // of the training, not of the model
  if (config_to_hugging_face(there, dtype) != config_to_hugging_face(config, dtype))
    fail(ErrorKind::invalid_argument, "save_hugging_face",
         "{}: it is the config of another model than the one to save. Give the folder that it was read from.",
         file.string());
  boost::json::value value = parse_json(text, "save_hugging_face", file.string());
  const bool has_code = remove_code(value);
  boost::json::object& all = value.as_object();
  const std::string type(name_of(dtype));
  const char* key = all.contains("torch_dtype") ? "torch_dtype" : "dtype";
  const auto* said = all.if_contains(key);
  if (!has_code && said && said->is_string() && said->get_string() == type) return text;
  all[key] = type;
  return boost::json::serialize(value) + "\n";
}

// Whether the file, its links followed, is in the folder or in the blobs of a Hugging Face cache, to which the links of
// a snapshot lead: models--x/snapshots/revision/config.json -> ../../blobs/hash.
bool belongs_to(const fs::path& file, const fs::path& folder) {
  const fs::path end = fs::canonical(file).parent_path(), snapshot = fs::canonical(folder);
  const bool is_cache = snapshot.parent_path().filename() == "snapshots";
  return end == snapshot || (is_cache && end == snapshot.parent_path().parent_path() / "blobs");
}

void copy_files(const fs::path& from, const fs::path& folder) {
  constexpr const char* verb = "save_hugging_face";
  if (std::error_code ignored; fs::equivalent(from, folder, ignored)) return;
  for (const char* name : copied_files) {
    const fs::path file = from / name;
    if (!is_there(file)) continue;
    if (!belongs_to(file, from))
      fail(ErrorKind::invalid_file, verb, "{}: a link to {}, outside the folder. Put a copy of the file in its place.",
           file.string(), fs::canonical(file).string());
    std::string text = read_text(file, verb);
    if (file.filename() == "tokenizer_config.json")
      if (boost::json::value config = parse_json(text, verb, file.string()); remove_code(config))
        text = boost::json::serialize(config) + "\n";
    write_text(folder / name, text, verb);
  }
}

}  // namespace

CausalLm from_hugging_face(const fs::path& folder, const MeshRules& mesh_rules, const FromHuggingFace& options) {
  return loaded(folder, config_in(folder, options), mesh_rules);
}

CausalLm from_hugging_face(const fs::path& folder, const FromHuggingFace& options) {
  return loaded(folder, config_in(folder, options), {});
}

void save_hugging_face(const fs::path& folder, const CausalLm& model, const std::optional<fs::path>& from) {
  CausalLm copy = model;
  const DecoderConfig& config = copy.config();
  const Leaves all = leaves_of(copy);
  const DType dtype = all.front().value->dtype();
  std::string text;
  together(all, folder, "save",
           [&] { text = from ? config_of(*from, config, dtype) : config_to_hugging_face(config, dtype); });
  save_hugging_face(folder, names_of(config.family), all, int64_t{4} << 30, config.vocab);
  together(all, folder, "save", [&] {
    if (process_index() != 0) return;
    write_text(folder / "config.json", text, "save_hugging_face");
    if (from) copy_files(*from, folder);
  });
}

}  // namespace tessera::nn
