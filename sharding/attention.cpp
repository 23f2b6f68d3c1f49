// Attention, and the rotation that tells it where a position stands.
#include "sharding/attention.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <fmt/format.h>

#include <cmath>

#include "sharding/run.h"

namespace tessera {

using namespace detail;

namespace {

const Operation rotary_embedding_op{"rotary_embedding", "... t h [d] -> ... t h [d]", Linearity::additive};
const Operation dot_product_attention_op{"dot_product_attention", "", Linearity::nonlinear};

}  // namespace

// ---- rotary positions

namespace {

// What coordinate i of a head is multiplied by, and what its partner half a head away is: (seq, 1, head_dim).
struct Rotation {
  at::Tensor own, partner;
};

Rotation rotation(int64_t offset, int64_t seq, int64_t head_dim, double base, const at::Tensor& like) {
  const at::TensorOptions exact = like.options().dtype(at::kDouble);
  const at::Tensor frequency = at::pow(base, at::arange(0, head_dim, 2, exact).div(-head_dim));
  const at::Tensor angle = at::arange(offset, offset + seq, exact).view({seq, 1, 1}) * frequency;
  const at::Tensor cos = angle.cos(), sin = angle.sin();
  const auto halves = [&](const at::Tensor& first, const at::Tensor& second) {
    return at::cat({first, second}, -1).to(at::toOpMathType(like.scalar_type()));
  };
  return {halves(cos, cos), halves(-sin, sin)};
}

// Positions that a double holds exactly.
constexpr int64_t max_positions = int64_t{1} << 53;

void check_rotary(const Array& x, int64_t offset, double base) {
  const Shape& shape = materialized(x, "rotary_embedding").type->shape;
  if (!is_floating(x.dtype()) || shape.size() < 3 || shape.back() % 2)
    fail(ErrorKind::shape_mismatch, "rotary_embedding",
         fmt::format("given {}, expected (..., seq, heads, head_dim) of a floating type with an even head_dim.",
                     x.type_string()));
  if (offset < 0)
    fail(ErrorKind::bad_argument, "rotary_embedding", fmt::format("offset {}, expected 0 or more.", offset));
  if (offset > max_positions - x.shape(-3))
    fail(ErrorKind::bad_argument, "rotary_embedding",
         fmt::format("offset {} of {}, expected positions up to 2^53.", offset, x.type_string()));
  if (!(base > 0) || std::isinf(base))
    fail(ErrorKind::bad_argument, "rotary_embedding", fmt::format("base {}, expected a finite one above 0.", base));
}

}  // namespace

Array rotary_embedding(Operand x, int64_t offset, double base) {
  const Array& a = x.array();
  check_rotary(a, offset, base);
  const int64_t head_dim = a.shape(-1);
  const Rotation all = rotation(offset, a.shape(-3), head_dim, base, a.impl()->local[0].detach());
  return run({.operation = rotary_embedding_op, .where = x.where()}, {&a}, [&](Locals t, const Where& where) {
    const auto here = [&](const at::Tensor& table) { return table.narrow(0, where.offset("t"), t[0].size(-3)); };
    return at::addcmul(t[0] * here(all.own), t[0].roll(head_dim / 2, -1), here(all.partner)).to(t[0].scalar_type());
  });
}

// ---- attention

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

// Query heads are cut with the kv heads that they use. Where there are more devices than these can be cut for, each has
// all kv heads and reads those that its own heads use.
std::string attention_rule(const Attributes&, const std::vector<const Type*>& operands) {
  const Type &query = *operands[0], &key = *operands[1];
  const bool grouped = query.mesh == nullptr || query.shape.size() != 4 || key.shape.size() != 4 || key.shape[2] == 0 ||
                       query.shape[2] % key.shape[2] || cuts_groups_evenly(query, key);
  return grouped ? "b [t] {g r} [k], b [s] g [k], b [s] g [v] -> b [t] {g r} [v]"
                 : "b [t] h [k], b [s] [g] [k], b [s] [g] [v] -> b [t] h [v]";
}

// The kv heads that the query heads from `first` on use: the one of their group, or one for each.
at::Tensor heads_of_block(const at::Tensor& all, int64_t first, int64_t heads, int64_t group) {
  if (group % heads == 0) return all.narrow(2, first / group, 1);
  return all.index_select(2, at::arange(first, first + heads).floor_divide_(group));
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool causal,
                  int64_t offset) {
  const int64_t queries = query.size(1), keys = key.size(1);
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  std::optional<at::Tensor> mask;
  if (causal && offset > 0 && offset < keys - 1) mask = at::ones({queries, keys}, at::kBool).tril_(offset);
  return at::scaled_dot_product_attention(heads_first(query), heads_first(key), heads_first(value), mask, 0.0,
                                          causal && offset == 0, std::nullopt, query.size(2) != key.size(2))
      .transpose(1, 2);
}

}  // namespace

Array dot_product_attention(Operand query, const Array& key, const Array& value, bool causal, int64_t offset) {
  if (offset < 0)
    fail(ErrorKind::bad_argument, "dot_product_attention", fmt::format("offset {}, expected 0 or more.", offset));
  return run({.operation = dot_product_attention_op, .rule = attention_rule, .where = query.where()},
             {&query.array(), &key, &value}, [&](Locals t, const Where& where) {
               if (!where.has("h")) return attend(t[0], t[1], t[2], causal, offset);
               const int64_t heads = t[0].size(2), group = where.size("h") / where.size("g");
               const auto mine = [&](const at::Tensor& all) {
                 return heads_of_block(all, where.offset("h"), heads, group);
               };
               return attend(t[0], mine(t[1]), mine(t[2]), causal, offset);
             });
}

}  // namespace tessera
