// Optional: a transform that an option may leave out.
#pragma once

#include <optional>

#include "optim/transform/update_step.h"

namespace tessera::optim {

namespace detail {
// Error (invalid_argument): the state was made without the transform.
[[noreturn]] void no_state_of_optional();
}  // namespace detail

// A transform that an option may leave out, as sgd's momentum. Its state is then left out, too.
template <class Inner>
struct Optional : detail::InPlaceTransform<Optional<Inner>> {
  static constexpr bool can_be_gated = detail::can_be_gated<Inner>;
  std::optional<Inner> inner;

  Optional() = default;
  Optional(std::optional<Inner> inner) : inner(std::move(inner)) {}

  template <class Model>
  auto init(const Model& params) const {
    using State = decltype(inner->init(params));
    return inner ? std::optional<State>(inner->init(params)) : std::optional<State>();
  }
  template <class Model, class State>
  void run(Model& updates, State& state, const Model& params, const detail::UpdateStep& step) const {
    if (!inner) return;
    if (!state) detail::no_state_of_optional();
    step(*inner, updates, *state, params);
  }
};

namespace detail {
template <class Inner>
Optional<Inner> when(bool used, Inner inner) {
  return used ? Optional<Inner>(std::move(inner)) : Optional<Inner>();
}
// make(*setting), if the setting is given.
template <class Setting, class Make>
auto where_given(const std::optional<Setting>& setting, Make make) {
  return setting ? Optional(std::optional(make(*setting))) : Optional<decltype(make(*setting))>();
}
}  // namespace detail

}  // namespace tessera::optim
