// The loop of formulas: what each sees of an array, and where its results go.
#include "optim/per_array.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "nn/filter.h"
#include "optim/internal.h"
#include "sharding/elementwise.h"

namespace tessera::optim::detail {

namespace {

// How many trees a state holds.
size_t trees_of(const char* verb, const nn::Leaves& state, const nn::Leaves& params) {
  if (params.empty() || state.size() % params.size() == 0) return params.empty() ? 0 : state.size() / params.size();
  fail(ErrorKind::bad_argument, verb,
       fmt::format("the state has {} arrays, the model {}. Both must come from the same model.", state.size(),
                   params.size()));
}

}  // namespace

void make_initial(const nn::Leaves& state, size_t arrays, const Initial& initial) {
  for (size_t i = 0; i < state.size(); ++i) {
    Array& x = *state[i].value;
    x = nn::is_trainable(state[i]) ? initial(i / arrays, x) : Array();
  }
}

void per_array(const char* verb, const nn::Leaves& updates, const nn::Leaves& state, const nn::Leaves& params,
               int64_t count, const ArrayFormula& formula) {
  at::AutoGradMode off(false);
  check_same_tree(verb, "the gradient", updates, params);
  const size_t n = params.size(), trees = trees_of(verb, state, params);
  std::vector<Array> now(trees);
  for (size_t i = 0; i < n; ++i) {
    Array& update = *updates[i].value;
    if (update.is_absent()) continue;
    for (size_t t = 0; t < trees; ++t) {
      Array& old = *state[t * n + i].value;
      check_has_state(verb, params[i], update, old);
      follow(old, *params[i].value);
      now[t] = old;
    }
    const Array gradient = astype(update, moment_dtype(update.dtype()));
    update = formula({gradient, params[i], now, count});
    for (size_t t = 0; t < trees; ++t) {
      Array& old = *state[t * n + i].value;
      old = kept(now[t], old, verb);
    }
  }
}

}  // namespace tessera::optim::detail
