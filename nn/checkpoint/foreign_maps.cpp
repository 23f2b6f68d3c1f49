// Maps of weights: one table per layer and library, and the conversions of layouts.
#include <fmt/format.h>

#include "nn/checkpoint/foreign_weights.h"
#include "sharding/base/fail.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::nn {

namespace {

using Parts = std::vector<Array>;

// ---- conversions

Array as_is(const Parts& t, const Shape&) { return t[0]; }
// Transposes (out, in) -> (in, out).
Array transposed(const Parts& t, const Shape&) { return transpose(t[0]); }
// Reshapes to the expected shape: (heads, head_dim, embed) -> (heads, embed), (features, 1, 1) -> (features).
Array reshaped(const Parts& t, const Shape& expected) { return reshape(t[0], expected); }
// Transposes and reshapes (gates hidden, in) -> (in, gates, hidden).
Array gates_last(const Parts& t, const Shape& expected) { return reshape(transpose(t[0]), expected); }
// Stacks one tensor per gate, (in, hidden) or (hidden), along a new dimension.
Array gates_stacked(const Parts& t, const Shape& expected) { return stack(t, static_cast<int>(expected.size()) - 2); }
// Adds two biases that the layer would add anyway.
Array added(const Parts& t, const Shape& expected) { return reshape(t[0] + t[1], expected); }

// Combines PyTorch's two biases of a GRU: the input's for all gates, and the recurrent one for gates r and z. The
// recurrent bias of gate n is bias_n.
Array gru_bias(const Parts& t, const Shape& expected) {
  const int64_t hidden = expected[1];
  const Array n_apart = slice_in_dim(t[1], 0, 2 * hidden, 0);
  return reshape(t[0] + pad(n_apart, {{0, hidden}}), expected);
}
Array last_third(const Parts& t, const Shape& expected) {
  return slice_in_dim(t[0], 2 * expected[0], 3 * expected[0], 0);
}

// Moves the features to the end: (out, in, spatial...) -> (spatial..., in, out).
Array features_last(const Parts& t, const Shape&) {
  Dims order = tessera::detail::consecutive_dims(t[0].ndim() - 2, 2);
  order.insert(order.end(), {1, 0});
  return transpose(t[0], order);
}

// Converts PyTorch's (in, out / groups, spatial...), whose kernel is flipped, to (spatial..., in / groups, out).
Array of_transposed_conv(const Parts& t, const Shape& expected) {
  const int spatial = t[0].ndim() - 2;
  const int64_t in = expected[spatial], out = expected[spatial + 1], groups = t[0].shape(0) / in;
  Shape wide{groups, in, out / groups};
  wide.insert(wide.end(), expected.begin(), expected.end() - 2);
  const Dims flipped = tessera::detail::consecutive_dims(spatial, 3);
  Dims order = flipped;
  order.insert(order.end(), {1, 0, 2});
  return reshape(transpose(flip(reshape(t[0], wide), flipped), order), expected);
}

// Takes the third of q, k or v from PyTorch's in_proj_weight (3 embed, embed) or in_proj_bias (3 embed), or a separate
// tensor unchanged. Weights are transposed.
auto third(int64_t number) {
  return [number](const Parts& t, const Shape& expected) {
    const int64_t out = expected.back();
    const Array mine = t[0].shape(0) == 3 * out ? slice_in_dim(t[0], number * out, (number + 1) * out, 0) : t[0];
    return expected.size() == 2 ? transpose(mine) : mine;
  };
}

[[noreturn]] void not_in(const char* layer, const char* where) {
  fail(ErrorKind::invalid_argument, "load_weights", "{} is in {} only. Give a custom WeightMap.", layer, where);
}

// Adds the rows of a part below its paths.
void add(WeightMap& map, const std::string& ours, const std::string& theirs, WeightMap part) {
  for (WeightRow& row : part) {
    row.ours = ours + "." + row.ours;
    for (std::string& name : row.theirs) name = theirs + "." + name;
    map.push_back(std::move(row));
  }
}

// Returns the rows of all layers that multiply by a scale and add a bias.
WeightMap scale_and_bias(Library library) {
  return {{"scale", {library == Library::flax ? "scale" : "weight"}, as_is}, {"bias", {"bias"}, as_is}};
}

// Returns rows for the kernel and bias of the layer inside WeightNorm or SpectralNorm; `original` is PyTorch's name of
// the kernel.
WeightMap normalized_linear(const char* layer, const char* original, Library library) {
  if (library == Library::flax) not_in(layer, "Equinox and PyTorch");
  const bool torch = library == Library::pytorch;
  return {{"layer.kernel", {torch ? std::string("parametrizations.weight.") + original : "layer.weight"}, transposed},
          {"layer.bias", {torch ? "bias" : "layer.bias"}, as_is}};
}

}  // namespace

// ---- tables

WeightMap weight_map(const Linear&, Library library) {
  if (library == Library::flax) return {{"kernel", {"kernel"}, as_is}, {"bias", {"bias"}, as_is}};
  return {{"kernel", {"weight"}, transposed}, {"bias", {"bias"}, as_is}};
}

WeightMap weight_map(const Embedding&, Library library) {
  return {{"tokens", {library == Library::flax ? "embedding" : "weight"}, as_is}};
}

WeightMap weight_map(const LayerNorm&, Library library) { return scale_and_bias(library); }
WeightMap weight_map(const RMSNorm&, Library library) { return scale_and_bias(library); }
WeightMap weight_map(const GroupNorm&, Library library) { return scale_and_bias(library); }

WeightMap weight_map(const BatchNorm&, Library library) {
  WeightMap map = scale_and_bias(library);
  const bool torch = library == Library::pytorch;
  map.push_back({"mean", {torch ? "running_mean" : "mean"}, as_is});
  map.push_back({"variance", {torch ? "running_var" : "var"}, as_is});
  if (torch) map.push_back({"", {"num_batches_tracked"}, as_is});
  return map;
}

WeightMap weight_map(const Conv&, Library library) {
  if (library == Library::flax) return {{"kernel", {"kernel"}, as_is}, {"bias", {"bias"}, as_is}};
  return {{"kernel", {"weight"}, features_last}, {"bias", {"bias"}, reshaped}};
}

WeightMap weight_map(const ConvTranspose&, Library library) {
  if (library == Library::flax) return {{"kernel", {"kernel"}, as_is}, {"bias", {"bias"}, as_is}};
  if (library == Library::equinox) return {{"kernel", {"weight"}, features_last}, {"bias", {"bias"}, reshaped}};
  return {{"kernel", {"weight"}, of_transposed_conv}, {"bias", {"bias"}, as_is}};
}

WeightMap weight_map(const PReLU&, Library library) {
  return {{"slope", {library == Library::pytorch ? "weight" : "negative_slope"}, reshaped}};
}

WeightMap weight_map(const LSTMCell&, Library library) {
  if (library == Library::flax)
    return {{"input", {"ii.kernel", "if.kernel", "ig.kernel", "io.kernel"}, gates_stacked},
            {"recurrent", {"hi.kernel", "hf.kernel", "hg.kernel", "ho.kernel"}, gates_stacked},
            {"bias", {"hi.bias", "hf.bias", "hg.bias", "ho.bias"}, gates_stacked}};
  WeightMap map{{"input", {"weight_ih|weight_ih_l0"}, gates_last},
                {"recurrent", {"weight_hh|weight_hh_l0"}, gates_last},
                {"bias", {"bias"}, reshaped}};
  if (library == Library::pytorch) map[2] = {"bias", {"bias_ih|bias_ih_l0", "bias_hh|bias_hh_l0"}, added};
  return map;
}

WeightMap weight_map(const GRUCell&, Library library) {
  if (library == Library::flax)
    return {{"input", {"ir.kernel", "iz.kernel", "in.kernel"}, gates_stacked},
            {"recurrent", {"hr.kernel", "hz.kernel", "hn.kernel"}, gates_stacked},
            {"bias", {"ir.bias", "iz.bias", "in.bias"}, gates_stacked},
            {"bias_n", {"hn.bias"}, as_is}};
  const WeightMap kernels{{"input", {"weight_ih|weight_ih_l0"}, gates_last},
                          {"recurrent", {"weight_hh|weight_hh_l0"}, gates_last}};
  if (library == Library::equinox)
    return {kernels[0], kernels[1], {"bias", {"bias"}, reshaped}, {"bias_n", {"bias_n"}, as_is}};
  return {kernels[0],
          kernels[1],
          {"bias", {"bias_ih|bias_ih_l0", "bias_hh|bias_hh_l0"}, gru_bias},
          {"bias_n", {"bias_hh|bias_hh_l0"}, last_third}};
}

WeightMap weight_map(const MultiheadAttention&, Library library) {
  WeightMap map;
  const char* const ours[] = {"q", "k", "v", "o"};
  const char* const equinox[] = {"query_proj", "key_proj", "value_proj", "output_proj"};
  const char* const flax[] = {"query", "key", "value", "out"};
  for (int i = 0; i < 4; ++i) {
    const std::string path = ours[i];
    if (library == Library::equinox)
      add(map, path, equinox[i], weight_map(Linear{}, library));
    else if (library == Library::flax)
      add(map, path, flax[i], {{"kernel", {"kernel"}, reshaped}, {"bias", {"bias"}, reshaped}});
    else if (path == "o")
      add(map, path, "out_proj", weight_map(Linear{}, library));
    else
      map.insert(map.end(), {{path + ".kernel", {"in_proj_weight|" + path + "_proj_weight"}, third(i)},
                             {path + ".bias", {"in_proj_bias"}, third(i)}});
  }
  return map;
}

WeightMap weight_map(const DeepMlp& mlp, Library library) {
  if (library != Library::equinox) not_in("DeepMlp", "Equinox");
  WeightMap map;
  for (size_t i = 0; i < mlp.layers.size(); ++i) {
    const std::string path = fmt::format("layers.{}", i);
    add(map, path, path, weight_map(mlp.layers[i], library));
  }
  return map;
}

WeightMap weight_map(const WeightNorm<Linear>&, Library library) {
  WeightMap map = normalized_linear("WeightNorm", "original1", library);
  map.push_back({"length", {library == Library::equinox ? "g" : "parametrizations.weight.original0"}, reshaped});
  return map;
}

WeightMap weight_map(const SpectralNorm<Linear>&, Library library) {
  WeightMap map = normalized_linear("SpectralNorm", "original", library);
  const bool torch = library == Library::pytorch;
  map.push_back({"power.in", {torch ? "parametrizations.weight.0._v" : "v"}, as_is});
  map.push_back({"power.out", {torch ? "parametrizations.weight.0._u" : "u"}, as_is});
  return map;
}

}  // namespace tessera::nn
