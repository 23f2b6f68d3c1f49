// WeightFiles: the tensors of a Hugging Face folder or .safetensors file, by the names that their model gives them.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sharding/array/array.h"
#include "sharding/files/safetensors.h"

namespace tessera::nn::detail {

// Returns whether a config.json is of a multimodal model, whose decoder is under "text_config".
bool is_multimodal(const boost::json::value& config);
// Returns the config of the decoder: of a multimodal model, its text_config with the keys that it shares with the whole
// model; otherwise `config`.
boost::json::value text_config(const boost::json::value& config);

// Throws invalid_file for a folder that is not a model's: a PEFT adapter, a folder of the Hugging Face cache that has
// snapshots, or one without config.json. The message names what the folder has.
void check_model_folder(const std::filesystem::path& folder, const char* verb);

// Throws invalid_file for a file that is a link out of the folder. Links of a snapshot may lead to the blobs of a
// Hugging Face cache: models--x/snapshots/revision/config.json -> ../../blobs/hash.
void check_belongs_to(const std::filesystem::path& file, const std::filesystem::path& folder, const char* verb);

// Opens one .safetensors file, or a folder's set of files: model.safetensors, or the files that
// model.safetensors.index.json lists. Tensors are found by the names of the family (model.layers.0...), also if the
// file has other names:
//   all names begin with module., _orig_mod. or base_model.model., as torch's DistributedDataParallel, torch.compile
//     and PEFT write them
//   model., transformer. or gpt_neox. is missing, as in the folder of a base model without head
//   multimodal: language_model.model., model.language_model. or model.text_model. instead of model.
// The tensors of a multimodal model's vision and audio parts are left out: those below vision_tower., vision_model.,
// visual., audio_tower., multi_modal_projector., connector.
// `adapter` is the folder of a LoRA adapter of PEFT, which is added to the weights that are read, in float32.
// Errors (invalid_file)
//   no weights, or weights in another format only
//   two sets of weights, one of which could be newer
//   files of the index that are missing
//   an adapter of another kind, or with options that a sum of matrices cannot express
class WeightFiles {
 public:
  explicit WeightFiles(const std::filesystem::path& path, bool is_multimodal = false,
                       const std::optional<std::filesystem::path>& adapter = {});

  const std::filesystem::path& path() const { return path_; }
  bool contains(const std::string& name) const { return find(name) != tensors_.end(); }
  // Throws if tensors are missing, and lists them.
  void check_has(const std::set<std::string>& names, const std::string& advice) const;
  Array read(const std::string& name);
  // Throws if tensors, also of the adapter, were not read, except those that are computed.
  void check_all_used() const;

 private:
  struct Tensor {
    SafetensorsFile file;
    std::string name;  // in the file
  };
  struct Adapter;
  using Tensors = std::map<std::string, Tensor>;

  void add(const SafetensorsFile& file, const std::string& prefix);
  Tensors::const_iterator find(const std::string& name) const;
  std::vector<std::string> unread() const;

  std::filesystem::path path_;
  bool is_multimodal_;
  Tensors tensors_;
  std::set<std::string> used_;
  std::shared_ptr<Adapter> adapter_;
};

}  // namespace tessera::nn::detail
