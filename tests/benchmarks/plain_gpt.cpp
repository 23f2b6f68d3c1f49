// Defines PlainGpt's forward pass, gradient, clipping and update.
#include "tests/benchmarks/plain_gpt.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>


namespace tessera::benchmarks {

using at::Tensor;
using Parameters = std::map<std::string, Tensor>;

PlainGpt::PlainGpt(Parameters parameters, int64_t layers, int64_t heads, double eps, const PlainAdamw& adamw)
    : heads_(heads), eps_(eps), adamw_(adamw) {
  for (auto& [path, parameter] : parameters) {
    parameter.requires_grad_();
    (parameter.dim() > 1 ? decayed_ : others_).add(parameter);
  }
  decayed_.weight_decay = adamw.weight_decay;
  for (const Group* group : {&decayed_, &others_})
    weights_.insert(weights_.end(), group->params.begin(), group->params.end());
  tokens_ = parameters.at("embed.tokens"), positions_ = parameters.at("embed.positions");
  for (int64_t i = 0; i < layers; ++i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    blocks_.push_back({.ln1 = norm(parameters, at + "ln1"),
                       .q = linear(parameters, at + "attn.q"),
                       .k = linear(parameters, at + "attn.k"),
                       .v = linear(parameters, at + "attn.v"),
                       .o = linear(parameters, at + "attn.o"),
                       .ln2 = norm(parameters, at + "ln2"),
                       .up = linear(parameters, at + "mlp.up"),
                       .down = linear(parameters, at + "mlp.down")});
  }
  final_ln_ = norm(parameters, "final_ln");
  head_ = parameters.at("head.kernel");
}

PlainGpt::Linear PlainGpt::linear(const Parameters& parameters, const std::string& path) const {
  return {parameters.at(path + ".kernel"), parameters.at(path + ".bias")};
}

PlainGpt::LayerNorm PlainGpt::norm(const Parameters& parameters, const std::string& path) const {
  return {parameters.at(path + ".scale"), parameters.at(path + ".bias")};
}

Tensor PlainGpt::Linear::operator()(const Tensor& x) const { return at::matmul(x, kernel) + bias; }

Tensor PlainGpt::LayerNorm::operator()(const Tensor& x, double eps) const {
  return at::layer_norm(x, {x.size(-1)}, scale, bias, eps);
}

Tensor PlainGpt::attention(const Block& block, const Tensor& x) const {
  const int64_t batch = x.size(0), seq = x.size(1);
  const auto in_heads = [&](const Tensor& y) { return y.view({batch, seq, heads_, -1}).transpose(1, 2); };
  const Tensor mixed = at::scaled_dot_product_attention(in_heads(block.q(x)), in_heads(block.k(x)),
                                                        in_heads(block.v(x)), {}, 0.0, /*is_causal=*/true);
  return block.o(mixed.transpose(1, 2).reshape({batch, seq, -1}));
}

Tensor PlainGpt::logits(const Tensor& ids) const {
  Tensor x = at::embedding(tokens_, ids) + positions_;
  for (const Block& block : blocks_) {
    x = x + attention(block, block.ln1(x, eps_));
    x = x + block.down(at::gelu(block.up(block.ln2(x, eps_)), "tanh"));
  }
  return at::matmul(final_ln_(x, eps_), head_);
}

double PlainGpt::step(const Tensor& inputs, const Tensor& targets) {
  const Tensor loss = at::cross_entropy_loss(logits(inputs).flatten(0, 1), targets.view({-1}));
  update(torch::autograd::grad({loss}, weights_));
  return loss.item<double>();
}

void PlainGpt::update(std::vector<Tensor> grads) {
  at::AutoGradMode off(false);
  const double norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(grads, 2))).item<double>();
  if (norm >= adamw_.max_norm) at::_foreach_mul_(grads, adamw_.max_norm / norm);
  const auto middle = grads.begin() + static_cast<ptrdiff_t>(decayed_.params.size());
  decayed_.update({grads.begin(), middle}, adamw_);
  others_.update({middle, grads.end()}, adamw_);
}

void PlainGpt::Group::add(const Tensor& parameter) {
  if (!count.defined()) count = at::zeros({}, parameter.options().requires_grad(false));
  params.push_back(parameter), counts.push_back(count);
  mu.push_back(at::zeros_like(parameter)), nu.push_back(at::zeros_like(parameter));
}

void PlainGpt::Group::update(const std::vector<Tensor>& grads, const PlainAdamw& adamw) {
  count.add_(1);
  at::_fused_adamw_(params, grads, mu, nu, {}, counts, adamw.learning_rate, adamw.b1, adamw.b2, weight_decay, adamw.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace tessera::benchmarks
