// LSTMCell and GRUCell, and a scan of either over time.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "nn/layers/dtype_policy.h"
#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/elementwise.h"
#include "sharding/operations/joining.h"
#include "sharding/operations/reductions.h"
#include "sharding/operations/slicing.h"

namespace tessera::nn {

// equinox.nn.LSTMCell's and GRUCell's defaults: everything uniform in +-1 / sqrt(hidden). (flax.linen: lecun_normal,
// orthogonal for `recurrent`, zeros for biases.) The initializers get the shapes of one gate.
struct RecurrentOptions {
  bool bias = true;
  std::optional<Initializer> input_init = std::nullopt;
  std::optional<Initializer> recurrent_init = std::nullopt;
  std::optional<Initializer> bias_init = std::nullopt;
  DTypePolicy dtypes = {};
};

// The gates lie side by side along a dim of their own, which is never cut; rules cut the hidden units of a gate. What
// enters a product has no name in `recurrent`, so that its result is cut as everything else of the hidden units.
// A state has a row for each of x, or one that serves all. Errors (shape_mismatch): inputs or states of other sizes.

// h, c of (..., hidden).
struct LSTMState {
  Array h, c;
};

// (..., in) and a state -> the next state. With gates i, f, g, o, in this order, of x input + h recurrent + bias:
//   c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c').
// Hochreiter and Schmidhuber, "Long short-term memory" (1997).
struct LSTMCell {
  using State = LSTMState;
  Param input;                // (in, 4, hidden)
  Param recurrent;            // (hidden, 4, hidden)
  std::optional<Param> bias;  // (4, hidden)
  DTypePolicy dtypes = {};

  static LSTMCell init(const Key& key, const Axis& in, const Axis& hidden, const RecurrentOptions& options = {});
  State operator()(Operand x, const State& state) const;
  // Zeros for the rows of x (..., in): the state before the first step.
  State start(const Array& x) const;
};

// h of (..., hidden).
struct GRUState {
  Array h;
};

// (..., in) and a state -> the next state. With r, z, n, in this order:
//   r = sigmoid(x_r + h_r),  z = sigmoid(x_z + h_z),  n = tanh(x_n + r (h_n + bias_n)),  h' = (1 - z) n + z h,
// x_* being parts of x input + bias, h_* of h recurrent. Cho et al., "Learning phrase representations using RNN
// encoder-decoder" (2014), with the reset gate behind the product, as PyTorch, Equinox and Flax have it.
struct GRUCell {
  using State = GRUState;
  Param input;                  // (in, 3, hidden)
  Param recurrent;              // (hidden, 3, hidden)
  std::optional<Param> bias;    // (3, hidden)
  std::optional<Param> bias_n;  // (hidden)
  DTypePolicy dtypes = {};

  static GRUCell init(const Key& key, const Axis& in, const Axis& hidden, const RecurrentOptions& options = {});
  State operator()(Operand x, const State& state) const;
  State start(const Array& x) const;
};

// The cell over xs (batch, time, in), from `state` or from zeros: the last state, and h after each step as (batch,
// time, hidden). jax.lax.scan of a cell. Error (shape_mismatch): no step, or other than three dims.
//   auto [last, outputs] = scan(cell, xs);
void check_steps(const Array& xs);
template <class Cell>
std::pair<typename Cell::State, Array> scan(const Cell& cell, const Array& xs,
                                            std::optional<typename Cell::State> state = std::nullopt,
                                            std::source_location where = std::source_location::current()) {
  check_steps(xs);
  std::vector<Array> outputs;
  for (int64_t t = 0; t < xs.shape(1); ++t) {
    const Array x = index_in_dim({xs, where}, t, 1, false);
    state = cell({x, where}, state ? *state : cell.start(x));
    outputs.push_back(state->h);
  }
  return {std::move(*state), stack(outputs, 1, where)};
}

}  // namespace tessera::nn
