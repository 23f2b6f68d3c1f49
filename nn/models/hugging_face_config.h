// A DecoderConfig from a config.json of Hugging Face's, and as one.
#pragma once

#include <string>
#include <string_view>

#include "nn/models/config.h"

namespace tessera::nn {

// What a config.json of Hugging Face's says, in either of its ways to write rotary positions: rope_parameters, or
// rope_theta and rope_scaling. `name` is the text's, for errors. Errors (invalid_file): malformed JSON, something
// missing or of another type, and everything that would make the model compute another thing than the library can: a
// model_type, an activation, a rope_type, an option.
DecoderConfig config_from_hugging_face(std::string_view json, std::string_view name);

// A config.json that transformers reads; `dtype` is that of the weights. Error (invalid_argument): an option that
// transformers' config of the family cannot say.
std::string config_to_hugging_face(const DecoderConfig& config, DType dtype);

}  // namespace tessera::nn
