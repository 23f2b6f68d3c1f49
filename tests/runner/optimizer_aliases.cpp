// Builders of Optax's optimizers and adaptive transforms.
#include <boost/json.hpp>

#include "optim/optimizer/optimizers.h"
#include "tests/runner/optimizer_arguments.h"

namespace tessera::runner {

using Table = Builders<AnyTransform>;

const Table& adaptive_table() {
  static const Table table = {{"scale_by_adam", from_options(optim::scale_by_adam)},
                              {"scale_by_amsgrad", from_options(optim::scale_by_amsgrad)},
                              {"scale_by_adamax", from_options(optim::scale_by_adamax)},
                              {"scale_by_belief", from_options(optim::scale_by_belief)},
                              {"scale_by_yogi", from_options(optim::scale_by_yogi)},
                              {"scale_by_radam", from_options(optim::scale_by_radam)},
                              {"scale_by_rss", from_options(optim::scale_by_rss)},
                              {"scale_by_rms", from_options(optim::scale_by_rms)},
                              {"scale_by_stddev", from_options(optim::scale_by_stddev)},
                              {"scale_by_adadelta", from_options(optim::scale_by_adadelta)},
                              {"scale_by_adan", from_options(optim::scale_by_adan)},
                              {"scale_by_lion", from_options(optim::scale_by_lion)},
                              {"scale_by_ademamix", from_options(optim::scale_by_ademamix)},
                              {"scale_by_adopt", from_options(optim::scale_by_adopt)},
                              {"scale_by_factored_rms", from_options(optim::scale_by_factored_rms)},
                              {"scale_by_novograd", from_options(optim::scale_by_novograd)}};
  return table;
}

const Table& optimizer_table() {
  static const Table table = {{"sgd", from_options(optim::sgd)},
                              {"adam", from_options(optim::adam)},
                              {"nadam", from_options(optim::nadam)},
                              {"adamw", from_options(optim::adamw)},
                              {"nadamw", from_options(optim::nadamw)},
                              {"amsgrad", from_options(optim::amsgrad)},
                              {"adamax", from_options(optim::adamax)},
                              {"adamaxw", from_options(optim::adamaxw)},
                              {"adagrad", from_options(optim::adagrad)},
                              {"adadelta", from_options(optim::adadelta)},
                              {"adabelief", from_options(optim::adabelief)},
                              {"adan", from_options(optim::adan)},
                              {"rmsprop", from_options(optim::rmsprop)},
                              {"lion", from_options(optim::lion)},
                              {"lamb", from_options(optim::lamb)},
                              {"lars", from_options(optim::lars)},
                              {"radam", from_options(optim::radam)},
                              {"yogi", from_options(optim::yogi)},
                              {"novograd", from_options(optim::novograd)},
                              {"adafactor", from_options(optim::adafactor)},
                              {"sign_sgd", from_options(optim::sign_sgd)},
                              {"signum", from_options(optim::signum)},
                              {"ademamix", from_options(optim::ademamix)},
                              {"adopt", from_options(optim::adopt)}};
  return table;
}

}  // namespace tessera::runner
