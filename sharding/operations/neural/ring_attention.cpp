// Ring attention: passes blocks of keys and values around the ring and merges the results.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "sharding/operations/neural/attention_masks.h"
#include "sharding/operations/neural/sequence_ring.h"

namespace tessera::detail {
namespace {

constexpr int64_t max_logits = 1 << 20;  // most logits of one product, unless it has only 16 rows

// ---- a few queries and a chunk of keys

// The numbers of heads, in (batch, groups, heads of a group).
struct HeadCounts {
  int64_t groups, each;
};

// Converts (batch, seq, heads, dim) to (batch, groups, heads of a group x seq, dim).
at::Tensor by_group(const at::Tensor& x, const HeadCounts& heads) {
  return x.unflatten(2, {heads.groups, heads.each}).permute({0, 2, 3, 1, 4}).flatten(2, 3).contiguous();
}
at::Tensor by_position(const at::Tensor& x, const HeadCounts& heads) {
  return x.unflatten(2, {heads.each, -1}).permute({0, 3, 1, 2, 4}).flatten(2, 3);
}

// Some queries, and their results so far.
struct Rows {
  Chunk chunk;
  at::Tensor query, ids;        // the query times the scale
  at::Tensor most, total, out;  // max of the logits; sum of exp(logits - most); sum of exp(logits - most) values
};

struct Keys {
  Chunk chunk;
  at::Tensor key, value, ids;
};

struct Logits {
  at::Tensor values;
  at::Tensor slope;  // derivative of softcap
};

class Attention {
 public:
  Attention(const Prepared& call, const RingOptions& options) : options_(options) {
    const at::Tensor &query = *call.local(0, 0), &key = *call.local(1, 0);
    heads_ = {key.size(2), query.size(2) / key.size(2)};
    key_dim_ = key.size(3);
    type_ = query.scalar_type();
    wide_ = at::toOpMathType(type_);
  }

  const HeadCounts& heads() const { return heads_; }
  at::ScalarType wide() const { return wide_; }

  // Splits a device's queries (batch, seq, heads, dim) into groups of a few rows.
  std::vector<Rows> rows_of(const at::Tensor& query, const std::vector<Chunk>& chunks, const at::Tensor& ids) const {
    std::vector<Rows> out;
    for (const Chunk& chunk : chunks) {
      const int64_t in_a_row = query.size(0) * query.size(2) * chunk.size;
      const int64_t step = std::clamp<int64_t>(max_logits / std::max<int64_t>(in_a_row, 1), 16, chunk.size + 16);
      for (int64_t i = 0; i < chunk.size; i += step) {
        const Chunk some{chunk.first + i, std::min(step, chunk.size - i), chunk.row + i};
        out.push_back({some, group_rows(query, some).mul_(options_.scale), rows_of_ids(ids, some), {}, {}, {}});
      }
    }
    return out;
  }

  // Returns a new copy in the wide type.
  at::Tensor group_rows(const at::Tensor& x, const Chunk& some) const {
    return by_group(x.narrow(1, some.row, some.size), heads_).to(wide_, /*non_blocking=*/false, /*copy=*/true);
  }

  // Returns the keys of a chunk; `pair` has keys and values concatenated, (batch, seq, groups, dims).
  Keys keys_of(const at::Tensor& pair, const Chunk& chunk, const at::Tensor& ids) const {
    const at::Tensor heads_first = pair.narrow(1, chunk.row, chunk.size).transpose(1, 2).to(wide_);
    return {chunk, heads_first.narrow(-1, 0, key_dim_), heads_first.narrow(-1, key_dim_, pair.size(-1) - key_dim_),
            rows_of_ids(ids, chunk)};
  }

  bool sees(const Rows& rows, const Keys& keys) const { return !are_out_of_sight(places(rows, keys)); }

  Logits logits(const Rows& rows, const Keys& keys) const {
    Logits l{at::matmul(rows.query, keys.key.transpose(-2, -1)), {}};
    if (options_.softcap > 0) {
      const at::Tensor t = at::tanh(l.values / options_.softcap);
      l = {t * options_.softcap, 1 - t * t};
    }
    hide(l.values, rows, keys);
    return l;
  }

 private:
  Places places(const Rows& rows, const Keys& keys) const {
    return {rows.chunk.size, keys.chunk.size, rows.chunk.first - keys.chunk.first, options_.causal, options_.window,
            options_.chunk,  keys.chunk.first};
  }

  static at::Tensor rows_of_ids(const at::Tensor& ids, const Chunk& some) {
    return ids.defined() ? ids.narrow(1, some.first, some.size) : ids;
  }

  void hide(at::Tensor& logits, const Rows& rows, const Keys& keys) const {
    at::Tensor mask = mask_of_places(places(rows, keys), logits);
    if (rows.ids.defined()) {
      const at::Tensor alike = mask_of_segments(rows.ids, keys.ids);
      mask = mask.defined() ? alike.bitwise_and(mask) : alike;
    }
    if (!mask.defined()) return;
    at::Tensor by_head = logits.unflatten(2, {heads_.each, rows.chunk.size});  // (batch, groups, each, queries, keys)
    by_head.masked_fill_(mask.bitwise_not().unsqueeze(-3), -std::numeric_limits<double>::infinity());
  }

  RingOptions options_;
  HeadCounts heads_;
  int64_t key_dim_;
  at::ScalarType type_, wide_;
};

void read(Rows& rows, const Keys& keys, const Attention& attention) {
  at::Tensor weights = attention.logits(rows, keys).values;
  at::Tensor most = weights.amax(-1, true);
  if (rows.most.defined())
    most = at::maximum(most, rows.most);
  else
    most.clamp_min_(std::numeric_limits<float>::lowest() / 2);  // for a row that sees nothing yet
  weights.sub_(most).exp_();
  const at::Tensor total = weights.sum(-1, true), out = at::matmul(weights, keys.value);
  if (rows.most.defined()) {
    const at::Tensor shrunk = (rows.most - most).exp_();
    rows.total = rows.total * shrunk + total;
    rows.out = rows.out * shrunk + out;
  } else {
    rows.total = total, rows.out = out;
  }
  rows.most = most;
}

// The gradients of some rows in the backward pass, where Rows::most is the log-sum-exp of all their logits.
struct RowGradients {
  at::Tensor of_out, in_out;  // the gradient of the result, and its product with the result
  at::Tensor query;           // the gradient of the query
};

void read_back(const Rows& rows, RowGradients& gradients, const Keys& keys, at::Tensor& pair,
               const Attention& attention) {
  const Logits l = attention.logits(rows, keys);
  const at::Tensor weights = (l.values - rows.most).exp_();
  at::Tensor inner = at::matmul(gradients.of_out, keys.value.transpose(-2, -1)).sub_(gradients.in_out).mul_(weights);
  if (l.slope.defined()) inner.mul_(l.slope);
  const at::Tensor query = at::matmul(inner, keys.key);
  gradients.query = gradients.query.defined() ? gradients.query.add_(query) : query;
  const at::Tensor key = at::matmul(inner.transpose(-2, -1), rows.query);
  const at::Tensor value = at::matmul(weights.transpose(-2, -1), gradients.of_out);
  pair.narrow(1, keys.chunk.row, keys.chunk.size).add_(at::cat({key, value}, -1).transpose(1, 2));
}

// ---- the ring

// Concatenates the features of two tensors, so that they move together: (batch, seq, features).
at::Tensor side_by_side_features(const at::Tensor& a, const at::Tensor& b) {
  return at::cat({a.flatten(2), b.flatten(2)}, -1);
}

class RingAttention {
 public:
  RingAttention(const Prepared& call, const CallSite& site, const RingOptions& options)
      : ring_(call, site, options.causal, options.window),
        attention_(call, options),
        scale_(options.scale),
        operands_(call.operands) {
    const Tensors queries = locals(call, 0), keys = locals(call, 1), values = locals(call, 2);
    shape_ = {queries[0].sizes().vec(), keys[0].sizes().vec(), values[0].sizes().vec()};
    Tensors all;
    for (size_t s = 0; s < queries.size(); ++s)
      all.push_back(side_by_side_features(queries[s], at::cat({keys[s], values[s]}, -1)));
    split(ring_.spread(all, false), queries_, pairs_);
    if (call.operands > 3)
      for (const at::Tensor& ids : locals(call, 3)) ids_.push_back(ids);
    else
      ids_.resize(queries.size());
  }

  // Returns the result of each slot, and keeps the data for the backward pass.
  Tensors forward() {
    std::vector<std::vector<Rows>> rows = all_rows();
    Tensors pairs = pairs_;
    for (int round = 0; round < ring_.rounds(); ++round) {
      std::optional<Transfer> next = next_pairs(pairs, round, false);
      each_slot(pairs, [&](int s) {
        for (const Chunk& chunk : ring_.chunks_of(ring_.owner(s, round))) {
          const Keys keys = attention_.keys_of(pairs[s], chunk, ids_[s]);
          for (Rows& some : rows[s])
            if (attention_.sees(some, keys)) read(some, keys, attention_);
        }
      });
      if (next) pairs = next->finish()[0];
    }
    results_.resize(rows.size());
    logs_.resize(rows.size());
    each_slot(pairs, [&](int s) { finish(s, rows[s]); });
    return ring_.collected(results_, false);
  }

  Tensors backward(const Tensors& gradients) const {
    const Tensors of_out = ring_.spread(gradients, true);
    std::vector<std::vector<Rows>> rows = all_rows();
    std::vector<std::vector<RowGradients>> grads(rows.size());
    each_slot(of_out, [&](int s) { grads[s] = begin_backward(s, rows[s], of_out[s]); });
    Tensors pairs = pairs_, of_pairs(pairs.size());
    std::optional<Transfer> from_before;  // gradients of these pairs from the devices that had them before
    for (int round = 0; round < ring_.rounds(); ++round) {
      std::optional<Transfer> next = next_pairs(pairs, round, true);
      each_slot(pairs, [&](int s) {
        of_pairs[s] = at::zeros_like(pairs[s], pairs[s].options().dtype(attention_.wide()));
        for (const Chunk& chunk : ring_.chunks_of(ring_.owner(s, round))) {
          const Keys keys = attention_.keys_of(pairs[s], chunk, ids_[s]);
          for (size_t i = 0; i < rows[s].size(); ++i)
            if (attention_.sees(rows[s][i], keys)) read_back(rows[s][i], grads[s][i], keys, of_pairs[s], attention_);
        }
      });
      if (from_before) {
        const Tensors before = from_before->finish()[0];
        each_slot(before, [&](int s) { of_pairs[s].add_(before[s]); });
      }
      if (!next) break;
      from_before.emplace(ring_.begin_shift(of_pairs, true));
      pairs = next->finish()[0];
    }
    if (ring_.rounds() > 1) of_pairs = ring_.shifted(of_pairs, 1 - ring_.rounds(), true);
    return collected_gradients(grads, of_pairs);
  }

 private:
  struct Shapes {
    std::vector<int64_t> query, key, value;
  };

  // Starts to transfer the pairs of the next round while this round's pairs are used.
  std::optional<Transfer> next_pairs(const Tensors& pairs, int round, bool back) const {
    if (round + 1 == ring_.rounds()) return std::nullopt;
    return ring_.begin_shift(pairs, back);
  }

  std::vector<std::vector<Rows>> all_rows() const {
    std::vector<std::vector<Rows>> rows(queries_.size());
    each_slot(queries_,
              [&](int s) { rows[s] = attention_.rows_of(queries_[s], ring_.chunks_of(ring_.number(s)), ids_[s]); });
    return rows;
  }

  void finish(int s, std::vector<Rows>& rows) {
    Tensors parts;
    for (Rows& some : rows) {
      parts.push_back(by_position(some.out.div_(some.total), attention_.heads()));
      logs_[s].push_back(some.most.add_(some.total.log_()));
    }
    results_[s] = at::cat(at::TensorList(parts.data(), parts.size()), 1).to(queries_[s].scalar_type());
  }

  std::vector<RowGradients> begin_backward(int s, std::vector<Rows>& rows, const at::Tensor& of_out) const {
    std::vector<RowGradients> out;
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].most = logs_[s][i];
      const at::Tensor gradient = attention_.group_rows(of_out, rows[i].chunk);
      out.push_back({gradient, attention_.group_rows(results_[s], rows[i].chunk).mul_(gradient).sum(-1, true), {}});
    }
    return out;
  }

  // Returns the gradients of queries, keys and values, by operand and slot.
  Tensors collected_gradients(const std::vector<std::vector<RowGradients>>& rows, const Tensors& of_pairs) const {
    const at::ScalarType type = queries_[0].scalar_type();
    Tensors all;
    for (size_t s = 0; s < rows.size(); ++s) {
      Tensors parts;
      for (const RowGradients& some : rows[s]) parts.push_back(by_position(some.query, attention_.heads()));
      const at::Tensor query = at::cat(at::TensorList(parts.data(), parts.size()), 1).mul_(scale_).to(type);
      all.push_back(side_by_side_features(query, of_pairs[s].to(type)));
    }
    Tensors out, pairs;
    split(ring_.collected(all, true), out, pairs);
    const int64_t key_dim = shape_.key[3], value_dim = shape_.value[3];
    for (const at::Tensor& pair : pairs) out.push_back(pair.narrow(-1, 0, key_dim));
    for (const at::Tensor& pair : pairs) out.push_back(pair.narrow(-1, key_dim, value_dim));
    if (operands_ > 3) out.resize(out.size() + pairs.size());  // segment ids
    return out;
  }

  void split(const Tensors& all, Tensors& queries, Tensors& pairs) const {
    const int64_t heads = shape_.query[2], groups = shape_.key[2], features = heads * shape_.query[3];
    for (const at::Tensor& x : all) {
      queries.push_back(x.narrow(2, 0, features).unflatten(2, {heads, -1}).contiguous());
      pairs.push_back(x.narrow(2, features, x.size(2) - features).unflatten(2, {groups, -1}).contiguous());
    }
  }

  SequenceRing ring_;
  Attention attention_;
  double scale_;
  int operands_;
  Shapes shape_;
  Tensors queries_, pairs_, ids_;  // by slot; keys and values concatenated
  Tensors results_;
  std::vector<Tensors> logs_;  // the rows' log-sum-exp
};

}  // namespace

Across ring_attention(const Prepared& call, const CallSite& site, const RingOptions& options) {
  const auto attention = std::make_shared<RingAttention>(call, site, options);
  return {attention->forward(), [attention](const Tensors& gradients) { return attention->backward(gradients); }};
}

}  // namespace tessera::detail
