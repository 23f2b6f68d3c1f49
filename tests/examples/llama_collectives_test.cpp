// Bytes that one training step of Llama communicates for each strategy of its reference files: at most JAX's bytes.
#include <gtest/gtest.h>

#include "data/batches/to_global.h"
#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/accounting/ledger.h"
#include "tests/runner/transformer_file.h"

namespace tessera::runner::llama_collectives_test {
namespace {

// Bytes per device, with each weight gathered once.
int64_t bytes_of_step(const TransformerFile& file, const Json& strategy, bool private_replicas) {
  const MeshRules mesh_rules(mesh_of(strategy.at("mesh"), private_replicas), rules_of(strategy.at("rules")));
  auto model = nn::filter_shard(nn::CausalLM::init(Key(0), llama_config(file.config())), mesh_rules);
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-3})));
  const TokenBatch batch = data::from_process_local(file.batch(0), mesh_rules);
  const auto loss_fn = examples::next_token_loss<nn::CausalLM, TokenBatch>;
  CommLedger ledger;
  const auto [loss, grads] = nn::value_and_grad(loss_fn, {.reshard_after_forward = false})(model, batch);
  optimizer.update(model, grads);
  int64_t bytes = 0;
  for (const CommRecord& r : ledger.records()) bytes += r.bytes;
  return bytes;
}

int64_t bytes_of_jax(const Json& strategy) {
  int64_t bytes = 0;
  for (const auto& [kind, row] : strategy.at("collectives").as_object()) bytes += row.at("bytes").to_number<int64_t>();
  return bytes;
}

TEST(CollectivesOfLlama, MoveNoMoreBytesThanJax) {
  for (const char* name : {"transformer_llama.json", "transformer_llama_more.json"}) {
    const TransformerFile file = TransformerFile::open(std::string(TESSERA_REFERENCE_DIR "/") + name);
    for (const auto& [strategy_name, strategy] : file.strategies.at("strategies").as_object()) {
      const int64_t ours = bytes_of_step(file, strategy, false);
      EXPECT_LE(ours, bytes_of_jax(strategy)) << name << ' ' << strategy_name;
      EXPECT_GT(ours, 0) << name << ' ' << strategy_name;
      EXPECT_EQ(bytes_of_step(file, strategy, true), ours) << name << ' ' << strategy_name << ", private replicas";
    }
  }
}

}  // namespace
}  // namespace tessera::runner::llama_collectives_test
