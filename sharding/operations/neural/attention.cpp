// Attention: LibTorch's kernel, under a mask of what each position may see.
#include "sharding/operations/neural/attention.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sharding/array/late_checks.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/simd_loops.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/neural/attention_masks.h"
#include "sharding/operations/neural/sequence_ring.h"

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
RuleDims logits_dims(const Shape& shape, const RuleDim& heads, const RuleDim& queries) {
  RuleDims dims{factor("b"), heads, queries, whole("s")};
  if (shape.size() > 4) return dims;  // refused when it is bound
  dims.erase(dims.begin(), dims.end() - static_cast<int64_t>(shape.size()));
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) dims[d] = {};
  return dims;
}

// Beside booleans and floating numbers.
bool is_segment_ids(const Type& operand) { return operand.dtype != boolean && !is_floating(operand.dtype); }

// The dims of the sequence, of queries and keys.
std::pair<RuleFactor, RuleFactor> sequence_dims(ContextParallelism context) {
  if (context == ContextParallelism::ring) return {reduced_inside("t"), reduced_inside("t")};
  return {context == ContextParallelism::gather ? factor("t") : whole("t"), whole("s")};
}

// Query heads are cut with the kv heads that they use. Where there are more devices than these can be cut for, each has
// all kv heads and reads those that its own heads use (not in a ring). Behind the values: segment ids twice, for
// queries and keys (in a ring once), bias and mask.
ShardingRule attention_rule(const Attributes& attributes, const OperandTypes& operands) {
  const auto context = static_cast<ContextParallelism>(attributes[0]);
  const Type &query = *operands[0], &key = *operands[1];
  const bool grouped = context == ContextParallelism::ring || query.mesh == nullptr || query.shape.size() != 4 ||
                       key.shape.size() != 4 || key.shape[2] == 0 || query.shape[2] % key.shape[2] ||
                       cuts_groups_evenly(query, key);
  const auto [t, s] = sequence_dims(context);
  const RuleDim heads = grouped ? RuleDim{factor("g"), factor("r")} : RuleDim(factor("h"));
  const RuleFactor groups = grouped ? factor("g") : whole("g");
  ShardingRule rule{
      {{factor("b"), t, heads, whole("k")}, {factor("b"), s, groups, whole("k")}, {factor("b"), s, groups, whole("v")}},
      {{factor("b"), t, heads, whole("v")}}};
  bool of_keys = context == ContextParallelism::ring;  // the next segment ids
  for (size_t i = 3; i < operands.size(); ++i) {
    const bool ids = is_segment_ids(*operands[i]);
    rule.in.push_back(ids ? RuleDims{factor("b"), of_keys ? whole("s") : t}
                          : logits_dims(operands[i]->shape, heads, t));
    of_keys |= ids;
  }
  return rule;
}

const Operation dot_product_attention_op{"dot_product_attention", attention_rule, Linearity::nonlinear};

// The kv heads that the query heads from `first` on use: the one of their group, or one for each.
at::Tensor heads_of_block(const at::Tensor& all, int64_t first, int64_t heads, int64_t group) {
  if (group % heads == 0) return all.narrow(2, first / group, 1);
  std::vector<int64_t> used;
  for (int64_t h = first; h < first + heads; ++h) used.push_back(h / group);
  return all.index_select(2, moved_to(at::tensor(used), all.device()));
}

// What the logits of one block are made with.
struct Visibility {
  std::optional<at::Tensor> bias, mask, segment_ids, key_segment_ids;
  bool causal;
  int64_t offset, window;
  std::optional<double> scale;
  double softcap;
};

// jax.nn's logit of what is out of sight: softmax makes a mean of a row that has no other.
double far_below(const at::Tensor& like) {
  return -0.7 * (like.scalar_type() == at::kHalf ? 65504.0 : std::numeric_limits<float>::max());
}

Places places_of(const Visibility& sight, int64_t queries, int64_t keys) {
  return {queries, keys, sight.offset, sight.causal, sight.window};
}

// Whether causality or the window leaves some position no key.
bool leaves_a_row_blind(const Visibility& sight, int64_t queries, int64_t keys) {
  const bool before_all = sight.causal ? sight.offset < 0 : sight.window && -sight.offset >= sight.window;
  return before_all || (sight.window && sight.offset + queries - keys >= sight.window);
}

at::Tensor combined_mask(const Visibility& sight, int64_t queries, int64_t keys, const at::Tensor& like) {
  at::Tensor mask = mask_of_places(places_of(sight, queries, keys), like);
  const auto narrow = [&](const at::Tensor& more) { mask = mask.defined() ? more.bitwise_and(mask) : more; };
  if (sight.mask) narrow(*sight.mask);
  if (sight.segment_ids) narrow(mask_of_segments(*sight.segment_ids, *sight.key_segment_ids));
  return mask;
}

at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }

at::Tensor attend_plainly(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const Visibility& sight) {
  // LibTorch's kernel multiplies what it hides by the scale.
  const bool by_kernel = sight.causal && sight.offset == 0 && !sight.window && sight.scale.value_or(1) > 0;
  std::optional<at::Tensor> mask;
  if (!by_kernel)
    if (const at::Tensor places = mask_of_places(places_of(sight, query.size(1), key.size(1)), query); places.defined())
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
    const at::Tensor blind = mask.any(-1, true).bitwise_not();
    q = q.masked_fill(blind, 0);
    logits = logits.masked_fill(mask.bitwise_not(), far_below(q)).masked_fill(blind, 0);
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
    logits = logits.masked_fill(mask.bitwise_not(), far_below(query));
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

// Whether they are all numbers but 0; at least one dim.
bool are_nonzero(const float* element, at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (sizes.size() == 1) return tessera::detail::are_nonzero(element, strides[0], sizes[0]);
  bool all = true;
  for (int64_t i = 0; i < sizes[0] && all; ++i, element += strides[0])
    all = are_nonzero(element, sizes.slice(1), strides.slice(1));
  return all;
}

// Of a row without a logit that is a number, LibTorch's kernel for CPUs makes zeros, and of one with a NaN out of sight
// NaN. Either shows in the row's first element, so that the operands need not be read for it.
bool is_doubtful(const at::Tensor& result) {
  if (!result.is_cpu() || result.numel() == 0) return false;
  const at::Tensor first = result.detach().select(-1, 0);
  if (first.scalar_type() == at::kFloat)
    return !are_nonzero(first.const_data_ptr<float>(), first.sizes(), first.strides());
  return !at::all(at::gt(at::abs(first), 0)).item<bool>();
}

// In half precision, what is out of sight is not so far below that q k vanishes beside it: that shows where a bias of
// -inf leaves a row nothing else.
bool shows_what_is_hidden(const at::Tensor& query, const Visibility& sight) {
  return sight.bias && query.is_cpu() && query.scalar_type() == at::kHalf && !is_finite(*sight.bias);
}

// The kernel takes a bias of the operands' type, to which a wider one would have to be rounded.
bool has_wide_bias(const at::Tensor& query, const Visibility& sight) {
  return sight.bias && at::promote_types(sight.bias->scalar_type(), query.scalar_type()) != query.scalar_type();
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Visibility& sight) {
  if (is_nested() || sight.softcap > 0 || has_wide_bias(query, sight) || shows_what_is_hidden(query, sight))
    return attend_by_products(query, key, value, sight);
  const bool by_logits =
      sight.bias || sight.mask || sight.segment_ids || leaves_a_row_blind(sight, query.size(1), key.size(1));
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

void check_options(const DotProductAttentionOptions& options) {
  constexpr int64_t most = int64_t{1} << 60;  // sums of places stay integers
  if (options.offset < 0)
    fail(ErrorKind::invalid_argument, "dot_product_attention", "offset {}, expected 0 or more.", options.offset);
  if (options.offset > most)
    fail(ErrorKind::invalid_argument, "dot_product_attention", "offset {}, expected {} at most.", options.offset, most);
  check_window_and_softcap("dot_product_attention", options.window, options.softcap);
  check_mask_and_bias("dot_product_attention", options.mask, options.bias);
}

void check_segments(const Array& query, const Array& key, const DotProductAttentionOptions& options) {
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
  if (window < 0) fail(ErrorKind::invalid_argument, verb, "window {}, expected 1 or more, or 0 for all keys.", window);
  if (!(softcap >= 0) || std::isinf(softcap))
    fail(ErrorKind::invalid_argument, verb, "softcap {}, expected a finite one above 0, or 0 for none.", softcap);
}

namespace {

bool fits_a_ring(const Array& query, const Array& key, const DotProductAttentionOptions& options) {
  return options.bias.is_absent() && options.mask.is_absent() && options.offset == 0 && query.ndim() == 4 &&
         key.ndim() == 4 && query.shape(1) == key.shape(1);
}

// Bytes of query and result, and of key and value, are as their features; each way counts forward and backward.
ContextParallelism cheapest(const Array& query, const Array& key, const Array& value,
                            const DotProductAttentionOptions& options) {
  const Type &q = *query.impl()->type, &k = *key.impl()->type, &v = *value.impl()->type;
  if (!fits_a_ring(query, key, options) || !q.mesh || q.dims[1].empty() || v.shape.size() != 4 || k.dims != v.dims ||
      q.padded || k.padded || v.padded || k.dims[1] != q.dims[1] || k.dims[0] != q.dims[0])
    return ContextParallelism::exchange;
  const int64_t n = q.mesh->count(q.dims[1].axis_set()), heads = q.local[2], groups = k.local[2];
  if (!cuts_groups_evenly(q, k)) return ContextParallelism::exchange;
  if (heads % n) return ContextParallelism::ring;
  const int64_t features = q.shape[3] + v.shape[3], outer = heads * features, inner = groups * features;
  const int64_t exchanged = 2 * (outer + (groups % n ? n * inner : inner));
  const int64_t reordered = options.causal && !options.window ? 2 * (outer + inner) : 0;  // see ring_attention.h
  return exchanged <= 3 * n * inner + reordered ? ContextParallelism::exchange : ContextParallelism::ring;
}

ContextParallelism chosen(const Array& query, const Array& key, const Array& value,
                          const DotProductAttentionOptions& options) {
  if (query.size() == 0 || key.size() == 0) return ContextParallelism::exchange;  // nothing would go round
  if (options.context == ContextParallelism::automatic) return cheapest(query, key, value, options);
  if (options.context == ContextParallelism::ring && !fits_a_ring(query, key, options))
    fail(ErrorKind::invalid_argument, "dot_product_attention",
         "a ring for {} and {} from position {}{}, expected query and key of one sequence from position 0 on, without "
         "bias and mask. Give segment_ids, or take ContextParallelism::gather.",
         query.type_string(), key.type_string(), options.offset,
         options.bias.is_absent() && options.mask.is_absent() ? "" : " with a bias or mask");
  return options.context;
}

// Query, key, value and what options name, in the order of the rule.
struct AttentionOperands {
  const Array* all[max_operands];
  int number = 3, segments = 0, key_segments = 0, bias = 0, mask = 0;  // where they are; 0: absent

  AttentionOperands(const Array& query, const Array& key, const Array& value, const DotProductAttentionOptions& options)
      : all{&query, &key, &value} {
    segments = place_of(options.segment_ids), key_segments = place_of(options.segment_ids);
    bias = place_of(options.bias), mask = place_of(options.mask);
  }

 private:
  int place_of(const Array& optional) {
    if (optional.is_absent()) return 0;
    all[number] = &optional;
    return number++;
  }
};

at::Tensor attend_block(const Locals& t, const BlockContext& block, const AttentionOperands& operands,
                        const DotProductAttentionOptions& options) {
  const int64_t offset = options.offset + block.offset("t"), reach = std::max(offset + t[0].size(1), t[1].size(1));
  const auto at = [&](int place) { return place ? std::optional(t[place]) : std::nullopt; };
  const Visibility sight{at(operands.bias),
                         at(operands.mask),
                         at(operands.segments),
                         at(operands.key_segments),
                         options.causal,
                         offset,
                         options.window < reach ? options.window : 0,
                         options.scale,
                         options.softcap};
  if (!block.has("h")) return attend(t[0], t[1], t[2], sight);
  const int64_t heads = t[0].size(2), group = block.size("h") / block.size("g");
  const auto mine = [&](const at::Tensor& all) { return heads_of_block(all, block.offset("h"), heads, group); };
  return attend(t[0], mine(t[1]), mine(t[2]), sight);
}

Array attend_in_a_ring(const CallSite& site, const Array& query, const Array& key, const Array& value,
                       const DotProductAttentionOptions& options) {
  const int64_t window = options.window < query.shape(1) ? options.window : 0;
  const auto whole = [&](Locals t, const BlockContext&) {
    const std::optional ids = options.segment_ids.is_absent() ? std::nullopt : std::optional(t[3]);
    return attend(t[0], t[1], t[2], {{}, {}, ids, ids, options.causal, 0, window, options.scale, options.softcap});
  };
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.shape(3))));
  const auto round = [&](const Prepared& call, const ShardedReduction&) {
    return ring_attention(call, site, {options.causal, window, scale, options.softcap});
  };
  if (options.segment_ids.is_absent()) return run_sharded_reduction(site, {&query, &key, &value}, whole, round);
  return run_sharded_reduction(site, {&query, &key, &value, &options.segment_ids}, whole, round);
}

}  // namespace

Array dot_product_attention(Operand query, const Array& key, const Array& value,
                            const DotProductAttentionOptions& options) {
  check_heads(query.array(), key, value);
  check_options(options), check_segments(query.array(), key, options);
  const ContextParallelism context = chosen(query.array(), key, value, options);
  const CallSite site{
      .operation = dot_product_attention_op, .attributes = {static_cast<int>(context)}, .where = query.where()};
  if (context == ContextParallelism::ring) return attend_in_a_ring(site, query.array(), key, value, options);
  const AttentionOperands operands(query.array(), key, value, options);
  Prepared call;
  prepare(call, site, operands.all, operands.number);
  return run(call, dot_product_attention_op.name,
             [&](Locals t, const BlockContext& block) { return attend_block(t, block, operands, options); });
}

}  // namespace tessera
