// Reductions that devices finish by collectives other than a sum: extremes and their indices, products, any and all.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>

#include "sharding/array/padding.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reduction_dims.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera {

using namespace detail;

namespace {

const Operation max_op{"max", inside_rule, Linearity::nonlinear, Padded::lowest};
const Operation min_op{"min", inside_rule, Linearity::nonlinear, Padded::highest};
const Operation prod_op{"prod", inside_rule, Linearity::nonlinear, Padded::ones};
const Operation any_op{"any", inside_rule, Linearity::nonlinear, Padded::zeros};
const Operation all_op{"all", inside_rule, Linearity::nonlinear, Padded::ones};
const Operation argmax_op{"argmax", inside_rule, Linearity::nonlinear, Padded::lowest};
const Operation argmin_op{"argmin", inside_rule, Linearity::nonlinear, Padded::highest};

// ---- max, min, any, all

using Kernel = at::Tensor (*)(const at::Tensor&, at::IntArrayRef dims, bool keepdims);

// The collective that finishes the devices' results, and whether elements equal to the result share its gradient.
struct Extreme {
  const Operation& operation;
  Kernel kernel;
  Collective collective;
  bool has_gradient;
};

// The operand of a reduction as all slots read it, with the fill value in its padding.
struct Filled {
  const Type* type;
  AxisSet slots;
  Tensors local;
};

// Distributes the result's gradient: each element that equals the result gets an equal share, on every device. Padding
// gets no share: the extreme of the real elements may equal the fill value.
Tensors shared_among_ties(const ShardedReduction& reduction, const Reduction& r, const Filled& x,
                          const Tensors& extremes, const Tensors& gradients) {
  const Tensors ties = for_each(x.local, extremes, [&](const at::Tensor& t, const at::Tensor& e) {
    return t.eq(with_dims(e, r)).to(t.scalar_type());
  });
  clear_padding(x.type, x.slots, ties);
  const Tensors counts =
      reduction.combine(for_each(widened(ties), [&](const at::Tensor& t) { return at::sum(t, r.dims, r.keepdims); }),
                        Collective::all_reduce,
                        /*in_backward_pass=*/true);
  const Tensors parts =
      for_each(gradients, counts, [&](const at::Tensor& g, const at::Tensor& n) { return with_dims(g / n, r); });
  return for_each(ties, parts, [](const at::Tensor& t, const at::Tensor& g) { return (t * g).to(t.scalar_type()); });
}

Across extreme_across(const Extreme& extreme, const Prepared& call, const ShardedReduction& reduction,
                      const Reduction& r) {
  const Filled x{call.array[0]->type, call.plan->slots, locals(call, 0)};
  const Tensors results =
      reduction.combine(for_each(x.local, [&](const at::Tensor& t) { return extreme.kernel(t, r.dims, r.keepdims); }),
                        extreme.collective);
  if (!extreme.has_gradient) return {results};
  return {results, [=](const Tensors& gradients) { return shared_among_ties(reduction, r, x, results, gradients); }};
}

Array reduced(const Extreme& extreme, const Operand& x, const Reduction& r, DType out) {
  return reduce_inside(
      extreme.operation, x, r, [&](const at::Tensor& t) { return extreme.kernel(t, r.dims, r.keepdims); },
      [&](const Prepared& call, const ShardedReduction& reduction) {
        return extreme_across(extreme, call, reduction, r);
      },
      out);
}

at::Tensor any_of(const at::Tensor& t, at::IntArrayRef dims, bool keepdims) {
  return at::any(t.ne(0), at::OptionalIntArrayRef(dims), keepdims);
}

at::Tensor all_of(const at::Tensor& t, at::IntArrayRef dims, bool keepdims) {
  return at::all(t.ne(0), at::OptionalIntArrayRef(dims), keepdims);
}

}  // namespace

Array max(Operand x, Dims dims, bool keepdims) {
  const Reduction r = nonempty_reduction("max", x.array(), dims, keepdims);
  return reduced({max_op, at::amax, Collective::all_reduce_max, true}, x, r, x.array().dtype());
}

Array min(Operand x, Dims dims, bool keepdims) {
  const Reduction r = nonempty_reduction("min", x.array(), dims, keepdims);
  return reduced({min_op, at::amin, Collective::all_reduce_min, true}, x, r, x.array().dtype());
}

Array any(Operand x, Dims dims, bool keepdims) {
  const Reduction r = checked_reduction("any", x.array(), dims, keepdims);
  return reduced({any_op, any_of, Collective::all_reduce_max, false}, x, r, boolean);
}

Array all(Operand x, Dims dims, bool keepdims) {
  const Reduction r = checked_reduction("all", x.array(), dims, keepdims);
  return reduced({all_op, all_of, Collective::all_reduce_min, false}, x, r, boolean);
}

// ---- products

namespace {

// Reduces one dimension after another, from the last one, so that the indices of the other dimensions stay valid.
at::Tensor product_of(at::Tensor t, at::IntArrayRef dims, bool keepdims, at::ScalarType type) {
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) t = at::prod(t, *dim, keepdims, type);
  return t.to(type);
}

// Returns the index of each slot in its group.
std::vector<int> places_in_groups(const ShardedReduction& reduction, size_t slots) {
  std::vector<int> places(slots);
  const GroupProcesses& members = reduction.step->processes;
  for (const Group& group : reduction.step->groups)
    for (size_t k = 0; k < group.in.size(); ++k)
      places[group.in[k]] = members.processes.empty() ? static_cast<int>(k) : members.numbers[members.self][k];
  return places;
}

// Returns the product of the other devices' products, without a division: there may be zeros.
Tensors products_of_others(const ShardedReduction& reduction, const Tensors& products) {
  const Tensors all =
      reduction.combine(for_each(products, [](const at::Tensor& t) { return t.unsqueeze(0); }), Collective::all_gather,
                        /*in_backward_pass=*/true);
  const std::vector<int> places = places_in_groups(reduction, products.size());
  Tensors others;
  for (size_t s = 0; s < all.size(); ++s) {
    at::Tensor factors = all[s].clone();
    factors.select(0, places[s]).fill_(1);
    others.push_back(at::prod(factors, 0));
  }
  return others;
}

at::Tensor gradient_of_product(const at::Tensor& x, const at::Tensor& gradient, const Reduction& r) {
  const at::AutoGradMode on(true);
  const at::Tensor leaf = make_leaf(x.detach());
  return gradients({product_of(leaf, r.dims, r.keepdims, x.scalar_type())}, {gradient}, {leaf})[0];
}

Across product_across(const Prepared& call, const ShardedReduction& reduction, const Reduction& r,
                      at::ScalarType type) {
  const Tensors x = locals(call, 0);
  const Tensors products = for_each(x, [&](const at::Tensor& t) { return product_of(t, r.dims, r.keepdims, type); });
  return {reduction.combine(products, Collective::all_reduce_product), [=](const Tensors& gradients) {
            const Tensors others = products_of_others(reduction, products);
            Tensors result;
            for (size_t s = 0; s < x.size(); ++s)
              result.push_back(gradient_of_product(x[s], gradients[s] * others[s], r));
            return result;
          }};
}

}  // namespace

Array prod(Operand x, Dims dims, bool keepdims) {
  const Reduction r = checked_reduction("prod", x.array(), dims, keepdims);
  const DType dtype = x.array().dtype(), out = is_floating(dtype) || dtype == int64 ? dtype : int32;
  const auto type = scalar_type(out);
  return reduce_inside(
      prod_op, x, r, [&](const at::Tensor& t) { return product_of(t, r.dims, keepdims, type); },
      [&](const Prepared& call, const ShardedReduction& reduction) { return product_across(call, reduction, r, type); },
      out);
}

// ---- argmax, argmin

namespace {

struct Search {
  const Operation& operation;
  at::Tensor (*index)(const at::Tensor&, std::optional<int64_t> dim, bool keepdim);
  Kernel extreme;
  Collective collective;
};

// Converts booleans, which LibTorch cannot search.
at::Tensor comparable(const at::Tensor& t) { return t.scalar_type() == at::kBool ? t.to(at::kByte) : t; }

// Returns the first index in row-major order over the reduced dimensions, in the shape of the result.
at::Tensor found(const Search& search, const at::Tensor& t, const Reduction& r) {
  if (r.dims.size() == 1) return search.index(t, r.dims[0], r.keepdims);
  const at::Tensor index = search.index(t, std::nullopt, false);
  return r.keepdims ? index.reshape(std::vector<int64_t>(t.dim(), 1)) : index;
}

// Converts an index among this block's elements to one among all elements.
at::Tensor in_the_whole(at::Tensor index, const BlockContext& block, const at::Tensor& local, const Reduction& r) {
  if (index.is_meta()) return index;
  at::Tensor result = at::zeros_like(index);
  int64_t stride = 1;
  for (auto dim = r.dims.rbegin(); dim != r.dims.rend(); ++dim) {
    const int64_t size = local.size(*dim);
    const std::string factor = fmt::format("d{}", *dim);
    result += (at::remainder(index, size) + block.offset(factor)) * stride;
    index = at::floor_divide(index, size);
    stride *= block.size(factor);
  }
  return result;
}

// Combines the devices' best values, and takes the least index of those that have the best.
Across search_across(const Search& search, const Prepared& call, const ShardedReduction& reduction,
                     const Reduction& r) {
  Tensors values, places;
  for (int s = 0; s < call.plan->runs; ++s) {
    const at::Tensor block = comparable(*call.local(0, s));
    values.push_back(search.extreme(block, r.dims, r.keepdims));
    places.push_back(in_the_whole(found(search, block, r), BlockContext(*call.plan, s), block, r).to(at::kInt));
  }
  const Tensors best = reduction.combine(values, search.collective);
  for (size_t s = 0; s < values.size(); ++s)
    places[s].masked_fill_(values[s].ne(best[s]).logical_and_(values[s].isnan().logical_not_()),
                           std::numeric_limits<int32_t>::max());
  return {reduction.combine(places, Collective::all_reduce_min)};
}

Array searched(const Search& search, const Operand& x, std::optional<int> dim, bool keepdims) {
  const Reduction r = nonempty_reduction(search.operation.name, x.array(), dim ? Dims{*dim} : Dims{}, keepdims);
  return reduce_inside(
      search.operation, x, r, [&](const at::Tensor& t) { return found(search, comparable(t), r).to(at::kInt); },
      [&](const Prepared& call, const ShardedReduction& reduction) {
        return search_across(search, call, reduction, r);
      },
      int32);
}

}  // namespace

Array argmax(Operand x, std::optional<int> dim, bool keepdims) {
  return searched({argmax_op, at::argmax, at::amax, Collective::all_reduce_max}, x, dim, keepdims);
}

Array argmin(Operand x, std::optional<int> dim, bool keepdims) {
  return searched({argmin_op, at::argmin, at::amin, Collective::all_reduce_min}, x, dim, keepdims);
}

}  // namespace tessera
