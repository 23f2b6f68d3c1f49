// Type-erased transforms over trees of arrays by name, for the chains of reference files.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "optim/transform/transform.h"

namespace tessera::runner {

using Tree = std::map<std::string, Array>;

class AnyTransform {
 public:
  // The state of the wrapped transform, of any type.
  struct State {
    std::any value;
    std::function<nn::Leaves(std::any&)> leaves;

    template <class Visit>
    void visit_fields(Visit&& visit) {
      if (!leaves) return;
      for (const nn::Leaf& leaf : leaves(value)) visit(std::string_view(leaf.path), *leaf.value);
    }
  };

  template <class T>
  AnyTransform(T transform)
      : init_([transform](const Tree& params) { return wrapped(transform.init(params)); }),
        update_([transform](const Tree& grads, State state, const Tree& params) {
          using Inner = decltype(transform.init(params));
          auto [updates, next] = transform.update(grads, std::any_cast<Inner>(std::move(state.value)), params);
          return std::pair<Tree, State>(std::move(updates), wrapped(std::move(next)));
        }) {}

  State init(const Tree& params) const { return init_(params); }
  std::pair<Tree, State> update(const Tree& grads, State state, const Tree& params) const {
    return update_(grads, std::move(state), params);
  }

 private:
  template <class Inner>
  static State wrapped(Inner state) {
    return {std::any(std::move(state)), [](std::any& value) { return leaves_of(*std::any_cast<Inner>(&value)); }};
  }
  template <class Inner>
  static nn::Leaves leaves_of(Inner& state) {
    return nn::leaves(state);
  }

  std::function<State(const Tree&)> init_;
  std::function<std::pair<Tree, State>(const Tree&, State, const Tree&)> update_;
};

}  // namespace tessera::runner
