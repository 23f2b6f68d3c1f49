// A DecoderConfig as a config.json of Hugging Face's.
#pragma once

#include <string>

#include "nn/models/config.h"

namespace tessera::nn::detail {

// `dtype` is that of the weights. Error (bad_argument): an option that transformers' config of the family cannot say.
std::string config_to_hugging_face(const DecoderConfig& config, DType dtype);

}  // namespace tessera::nn::detail
