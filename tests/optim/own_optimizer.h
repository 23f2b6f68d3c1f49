// The example optimizer of docs/optimizers.md: Tiger, in one struct.
#pragma once

#include "optim/optimizer.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace own {

using namespace tessera;

// m = beta m + (1 - beta) g;  sign(m). Su, "Tiger: a tight-fisted optimizer" (2023).
struct Tiger {
  double beta = 0.965;

  static constexpr const char* name = "scale_by_tiger";  // for messages
  template <class Model>
  struct State {  // trees like the model's, and at most a count
    Model m;
  };
  Array operator()(const optim::ArrayStep& step) const {  // the update of one array
    Array& m = step.state[0];
    m = beta * m + (1 - beta) * step.gradient;
    return sign(m);
  }
};

inline auto tiger(optim::Schedule learning_rate, double weight_decay = 0.01) {
  return optim::chain(optim::PerArray<Tiger>{}, optim::add_decayed_weights(weight_decay, optim::matrices_only),
                      optim::scale_by_learning_rate(learning_rate));
}

}  // namespace own
