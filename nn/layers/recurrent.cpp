// Computes the gates of LSTMCell and GRUCell.
#include "nn/layers/recurrent.h"

#include <fmt/ranges.h>

#include <cmath>

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/shape/creation.h"

namespace tessera::nn {

namespace {

// Draws all gates at once, and lazily, if they have the default uniform distribution. Otherwise draws each gate and
// stacks them.
Array drawn(const char* layer, const char* option, const std::optional<Initializer>& initializer, const Key& key,
            const Shape& shape, int64_t gates, double limit) {
  if (!initializer) return init::uniform(limit)(key, shape);
  std::vector<Array> each;
  Shape one = shape;
  one.erase(one.end() - 2);
  for (const Key& k : split(key, gates)) each.push_back(initial(layer, option, *initializer, k, one));
  return stack(each, static_cast<int>(shape.size()) - 2);
}

template <class Cell>
Cell made(const char* layer, const Key& key, const Axis& in, const Axis& hidden, int64_t gates,
          const RecurrentOptions& o) {
  check_axis(layer, in), check_axis(layer, hidden);
  const double limit = 1 / std::sqrt(static_cast<double>(hidden.size));
  const auto keys = split<4>(key);
  const auto param = [&](const char* option, const auto& initializer, int i, Shape shape, Axes axes) {
    return Param{o.dtypes.param(drawn(layer, option, initializer, keys[i], shape, gates, limit)), std::move(axes)};
  };
  Cell cell{.input = param("input_init", o.input_init, 0, {in.size, gates, hidden.size}, {in, none, hidden}),
            .recurrent =
                param("recurrent_init", o.recurrent_init, 1, {hidden.size, gates, hidden.size}, {none, none, hidden}),
            .bias = {}};
  if (o.bias) cell.bias = param("bias_init", o.bias_init, 2, {gates, hidden.size}, {none, hidden});
  cell.dtypes = o.dtypes;
  return cell;
}

// Multiplies x (..., features) by a kernel (features, gates, hidden): (..., gates, hidden).
Array through(const Array& x, const Array& kernel) { return einsum("...i,igh->...gh", {x, kernel}); }

Array gate(const Array& gates, int64_t i) { return index_in_dim(gates, i, -2, false); }

// Throws unless the state has one row for each row of x, or one for all rows.
void check_state(const char* layer, const char* name, const Array& state, const Array& x, const Param& recurrent) {
  check_there(layer, recurrent);
  if (state.is_absent())
    fail(ErrorKind::shape_mismatch, layer, "an absent state given, expected one of (..., hidden): cell.start(x).");
  Shape expected = x.shape();
  expected.back() = recurrent.value.shape(0);
  if (state.ndim() > 0 && state.shape(-1) == expected.back() && broadcasts_to(state.shape(), expected)) return;
  fail(ErrorKind::shape_mismatch, layer, "state {} = {}, expected ({}) for x {}. Begin with cell.start(x).", name,
       state.type_string(), fmt::join(expected, ", "), x.type_string());
}

Array no_state(const Array& x, const Param& recurrent) {
  if (x.ndim() == 0) fail(ErrorKind::shape_mismatch, "start", "given {}, expected (..., in).", x.type_string());
  Shape shape = x.shape();
  shape.back() = recurrent.value.shape(0);
  return zeros(shape, is_floating(x.dtype()) ? x.dtype() : recurrent.value.dtype());
}

}  // namespace

void check_steps(const Array& xs) {
  if (xs.ndim() != 3 || xs.shape(1) == 0)
    fail(ErrorKind::shape_mismatch, "scan", "given {}, expected (batch, time, features) with one step or more.",
         xs.type_string());
}

LSTMCell LSTMCell::init(const Key& key, const Axis& in, const Axis& hidden, const RecurrentOptions& options) {
  return made<LSTMCell>("LSTMCell", key, in, hidden, 4, options);
}

LSTMState LSTMCell::operator()(Operand x, const LSTMState& state) const {
  const LayerScope scope(*this, x);
  check_features("LSTMCell", x.array(), input);
  check_state("LSTMCell", "h", state.h, x.array(), recurrent),
      check_state("LSTMCell", "c", state.c, x.array(), recurrent);
  Array gates = through(dtypes.in(x.array()), dtypes.in(input)) + through(dtypes.in(state.h), dtypes.in(recurrent));
  if (bias) gates = gates + dtypes.in(*bias);
  const Array c = sigmoid(gate(gates, 1)) * state.c + sigmoid(gate(gates, 0)) * tanh(gate(gates, 2));
  return {.h = dtypes.out(sigmoid(gate(gates, 3)) * tanh(c)), .c = c};
}

LSTMState LSTMCell::start(const Array& x) const { return {.h = no_state(x, recurrent), .c = no_state(x, recurrent)}; }

GRUCell GRUCell::init(const Key& key, const Axis& in, const Axis& hidden, const RecurrentOptions& options) {
  GRUCell cell = made<GRUCell>("GRUCell", key, in, hidden, 3, options);
  if (!options.bias) return cell;
  const Initializer start = options.bias_init.value_or(init::uniform(1 / std::sqrt(double(hidden.size))));
  cell.bias_n =
      Param{options.dtypes.param(initial("GRUCell", "bias_init", start, split<4>(key)[3], {hidden.size})), {hidden}};
  return cell;
}

GRUState GRUCell::operator()(Operand x, const GRUState& state) const {
  const LayerScope scope(*this, x);
  check_features("GRUCell", x.array(), input);
  check_state("GRUCell", "h", state.h, x.array(), recurrent);
  Array of_x = through(dtypes.in(x.array()), dtypes.in(input));
  if (bias) of_x = of_x + dtypes.in(*bias);
  const Array h = dtypes.in(state.h), of_h = through(h, dtypes.in(recurrent));
  const Array r = sigmoid(gate(of_x, 0) + gate(of_h, 0)), z = sigmoid(gate(of_x, 1) + gate(of_h, 1));
  const Array of_h_n = bias_n ? gate(of_h, 2) + dtypes.in(*bias_n) : gate(of_h, 2);
  const Array n = tanh(gate(of_x, 2) + r * of_h_n);
  return {.h = dtypes.out((1 - z) * n + z * h)};
}

GRUState GRUCell::start(const Array& x) const { return {.h = no_state(x, recurrent)}; }

}  // namespace tessera::nn
