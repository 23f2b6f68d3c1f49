// Attention with LibTorch's kernels, under a mask of the keys that each position sees.
#include "sharding/operations/neural/attention.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/simd_loops.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/neural/attention_masks.h"
#include "sharding/operations/neural/sequence_ring.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/runtime/hardware.h"

namespace tessera {

using namespace detail;

namespace {

// Returns true if the mesh axes of the query's heads divide the kv heads, and then the heads of each group.
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

// Returns the dimensions (batch, heads, seq, keys) of an operand that broadcasts to them.
RuleDims logits_dims(const Shape& shape, const RuleDim& heads, const RuleDim& queries) {
  RuleDims dims{factor("b"), heads, queries, whole("s")};
  if (shape.size() > 4) return dims;  // binding the rule throws
  dims.erase(dims.begin(), dims.end() - static_cast<int64_t>(shape.size()));
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) dims[d] = {};
  return dims;
}

// Returns true for integers: segments are the only integer operands.
bool is_segment_ids(const Type& operand) { return operand.dtype != boolean && !is_floating(operand.dtype); }

// Returns the dimensions of the sequence, of queries and keys.
std::pair<RuleFactor, RuleFactor> sequence_dims(ContextParallelism context) {
  if (context == ContextParallelism::ring) return {reduced_inside("t"), reduced_inside("t")};
  return {context == ContextParallelism::gather ? factor("t") : whole("t"), whole("s")};
}

// Returns the rule of attention. Query heads are sharded together with the kv heads that they use. With more devices
// than these can be sharded over, each device has all kv heads (not in a ring). It then uses the kv heads of its own
// query heads. Operands after the values: segment ids twice, for queries and keys (in a ring once), or segment starts;
// bias, mask and sinks. Attributes: the context parallelism, and whether there are segment starts and sinks.
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
  bool of_keys = context == ContextParallelism::ring;  // whether the next segment ids belong to the keys
  for (size_t i = 3; i + attributes[2] < operands.size(); ++i) {
    const bool ids = is_segment_ids(*operands[i]);
    rule.in.push_back(ids && attributes[1] ? RuleDims{factor("b"), whole("n")}
                      : ids                ? RuleDims{factor("b"), of_keys ? whole("s") : t}
                                           : logits_dims(operands[i]->shape, heads, t));
    of_keys |= ids;
  }
  if (attributes[2]) rule.in.push_back({heads});
  return rule;
}

ShardingRule segment_ids_rule(const Attributes& attributes, const OperandTypes&) {
  return {{{factor("b"), whole("n")}}, {{factor("b"), whole("t", attributes[0])}}};
}

const Operation segment_ids_op{"segment_ids", segment_ids_rule, Linearity::nonlinear};
const Operation dot_product_attention_op{"dot_product_attention", attention_rule, Linearity::nonlinear};

// Returns the kv heads that the query heads from `first` on use: one for their group, or one for each.
at::Tensor heads_of_block(const at::Tensor& all, int64_t first, int64_t heads, int64_t group) {
  if (group % heads == 0) return all.narrow(2, first / group, 1);
  std::vector<int64_t> used;
  for (int64_t h = first; h < first + heads; ++h) used.push_back(h / group);
  return all.index_select(2, moved_to(at::tensor(used), all.device()));
}

// The bias, masks and options on which the logits of one block depend.
struct Visibility {
  std::optional<at::Tensor> bias, mask, segment_ids, key_segment_ids, sinks;
  bool causal;
  int64_t offset, window, chunk;
  std::optional<double> scale;
  double softcap;
};

// Returns jax.nn's logit of hidden keys. It is finite, so softmax of a row without other keys is a mean.
double far_below(const at::Tensor& like) {
  return -0.7 * (like.scalar_type() == at::kHalf ? 65504.0 : std::numeric_limits<float>::max());
}

Places places_of(const Visibility& sight, int64_t queries, int64_t keys) {
  return {queries, keys, sight.offset, sight.causal, sight.window, sight.chunk};
}

// Returns true if causality, the window or the chunk leaves some position without a key.
bool leaves_a_row_blind(const Visibility& sight, int64_t queries, int64_t keys) {
  const bool before_all = sight.causal ? sight.offset < 0 : sight.window && -sight.offset >= sight.window;
  const int64_t last = sight.offset + queries - 1;
  const bool in_a_later_chunk = sight.chunk && last - last % sight.chunk >= keys;
  return before_all || in_a_later_chunk || (sight.window && last - keys >= sight.window - 1);
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
  // LibTorch's kernel multiplies hidden logits by the scale, so it may only mask if the scale is positive.
  const bool by_kernel =
      sight.causal && sight.offset == 0 && !sight.window && !sight.chunk && sight.scale.value_or(1) > 0;
  std::optional<at::Tensor> mask;
  if (!by_kernel)
    if (const at::Tensor places = mask_of_places(places_of(sight, query.size(1), key.size(1)), query); places.defined())
      mask = places;
  return at::scaled_dot_product_attention(heads_first(query), heads_first(key), heads_first(value), mask, 0.0,
                                          by_kernel, sight.scale, query.size(2) != key.size(2))
      .transpose(1, 2);
}

// Adds a bias or mask to the logits: hidden keys are far below all others. A row that sees no key has equal logits and
// sends no gradient to query and key, as in JAX. (With all logits far below, the kernel's backward pass would treat
// each key as the only one.)
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

// Returns the weights of the keys: softmax over logits and sinks, without the weights of the sinks.
at::Tensor weights_of(const at::Tensor& logits, const Visibility& sight) {
  if (!sight.sinks) return at::softmax(logits, -1);
  std::vector<int64_t> column = logits.sizes().vec();
  column.back() = 1;
  const at::Tensor sinks = sight.sinks->to(logits.scalar_type()).view({1, -1, 1, 1}).expand(column);
  return at::softmax(at::cat({logits, sinks}, -1), -1).narrow(-1, 0, logits.size(-1));
}

// Computes attention by matrix products, which can be differentiated twice, and in which NaN and infinities reach the
// result.
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
  return at::matmul(weights_of(logits, sight).to(exact), for_each_head(value)).to(query.scalar_type()).transpose(1, 2);
}

bool is_finite(const at::Tensor& t) {
  return std::isfinite(at::sum(t.detach(), at::toOpMathType(t.scalar_type())).item<double>());
}

// Returns true if every row may have a logit that is a number.
bool has_numbers(const at::Tensor& query, const at::Tensor& key, const Visibility& sight) {
  if (!std::isfinite(sight.scale.value_or(1)) || !is_finite(query) || !is_finite(key)) return false;
  return !sight.bias || sight.bias->numel() == 0 || is_finite(at::amax(sight.bias->detach(), -1));
}

// Returns true if all elements are nonzero numbers; the tensor has at least one dimension.
bool are_nonzero(const float* element, at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (sizes.size() == 1) return tessera::detail::are_nonzero(element, strides[0], sizes[0]);
  bool all = true;
  for (int64_t i = 0; i < sizes[0] && all; ++i, element += strides[0])
    all = are_nonzero(element, sizes.slice(1), strides.slice(1));
  return all;
}

// Returns true if the kernel's result may be wrong. LibTorch's CPU kernel returns zeros for a row in which no logit is
// a number, and NaN for a row with a masked NaN. The row's first element shows both cases, so the operands are not
// read.
bool is_doubtful(const at::Tensor& result) {
  if (!result.is_cpu() || result.numel() == 0) return false;
  const at::Tensor first = result.detach().select(-1, 0);
  if (first.scalar_type() == at::kFloat)
    return !are_nonzero(detail::const_elements<float>(first), first.sizes(), first.strides());
  return !at::all(at::gt(at::abs(first), 0)).item<bool>();
}

// Returns true if hidden keys may affect the result. In half precision their logits are not so low that q k vanishes in
// comparison. That matters in a row in which a bias of -inf leaves no other keys.
bool shows_what_is_hidden(const at::Tensor& query, const Visibility& sight) {
  return sight.bias && query.is_cpu() && query.scalar_type() == at::kHalf && !is_finite(*sight.bias);
}

// Returns true if the bias is wider than the operands: the kernel would need it rounded to their type.
bool has_wide_bias(const at::Tensor& query, const Visibility& sight) {
  return sight.bias && at::promote_types(sight.bias->scalar_type(), query.scalar_type()) != query.scalar_type();
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Visibility& sight) {
  const bool has_no_heads = query.size(2) == 0;              // LibTorch's kernel divides by their number
  const bool has_wide_values = value.size(3) > key.size(3);  // the kernels that keep no logits do not have them
  if (is_nested() || has_no_heads || has_wide_values || sight.softcap > 0 || sight.sinks ||
      has_wide_bias(query, sight) || shows_what_is_hidden(query, sight))
    return attend_by_products(query, key, value, sight);
  const bool by_logits =
      sight.bias || sight.mask || sight.segment_ids || leaves_a_row_blind(sight, query.size(1), key.size(1));
  // LibTorch's kernels that keep no logits need values of as many features as keys.
  const int64_t missing = std::max<int64_t>(key.size(3) - value.size(3), 0);
  const at::Tensor wide = missing ? at::constant_pad_nd(value, {0, missing}) : value;
  const at::Tensor result =
      (by_logits ? attend_under : attend_plainly)(query, key, wide, sight).narrow(3, 0, value.size(3));
  if (!is_doubtful(result) || has_numbers(query, key, sight)) return result;
  return attend_by_products(query, key, value, sight);
}

// ---- segments by their starts

// Throws if starts on the host are out of range or order.
void check_starts(const at::Tensor& starts, int64_t seq) {
  const at::Tensor all = starts.to(at::kLong).contiguous();
  const int64_t columns = all.size(1);
  const auto* start = detail::const_elements<int64_t>(all);
  for (int64_t i = 0; i < all.numel(); ++i)
    if (start[i] < 0 || start[i] > seq || (i % columns && start[i] < start[i - 1]))
      fail(ErrorKind::invalid_argument, "dot_product_attention",
           "segment_starts: {} after {}, expected increasing starts from 0 to seq = {}.", start[i],
           i % columns ? std::to_string(start[i - 1]) : "no other in its row", seq);
}

// Returns the starts as int32, checked.
at::Tensor read_starts(const at::Tensor& starts, int64_t seq) {
  if (starts.is_cpu()) check_starts(starts, seq);
  if (starts.is_cpu() || starts.is_meta()) return starts.to(at::kInt);
  return checked_later("dot_product_attention", starts, 0, seq + 1, at::kInt, "segment_starts");
}

at::Tensor ids_of_starts(const at::Tensor& starts, int64_t seq) {
  if (starts.is_meta()) return abstract_tensor({starts.size(0), seq}, DType::int32);  // LibTorch cannot search there
  const at::Tensor places = at::arange(seq, starts.options()).expand({starts.size(0), seq});
  return at::searchsorted(starts.contiguous(), places.contiguous(), /*out_int32=*/true, /*right=*/true);
}

// Returns the offsets of all segments in the stacked rows of a block, from 0 to batch * seq: one more than segments.
at::Tensor stacked_offsets(const at::Tensor& starts, int64_t seq) {
  const int64_t batch = starts.size(0);
  const at::Tensor ends = at::arange(batch + 1, starts.options()).mul_(seq);  // offsets of the rows, from 0
  const at::Tensor begins = ends.narrow(0, 0, batch).unsqueeze(1);
  return at::cat({at::cat({begins, starts + begins}, 1).flatten(), ends.narrow(0, batch, 1)});
}

// Returns true if the device has flash attention for these operands.
bool has_flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const at::Tensor& starts, const Visibility& sight) {
  // The kernel starts blocks for seq tokens of each segment, also of unused ones. An estimate limits their number.
  constexpr int64_t max_head_dim = 256, tokens_in_a_segment = 8;
  const int64_t head_dim = query.size(3);
  return (query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf) && !is_nested() && !sight.bias &&
         !sight.mask && !sight.chunk && !sight.sinks && sight.softcap == 0 && sight.scale.value_or(1) > 0 &&
         query.size(1) == key.size(1) && value.size(3) == head_dim && head_dim % 8 == 0 && head_dim > 0 &&
         head_dim <= max_head_dim && query.numel() > 0 &&
         tokens_in_a_segment * starts.size(1) <= std::max<int64_t>(query.size(1), 512) &&
         compute_capability(query.device()) >= 80;
}

// Computes attention within segments. Their number is the size of `starts`, so the host does not read the values.
at::Tensor attend_by_segments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const at::Tensor& starts, const Visibility& sight) {
  const int64_t seq = query.size(1);
  const auto stacked = [](const at::Tensor& x) { return x.reshape({-1, x.size(2), x.size(3)}); };
  const at::Tensor offsets = stacked_offsets(starts, seq);
  const auto reach = sight.window ? std::optional(sight.window - 1) : std::nullopt;
  const at::Tensor result = std::get<0>(at::_flash_attention_forward(
      stacked(query), stacked(key), stacked(value), offsets, offsets, seq, seq, /*dropout_p=*/0.0, sight.causal,
      /*return_debug_mask=*/false, sight.scale, reach, sight.causal && reach ? std::optional<int64_t>(0) : reach));
  return result.view(query.sizes());
}

at::Tensor attend_in_segments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const at::Tensor& given_starts, Visibility sight) {
  const at::Tensor starts = read_starts(given_starts, query.size(1));
  if (has_flash_attention(query, key, value, starts, sight))
    return attend_by_segments(query, key, value, starts, sight);
  sight.segment_ids = sight.key_segment_ids = ids_of_starts(starts, query.size(1));
  return attend(query, key, value, sight);
}

// ---- arguments

void check_heads(const Array& query, const Array& key, const Array& value) {
  for (const Array* x : {&query, &key, &value}) {
    materialized(*x, "dot_product_attention");
    if (!is_floating(x->dtype()) || x->dtype() != query.dtype())
      fail(ErrorKind::dtype_mismatch, "dot_product_attention",
           "given {}, {} and {}, expected one floating type. Convert with astype.", query.type_string(),
           key.type_string(), value.type_string());
  }
  if (query.ndim() != 4 || key.ndim() != 4) return;  // the rule throws
  const int64_t heads = query.shape(2), kv_heads = key.shape(2);
  if (heads == kv_heads) return;
  if (kv_heads == 0 || heads % kv_heads)
    fail(ErrorKind::shape_mismatch, "dot_product_attention",
         "given {} and {}: {} heads, {} kv heads, expected a multiple.", query.type_string(), key.type_string(), heads,
         kv_heads);
}

void check_options(const DotProductAttentionOptions& options) {
  constexpr int64_t most = int64_t{1} << 60;  // sums of positions do not overflow
  if (options.offset < 0)
    fail(ErrorKind::invalid_argument, "dot_product_attention", "offset {}, expected 0 or more.", options.offset);
  if (options.offset > most)
    fail(ErrorKind::invalid_argument, "dot_product_attention", "offset {}, expected {} at most.", options.offset, most);
  check_limits("dot_product_attention", options.window, options.chunk, options.softcap);
  check_mask_and_bias("dot_product_attention", options.mask, options.bias);
}

void check_sinks(const Array& query, const Array& sinks) {
  if (sinks.is_absent() || query.ndim() != 4) return;  // the rule throws for other dimensions
  if (sinks.shape() != Shape{query.shape(2)} || !is_floating(sinks.dtype()))
    fail(ErrorKind::shape_mismatch, "dot_product_attention", "sinks {} for {}, expected {} numbers, one of each head.",
         sinks.type_string(), query.type_string(), query.shape(2));
}

}  // namespace

bool detail::are_out_of_sight(const Places& p) {
  const int64_t nearest_behind = p.offset - (p.keys - 1), nearest_ahead = -(p.offset + p.queries - 1);
  const bool ahead = p.causal ? nearest_ahead > 0 : p.window && nearest_ahead >= p.window;
  const int64_t first = p.first_key + p.offset;
  const bool in_other_chunks = p.chunk && (first / p.chunk > (p.first_key + p.keys - 1) / p.chunk ||
                                           (first + p.queries - 1) / p.chunk < p.first_key / p.chunk);
  return ahead || in_other_chunks || (p.window && nearest_behind >= p.window);
}

namespace {

// Returns whether each query and each key are in the same chunk of the sequence.
at::Tensor same_chunk(const Places& p, const at::Tensor& mask) {
  const auto numbers = [&](int64_t first, int64_t count) {
    return at::div(at::arange(first, first + count, mask.options().dtype(at::kLong)), p.chunk, "floor");
  };
  return numbers(p.first_key + p.offset, p.queries).unsqueeze(1).eq(numbers(p.first_key, p.keys));
}

bool is_in_one_chunk(const Places& p) {
  const int64_t last = std::max(p.offset + p.queries, p.keys) - 1;
  return p.chunk == 0 || p.first_key / p.chunk == (p.first_key + last) / p.chunk;
}

}  // namespace

at::Tensor detail::mask_of_places(const Places& p, const at::Tensor& like) {
  const bool ends = p.causal && p.offset < p.keys - 1;
  const bool begins = p.window && p.offset + p.queries > p.window;
  const bool ends_by_window = p.window && !p.causal && p.keys - 1 - p.offset >= p.window;
  const bool one_chunk = is_in_one_chunk(p);
  if (!ends && !begins && !ends_by_window && one_chunk) return {};
  at::Tensor mask = at::ones({p.queries, p.keys}, like.options().dtype(at::kBool).requires_grad(false));
  if (!one_chunk) mask.bitwise_and_(same_chunk(p, mask));
  if (begins) mask.triu_(p.offset - p.window + 1);
  if (ends_by_window) mask.tril_(p.offset + p.window - 1);
  return ends ? mask.tril_(p.offset) : mask;
}

at::Tensor detail::mask_of_segments(const at::Tensor& queries, const at::Tensor& keys) {
  return queries.unsqueeze(2).eq(keys.unsqueeze(1)).unsqueeze(1);
}

void detail::check_mask_and_bias(const char* verb, const Array& mask, const Array& bias) {
  if (!mask.is_absent() && mask.dtype() != boolean)
    fail(ErrorKind::dtype_mismatch, verb, "mask {}, expected booleans. To add values to the logits, pass a bias.",
         mask.type_string());
  if (!bias.is_absent() && !is_floating(bias.dtype()))
    fail(ErrorKind::dtype_mismatch, verb, "bias {}, expected a floating type.", bias.type_string());
}

void detail::check_limits(const char* verb, int64_t window, int64_t chunk, double softcap) {
  if (window < 0) fail(ErrorKind::invalid_argument, verb, "window {}, expected 1 or more, or 0 for all keys.", window);
  if (chunk < 0) fail(ErrorKind::invalid_argument, verb, "chunk {}, expected 1 or more, or 0 for all keys.", chunk);
  if (!(softcap >= 0) || std::isinf(softcap))
    fail(ErrorKind::invalid_argument, verb, "softcap {}, expected a finite one above 0, or 0 for none.", softcap);
}

void detail::check_segments(const Array& query, const Array& key, const Array& ids, const Array& starts,
                            int64_t offset) {
  if (!starts.is_absent() && query.ndim() == 4 && key.ndim() == 4) {
    check_integers("dot_product_attention", starts, "segment_starts");
    if (!ids.is_absent())
      fail(ErrorKind::invalid_argument, "dot_product_attention",
           "segment_ids and segment_starts given, expected one of them.");
    if (offset != 0 || starts.ndim() != 2 || starts.shape(0) != query.shape(0) || key.shape(1) != query.shape(1))
      fail(ErrorKind::shape_mismatch, "dot_product_attention",
           "segment_starts {} for {} and {} from position {}, expected (batch, n) of queries and keys of one sequence "
           "from position 0 on.",
           starts.type_string(), query.type_string(), key.type_string(), offset);
  }
  if (ids.is_absent() || query.ndim() != 4 || key.ndim() != 4) return;  // the rule throws for other dimensions
  check_integers("dot_product_attention", ids, "segment_ids");
  if (offset != 0 || ids.shape() != Shape{query.shape(0), query.shape(1)} || key.shape(1) != query.shape(1))
    fail(ErrorKind::shape_mismatch, "dot_product_attention",
         "segment_ids {} for {} and {} from position {}, expected (batch, seq) of queries and keys from position 0 on.",
         ids.type_string(), query.type_string(), key.type_string(), offset);
}

namespace {

bool fits_a_ring(const Array& query, const Array& key, const DotProductAttentionOptions& options) {
  return options.bias.is_absent() && options.mask.is_absent() && options.sinks.is_absent() && options.offset == 0 &&
         query.ndim() == 4 && key.ndim() == 4 && query.shape(1) == key.shape(1);
}

// Returns the mode with the fewest bytes, forward and backward together. Bytes of query and result, and of key and
// value, are proportional to their features.
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
  const int64_t reordered = options.causal && !options.window ? 2 * (outer + inner) : 0;  // see sequence_ring.h
  return exchanged <= 3 * n * inner + reordered ? ContextParallelism::exchange : ContextParallelism::ring;
}

ContextParallelism chosen(const Array& query, const Array& key, const Array& value,
                          const DotProductAttentionOptions& options) {
  if (query.size() == 0 || key.size() == 0) return ContextParallelism::exchange;  // nothing to communicate
  if (options.context == ContextParallelism::automatic) return cheapest(query, key, value, options);
  if (options.context == ContextParallelism::ring && !fits_a_ring(query, key, options))
    fail(ErrorKind::invalid_argument, "dot_product_attention",
         "a ring for {} and {} from position {}{}, expected query and key of one sequence from position 0 on, without "
         "bias, mask and sinks. Give segment_ids, or take ContextParallelism::gather.",
         query.type_string(), key.type_string(), options.offset,
         !options.sinks.is_absent()                             ? " with sinks"
         : options.bias.is_absent() && options.mask.is_absent() ? ""
                                                                : " with a bias or mask");
  return options.context;
}

// Query, key, value and the arrays in options, in the order of the rule.
struct AttentionOperands {
  const Array* all[max_operands];
  int number = 3, segments = 0, key_segments = 0, starts = 0, bias = 0, mask = 0, sinks = 0;  // indices; 0: absent

  AttentionOperands(const Array& query, const Array& key, const Array& value, const DotProductAttentionOptions& options)
      : all{&query, &key, &value} {
    segments = place_of(options.segment_ids), key_segments = place_of(options.segment_ids);
    starts = place_of(options.segment_starts);
    bias = place_of(options.bias), mask = place_of(options.mask), sinks = place_of(options.sinks);
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
                         at(operands.sinks),
                         options.causal,
                         offset,
                         options.window < reach ? options.window : 0,
                         options.chunk < reach ? options.chunk : 0,
                         options.scale,
                         options.softcap};
  const auto attend_all = [&](const at::Tensor& key, const at::Tensor& value) {
    if (!operands.starts) return attend(t[0], key, value, sight);
    return attend_in_segments(t[0], key, value, t[operands.starts], sight);
  };
  if (!block.has("h")) return attend_all(t[1], t[2]);
  const int64_t heads = t[0].size(2), group = block.size("h") / block.size("g");
  const auto mine = [&](const at::Tensor& all) { return heads_of_block(all, block.offset("h"), heads, group); };
  return attend_all(mine(t[1]), mine(t[2]));
}

Array attend_in_a_ring(const CallSite& site, const Array& query, const Array& key, const Array& value,
                       const DotProductAttentionOptions& options) {
  const auto below_seq = [&](int64_t limit) { return limit < query.shape(1) ? limit : 0; };
  const int64_t window = below_seq(options.window), chunk = below_seq(options.chunk);
  const auto whole = [&](Locals t, const BlockContext&) {
    const std::optional ids = options.segment_ids.is_absent() ? std::nullopt : std::optional(t[3]);
    return attend(t[0], t[1], t[2],
                  {{}, {}, ids, ids, {}, options.causal, 0, window, chunk, options.scale, options.softcap});
  };
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.shape(3))));
  const auto round = [&](const Prepared& call, const ShardedReduction&) {
    return ring_attention(call, site, {options.causal, window, chunk, scale, options.softcap});
  };
  if (options.segment_ids.is_absent()) return run_sharded_reduction(site, {&query, &key, &value}, whole, round);
  return run_sharded_reduction(site, {&query, &key, &value, &options.segment_ids}, whole, round);
}

}  // namespace

Array detail::segment_ids_of(Operand starts, int64_t seq) {
  return run({.operation = segment_ids_op, .attributes = {seq}, .where = starts.where()}, {&starts.array()},
             [seq](Locals t, const BlockContext&) { return ids_of_starts(read_starts(t[0], seq), seq); });
}

Array dot_product_attention(Operand query, const Array& key, const Array& value,
                            const DotProductAttentionOptions& options) {
  check_heads(query.array(), key, value);
  check_options(options);
  check_sinks(query.array(), options.sinks);
  check_segments(query.array(), key, options.segment_ids, options.segment_starts, options.offset);
  const ContextParallelism context = chosen(query.array(), key, value, options);
  const bool has_starts = !options.segment_starts.is_absent();
  const bool is_split = context != ContextParallelism::exchange && query.array().ndim() == 4;
  if (has_starts && is_split) {  // each device has a part of the sequence
    DotProductAttentionOptions by_ids = options;
    by_ids.segment_starts = {};
    by_ids.segment_ids = segment_ids_of({options.segment_starts, query.where()}, query.array().shape(1));
    return dot_product_attention(query, key, value, by_ids);
  }
  const CallSite site{.operation = dot_product_attention_op,
                      .attributes = {static_cast<int>(context), has_starts, !options.sinks.is_absent()},
                      .where = query.where()};
  if (context == ContextParallelism::ring) return attend_in_a_ring(site, query.array(), key, value, options);
  const AttentionOperands operands(query.array(), key, value, options);
  Prepared call;
  prepare(call, site, operands.all, operands.number);
  return run(call, dot_product_attention_op.name,
             [&](Locals t, const BlockContext& block) { return attend_block(t, block, operands, options); });
}

}  // namespace tessera
