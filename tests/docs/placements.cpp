// The pages of the placements: where each table of rules puts a small decoder, and what a training step communicates.
#include <iostream>

#include <tessera/nn/models.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

namespace {

struct Batch {
  NamedArray ids{"batch", "stream_seq"}, labels{"batch", "stream_seq"};
};

struct Placement {
  const char* name;
  std::vector<MeshAxis> mesh;
  Rules rules;
  std::vector<std::string> shard_state_over = {};
  ContextParallelism context = ContextParallelism::automatic;
  int64_t num_micro_batches = 1;
};

const Placement placements[] = {
    {.name = "data", .mesh = {{"data", 8}}, .rules = {{"batch", "data"}}},
    {.name = "fsdp", .mesh = {{"data", 8}}, .rules = {{"batch", "data"}, {"embed", "data"}}},
    {.name = "hsdp",
     .mesh = {{"replica", 2}, {"data", 4}},
     .rules = {{"batch", {"replica", "data"}}, {"embed", "data"}}},
    {.name = "zero1", .mesh = {{"data", 8}}, .rules = {{"batch", "data"}}, .shard_state_over = {"data"}},
    {.name = "tensor",
     .mesh = {{"model", 8}},
     .rules = {{"vocab", "model"}, {"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}}},
    {.name = "sequence",
     .mesh = {{"data", 2}, {"seq", 4}},
     .rules = {{"batch", "data"}, {"stream_seq", "seq"}},
     .context = ContextParallelism::exchange},
    {.name = "context",
     .mesh = {{"data", 2}, {"seq", 4}},
     .rules = {{"batch", "data"}, {"stream_seq", "seq"}},
     .context = ContextParallelism::ring},
    {.name = "expert", .mesh = {{"data", 8}}, .rules = {{"batch", "data"}, {"experts", "data"}}},
    {.name = "pipeline",
     .mesh = {{"pipe", 2}, {"data", 4}},
     .rules = {{"layers", "pipe"}, {"batch", "data"}},
     .num_micro_batches = 2},
    {.name = "fsdp x tensor",
     .mesh = {{"data", 4}, {"model", 2}},
     .rules = {{"batch", "data"},
               {"embed", "data"},
               {"vocab", "model"},
               {"heads", "model"},
               {"kv_heads", "model"},
               {"mlp", "model"}}},
    {.name = "data x context x tensor",
     .mesh = {{"data", 2}, {"seq", 2}, {"model", 2}},
     .rules = {{"batch", "data"},
               {"stream_seq", "seq"},
               {"vocab", "model"},
               {"heads", "model"},
               {"kv_heads", "model"},
               {"mlp", "model"}},
     .context = ContextParallelism::ring},
};

nn::DecoderConfig config_for(const Placement& p) {
  nn::DecoderConfig config{.vocab_size = 64,
                           .hidden_size = 32,
                           .num_hidden_layers = 1,
                           .num_attention_heads = 8,
                           .num_key_value_heads = 8,
                           .head_dim = 4,
                           .intermediate_size = 64};
  if (std::string_view(p.name) == "expert")
    config.family = nn::DecoderFamily::mixtral, config.num_local_experts = 8, config.num_experts_per_tok = 2;
  if (p.num_micro_batches > 1) config.num_hidden_layers = 2;
  return config;
}

// What lies where: the parameters that show it, and a batch.
void show(const Batch& batch, const nn::Leaves& leaves) {
  std::cout << "ids " << batch.ids.value.type_string() << '\n';
  for (const nn::Leaf& leaf : leaves) {
    const std::string path = leaf.path.substr(leaf.path.find('.') + 1);
    if (path == "layers.0.attn.q.kernel" || path == "layers.1.attn.q.kernel")
      std::cout << path << ' ' << leaf.value->type_string() << '\n' << visualize_sharding(*leaf.value);
    if (path == "layers.0.moe.up") std::cout << path << ' ' << leaf.value->type_string() << '\n';
  }
}

WeightedSum loss_of(const nn::CausalLM& model, const Batch& batch) { return model.loss(batch.ids, batch.labels); }

// The second step is shown: it knows what the first one gathered.
void train(const Placement& p) {
  const Mesh mesh = make_mesh(p.mesh);
  const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh, p.rules)};  // every other name is whole
  auto model = nn::filter_shard(nn::CausalLM::init(Key(0), config_for(p)), mesh_rules);
  const auto set_context = [&](auto& decoder) { decoder.layers[0].attn.context_parallelism = p.context; };
  std::visit(set_context, model.decoder);
  auto optimizer =
      optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}), {.shard_state_over = p.shard_state_over});
  Batch batch;
  batch.ids = randint(Key(1), {8, 16}, 0, 64), batch.labels = randint(Key(2), {8, 16}, 0, 64);
  batch = nn::filter_shard(batch, mesh_rules);
  const nn::PlacementTable table = nn::placement_table(nn::named("model", model, "optimizer", optimizer));
  std::cout << "\n---- " << p.name << ": mesh " << mesh.to_string() << '\n';
  show(batch, nn::leaves(model));
  for (int step = 0; step < 2; ++step) {
    const CommLedger ledger;
    const auto [loss, grads] =
        p.num_micro_batches > 1
            ? nn::pipeline(loss_of, {.num_micro_batches = p.num_micro_batches})(model, batch)
            : nn::value_and_grad(loss_of, {.shard_gradients_over = p.shard_state_over})(model, batch);
    optimizer.update(model, grads);
    if (step == 1) std::cout << "bytes on each device: " << table.bytes_per_device() << '\n' << ledger.to_text();
  }
}

}  // namespace

int main() {
  for (const Placement& p : placements) train(p);
}
