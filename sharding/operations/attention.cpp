// Attention: LibTorch's kernel, under a mask of what each position may see.
#include "sharding/operations/attention.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sharding/array/tape_state.h"
#include "sharding/diagnostics/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/attention_checks.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

// Whether the axes that cut the query's heads cut the kv heads, and then the heads of each group, without a remainder.
bool cuts_groups_evenly(const Type& query, const Type& key) {
  const int64_t heads = query.shape[2], kv_heads = key.shape[2];
  int64_t groups = kv_heads, rest = heads / kv_heads;
  for (int axis : query.dims[2]) {
    const int64_t n = query.mesh->axes[axis].size;
    int64_t& left = groups > 1 ? groups : rest;
    if (left % n) return false;
    left /= n;
  }
  return true;
}

// (batch, heads, seq, keys) for an operand that broadcasts to it.
RuleDims logits_dims(const Shape& shape, const RuleDim& heads) {
  RuleDims dims{factor("b"), heads, whole("t"), whole("s")};
  if (shape.size() > 4) return dims;  // refused when it is bound
  dims.erase(dims.begin(), dims.end() - static_cast<int64_t>(shape.size()));
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) dims[d] = {};
  return dims;
}

// Beside booleans and floating numbers.
bool is_segment_ids(const Type& operand) { return operand.dtype != boolean && !is_floating(operand.dtype); }

// Query heads are cut with the kv heads that they use. Where there are more devices than these can be cut for, each has
// all kv heads and reads those that its own heads use.
ShardingRule attention_rule(const Attributes&, const OperandTypes& operands) {
  const Type &query = *operands[0], &key = *operands[1];
  const bool grouped = query.mesh == nullptr || query.shape.size() != 4 || key.shape.size() != 4 || key.shape[2] == 0 ||
                       query.shape[2] % key.shape[2] || cuts_groups_evenly(query, key);
  static const ShardingRule by_group =
      parse_rule("dot_product_attention", "b [t] {g r} [k], b [s] g [k], b [s] g [v] -> b [t] {g r} [v]");
  static const ShardingRule by_head =
      parse_rule("dot_product_attention", "b [t] h [k], b [s] [g] [k], b [s] [g] [v] -> b [t] h [v]");
  ShardingRule rule = grouped ? by_group : by_head;
  const RuleDim heads = rule.in[0][2];
  for (size_t i = 3; i < operands.size(); ++i)
    rule.in.push_back(is_segment_ids(*operands[i]) ? RuleDims{factor("b"), whole("t")}
                                                   : logits_dims(operands[i]->shape, heads));
  return rule;
}

const Operation dot_product_attention_op{"dot_product_attention", attention_rule, Linearity::nonlinear};

// The kv heads that the query heads from `first` on use: the one of their group, or one for each.
at::Tensor heads_of_block(const at::Tensor& all, int64_t first, int64_t heads, int64_t group) {
  if (group % heads == 0) return all.narrow(2, first / group, 1);
  std::vector<int64_t> used;
  for (int64_t h = first; h < first + heads; ++h) used.push_back(h / group);
  return all.index_select(2, at::tensor(used).to(all.device()));
}

// What the logits of one block are made with.
struct Visibility {
  std::optional<at::Tensor> bias, mask, segment_ids;
  bool causal;
  int64_t offset, window;
  std::optional<double> scale;
  double softcap;
};

// jax.nn's logit of what is out of sight: softmax makes a mean of a row that has no other.
double far_below(const at::Tensor& like) {
  return -0.7 * (like.scalar_type() == at::kHalf ? 65504.0 : std::numeric_limits<float>::max());
}

// The part of the mask that places in the text give: undefined where every key is in sight.
at::Tensor mask_of_places(const Visibility& sight, int64_t queries, int64_t keys, const at::Tensor& like) {
  const bool ends = sight.causal && sight.offset < keys - 1;
  if (!ends && !sight.window) return {};
  at::Tensor mask = at::ones({queries, keys}, like.options().dtype(at::kBool).requires_grad(false));
  if (sight.window) mask.triu_(sight.offset - sight.window + 1);
  if (sight.window && !sight.causal) mask.tril_(sight.offset + sight.window - 1);
  return ends ? mask.tril_(sight.offset) : mask;
}

// (batch, 1, queries, keys)
at::Tensor mask_of_segments(const at::Tensor& ids) { return ids.unsqueeze(2).eq(ids.unsqueeze(1)).unsqueeze(1); }

at::Tensor combined_mask(const Visibility& sight, int64_t queries, int64_t keys, const at::Tensor& like) {
  at::Tensor mask = mask_of_places(sight, queries, keys, like);
  const auto narrow = [&](const at::Tensor& more) { mask = mask.defined() ? more.logical_and(mask) : more; };
  if (sight.mask) narrow(*sight.mask);
  if (sight.segment_ids) narrow(mask_of_segments(*sight.segment_ids));
  return mask;
}

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }

at::Tensor attend_plainly(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const Visibility& sight) {
  const bool by_kernel = sight.causal && sight.offset == 0 && !sight.window;
  std::optional<at::Tensor> mask;
  if (!by_kernel)
    if (const at::Tensor places = mask_of_places(sight, query.size(1), key.size(1), query); places.defined())
      mask = places;
  return at::scaled_dot_product_attention(heads_first(query), heads_first(key), heads_first(value), mask, 0.0,
                                          by_kernel, sight.scale, query.size(2) != key.size(2))
      .transpose(1, 2);
}

// With logits of its own: what is out of sight is far below all others. A row without a key in sight has equal logits
// (far below, the kernel's backward pass would count each key as the only one) and sends no gradient
// to query and key, as in JAX.
at::Tensor attend_under(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const Visibility& sight) {
  at::Tensor q = heads_first(query);
  const at::Tensor mask = combined_mask(sight, query.size(1), key.size(1), query);
  at::Tensor logits = sight.bias ? at::atleast_2d(*sight.bias).to(q.scalar_type())
                                 : at::zeros({1, 1}, q.options().requires_grad(false));
  if (mask.defined()) {
    const at::Tensor blind = mask.any(-1, true).logical_not();
    q = q.masked_fill(blind, 0);
    logits = logits.masked_fill(mask.logical_not(), far_below(q)).masked_fill(blind, 0);
  }
  return at::scaled_dot_product_attention(q, heads_first(key), heads_first(value), logits, 0.0, false, sight.scale,
                                          query.size(2) != key.size(2))
      .transpose(1, 2);
}

// By products of LibTorch, whose gradients have gradients, and in which what is not finite goes on into the result.
at::Tensor attend_by_products(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const Visibility& sight) {
  const at::ScalarType exact = at::toOpMathType(query.scalar_type());
  const int64_t group = query.size(2) / std::max<int64_t>(key.size(2), 1);
  const auto for_each_head = [&](const at::Tensor& x) {
    const at::Tensor heads = heads_first(x).to(exact);
    return group > 1 ? heads.repeat_interleave(group, 1) : heads;
  };
  const double scale = sight.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  at::Tensor logits = at::matmul(heads_first(query).to(exact), for_each_head(key).transpose(-2, -1)) * scale;
  if (sight.softcap > 0) logits = at::tanh(logits / sight.softcap) * sight.softcap;
  if (sight.bias) logits = logits + *sight.bias;
  if (const at::Tensor mask = combined_mask(sight, query.size(1), key.size(1), query); mask.defined())
    logits = logits.masked_fill(mask.logical_not(), far_below(query));
  return at::matmul(at::softmax(logits, -1), for_each_head(value)).to(query.scalar_type()).transpose(1, 2);
}

bool is_finite(const at::Tensor& t) {
  return std::isfinite(at::sum(t.detach(), at::toOpMathType(t.scalar_type())).item<double>());
}

// Whether every row may have a logit that is a number.
bool has_numbers(const at::Tensor& query, const at::Tensor& key, const Visibility& sight) {
  if (!std::isfinite(sight.scale.value_or(1)) || !is_finite(query) || !is_finite(key)) return false;
  return !sight.bias || sight.bias->numel() == 0 || is_finite(at::amax(sight.bias->detach(), -1));
}

// Of a row without a logit that is a number, LibTorch's kernel for CPUs makes zeros, and of one with a NaN out of sight
// NaN. Either shows in the row's first element, so that the operands need not be read for it.
bool is_doubtful(const at::Tensor& result) {
  if (!result.is_cpu() || result.numel() == 0) return false;
  const at::Tensor first = result.detach().select(-1, 0);
  return !at::all(at::gt(at::abs(first), 0)).item<bool>();
}

// In half precision, what is out of sight is not so far below that q k vanishes beside it: that shows where a bias of
// -inf leaves a row nothing else.
bool shows_what_is_hidden(const at::Tensor& query, const Visibility& sight) {
  return sight.bias && query.is_cpu() && query.scalar_type() == at::kHalf && !is_finite(*sight.bias);
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Visibility& sight) {
  if (is_nested() || sight.softcap > 0 || shows_what_is_hidden(query, sight))
    return attend_by_products(query, key, value, sight);
  const bool by_logits = sight.bias || sight.mask || sight.segment_ids;
  const at::Tensor result = (by_logits ? attend_under : attend_plainly)(query, key, value, sight);
  if (!is_doubtful(result) || has_numbers(query, key, sight)) return result;
  return attend_by_products(query, key, value, sight);
}

void check_heads(const Array& query, const Array& key, const Array& value) {
  for (const Array* x : {&query, &key, &value}) {
    materialized(*x, "dot_product_attention");
    if (!is_floating(x->dtype()) || x->dtype() != query.dtype())
      fail(ErrorKind::dtype_mismatch, "dot_product_attention",
           "given {}, {} and {}, expected one floating type. Convert with astype.", query.type_string(),
           key.type_string(), value.type_string());
  }
  if (query.ndim() != 4 || key.ndim() != 4) return;  // refused by the rule
  const int64_t heads = query.shape(2), kv_heads = key.shape(2);
  if (heads == kv_heads) return;
  if (kv_heads == 0 || heads % kv_heads)
    fail(ErrorKind::shape_mismatch, "dot_product_attention",
         "given {} and {}: {} heads, {} kv heads, expected a multiple.", query.type_string(), key.type_string(), heads,
         kv_heads);
}

void check_options(const AttentionOptions& options) {
  if (options.offset < 0)
    fail(ErrorKind::bad_argument, "dot_product_attention", "offset {}, expected 0 or more.", options.offset);
  check_window_and_softcap("dot_product_attention", options.window, options.softcap);
  check_mask_and_bias("dot_product_attention", options.mask, options.bias);
}

void check_segments(const Array& query, const Array& key, const AttentionOptions& options) {
  const Array& ids = options.segment_ids;
  if (ids.is_absent() || query.ndim() != 4 || key.ndim() != 4) return;  // the rule refuses other dims
  check_integers("dot_product_attention", ids, "segment_ids");
  if (options.offset != 0 || ids.shape() != Shape{query.shape(0), query.shape(1)} || key.shape(1) != query.shape(1))
    fail(ErrorKind::shape_mismatch, "dot_product_attention",
         "segment_ids {} for {} and {} from position {}, expected (batch, seq) of queries and keys from position 0 on.",
         ids.type_string(), query.type_string(), key.type_string(), options.offset);
}

}  // namespace

void detail::check_mask_and_bias(const char* verb, const Array& mask, const Array& bias) {
  if (!mask.is_absent() && mask.dtype() != boolean)
    fail(ErrorKind::dtype_mismatch, verb, "mask {}, expected booleans. What is added to the logits is a bias.",
         mask.type_string());
  if (!bias.is_absent() && !is_floating(bias.dtype()))
    fail(ErrorKind::dtype_mismatch, verb, "bias {}, expected a floating type.", bias.type_string());
}

void detail::check_window_and_softcap(const char* verb, int64_t window, double softcap) {
  if (window < 0) fail(ErrorKind::bad_argument, verb, "window {}, expected 1 or more, or 0 for all keys.", window);
  if (!(softcap >= 0) || std::isinf(softcap))
    fail(ErrorKind::bad_argument, verb, "softcap {}, expected a finite one above 0, or 0 for none.", softcap);
}

Array dot_product_attention(Operand query, const Array& key, const Array& value, const AttentionOptions& options) {
  check_heads(query.array(), key, value);
  check_options(options), check_segments(query.array(), key, options);
  const Array* operands[6] = {&query.array(), &key, &value};
  int number = 3;
  const auto place_of = [&](const Array& optional) {
    if (optional.is_absent()) return 0;
    operands[number] = &optional;
    return number++;
  };
  const int bias = place_of(options.bias), mask = place_of(options.mask), segments = place_of(options.segment_ids);
  Prepared call;
  prepare(call, {.operation = dot_product_attention_op, .where = query.where()}, operands, number);
  return run(call, dot_product_attention_op.name, [&](Locals t, const BlockContext& block) {
    const int64_t reach = std::max(options.offset + t[0].size(1), t[1].size(1));
    const int64_t window = options.window < reach ? options.window : 0;
    const auto at = [&](int place) { return place ? std::optional(t[place]) : std::nullopt; };
    const Visibility sight{at(bias),       at(mask), at(segments),  options.causal,
                           options.offset, window,   options.scale, options.softcap};
    if (!block.has("h")) return attend(t[0], t[1], t[2], sight);
    const int64_t heads = t[0].size(2), group = block.size("h") / block.size("g");
    const auto mine = [&](const at::Tensor& all) { return heads_of_block(all, block.offset("h"), heads, group); };
    return attend(t[0], mine(t[1]), mine(t[2]), sight);
  });
}

}  // namespace tessera
