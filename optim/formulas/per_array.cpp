// Runs formulas array by array, and stores their results.
#include "optim/formulas/per_array.h"

#include <ATen/core/grad_mode.h>

#include "nn/tree/filter.h"
#include "optim/transform/internal.h"
#include "optim/transform/state_placement.h"
#include "sharding/array/host_memory.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace tessera::optim::detail {

void check_sizes(const char* verb, const nn::Leaves& state, size_t trees, const nn::Leaves& params) {
  if (state.size() == trees * params.size()) return;
  fail(ErrorKind::invalid_argument, verb,
       "the state has {} arrays, the model {}, expected {} times as many. Both must come from the same model.",
       state.size(), params.size(), trees);
}

namespace {

// Throws Error (shape_mismatch) if a formula's result has a different shape, for example because the parameter has
// changed since its state was made.
void check_shape(const char* verb, const nn::Leaf& parameter, const Array& before, const Array& now) {
  if (now.is_absent() || before.shape() == now.shape()) return;
  fail(ErrorKind::shape_mismatch, verb,
       "{}{} given for {}: the state was made for a parameter of another shape, or the formula changes it. Make a new "
       "state.",
       name_of_leaf(parameter), now.type_string(), before.type_string());
}

}  // namespace

void make_initial(const nn::Leaves& state, size_t arrays, const Initial& initial) {
  for (size_t i = 0; i < state.size(); ++i) {
    Array& x = *state[i].value;
    x = nn::is_trainable(state[i]) ? initial(i / arrays, x) : Array();
    if (new_state_memory_kind() == MemoryKind::pinned_host) x = tessera::detail::in_host_memory(x);
  }
}

void per_array(const char* verb, const nn::Leaves& updates, const nn::Leaves& state, size_t trees,
               const nn::Leaves& params, int64_t count, const ArrayFormula& formula) {
  at::AutoGradMode off(false);
  check_count(verb, count);
  check_same_tree(verb, "the gradient", updates, params);
  check_sizes(verb, state, trees, params);
  const size_t n = params.size();
  std::vector<Array> now(trees);
  for (size_t i = 0; i < n; ++i) {
    Array& update = *updates[i].value;
    if (update.is_absent()) continue;
    for (size_t t = 0; t < trees; ++t) {
      Array& old = *state[t * n + i].value;
      check_has_state(verb, params[i], update, old);
      follow(verb, old, params[i]);
      now[t] = tessera::detail::on_device(old);
    }
    const Array gradient = astype(update, moment_dtype(update.dtype()));
    update = formula({gradient, params[i], now, count});
    check_shape(verb, params[i], gradient, update);
    for (size_t t = 0; t < trees; ++t) {
      Array& old = *state[t * n + i].value;
      check_shape(verb, params[i], old, now[t]);
      Array next = kept(now[t], old, verb);
      old = tessera::detail::host_tensors(old) ? tessera::detail::in_host_memory(next) : std::move(next);
    }
  }
}

}  // namespace tessera::optim::detail
