// inference_mode: switches the layers of a model between training and inference.
#pragma once

#include <concepts>

#include "nn/tree/tree.h"

namespace tessera::nn {

// A copy of the tree in which every field `bool inference` is `value` (eqx.nn.inference_mode). By convention, a layer
// that behaves differently in inference (dropout, batch normalization) has a field of this name, false in training.
//   auto eval = nn::inference_mode(model);
// (Not const with a layer like BatchNorm, whose call is non-const even though it changes nothing in inference.)
template <class Tree>
Tree inference_mode(Tree tree, bool value = true) {
  detail::walk_all(tree, [value]<class T>(T& part, const detail::Place& place) {
    if constexpr (std::same_as<T, bool>)
      if (place.name() == "inference") part = value;
  });
  return tree;
}

}  // namespace tessera::nn
