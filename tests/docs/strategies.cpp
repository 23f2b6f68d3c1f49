// The strategies of docs/strategies.md: where each one stores a small decoder, and what a training step communicates.
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <tessera/data/batches.h>
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

WeightedSum loss_of(const nn::CausalLM& model, const Batch& batch) { return model.loss(batch.ids, batch.labels); }

MeshRules with_decoder_rules(const Mesh& mesh, const Rules& rules) { return {mesh, nn::decoder_rules(mesh, rules)}; }

nn::CausalLM llama(const Mesh& mesh, const Rules& rules, int64_t num_layers = 1) {
  const nn::DecoderConfig config{.vocab_size = 64,
                                 .hidden_size = 32,
                                 .num_hidden_layers = num_layers,
                                 .num_attention_heads = 8,
                                 .num_key_value_heads = 8,
                                 .head_dim = 4,
                                 .intermediate_size = 64};
  return nn::filter_shard(nn::CausalLM::init(Key(0), config), with_decoder_rules(mesh, rules));
}

struct Row {
  std::string strategy, batch, query_kernel;
  int64_t stored = 0, communicated = 0;  // bytes on each device
};

// Prints the ledger of the second step, which gathers the weights of a layer together: the first one learns the order.
template <class Model, class Optimizer, class Gradient>
Row train(const char* name, const Mesh& mesh, const Rules& rules, Model model, Optimizer optimizer,
          const Gradient& gradient) {
  Batch batch;
  batch.ids = randint(Key(1), {8, 16}, 0, 64), batch.labels = randint(Key(2), {8, 16}, 0, 64);
  batch = data::from_process_local(batch, with_decoder_rules(mesh, rules));
  const int64_t stored = nn::placement_table(nn::named("model", model, "optimizer", optimizer)).bytes_per_device();
  std::cout << "\n---- " << name << ": mesh " << mesh.to_string() << '\n';
  int64_t communicated = 0;
  for (int step = 0; step < 2; ++step) {
    const CommLedger ledger;
    const auto [loss, grads] = gradient(model, batch);
    optimizer.update(model, grads);
    if (step == 0) continue;
    std::cout << "bytes on each device: " << stored << '\n' << ledger.to_text();
    communicated = ledger.bytes();
  }
  const nn::Param& kernel = std::get<nn::MultiheadAttention>(model.layers[0].attn).q.kernel;
  return {name, batch.ids.value.type_string(), kernel.value.type_string(), stored, communicated};
}

template <class Model, class Gradient>
Row train(const char* name, const Mesh& mesh, const Rules& rules, const Model& model, const Gradient& gradient) {
  return train(name, mesh, rules, model, optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3})), gradient);
}

Row train(const char* name, const Mesh& mesh, const Rules& rules) {
  return train(name, mesh, rules, llama(mesh, rules), nn::value_and_grad(loss_of));
}

// ---- The changed lines of each strategy ---------------------------------------------------------------------------

Row data_parallel() {
  const Mesh mesh = make_mesh({{"data", 8}});
  const Rules rules{{"batch", "data"}};
  return train("data", mesh, rules);
}

Row zero1() {
  const Mesh mesh = make_mesh({{"data", 8}});
  const Rules rules{{"batch", "data"}};
  const nn::CausalLM model = llama(mesh, rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}), {.shard_state_over = {"data"}});
  const auto gradient = nn::value_and_grad(loss_of, {.shard_gradients_over = {"data"}});
  return train("zero1", mesh, rules, model, std::move(optimizer), gradient);
}

Row fsdp() {
  const Mesh mesh = make_mesh({{"data", 8}});
  const Rules rules{{"batch", "data"}, {"embed", "data"}};
  return train("fsdp", mesh, rules);
}

Row hsdp() {
  const Mesh mesh = make_mesh({{"replica", 2}, {"data", 4}});
  const Rules rules{{"batch", {"replica", "data"}}, {"embed", "data"}};
  return train("hsdp", mesh, rules);
}

Row tensor_parallel() {
  const Mesh mesh = make_mesh({{"model", 8}});
  const Rules rules{{"vocab", "model"}, {"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}};
  return train("tensor", mesh, rules);
}

Row sequence_parallel() {
  const Mesh mesh = make_mesh({{"data", 2}, {"seq", 4}});
  const Rules rules{{"batch", "data"}, {"stream_seq", "seq"}};
  nn::CausalLM model = llama(mesh, rules);
  model.set_context_parallelism(ContextParallelism::exchange);
  return train("sequence", mesh, rules, model, nn::value_and_grad(loss_of));
}

Row context_parallel() {
  const Mesh mesh = make_mesh({{"data", 2}, {"seq", 4}});
  const Rules rules{{"batch", "data"}, {"stream_seq", "seq"}};
  nn::CausalLM model = llama(mesh, rules);
  model.set_context_parallelism(ContextParallelism::ring);
  return train("context", mesh, rules, model, nn::value_and_grad(loss_of));
}

Row expert_parallel() {
  const Mesh mesh = make_mesh({{"data", 8}});
  const Rules rules{{"batch", "data"}, {"experts", "data"}};
  const nn::DecoderConfig config{.model_type = "mixtral",
                                 .vocab_size = 64,
                                 .hidden_size = 32,
                                 .num_hidden_layers = 1,
                                 .num_attention_heads = 8,
                                 .num_key_value_heads = 8,
                                 .head_dim = 4,
                                 .intermediate_size = 64,
                                 .num_local_experts = 8,
                                 .num_experts_per_tok = 2};
  const auto loss = [](const nn::CausalLM& model, const Batch& batch) { return model.loss(batch.ids, batch.labels); };
  const auto model = nn::filter_shard(nn::CausalLM::init(Key(0), config), with_decoder_rules(mesh, rules));
  return train("expert", mesh, rules, model, nn::value_and_grad(loss));
}

Row pipeline_parallel() {
  const Mesh mesh = make_mesh({{"pipe", 2}, {"data", 4}});
  const Rules rules{{"layers", "pipe"}, {"batch", "data"}};
  const auto gradient = nn::pipeline(loss_of, {.num_micro_batches = 2});
  return train("pipeline", mesh, rules, llama(mesh, rules, /*num_layers=*/2), gradient);
}

Row fsdp_and_tensor() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Rules rules{{"batch", "data"},  {"embed", "data"},     {"vocab", "model"},
                    {"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}};
  return train("fsdp x tensor", mesh, rules);
}

Row data_context_and_tensor() {
  const Mesh mesh = make_mesh({{"data", 2}, {"seq", 2}, {"model", 2}});
  const Rules rules{{"batch", "data"},  {"stream_seq", "seq"}, {"vocab", "model"},
                    {"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}};
  nn::CausalLM model = llama(mesh, rules);
  model.set_context_parallelism(ContextParallelism::ring);
  return train("data x context x tensor", mesh, rules, model, nn::value_and_grad(loss_of));
}

void print_summary(const std::vector<Row>& rows) {
  const auto line = [](const auto& strategy, const auto& batch, const auto& kernel, const auto& stored,
                       const auto& communicated) {
    std::cout << std::left << std::setw(25) << strategy << std::setw(28) << batch << std::setw(32) << kernel
              << std::right << std::setw(6) << stored << std::setw(14) << communicated << '\n';
  };
  std::cout << '\n';
  line("strategy", "ids", "layers.0.attn.q.kernel", "stored", "communicated");
  for (const Row& row : rows) line(row.strategy, row.batch, row.query_kernel, row.stored, row.communicated);
}

}  // namespace

int main() {
  std::vector<Row> rows;
  for (const auto strategy : {data_parallel, zero1, fsdp, hsdp, tensor_parallel, sequence_parallel, context_parallel,
                              expert_parallel, pipeline_parallel, fsdp_and_tensor, data_context_and_tensor})
    rows.push_back(strategy());
  print_summary(rows);
}
