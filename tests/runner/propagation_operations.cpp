// The operations of propagation_ops.py in terms of this library, by name.
#include <cmath>

#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/runner/propagation.h"

namespace tessera::runner {
namespace {

using Bodies = std::map<std::string, Body>;

// A function of the call c that returns the expression.
#define RESULTS(...) [](const Call& c) -> Results { return __VA_ARGS__; }

ResultOptions placed(const Call& c) { return {.out_sharding = c.out()}; }

Array constrained(const Call& c, const Array& x) { return c.out() ? with_sharding_constraint(x, *c.out()) : x; }

Dims dims_of(const Json& list) {
  Dims dims;
  for (const Json& dim : list.as_array()) dims.push_back(dim.to_number<int>());
  return dims;
}

std::pair<Dims, Dims> pair_of(const Json& lists) { return {dims_of(lists.at(0)), dims_of(lists.at(1))}; }

const Bodies elementwise{
    {"neg", RESULTS(-c[0])},
    {"exp", RESULTS(exp(c[0]))},
    {"tanh", RESULTS(tanh(c[0]))},
    {"sigmoid", RESULTS(sigmoid(c[0]))},
    {"relu", RESULTS(relu(c[0]))},
    {"silu", RESULTS(silu(c[0]))},
    {"square", RESULTS(square(c[0]))},
    {"gelu_tanh", RESULTS(gelu(c[0]))},
    {"gelu_erf", RESULTS(gelu(c[0], false))},
    {"rsqrt_1p_sq", RESULTS(rsqrt(1.0 + c[0] * c[0]))},
    {"stop_gradient", RESULTS(stop_gradient(c[0]))},
    {"cast", RESULTS(astype(c[0], dtype_of(c.text("dtype")).value()))},
    {"add_scalar", RESULTS(c[0] + c.term("value"))},
    {"mul_scalar", RESULTS(c[0] * c.term("value"))},
    {"add", RESULTS(c[0] + c[1])},
    {"sub", RESULTS(c[0] - c[1])},
    {"mul", RESULTS(c[0] * c[1])},
    {"div", RESULTS(c[0] / c[1])},
    {"fma", RESULTS(c[0] * c[1] + c[2])},
    {"lerp", RESULTS(c[0] + (c[1] - c[0]) * c.number("t"))},
    {"abs", RESULTS(abs(c[0]))},
    {"sin", RESULTS(sin(c[0]))},
    {"cos", RESULTS(cos(c[0]))},
    {"erf", RESULTS(erf(c[0]))},
    {"sign", RESULTS(sign(c[0]))},
    {"softplus", RESULTS(softplus(c[0]))},
    {"log1p_abs", RESULTS(log1p(abs(c[0])))},
    {"sqrt_abs", RESULTS(sqrt(abs(c[0])))},
    {"isfinite", RESULTS(isfinite(c[0]))},
    {"two_sin_plus_one", RESULTS(2 * sin(c[0]) + 1)},
    {"clip",
     [](const Call& c) -> Results {
       if (!c.has("min")) return minimum(c[0], c.term("max"));
       if (!c.has("max")) return maximum(c[0], c.term("min"));
       return clip(c[0], c.term("min"), c.term("max"));
     }},
    {"maximum", RESULTS(maximum(c[0], c[1]))},
    {"minimum", RESULTS(minimum(c[0], c[1]))},
    {"greater", RESULTS(c[0] > c[1])},
    {"equal", RESULTS(equal(c[0], c[1]))},
    {"logical_and", RESULTS(logical_and(c[0], c[1]))},
    {"where", RESULTS(where(c[0], c[1], c[2]))},
    {"where_scalar", RESULTS(where(c[0], c[1], c.term("value")))},
};

const Bodies contractions{
    {"matmul", RESULTS(matmul(c[0], c[1], placed(c)))},
    {"einsum", RESULTS(einsum(c.text("subscripts"), c.inputs(), placed(c)))},
    {"dot_general",
     RESULTS(dot_general(c[0], c[1], {.contract = pair_of(c.json("contract")), .batch = pair_of(c.json("batch"))},
                         placed(c)))},
    {"linear", RESULTS(matmul(c[0], c[1], placed(c)) + c[2])},
    {"sigmoid_layer", RESULTS(sigmoid(matmul(c[0], c[1], placed(c)) + c[2]))},
    {"mlp", RESULTS(matmul(gelu(matmul(c[0], c[1])), c[2], placed(c)))},
    {"swiglu", RESULTS(matmul(silu(matmul(c[0], c[1])) * matmul(c[0], c[2]), c[3], placed(c)))},
};

const Bodies reductions{
    {"sum", RESULTS(sum(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"mean", RESULTS(mean(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"max", RESULTS(max(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"min", RESULTS(min(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"prod", RESULTS(prod(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"var", RESULTS(var(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"std", RESULTS(tessera::std(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"any", RESULTS(any(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"all", RESULTS(all(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"logsumexp", RESULTS(logsumexp(c[0], c.dims("axis"), c.flag("keepdims")))},
    {"argmax", RESULTS(argmax(c[0], c.optional_dim("axis"), c.flag("keepdims")))},
    {"argmin", RESULTS(argmin(c[0], c.optional_dim("axis"), c.flag("keepdims")))},
    {"l2norm", RESULTS(norm(c[0], c.dims("axis")))},
    {"sum_out_sharding", RESULTS(constrained(c, sum(c[0], c.dims("axes"))))},
};

const Bodies shapes{
    {"transpose", RESULTS(transpose(c[0], c.dims("perm")))},
    {"split_heads",
     [](const Call& c) -> Results {
       const Array& x = c[0];
       const int64_t heads = c.integer("heads");
       return transpose(reshape(x, {x.shape(0), x.shape(1), heads, x.shape(2) / heads}), {0, 2, 1, 3});
     }},
    {"merge_heads", RESULTS(reshape(transpose(c[0], {0, 2, 1, 3}), {c[0].shape(0), c[0].shape(2), -1}))},
    {"reshape", RESULTS(reshape(c[0], c.integers("shape"), placed(c)))},
    {"flatten", RESULTS(ravel(c[0]))},
    {"squeeze", RESULTS(squeeze(c[0], c.dims("axis")))},
    {"expand_dims", RESULTS(expand_dims(c[0], c.dims("axis")))},
    {"broadcast_to", RESULTS(broadcast_to(c[0], c.integers("shape"), placed(c)))},
    {"broadcast_in_dim", RESULTS(broadcast_in_dim(c[0], c.integers("shape"), c.dims("dims"), placed(c)))},
    {"repeat",
     [](const Call& c) -> Results {
       if (!c.has("axis")) return repeat(ravel(c[0]), c.integer("repeats"), 0, placed(c));
       return repeat(c[0], c.integer("repeats"), c.dim("axis"), placed(c));
     }},
};

const Bodies slices{
    {"concatenate", RESULTS(concatenate(c.inputs(), c.dim("axis")))},
    {"stack", RESULTS(stack(c.inputs(), c.dim("axis")))},
    {"split",
     [](const Call& c) -> Results {
       if (c.json("sections").is_array()) return split(c[0], c.integers("sections"), c.dim("axis"));
       return split(c[0], c.integer("sections"), c.dim("axis"));
     }},
    {"pad", RESULTS(pad(c[0], c.pairs("width", c[0].ndim())))},
    {"flip", RESULTS(flip(c[0], c.dims("axis")))},
    {"roll", RESULTS(c.has("axis") ? roll(c[0], c.integer("shift"), c.dim("axis")) : roll(c[0], c.integer("shift")))},
    {"tile", RESULTS(tile(c[0], c.integers("reps")))},
    {"slice", RESULTS(slice(c[0], c.integers("start"), c.integers("limit"), c.integers("strides")))},
    {"index", RESULTS(index_in_dim(c[0], c.integer("index"), c.dim("axis"), false))},
    {"getitem_int", RESULTS(c[0].index({c.integer("index")}))},
    {"getitem_slice", RESULTS(c[0].index({range(c.optional_integer("start"), c.optional_integer("stop"))}))},
    {"at_get", RESULTS(constrained(c, c[0].index({c.integer("index")})))},
    {"dynamic_slice", RESULTS(dynamic_slice(c[0], c.integers("start"), c.integers("sizes")))},
    {"dynamic_slice_traced", RESULTS(dynamic_slice(c[0], c[1], c.integers("sizes")))},
    {"dynamic_index", RESULTS(dynamic_index_in_dim(c[0], c.integer("index"), c.dim("axis"), false))},
    {"dynamic_update_slice", RESULTS(dynamic_update_slice(c[0], c[1], c.integers("start")))},
    {"tril", RESULTS(tril(c[0]))},
};

const Bodies lookups{
    {"take", RESULTS(take(c[0], c[1], c.optional_dim("axis")))},
    {"embedding", RESULTS(embedding(c[0], c[1], placed(c)))},
    {"one_hot", RESULTS(one_hot(c[0], c.integer("classes")))},
    {"one_hot_matmul", RESULTS(embedding(c[0], c[1], placed(c)))},
    {"take_along_axis", RESULTS(take_along_axis(c[0], c[1], c.dim("axis")))},
    {"scatter_add", RESULTS(scatter_add(c[0], c[1], c[2]))},
    {"scatter_set_row", RESULTS(scatter_set(c[0], c.integer("index"), c[1]))},
};

const Bodies orders{
    {"cumsum", RESULTS(c.has("axis") ? cumsum(c[0], c.dim("axis")) : cumsum(ravel(c[0]), 0))},
    {"cumprod", RESULTS(c.has("axis") ? cumprod(c[0], c.dim("axis")) : cumprod(ravel(c[0]), 0))},
    {"sort", RESULTS(sort(c[0], c.dim("axis")))},
    {"argsort", RESULTS(argsort(c[0], c.dim("axis")))},
    {"top_k",
     [](const Call& c) -> Results {
       const TopK best = top_k(c[0], c.dim("k"));
       return std::vector{best.values, best.indices};
     }},
};

const Bodies compositions{
    {"softmax", RESULTS(softmax(c[0], c.dim("axis")))},
    {"log_softmax", RESULTS(log_softmax(c[0], c.dim("axis")))},
    {"layer_norm", RESULTS(c.inputs().size() == 3 ? layer_norm(c[0], c[1], c[2]) : layer_norm(c[0]))},
    {"rms_norm", RESULTS(rms_norm(c[0], c[1], 1e-6))},
    {"cross_entropy", RESULTS(cross_entropy(c[0], c[1]))},
    {"mse", RESULTS(mean(square(c[0] - c[1])))},
    {"attention",
     [](const Call& c) -> Results {
       const auto seq_first = [](const Array& x) { return swapaxes(x, 1, 2); };
       return swapaxes(dot_product_attention(seq_first(c[0]), seq_first(c[1]), seq_first(c[2]), {.causal = true}), 1,
                       2);
     }},
    {"conv2d", RESULTS(conv_general_dilated(c[0], c[1], {1, 1}, "SAME",
                                            {.dimension_numbers = {"NHWC", "HWIO", "NHWC"}, .out_sharding = c.out()}))},
};

const Bodies creations{
    {"zeros", RESULTS(zeros(c.integers("shape"), {.dtype = float32, .out_sharding = c.sharding()}))},
    {"full",
     [](const Call& c) -> Results {
       const DType dtype = c.json("value").is_double() ? float32 : int32;
       return full(c.integers("shape"), c.number("value"), {.dtype = dtype, .out_sharding = c.sharding()});
     }},
    {"arange", RESULTS(arange(Number(c.integer("n")), {.dtype = float32, .out_sharding = c.sharding()}))},
    {"iota", RESULTS(broadcasted_iota(int32, c.integers("shape"), c.dim("axis"), c.sharding()))},
    {"zeros_like", RESULTS(zeros_like(c[0]))},
    {"ones_like_mul", RESULTS(ones_like(c[0]) * c[0])},
    {"random_normal", RESULTS(device_put(normal(Key(c.integer("seed")), c.integers("shape")), c.sharding()))},
    {"reshard", RESULTS(constrained(c, c[0]))},
    {"constraint", RESULTS(constrained(c, c[0]))},
};

}  // namespace

const std::map<std::string, Body>& propagation_operations() {
  static const Bodies all = [] {
    Bodies all;
    for (const Bodies* table :
         {&elementwise, &contractions, &reductions, &shapes, &slices, &lookups, &orders, &compositions, &creations})
      all.insert(table->begin(), table->end());
    return all;
  }();
  return all;
}

}  // namespace tessera::runner
