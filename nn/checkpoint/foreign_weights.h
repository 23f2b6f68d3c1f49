// load_weights: sets a layer's arrays from a safetensors file with the names and layouts of Equinox, Flax or PyTorch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/layers/attention.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/conv.h"
#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/layers/recurrent.h"
#include "nn/layers/weight_norm.h"
#include "nn/tree/tree.h"
#include "sharding/files/safetensors.h"

namespace tessera::nn {

// Library that defines the names and layouts of a file. docs/layers.md has the table of names and transposes.
//   equinox  the fields of equinox.nn
//   flax     the paths of flax.linen's or flax.nnx's parameters, joined by dots
//   pytorch  the state_dict of torch.nn
enum class Library { equinox, flax, pytorch };

// Converts tensors of the file to one array of a layer. A name may list alternatives, "weight_ih|weight_ih_l0": the
// first that the file has is used. `convert` receives the tensors in this order and must return the expected shape.
struct WeightRow {
  std::string ours;                 // path in the layer; empty: a known tensor that is not needed
  std::vector<std::string> theirs;  // names below the prefix
  std::function<Array(const std::vector<Array>& tensors, const Shape& expected)> convert;
};
using WeightMap = std::vector<WeightRow>;

// Returns the map of a layer. Rows of arrays that the layer lacks (a bias) are skipped. Error (invalid_argument): the
// library does not have this layer.
WeightMap weight_map(const Linear&, Library library);
WeightMap weight_map(const Embedding&, Library library);
WeightMap weight_map(const LayerNorm&, Library library);
WeightMap weight_map(const RMSNorm&, Library library);
WeightMap weight_map(const GroupNorm&, Library library);
WeightMap weight_map(const BatchNorm&, Library library);
WeightMap weight_map(const Conv&, Library library);
WeightMap weight_map(const ConvTranspose&, Library library);
WeightMap weight_map(const PReLU&, Library library);
WeightMap weight_map(const LSTMCell&, Library library);
WeightMap weight_map(const GRUCell&, Library library);
WeightMap weight_map(const MultiheadAttention&, Library library);
WeightMap weight_map(const DeepMlp& mlp, Library library);                 // equinox only
WeightMap weight_map(const WeightNorm<Linear>& layer, Library library);    // equinox, pytorch's parametrizations
WeightMap weight_map(const SpectralNorm<Linear>& layer, Library library);  // equinox, pytorch's parametrizations

namespace detail {
void load_weights(const Leaves& ours, const SafetensorsFile& file, const std::string& prefix, const WeightMap& map);
}  // namespace detail

// Sets a layer's arrays to the tensors "<prefix>.<name>" (or "<name>", without a prefix). The layer's arrays keep their
// element types and shardings.
//   nn::load_weights(block.attention, SafetensorsFile::open("gpt2.safetensors"), "h.0.attn", nn::Library::pytorch);
// Every array of the layer must be in the file with its shape, and every tensor below the prefix must be used.
// Otherwise one Error (invalid_file) lists everything that does not fit, and the layer is unchanged.
template <class Layer>
void load_weights(Layer& layer, const SafetensorsFile& file, const std::string& prefix, const WeightMap& map) {
  detail::load_weights(leaves(layer), file, prefix, map);
}
template <class Layer>
void load_weights(Layer& layer, const SafetensorsFile& file, const std::string& prefix, Library library) {
  load_weights(layer, file, prefix, weight_map(layer, library));
}

}  // namespace tessera::nn
