// Layers of other libraries: stored weights, inputs, results and gradients.
#pragma once

#include <string>

#include "sharding/files/safetensors.h"

namespace tessera::nn::testing {

inline const SafetensorsFile& stored_layers() {
  static const auto opened = SafetensorsFile::open(std::string(TESSERA_REFERENCE_DIR) + "/layers.safetensors");
  return opened;
}

}  // namespace tessera::nn::testing
