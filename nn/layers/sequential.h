// Sequential: layers of different types, called one after another.
#pragma once

#include <concepts>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sharding/array/array.h"
#include "sharding/operations/operand.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// Computes y = last(...(second(first(x)))). Any struct that can be called with an array is a layer. A layer that also
// takes a key (Dropout) gets its own, fold_in(key, its number). If a call changes one of the layers (BatchNorm), the
// Sequential must be non-const. If another layer throws, the layers that can be copied and assigned are unchanged.
// Paths are layers.0, layers.1, ... For layers chosen at run time, use a std::vector<std::variant<...>> and a loop.
//   auto net = sequential(nn::Linear::init(k1, in, hidden), Activation{Activation::relu}, Dropout{0.1},
//                         nn::Linear::init(k2, hidden, out));
//   net(x, key)
template <class... Layers>
struct Sequential {
  std::tuple<Layers...> layers;

  Array operator()(Operand x, const std::optional<Key>& key = std::nullopt) const
      requires(...&& std::invocable<const Layers&, const Array&>) {
    return run(layers, x, key);
  }
  Array operator()(Operand x, const std::optional<Key>& key = std::nullopt) {
    std::tuple<Worked<Layers>...> work =
        std::apply([](Layers&... layer) { return std::tuple<Worked<Layers>...>(layer...); }, layers);
    Array y = run(work, x, key);
    keep_all(work, std::index_sequence_for<Layers...>());
    return y;
  }

 private:
  // A layer with a non-const call is called on a copy, which replaces the layer after all layers have succeeded.
  template <class Layer>
  using Worked = std::conditional_t<!std::invocable<const Layer&, const Array&> && std::copyable<Layer>, Layer, Layer&>;
  template <size_t... i>
  void keep_all(std::tuple<Worked<Layers>...>& work, std::index_sequence<i...>) {
    (keep<Layers>(std::get<i>(layers), std::get<i>(work)), ...);
  }
  template <class Layer>
  static void keep(Layer& layer, Layer& worked) {
    if constexpr (!std::is_reference_v<Worked<Layer>>) layer = std::move(worked);
  }
  template <class Layer>
  static Array call(Layer& layer, const Array& x, const Operand& at, const std::optional<Key>& key, uint32_t number) {
    if constexpr (std::invocable<Layer&, Operand, const std::optional<Key>&>)
      return layer(Operand(x, at.where()), key ? std::optional(fold_in(*key, number)) : key);
    else if constexpr (std::invocable<Layer&, Operand>)
      return layer(Operand(x, at.where()));
    else
      return layer(x);
  }
  template <class Tuple>
  static Array run(Tuple& layers, const Operand& x, const std::optional<Key>& key) {
    Array y = x.array();
    uint32_t number = 0;
    std::apply([&](auto&... layer) { ((y = call(layer, y, x, key, number++)), ...); }, layers);
    return y;
  }
};

template <class... Layers>  // sequential(a, b, c): each layer receives the previous result
Sequential<Layers...> sequential(Layers... layers) {
  return {.layers = {std::move(layers)...}};
}

}  // namespace tessera::nn
