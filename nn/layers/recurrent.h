// LSTMCell and GRUCell, and a scan of a cell over time.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/joining.h"

namespace tessera::nn {

// Defaults of equinox.nn.LSTMCell and GRUCell: everything is uniform in +-1 / sqrt(hidden). flax.linen uses
// lecun_normal, orthogonal for `recurrent`, and zeros for biases. Each initializer is called once per gate, with the
// shape of one gate.
struct RecurrentOptions {
  bool bias = true;
  std::optional<Initializer> input_init = std::nullopt;
  std::optional<Initializer> recurrent_init = std::nullopt;
  std::optional<Initializer> bias_init = std::nullopt;
  DTypePolicy dtypes = {};
};

// The gates have their own dimension, which is never sharded; rules shard the hidden units of each gate. The first
// dimension of `recurrent`, over which the product sums, has no name. The result is therefore sharded along the hidden
// units, like all other arrays. A state has one row for each row of x, or one for all. Errors (shape_mismatch): inputs
// or states of the wrong sizes.

// State of an LSTMCell: h and c, each (..., hidden).
struct LSTMState {
  Array h, c;
};

// Computes the next state from x (..., in) and a state. With the gates i, f, g, o, in this order, of x input + h
// recurrent + bias:
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
  // Returns the state before the first step: zeros for the rows of x (..., in).
  State start(const Array& x) const;
};

// State of a GRUCell: h (..., hidden).
struct GRUState {
  Array h;
};

// Computes the next state from x (..., in) and a state. With the gates r, z, n, in this order:
//   r = sigmoid(x_r + h_r),  z = sigmoid(x_z + h_z),  n = tanh(x_n + r (h_n + bias_n)),  h' = (1 - z) n + z h,
// with x_* the gates of x input + bias, and h_* the gates of h recurrent. Cho et al., "Learning phrase representations
// using RNN encoder-decoder" (2014), with the reset gate applied after the product, as in PyTorch, Equinox and Flax.
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

// Runs the cell over xs (batch, time, in), from `state` or from zeros, as jax.lax.scan does. Returns the last state,
// and h after each step as (batch, time, hidden). Error (shape_mismatch): xs has no step, or does not have three
// dimensions.
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
