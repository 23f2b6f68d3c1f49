// inference_mode: switches the layers of a model between training and inference.
#pragma once

#include <string_view>

#include "nn/tree/tree.h"

namespace tessera::nn {

namespace detail {
class InferenceFields {
 public:
  static constexpr bool sees_values = true;
  explicit InferenceFields(bool value) : value_(value) {}
  bool keeps_path() const { return false; }
  size_t push(std::string_view name) {
    is_inference_ = name == "inference";
    return 0;
  }
  void pop(size_t) {}
  template <class T>
  void leaf(T&) {}
  template <class T>
  void node(T&) {}
  template <class T>
  void value(T& field) {
    if constexpr (std::same_as<T, bool>)
      if (is_inference_) field = value_;
  }

 private:
  bool value_, is_inference_ = false;
};
}  // namespace detail

// A copy of the tree in which every field `bool inference` is `value` (eqx.nn.inference_mode). By convention, a layer
// that behaves differently in inference (dropout, batch normalization) has a field of this name, false in training.
//   auto eval = nn::inference_mode(model);
// (Not const with a layer like BatchNorm, whose call is non-const even though it changes nothing in inference.)
template <class Tree>
Tree inference_mode(Tree tree, bool value = true) {
  detail::InferenceFields visitor(value);
  detail::walk_all(tree, visitor);
  return tree;
}

}  // namespace tessera::nn
