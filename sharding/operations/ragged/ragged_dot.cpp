// Sorts rows by group, multiplies each group by its kernel, and restores the order.
#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <utility>
#include <vector>

#include "sharding/array/autograd.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/ragged/ragged_tiles.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

// Returns the batch dimensions of matrices x (all but the last two), followed by `rest`.
RuleDims batch_and(std::initializer_list<RuleDim> rest, const Type& x) {
  RuleDims dims = numbered_factors(std::max<size_t>(x.shape.size(), 2) - 2);
  dims.insert(dims.end(), rest);
  return dims;
}

ShardingRule ragged_dot_rule(const Attributes&, const OperandTypes& operands) {
  const auto with = [&](std::initializer_list<RuleDim> rest) { return batch_and(rest, *operands[0]); };
  return {{with({whole("rows"), factor("in")}), {factor("group"), factor("in"), factor("out")}, with({whole("sizes")})},
          {with({whole("rows"), factor("out")})}};
}

ShardingRule ragged_mlp_rule(const Attributes&, const OperandTypes& operands) {
  const auto with = [&](std::initializer_list<RuleDim> rest) { return batch_and(rest, *operands[0]); };
  const RuleDims first{factor("group"), whole("in"), factor("hidden")};
  ShardingRule rule{{with({whole("rows"), whole("in")}),
                     first,
                     first,
                     {factor("group"), factor("hidden"), factor("out")},
                     with({whole("sizes")})},
                    {with({whole("rows"), factor("out")})}};
  if (operands.size() > 5) rule.in.insert(rule.in.end(), 2, {factor("group"), factor("hidden")});
  return rule;
}

const Operation ragged_dot_op{"ragged_dot", ragged_dot_rule, Linearity::multilinear};
const Operation ragged_mlp_op{"ragged_mlp", ragged_mlp_rule, Linearity::nonlinear};

// Stacks all rows as a matrix. Works without rows, and with rows without elements.
at::Tensor stacked_rows(const at::Tensor& x) {
  return x.reshape({c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), x.size(-1)});
}

// Returns the rows of each group, numbered over the stacked matrices of the batch. The last entry has the rows that are
// in no group.
std::vector<std::vector<int64_t>> rows_by_group(const at::Tensor& sizes, int64_t rows) {
  const int64_t groups = sizes.size(-1);
  const at::Tensor table = stacked_rows(sizes).to(at::kCPU, at::kLong).contiguous();
  std::vector<std::vector<int64_t>> found(groups + 1);
  for (int64_t b = 0; b < table.size(0); ++b) {
    const int64_t* of = detail::const_elements<int64_t>(table) + b * groups;
    int64_t row = 0;
    for (int64_t g = 0; g < groups; ++g) {
      if (of[g] < 0 || of[g] > rows - row)
        fail(ErrorKind::invalid_argument, "ragged_dot",
             "size {} of group {} after {} of {} rows, expected 0 or more, and no more rows in total than there are.",
             of[g], g, row, rows);
      for (const int64_t end = row + of[g]; row < end; ++row) found[g].push_back(b * rows + row);
    }
    for (; row < rows; ++row) found[groups].push_back(b * rows + row);
  }
  return found;
}

// Returns `count` rows: row i of `rows` is at place[i], and other places have zeros. Rows at place `count` are dropped.
at::Tensor scattered(const at::Tensor& rows, const at::Tensor& place, int64_t count) {
  const at::Tensor out = rows.new_zeros({count + 1, rows.size(1)});
  out.index_copy_(0, place, rows);
  return out.narrow(0, 0, count);
}

// Returns the rows with these indices; the index after the last row selects zeros. Each row is selected at most once:
// `place` has its place in the result, or the number of places. On an accelerator, rows are written to their places in
// both directions. LibTorch's backward pass of a selection would add all empty places to a single row, by atomics.
at::Tensor selected(const at::Tensor& rows, const at::Tensor& index, const at::Tensor& place) {
  if (rows.is_cpu() || rows.is_meta())
    return at::cat({rows, rows.new_zeros({1, rows.size(1)})}, 0).index_select(0, index);
  const auto to = [](const at::Tensor& places, int64_t count) {
    return [places, count](const Tensors& from) { return Tensors{scattered(from[0], places, count)}; };
  };
  const auto forward = to(place, index.size(0)), backward = to(index, place.size(0));
  Tensors out;
  {
    const at::AutoGradMode off(false);
    out = forward({rows});
  }
  record_function("ragged_rows", {rows}, out, backward, forward);
  return std::move(out[0]);
}

// The rows of a batch of matrices, sorted by group. Only rows of groups whose kernels this device has, from group
// `first` on, are included; the products of other rows are zeros.
// - If groups have about equally many rows, each is padded with zeros to the largest, and all products are one batched
//   product; else there is one product per group.
// - On an abstract mesh, all groups count as equal.
// - On an accelerator with grouped products, rows are in the order of their groups, and a product reads those of the
//   groups here.
// - On another accelerator that has the kernels of all groups, rows are in tiles, whose number does not depend on the
//   sizes.
class SortedRows {
 public:
  // `kernels`: all kernels by which these rows, and products of them, are multiplied.
  SortedRows(const at::Tensor& x, const at::Tensor& sizes, int64_t first, at::TensorList kernels)
      : shape_(x.sizes().vec()), kernels_(kernels[0].size(0)) {
    const at::Tensor rows = stacked_rows(x);
    const int64_t n = rows.size(0);
    const bool grouped = has_grouped_products(x, n, kernels);
    if (x.is_meta()) {
      filled_ = std::max<int64_t>(1, n / std::max<int64_t>(1, sizes.size(-1)));
      const auto ids = [&](int64_t count) { return rows.new_empty({count}, rows.options().dtype(at::kLong)); };
      order_ = ids(kernels_ * filled_), place_ = ids(n);
    } else if (x.is_cpu() || (!grouped && kernels_ < sizes.size(-1))) {
      sort(rows_by_group(sizes, x.size(-2)), n, first);
      order_ = order_.to(x.device()), place_ = place_.to(x.device());
    } else {
      tiles_ = tiles_of(stacked_rows(sizes), x.size(-2), first, kernels_, grouped);
      order_ = tiles_.order, place_ = tiles_.place;
    }
    rows_ = selected(rows, order_, place_);
  }

  const at::Tensor& rows() const { return rows_; }

  // Multiplies each sorted row by its group's kernel.
  at::Tensor product(const at::Tensor& rows, const at::Tensor& kernels) const {
    if (kernels_ == 0) return at::matmul(rows, kernels.new_zeros({kernels.size(1), kernels.size(2)}));
    if (tiles_.order.defined()) return product_of_tiles(tiles_, rows, kernels);
    if (filled_ > 0) return at::bmm(rows.view({kernels_, filled_, rows.size(1)}), kernels).flatten(0, 1);
    const std::vector<at::Tensor> parts = rows.split_with_sizes(counts_), kernel = kernels.unbind(0);
    std::vector<at::Tensor> products;
    for (int64_t g = 0; g < kernels_; ++g)
      if (counts_[g] > 0) products.push_back(at::matmul(parts[g], kernel[g]));
    if (products.empty()) products.push_back(at::matmul(rows.narrow(0, 0, 0), kernel[0]));  // makes gradients of zero
    return at::cat(products, 0);
  }

  // Adds its group's bias (groups, out) to each sorted row: the product of ones and the bias. Grouped products need a
  // multiple of 8 columns.
  at::Tensor biased(const at::Tensor& rows, const at::Tensor& bias) const {
    const at::Tensor kernels = at::constant_pad_nd(bias.unsqueeze(1), {0, 0, 0, 7});
    return rows + product(rows.new_ones({rows.size(0), 8}), kernels);
  }

  // Restores the original order of sorted rows.
  at::Tensor restored(const at::Tensor& rows) const {
    std::vector<int64_t> shape = shape_;
    shape.back() = rows.size(1);
    return selected(rows, place_, order_).reshape(shape);
  }

 private:
  void sort(const std::vector<std::vector<int64_t>>& groups, int64_t n, int64_t first) {
    int64_t most = 0, all = 0;
    for (int64_t k = 0; k < kernels_; ++k) {
      counts_.push_back(static_cast<int64_t>(groups[first + k].size()));
      most = std::max(most, counts_[k]);
      all += counts_[k];
    }
    if (most * kernels_ <= 2 * all) filled_ = most;
    std::vector<int64_t> order;
    for (int64_t k = 0; k < kernels_; ++k) {
      order.insert(order.end(), groups[first + k].begin(), groups[first + k].end());
      if (filled_ > 0) order.resize((k + 1) * filled_, n);
    }
    std::vector<int64_t> place(n, static_cast<int64_t>(order.size()));
    for (size_t i = 0; i < order.size(); ++i)
      if (order[i] < n) place[order[i]] = static_cast<int64_t>(i);
    order_ = at::tensor(order, at::kLong), place_ = at::tensor(place, at::kLong);
  }

  std::vector<int64_t> shape_, counts_;  // counts_: the rows of each kernel's group
  int64_t kernels_, filled_ = 0;         // filled_: the rows of each group including zeros; 0: groups are not padded
  at::Tensor order_, place_, rows_;
  Tiles tiles_;
};

void check(const Array& x, const Array& kernels, const Array& sizes) {
  check_integers("ragged_dot", sizes, "sizes");
  const bool fits = x.ndim() >= 2 && kernels.ndim() == 3 && sizes.ndim() == x.ndim() - 1 &&
                    x.shape(-1) == kernels.shape(1) && sizes.shape(-1) == kernels.shape(0);
  if (!fits)
    fail(ErrorKind::shape_mismatch, "ragged_dot",
         "given {}, kernels {} and sizes {}, expected (..., rows, in), (groups, in, out) and (..., groups).",
         x.type_string(), kernels.type_string(), sizes.type_string());
}

void check_biases(const Array& up, const RaggedMlpOptions& options) {
  if (options.gate_bias.is_absent() && options.up_bias.is_absent()) return;
  for (const Array* bias : {&options.gate_bias, &options.up_bias})
    if (bias->is_absent() || bias->shape() != Shape{up.shape(0), up.shape(2)})
      fail(ErrorKind::shape_mismatch, "ragged_mlp",
           "gate_bias or up_bias {} for up {}, expected (groups, hidden) twice.",
           bias->is_absent() ? "absent" : bias->type_string(), up.type_string());
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, double limit, double alpha) {
  if (limit == 0) return at::silu(gate) * up;
  const at::Tensor g = at::clamp_max(gate, limit);
  return (at::clamp(up, -limit, limit) + 1) * g * at::sigmoid(g * alpha);
}

}  // namespace

Array ragged_dot(Operand x, const Array& kernels, const Array& sizes) {
  check(x.array(), kernels, sizes);
  const DType dtype = promote(x.array().dtype(), kernels.dtype());
  const Array a = astype(x, dtype), w = astype(kernels, dtype);
  return run({.operation = ragged_dot_op, .where = x.where()}, {&a, &w, &sizes},
             [](Locals t, const BlockContext& block) {
               const SortedRows sorted(t[0], t[2], block.offset("group"), {t[1]});
               return sorted.restored(sorted.product(sorted.rows(), t[1]));
             });
}

Array ragged_mlp(Operand x, const Array& gate, const Array& up, const Array& down, const Array& sizes,
                 const RaggedMlpOptions& options) {
  for (const Array* kernels : {&gate, &up}) check(x.array(), *kernels, sizes);
  if (down.ndim() != 3 || down.shape(0) != up.shape(0) || down.shape(1) != up.shape(2) || gate.shape() != up.shape())
    fail(ErrorKind::shape_mismatch, "ragged_mlp",
         "gate {}, up {} and down {} given, expected (groups, in, hidden) twice and (groups, hidden, out).",
         gate.type_string(), up.type_string(), down.type_string());
  check_biases(up, options);
  const bool has_biases = !options.up_bias.is_absent();
  const auto on_block = [&](Locals t, const BlockContext& block) {
    const SortedRows sorted(t[0], t[4], block.offset("group"), {t[1], t[2], t[3]});
    const auto through = [&](int kernels, int bias) {
      const at::Tensor product = sorted.product(sorted.rows(), t[kernels]);
      return has_biases ? sorted.biased(product, t[bias]) : product;
    };
    const at::Tensor hidden = gated(through(1, 5), through(2, 6), options.limit, options.alpha);
    return sorted.restored(sorted.product(hidden, t[3]));
  };
  const CallSite site{.operation = ragged_mlp_op, .where = x.where()};
  if (!has_biases) return run(site, {&x.array(), &gate, &up, &down, &sizes}, on_block);
  return run(site, {&x.array(), &gate, &up, &down, &sizes, &options.gate_bias, &options.up_bias}, on_block);
}

}  // namespace tessera
