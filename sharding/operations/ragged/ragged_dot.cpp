// Rows sorted by group, one product for each group, and the rows put back.
#include "sharding/operations/ragged/ragged_dot.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <vector>

#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/ragged/ragged_tiles.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

// The dims of a batch of matrices x, but for its last two, and these.
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
  return {{with({whole("rows"), whole("in")}),
           first,
           first,
           {factor("group"), factor("hidden"), factor("out")},
           with({whole("sizes")})},
          {with({whole("rows"), factor("out")})}};
}

const Operation ragged_dot_op{"ragged_dot", ragged_dot_rule, Linearity::multilinear};
const Operation ragged_mlp_op{"ragged_mlp", ragged_mlp_rule, Linearity::nonlinear};

// Of all rows; there may be none, and none may have an element.
at::Tensor stacked_rows(const at::Tensor& x) {
  return x.reshape({c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), x.size(-1)});
}

// Which rows, of all matrices of a batch one below the other, are in each group; the last has those that are in none.
std::vector<std::vector<int64_t>> rows_by_group(const at::Tensor& sizes, int64_t rows) {
  const int64_t groups = sizes.size(-1);
  const at::Tensor table = stacked_rows(sizes).to(at::kCPU, at::kLong).contiguous();
  std::vector<std::vector<int64_t>> found(groups + 1);
  for (int64_t b = 0; b < table.size(0); ++b) {
    const int64_t* of = table.const_data_ptr<int64_t>() + b * groups;
    int64_t row = 0;
    for (int64_t g = 0; g < groups; ++g) {
      if (of[g] < 0 || of[g] > rows - row)
        fail(ErrorKind::invalid_argument, "ragged_dot",
             "size {} of group {} behind {} of {} rows, expected 0 or more, and no more than there are in all.", of[g],
             g, row, rows);
      for (const int64_t end = row + of[g]; row < end; ++row) found[g].push_back(b * rows + row);
    }
    for (; row < rows; ++row) found[groups].push_back(b * rows + row);
  }
  return found;
}

// The rows of all matrices of a batch, sorted by group, of the groups from `first` on that have a kernel here. Where
// they have about as many, each is filled up with zeros to as many as the largest has, and all products are one; else
// there is one for each. Without data each has as many. On an accelerator that has the kernels of all groups they lie
// in tiles, of a number that does not depend on the sizes. The product of all other rows is zeros.
class SortedRows {
 public:
  SortedRows(const at::Tensor& x, const at::Tensor& sizes, int64_t first, int64_t kernels)
      : shape_(x.sizes().vec()), kernels_(kernels) {
    const at::Tensor rows = stacked_rows(x);
    const int64_t n = rows.size(0);
    if (x.is_meta()) {
      filled_ = std::max<int64_t>(1, n / std::max<int64_t>(1, sizes.size(-1)));
      const auto ids = [&](int64_t count) { return rows.new_empty({count}, rows.options().dtype(at::kLong)); };
      order_ = ids(kernels * filled_), place_ = ids(n);
    } else if (x.is_cpu() || kernels < sizes.size(-1)) {
      sort(rows_by_group(sizes, x.size(-2)), n, first);
      order_ = order_.to(x.device()), place_ = place_.to(x.device());
    } else {
      tiles_ = tiles_of(stacked_rows(sizes), x.size(-2), first, kernels);
      order_ = tiles_.order, place_ = tiles_.place;
    }
    rows_ = with_zeros(rows).index_select(0, order_);
  }

  const at::Tensor& rows() const { return rows_; }

  // Of sorted rows: each by its group's kernel.
  at::Tensor product(const at::Tensor& rows, const at::Tensor& kernels) const {
    if (kernels_ == 0) return at::matmul(rows, kernels.new_zeros({kernels.size(1), kernels.size(2)}));
    if (tiles_.groups.defined()) return product_of_tiles(tiles_, rows, kernels);
    if (filled_ > 0) return at::bmm(rows.view({kernels_, filled_, rows.size(1)}), kernels).flatten(0, 1);
    const std::vector<at::Tensor> parts = rows.split_with_sizes(counts_), kernel = kernels.unbind(0);
    std::vector<at::Tensor> products;
    for (int64_t g = 0; g < kernels_; ++g)
      if (counts_[g] > 0) products.push_back(at::matmul(parts[g], kernel[g]));
    if (products.empty()) products.push_back(at::matmul(rows.narrow(0, 0, 0), kernel[0]));  // for the gradients' sake
    return at::cat(products, 0);
  }

  // Sorted rows in their places.
  at::Tensor restored(const at::Tensor& rows) const {
    std::vector<int64_t> shape = shape_;
    shape.back() = rows.size(1);
    return with_zeros(rows).index_select(0, place_).reshape(shape);
  }

 private:
  // One row more, of zeros, for those that are none of these.
  static at::Tensor with_zeros(const at::Tensor& rows) { return at::cat({rows, rows.new_zeros({1, rows.size(1)})}, 0); }

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
  int64_t kernels_, filled_ = 0;         // filled_: the rows of each, with zeros; 0: they lie one behind the other
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

}  // namespace

Array ragged_dot(Operand x, const Array& kernels, const Array& sizes) {
  check(x.array(), kernels, sizes);
  const DType dtype = promote(x.array().dtype(), kernels.dtype());
  const Array a = astype(x, dtype), w = astype(kernels, dtype);
  return run({.operation = ragged_dot_op, .where = x.where()}, {&a, &w, &sizes},
             [](Locals t, const BlockContext& block) {
               const SortedRows sorted(t[0], t[2], block.offset("group"), t[1].size(0));
               return sorted.restored(sorted.product(sorted.rows(), t[1]));
             });
}

Array ragged_mlp(Operand x, const Array& gate, const Array& up, const Array& down, const Array& sizes) {
  for (const Array* kernels : {&gate, &up}) check(x.array(), *kernels, sizes);
  if (down.ndim() != 3 || down.shape(0) != up.shape(0) || down.shape(1) != up.shape(2) || gate.shape() != up.shape())
    fail(ErrorKind::shape_mismatch, "ragged_mlp",
         "gate {}, up {} and down {} given, expected (groups, in, hidden) twice and (groups, hidden, out).",
         gate.type_string(), up.type_string(), down.type_string());
  return run({.operation = ragged_mlp_op, .where = x.where()}, {&x.array(), &gate, &up, &down, &sizes},
             [](Locals t, const BlockContext& block) {
               const SortedRows sorted(t[0], t[4], block.offset("group"), t[1].size(0));
               const at::Tensor gates = at::silu(sorted.product(sorted.rows(), t[1]));
               return sorted.restored(sorted.product(gates * sorted.product(sorted.rows(), t[2]), t[3]));
             });
}

}  // namespace tessera
