// Implements CausalLM: the stack of blocks, its head and loss, and the rules of its logical axes.
#include "nn/models/causal_lm.h"

#include <algorithm>
#include <utility>

#include "nn/layers/embedding.h"
#include "nn/transformations/remat.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/neural/linear_cross_entropy.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

namespace {

Array constrained(const Array& x) { return with_sharding_constraint(x, {"batch", "stream_seq", none}); }

// Sums of all blocks' routing statistics; absent without experts.
struct Routing {
  Array choices, probabilities;
  int64_t layers = 0;

  void add(const MoeResult& result) {
    choices = layers ? choices + result.choices : result.choices;
    probabilities = layers ? probabilities + result.probabilities : result.probabilities;
    ++layers;
  }
  Array loss(const DecoderConfig& c) const {
    const auto n = static_cast<double>(layers);
    return static_cast<double>(c.num_local_experts * c.num_experts_per_tok) / (n * n) * sum(choices * probabilities);
  }
};

// Returns the input of the head, and adds the statistics of the blocks' routers to `routing` if given.
Array hidden_of(const CausalLM& model, const Array& ids, const TokenInputs& with, Routing* routing = nullptr) {
  const auto route = [](const DecoderLayer& block, const Array& x, const TokenInputs& given) {
    return block.routed(x, given);
  };
  Array x = constrained(model.embed(ids, 0, with.positions));
  for (const DecoderLayer& block : model.layers) {
    if (routing && std::holds_alternative<MoeMlp>(block.mlp)) {
      const MoeResult result = model.remat ? nn::remat(route)(block, x, with) : block.routed(x, with);
      routing->add(result);
      x = constrained(result.out);
    } else {
      x = constrained(model.remat ? nn::remat(block)(x, with) : block(x, with));
    }
  }
  return model.final_norm(x);
}

Array scaled(const Array& x, const DecoderConfig& c) { return c.logits_scaling == 1 ? x : x / c.logits_scaling; }

// Returns cap tanh(logits / cap), or the logits if cap is 0, without the columns of padding.
Array finished_logits(const Array& logits, const DecoderConfig& c) {
  const double cap = c.final_logit_softcapping;
  const Array capped = cap == 0 ? logits : cap * tanh(logits / cap);
  return c.padded_vocab_size() == c.vocab_size ? capped : slice_in_dim(capped, 0, c.vocab_size, -1);
}

std::vector<Linear*> linears_of(CausalLM& model) {
  std::vector<Linear*> all;
  for (DecoderLayer& block : model.layers) {
    if (auto* heads = std::get_if<MultiheadAttention>(&block.attn))
      all.insert(all.end(), {&heads->q, &heads->k, &heads->v, &heads->o});
    if (auto* latent = std::get_if<LatentAttention>(&block.attn)) {
      if (latent->q_down) all.push_back(&*latent->q_down);
      all.insert(all.end(), {&latent->q, &latent->kv_down, &latent->kv_up, &latent->o});
    }
    if (auto* gated = std::get_if<GatedMlp>(&block.mlp))
      all.insert(all.end(), {&gated->gate, &gated->up, &gated->down});
    if (auto* mlp = std::get_if<Mlp>(&block.mlp)) all.insert(all.end(), {&mlp->up, &mlp->down});
  }
  return all;
}

void check_cache(const DecoderCache& cache, size_t layers) {
  if (!cache.layers.empty() && cache.layers.size() != layers)
    fail(ErrorKind::invalid_argument, "decode", "a cache of {} layers, expected {}. Give each model and text its own.",
         cache.layers.size(), layers);
}

}  // namespace

Rules decoder_rules(const Mesh& mesh, Rules own) {
  const auto is_named = [&, given = own](const char* name) {
    return std::any_of(given.begin(), given.end(), [&](const Rule& rule) { return rule.logical == name; });
  };
  const auto cut = [&](const char* name, std::vector<std::string> axes, Uneven uneven = Uneven::error) {
    if (is_named(name)) return;
    std::erase_if(axes, [&](const std::string& axis) { return !mesh.has_axis(axis); });
    if (!axes.empty()) own.push_back({name, axes, uneven});
    own.push_back({name, replicated});
  };
  cut("batch", {"data", "fsdp"});
  cut("vocab", {"model"}, Uneven::pad);
  for (const char* name : {"heads", "kv_heads", "experts", "mlp"}) cut(name, {"model"});
  cut("embed", {"fsdp"});
  for (const char* name : {"seq", "stream_seq", "positions", "head_dim", "norm"}) cut(name, {});
  return own;
}

CausalLM CausalLM::init(const Key& key, const DecoderConfig& c) {
  check(c);
  const auto keys = split(key, c.num_hidden_layers + 2);
  CausalLM model{.final_norm = DecoderNorm::init(c), .config = c};
  model.embed = DecoderEmbedding::init(keys[0], c);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    model.layers.push_back(DecoderLayer::init(keys[static_cast<size_t>(i) + 2], c, i));
  if (!c.tie_word_embeddings)
    model.head = Linear::init(keys[1], {"embed", c.hidden_size}, {"vocab", c.padded_vocab_size()},
                              {.bias = false, .kernel_init = init::normal(0.02), .dtypes = c.dtypes});
  return model;
}

void CausalLM::set_router_aux_loss_coef(double coefficient) {
  DecoderConfig changed = config;
  changed.router_aux_loss_coef = coefficient;
  check(changed);
  config = changed;
}

void CausalLM::set_context_parallelism(ContextParallelism context_parallelism) {
  for (DecoderLayer& layer : layers)
    std::visit([&](auto& attn) { attn.context_parallelism = context_parallelism; }, layer.attn);
}

Array CausalLM::hidden(const Array& ids, const TokenInputs& with) const { return hidden_of(*this, ids, with); }

Array CausalLM::logits(const Array& hidden) const {
  const Array x = scaled(hidden, config);
  return finished_logits(head ? (*head)(x) : Embedding{.tokens = embed.tokens}.attend(x), config);
}

WeightedSum CausalLM::loss(const Array& ids, const Array& labels, const Array& weights, const TokenInputs& with) const {
  const double cap = config.final_logit_softcapping;
  const LinearCrossEntropyOptions options{.weights = weights,
                                          .transposed = !head,
                                          .vocab = config.vocab_size,
                                          .logit_softcap = cap == 0 ? std::nullopt : std::optional(cap)};
  Routing routing;
  const bool is_balanced = config.router_aux_loss_coef != 0;
  const Array x = scaled(hidden_of(*this, ids, with, is_balanced ? &routing : nullptr), config);
  const WeightedSum loss = head ? head_cross_entropy_sum(*head, x, labels, options)
                                : tessera::linear_cross_entropy_sum(x, embed.tokens, labels, options);
  if (!is_balanced) return loss;
  return {loss.sum + config.router_aux_loss_coef * routing.loss(config) * loss.weight, loss.weight};
}

Array CausalLM::decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with) const {
  check_cache(cache, layers.size());
  Array x = embed(ids, cache.length(), with.positions);
  DecoderCache longer = cache;
  longer.layers.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i].decode(x, longer.layers[i], with);
  const Array result = logits(final_norm(x));
  cache = longer;
  return result;
}

CausalLM with_lora(const Key& key, CausalLM model, const LoraOptions& options) {
  uint32_t i = 0;
  for (Linear* linear : linears_of(model)) *linear = with_lora(fold_in(key, i++), *linear, options);
  return model;
}

CausalLM merge_lora(CausalLM model) {
  for (Linear* linear : linears_of(model)) *linear = merge_lora(*linear);
  return model;
}

}  // namespace tessera::nn
