// Routing by rows sorted by expert, or by GShard's products with masks, where sharding constraints cause all_to_alls.
#include "nn/layers/moe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/ragged/ragged_tiles.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

namespace {

// Returns the mesh axes over which the experts' kernels are sharded; none if x is not on a mesh.
std::vector<std::string> axes_of_experts(const Array& x, const Array& experts) {
  if (!x.is_committed() || !experts.is_committed()) return {};
  const std::vector<SpecEntry>& where = experts.sharding().spec().entries();
  return where.empty() ? std::vector<std::string>() : where[0].axes();
}

// Returns the sharding of x's dimensions without these axes.
std::vector<SpecEntry> entries_without(const Array& x, const std::vector<std::string>& axes) {
  std::vector<SpecEntry> entries = x.sharding().spec().entries();
  entries.resize(x.ndim());
  for (SpecEntry& entry : entries) {
    std::vector<std::string> rest;
    for (const std::string& axis : entry.axes())
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) rest.push_back(axis);
    entry = SpecEntry(rest, entry.pads() ? Uneven::pad : Uneven::error);
  }
  return entries;
}

// Returns x with the spec of y on x's own mesh, because y may be on an earlier stage.
Array placed_as(const Array& x, const Array& y) {
  if (!x.is_committed() || !y.is_committed()) return x;
  return with_sharding_constraint(x, NamedSharding(x.sharding().mesh(), PartitionSpec(y.sharding().spec().entries())));
}

// Returns the router's scores (batch, seq, experts).
Array scores_of(const MoeMlp& layer, const Array& x) {
  Array logits = matmul(x, layer.dtypes.in(layer.router));
  if (layer.router_bias) logits = logits + layer.dtypes.in(*layer.router_bias);
  const Array wide = astype(logits, promote(logits.dtype(), float32));
  return layer.score == RouterScore::softmax ? softmax(wide) : sigmoid(wide);
}

// The k experts of each token, highest score first, and the weights of their outputs: (batch, seq, k).
struct Choices {
  Array experts, weights;
};

// Returns the scores by which experts are chosen: minus infinity for experts outside the token's best groups.
Array scores_for_choice(const MoeMlp& layer, const Array& scores) {
  const Array all = layer.bias ? scores + astype(layer.bias->value, scores.dtype()) : scores;
  if (layer.num_groups == 1) return all;
  const int64_t groups = layer.num_groups, each = scores.shape(2) / groups;
  const Array by_group = reshape(all, {scores.shape(0), scores.shape(1), groups, each});
  const Array sums = sum(top_k(by_group, static_cast<int>(std::min<int64_t>(each, 2))).values, {-1});
  const Array best = top_k(sums, static_cast<int>(layer.top_k_groups)).indices;
  const Array kept = sum(one_hot(best, groups, scores.dtype()), {2});
  const double never = -std::numeric_limits<double>::infinity();
  return reshape(where(expand_dims(kept, {3}) > 0, by_group, never), scores.shape());
}

Choices choices_of(const MoeMlp& layer, const Array& scores) {
  TopK best = top_k(scores_for_choice(layer, scores), static_cast<int>(layer.top_k));
  if (layer.bias || layer.num_groups > 1) best.values = take_along_axis(scores, best.indices, -1);
  const Array weights = layer.normalize ? best.values / sum(best.values, {-1}, true) : best.values;
  return {best.indices, layer.scale == 1 ? weights : weights * layer.scale};
}

// Returns a MoeResult without `out`. `chosen` (batch, seq, experts) is 1 at each choice of a token.
MoeResult result_without_out(const MoeMlp& layer, const Array& scores, const Array& chosen, const Array& dropped) {
  const Array p = layer.score == RouterScore::softmax ? scores : scores / sum(scores, {-1}, true);
  const Array share = stop_gradient(mean(chosen, {0, 1}) / static_cast<double>(layer.top_k)), likely = mean(p, {0, 1});
  return {.out = {},
          .balance_loss = static_cast<double>(p.shape(2)) * sum(share * likely),
          .dropped = dropped,
          .choices = share,
          .probabilities = likely};
}

// ---- unlimited capacity: rows sorted by expert

// Gathers x over the mesh axes over which the experts are sharded, so that each device has all tokens for its own
// experts. A floating x is `reduced` over these axes: its gradient is summed over them in the backward pass.
Array at_all_experts(const Array& x, const Array& experts) {
  const std::vector<std::string> axes = axes_of_experts(x, experts);
  if (axes.empty()) return x;
  const PartitionSpec spec(entries_without(x, axes));
  return with_sharding_constraint(
      x, NamedSharding(x.sharding().mesh(), is_floating(x.dtype()) ? spec.reduced(axes) : spec));
}

// Returns the outputs for tokens (batch, rows, embed) that are sorted by expert; `sizes` counts the tokens of each
// expert. If gated experts are sharded, ragged_mlp keeps the output a partial sum, which is reduced once at the end.
Array sorted_answers(const MoeMlp& layer, const Array& tokens, const Array& sizes) {
  const auto in = [&](const Param& kernel) { return layer.dtypes.in(kernel); };
  const auto through = [&](const Array& x, const Param& kernel) { return ragged_dot(x, in(kernel), sizes); };
  if (layer.gate && (layer.up_bias || layer.clamped_gate || !axes_of_experts(tokens, layer.up).empty()))
    return ragged_mlp(tokens, in(*layer.gate), in(layer.up), in(layer.down), sizes,
                      {.gate_bias = layer.gate_bias ? in(*layer.gate_bias) : Array(),
                       .up_bias = layer.up_bias ? in(*layer.up_bias) : Array(),
                       .limit = layer.clamped_gate ? layer.clamped_gate->limit : 0,
                       .alpha = layer.clamped_gate ? layer.clamped_gate->alpha : 1});
  const Array up = through(tokens, layer.up);
  return through(layer.gate ? silu(through(tokens, *layer.gate)) * up : layer.activation(up), layer.down);
}

// Returns the biases of each token's experts, multiplied by the weights of their outputs and added.
Array sum_of_down_biases(const MoeMlp& layer, const Choices& choices, DType dtype) {
  Array weights = one_hot(choices.experts, layer.down_bias->value.shape(0), choices.weights.dtype());
  if (!layer.scale_inputs) weights = weights * expand_dims(choices.weights, {3});
  return einsum("bse,ed->bsd", {astype(sum(weights, {2}), dtype), layer.dtypes.in(*layer.down_bias)});
}

MoeResult answer_all(const MoeMlp& layer, const Array& x) {
  const Array p = scores_of(layer, x);
  const Choices choices = choices_of(layer, p);
  const int64_t batch = x.shape(0), seq = x.shape(1), k = layer.top_k;
  const Array chosen = sum(one_hot(choices.experts, p.shape(2), p.dtype()), {2});
  MoeResult result = result_without_out(layer, p, chosen, zeros({}, p.dtype()));
  const auto there = [&](const Array& of) { return at_all_experts(of, layer.up); };
  const Array sizes = there(astype(sum(chosen, {1}), int32));
  const Array order = argsort(reshape(there(choices.experts), {batch, seq * k}), 1);
  const auto rows = [](const Array& of, const Array& ids) { return take_along_axis(of, expand_dims(ids, {2}), 1); };
  Array tokens = rows(there(x), floor_divide(order, static_cast<int32_t>(k)));
  const auto weights = [&](const Array& like) { return there(astype(choices.weights, like.dtype())); };
  if (layer.scale_inputs) tokens = tokens * rows(reshape(weights(tokens), {batch, seq * k, 1}), order);
  const Array done = rows(sorted_answers(layer, tokens, sizes), argsort(order, 1));
  const Array answers = reshape(done, {batch, seq, k, x.shape(2)});
  Array out = layer.scale_inputs ? sum(answers, {2}) : einsum("bskd,bsk->bsd", {answers, weights(answers)});
  if (layer.down_bias) out = out + sum_of_down_biases(layer, choices, out.dtype());
  result.out = placed_as(out, x);
  return result;
}

// ---- limited capacity: products with masks

// Values per (batch, seq, experts, place). `dispatch` is 1 where the token has that place, `combine` is the weight of
// the expert's output.
struct Routing {
  Array dispatch, combine;
  MoeResult result;
};

// Assigns places choice by choice; `taken` counts each expert's places that earlier choices have filled.
Routing route(const MoeMlp& layer, const Array& p) {
  const int64_t experts = p.shape(2), capacity = layer.capacity(p.shape(1));
  const Choices choices = choices_of(layer, p);
  Array taken, dispatch, combine, chosen;
  const auto plus = [](Array& total, const Array& x) { total = total.is_absent() ? x : total + x; };
  for (int64_t choice = 0; choice < layer.top_k; ++choice) {
    const Array mine = one_hot(index_in_dim(choices.experts, choice, 2, false), experts, p.dtype());
    Array place = cumsum(mine, 1) - mine;
    if (choice) place = place + taken;
    const Array seat = one_hot(astype(sum(place * mine, {-1}), int32), capacity, p.dtype());
    const Array seated = expand_dims(mine, {3}) * expand_dims(seat, {2});
    plus(dispatch, seated);
    plus(combine, seated * expand_dims(index_in_dim(choices.weights, choice, 2, true), {3}));
    plus(taken, sum(mine, {1}, true));
    plus(chosen, mine);
  }
  dispatch = stop_gradient(dispatch);
  const double all = static_cast<double>(layer.top_k * p.shape(0) * p.shape(1));
  return {dispatch, combine, result_without_out(layer, p, chosen, 1 - sum(dispatch) / all)};
}

// Returns x (experts, batch, place, embed) with its first dimension sharded over the experts' mesh axes, and no other
// dimension over them.
Array at_experts(const Array& x, const Array& experts) {
  const std::vector<std::string> axes = axes_of_experts(x, experts);
  if (axes.empty()) return x;
  std::vector<SpecEntry> entries = entries_without(x, axes);
  entries[0] = experts.sharding().spec().entries()[0];
  return with_sharding_constraint(x, NamedSharding(x.sharding().mesh(), PartitionSpec(entries)));
}

Array gated(const MoeMlp& layer, const Array& gate, const Array& up) {
  if (!layer.clamped_gate) return silu(gate) * up;
  const auto [limit, alpha] = *layer.clamped_gate;
  const Array g = minimum(gate, limit);
  return (clip(up, -limit, limit) + 1) * g * sigmoid(alpha * g);
}

Array answers(const MoeMlp& layer, const Array& tokens) {
  const auto through = [&](const char* equation, const Array& x, const Param& kernel) {
    return einsum(equation, {x, layer.dtypes.in(kernel)});
  };
  const auto biased = [&](const Array& x, const std::optional<Param>& bias) {
    return bias ? x + expand_dims(layer.dtypes.in(*bias), {1, 2}) : x;
  };
  const Array up = biased(through("ebcd,edh->ebch", tokens, layer.up), layer.up_bias);
  const Array hidden = layer.gate
                           ? gated(layer, biased(through("ebcd,edh->ebch", tokens, *layer.gate), layer.gate_bias), up)
                           : layer.activation(up);
  return biased(through("ebch,ehd->ebcd", hidden, layer.down), layer.down_bias);
}

MoeResult answer_up_to_capacity(const MoeMlp& layer, const Array& x) {
  Routing routing = route(layer, scores_of(layer, x));
  if (layer.scale_inputs) std::swap(routing.dispatch, routing.combine);
  const Array tokens = einsum("bsec,bsd->ebcd", {astype(routing.dispatch, x.dtype()), x});
  const Array done = placed_as(answers(layer, at_experts(tokens, layer.up)), tokens);
  routing.result.out = einsum("bsec,ebcd->bsd", {astype(routing.combine, done.dtype()), done});
  return routing.result;
}

void check_routing(int64_t top_k, std::optional<double> capacity_factor, int64_t experts) {
  if (top_k < 1 || top_k > experts)
    fail(ErrorKind::invalid_argument, "MoeMlp", "top_k = {} of {} experts, expected 1 to {}.", top_k, experts, experts);
  if (capacity_factor && !(*capacity_factor > 0))
    fail(ErrorKind::invalid_argument, "MoeMlp", "capacity_factor = {}, expected a number above 0.", *capacity_factor);
}

void check_groups(int64_t num_groups, int64_t top_k_groups, int64_t top_k, int64_t experts) {
  const bool fits = num_groups > 0 && experts % num_groups == 0 && top_k_groups > 0 && top_k_groups <= num_groups &&
                    top_k <= experts / num_groups * top_k_groups;
  if (!fits)
    fail(ErrorKind::invalid_argument, "MoeMlp",
         "num_groups = {} and top_k_groups = {} for top_k = {} of {} experts, expected a divisor of the experts, and "
         "groups with as many experts as a token uses.",
         num_groups, top_k_groups, top_k, experts);
}

// Returns the stacked kernels of all experts.
Param kernels(const char* option, const Initializer& initializer, const Key& key, const Axis& experts, const Axis& in,
              const Axis& out, const DTypePolicy& dtypes) {
  return {dtypes.param(initial("MoeMlp", option, initializer, key, {experts.size, in.size, out.size})),
          {experts, in, out}};
}

std::variant<Mlp, GatedMlp> shared_experts(const Key& key, const Axis& embed, const Axis& hidden, const MoeOptions& o) {
  const MlpOptions options{.bias = false, .dtypes = o.dtypes};
  if (o.gated) return GatedMlp::init(key, embed, hidden, options);
  Mlp mlp = Mlp::init(key, embed, hidden, options);
  mlp.activation = o.activation;
  return mlp;
}

void check_options(const MoeOptions& o, int64_t experts) {
  check_routing(o.top_k, o.capacity_factor, experts);
  check_groups(o.num_groups, o.top_k_groups, o.top_k, experts);
  if (!o.gated && (o.expert_bias || o.clamped_gate))
    fail(ErrorKind::invalid_argument, "MoeMlp",
         "expert_bias or clamped_gate given for experts that are not gated, expected MoeOptions{.gated = true}.");
  if (o.clamped_gate && !(o.clamped_gate->limit > 0 && std::isfinite(o.clamped_gate->alpha)))
    fail(ErrorKind::invalid_argument, "MoeMlp",
         "clamped_gate with limit = {} and alpha = {}, expected numbers, and a limit above 0.", o.clamped_gate->limit,
         o.clamped_gate->alpha);
  if (o.num_shared_experts < 0)
    fail(ErrorKind::invalid_argument, "MoeMlp", "num_shared_experts = {}, expected a number of experts from 0 on.",
         o.num_shared_experts);
}

}  // namespace

MoeMlp MoeMlp::init(const Key& key, const Axis& embed, const Axis& hidden, const Axis& experts, const MoeOptions& o) {
  check_positive("MoeMlp", "experts", experts.size);
  check_axis("MoeMlp", embed), check_axis("MoeMlp", hidden);
  check_options(o, experts.size);
  const auto keys = split<5>(key);
  const Array router = initial("MoeMlp", "router_init", o.router_init, keys[0], {embed.size, experts.size});
  MoeMlp moe{.router = {o.dtypes.param(router), {embed, none}},
             .up = kernels("up_init", o.up_init, keys[1], experts, embed, hidden, o.dtypes),
             .gate = {},
             .down = kernels("down_init", o.down_init, keys[2], experts, hidden, embed, o.dtypes),
             .shared = {},
             .bias = {},
             .clamped_gate = o.clamped_gate,
             .num_groups = o.num_groups,
             .top_k_groups = o.top_k_groups,
             .scale_inputs = o.scale_inputs,
             .top_k = o.top_k,
             .capacity_factor = o.capacity_factor,
             .score = o.score,
             .normalize = o.normalize.value_or(o.top_k > 1),
             .scale = o.scale,
             .activation = o.activation,
             .dtypes = o.dtypes};
  if (o.gated) moe.gate = kernels("up_init", o.up_init, keys[3], experts, embed, hidden, o.dtypes);
  const auto biases = [&](Axes axes, Shape shape) { return Param{o.dtypes.param(zeros(shape)), axes}; };
  if (o.router_bias) moe.router_bias = biases({none}, {experts.size});
  if (o.expert_bias) {
    moe.up_bias = biases({experts, hidden}, {experts.size, hidden.size});
    moe.gate_bias = biases({experts, hidden}, {experts.size, hidden.size});
    moe.down_bias = biases({experts, embed}, {experts.size, embed.size});
  }
  if (o.balance_bias) moe.bias = Buffer{zeros({experts.size}), {none}};
  if (o.num_shared_experts)
    moe.shared = shared_experts(keys[4], embed, {hidden.name, o.num_shared_experts * hidden.size}, o);
  return moe;
}

void MoeMlp::rebalance(const Array& choices, double speed) {
  const int64_t experts = router.value.shape(-1);
  if (!bias)
    fail(ErrorKind::invalid_argument, "rebalance", "the experts have no bias. Give MoeOptions{.balance_bias = true}.");
  if (choices.shape() != Shape{experts})
    fail(ErrorKind::shape_mismatch, "rebalance", "choices: {} given, expected those of {} experts.",
         choices.type_string(), experts);
  const Array towards = sign(1.0 / static_cast<double>(experts) - choices);
  bias->value = placed_as(bias->value + astype(towards, bias->value.dtype()) * speed, bias->value);
}

int64_t MoeMlp::capacity(int64_t seq) const {
  if (!capacity_factor) return seq;
  const double share = static_cast<double>(top_k * seq) / static_cast<double>(up.value.shape(0));
  const double most = static_cast<double>(std::max<int64_t>(seq, 1));
  return static_cast<int64_t>(std::clamp(std::ceil(share * *capacity_factor), 1.0, most));
}

MoeResult MoeMlp::operator()(Operand operand) const {
  const LayerScope scope(*this, operand);
  const Array x = dtypes.in(operand.array());
  check_dims("MoeMlp", x, 3, "(batch, seq, embed)");
  check_features("MoeMlp", x, router);
  check_there("MoeMlp", up), check_there("MoeMlp", down);
  check_routing(top_k, capacity_factor, router.value.shape(-1));
  check_groups(num_groups, top_k_groups, top_k, router.value.shape(-1));
  if (x.shape(0) == 0 || x.shape(1) == 0)
    fail(ErrorKind::invalid_argument, "MoeMlp", "given {}, expected one position or more to balance the experts over.",
         x.type_string());
  MoeResult result = capacity_factor ? answer_up_to_capacity(*this, x) : answer_all(*this, x);
  if (shared) result.out = result.out + std::visit([&](const auto& mlp) { return mlp(x); }, *shared);
  result.out = dtypes.out(result.out);
  return result;
}

}  // namespace tessera::nn
