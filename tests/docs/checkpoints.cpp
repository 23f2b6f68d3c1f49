// The code of docs/checkpoints.md: a training that saves, and one that resumes; weights of a decoder, out and in.
#include <iostream>

#include <tessera/data/loader.h>
#include <tessera/nn/checkpoint.h>
#include <tessera/nn/layers/module_scope.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

#include "examples/transformer.h"

using namespace tessera;
using examples::Gpt;

struct Line {
  nn::Param slope{.value = zeros({}), .axes = {}};
};

Array loss_of(const Line& line, const Array& x) { return mean(square(line.slope * x - 3 * x)); }

void train(int64_t last) {
  Line model;
  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 0.1}));
  data::Loader loader(data::range(1000).shuffle(0).repeat(), data::as_vector, {.batch_size = 10});

  nn::Checkpointer checkpoints("runs/7",
                               {.keep = {.latest = 2, .every = 1000, .best = 1, .metric = "validation_loss"}});
  int64_t step = 0;
  const auto state = [&] { return nn::named_state("model", model, "optimizer", optimizer); };

  if (!nn::checkpoint_steps("runs/7").empty()) {
    const nn::Restored from = nn::restore("runs/7", state());  // the newest; "runs/7/3000" for one
    loader.restore(data::LoaderState::from_json(from.extra.at("loader")));
    step = from.step;
  }

  for (++step; step <= last; ++step) {
    const std::vector<int64_t> rows = *loader.next();
    const Array x = array<float>({static_cast<float>(rows.front() % 7)}, {1});
    const auto [loss_array, grads] = nn::value_and_grad(loss_of)(model, x);
    optimizer.update(model, grads);
    const double loss = loss_array.item<float>();
    if (step % 10 != 0) continue;
    checkpoints.save(step, state(),
                     {.extra = {{"loader", loader.state().to_json()}}, .metrics = {{"validation_loss", loss}}});
  }
  checkpoints.wait();
}

void weights() {
  const examples::GptConfig config{.vocab = 32, .embed = 8, .heads = 2, .layers = 1, .seq = 4, .mlp = 16};
  const MeshRules mesh_rules{make_mesh({{"data", 2}, {"model", 2}}),
                             examples::with_all_names({{"mlp", "model"}, {"embed", "data"}})};
  const auto trained = nn::filter_shard(Gpt::init(Key(0), config), mesh_rules);
  nn::save("runs/8", 1, nn::named_state("model", trained));

  auto model = Gpt::init(Key(0), config);
  nn::restore("runs/8", nn::named_state("model", model), {.mesh_rules = mesh_rules, .ignore_unused = true});

  auto net = nn::inference_mode(trained);
  nn::restore("runs/8", nn::named("model", net), {.ignore_unused = true});

  nn::save_pretrained("gpt2", nn::hugging_face_names({.model_type = "gpt2"}), nn::leaves(model));
  nn::load_pretrained("gpt2", nn::hugging_face_names({.model_type = "gpt2"}), nn::leaves(model), mesh_rules);
}

int main() {
  train(20);
  train(30);
  for (const int64_t step : nn::checkpoint_steps("runs/7")) std::cout << "runs/7/" << step << '\n';
  weights();
}
