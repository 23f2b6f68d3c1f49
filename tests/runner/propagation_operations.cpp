// The operations of the reference's propagation_ops.py over this library, by name.
#include <cmath>

#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/runner/propagation.h"

namespace tessera::runner {
namespace {

using Table = std::map<std::string, Body>;

ResultOptions placed(const Call& c) { return {.out_sharding = c.out()}; }

Array constrained(const Call& c, const Array& x) { return c.out() ? with_sharding_constraint(x, *c.out()) : x; }

Dims dims_of(const Json& list) {
  Dims dims;
  for (const Json& dim : list.as_array()) dims.push_back(dim.to_number<int>());
  return dims;
}

std::pair<Dims, Dims> pair_of(const Json& lists) { return {dims_of(lists.at(0)), dims_of(lists.at(1))}; }

const Table elementwise{
    {"neg", [](const Call& c) -> Results { return -c[0]; }},
    {"exp", [](const Call& c) -> Results { return exp(c[0]); }},
    {"tanh", [](const Call& c) -> Results { return tanh(c[0]); }},
    {"sigmoid", [](const Call& c) -> Results { return sigmoid(c[0]); }},
    {"relu", [](const Call& c) -> Results { return relu(c[0]); }},
    {"silu", [](const Call& c) -> Results { return silu(c[0]); }},
    {"square", [](const Call& c) -> Results { return square(c[0]); }},
    {"gelu_tanh", [](const Call& c) -> Results { return gelu(c[0]); }},
    {"gelu_erf", [](const Call& c) -> Results { return gelu(c[0], false); }},
    {"rsqrt_1p_sq", [](const Call& c) -> Results { return rsqrt(1.0 + c[0] * c[0]); }},
    {"stop_gradient", [](const Call& c) -> Results { return stop_gradient(c[0]); }},
    {"cast", [](const Call& c) -> Results { return astype(c[0], dtype_of(c.text("dtype")).value()); }},
    {"add_scalar", [](const Call& c) -> Results { return c[0] + c.term("value"); }},
    {"mul_scalar", [](const Call& c) -> Results { return c[0] * c.term("value"); }},
    {"add", [](const Call& c) -> Results { return c[0] + c[1]; }},
    {"sub", [](const Call& c) -> Results { return c[0] - c[1]; }},
    {"mul", [](const Call& c) -> Results { return c[0] * c[1]; }},
    {"div", [](const Call& c) -> Results { return c[0] / c[1]; }},
    {"fma", [](const Call& c) -> Results { return c[0] * c[1] + c[2]; }},
    {"lerp", [](const Call& c) -> Results { return c[0] + (c[1] - c[0]) * c.number("t"); }},
    {"abs", [](const Call& c) -> Results { return abs(c[0]); }},
    {"sin", [](const Call& c) -> Results { return sin(c[0]); }},
    {"cos", [](const Call& c) -> Results { return cos(c[0]); }},
    {"erf", [](const Call& c) -> Results { return erf(c[0]); }},
    {"sign", [](const Call& c) -> Results { return sign(c[0]); }},
    {"softplus", [](const Call& c) -> Results { return softplus(c[0]); }},
    {"log1p_abs", [](const Call& c) -> Results { return log1p(abs(c[0])); }},
    {"sqrt_abs", [](const Call& c) -> Results { return sqrt(abs(c[0])); }},
    {"isfinite", [](const Call& c) -> Results { return isfinite(c[0]); }},
    {"two_sin_plus_one", [](const Call& c) -> Results { return 2 * sin(c[0]) + 1; }},
    {"clip",
     [](const Call& c) -> Results {
       if (!c.has("min")) return minimum(c[0], c.term("max"));
       if (!c.has("max")) return maximum(c[0], c.term("min"));
       return clip(c[0], c.term("min"), c.term("max"));
     }},
    {"maximum", [](const Call& c) -> Results { return maximum(c[0], c[1]); }},
    {"minimum", [](const Call& c) -> Results { return minimum(c[0], c[1]); }},
    {"greater", [](const Call& c) -> Results { return c[0] > c[1]; }},
    {"equal", [](const Call& c) -> Results { return equal(c[0], c[1]); }},
    {"logical_and", [](const Call& c) -> Results { return logical_and(c[0], c[1]); }},
    {"where", [](const Call& c) -> Results { return where(c[0], c[1], c[2]); }},
    {"where_scalar", [](const Call& c) -> Results { return where(c[0], c[1], c.term("value")); }},
};

const Table contractions{
    {"matmul", [](const Call& c) -> Results { return matmul(c[0], c[1], placed(c)); }},
    {"einsum", [](const Call& c) -> Results { return einsum(c.text("subscripts"), c.inputs(), placed(c)); }},
    {"dot_general",
     [](const Call& c) -> Results {
       return dot_general(c[0], c[1], {.contract = pair_of(c.json("contract")), .batch = pair_of(c.json("batch"))},
                          placed(c));
     }},
    {"linear", [](const Call& c) -> Results { return matmul(c[0], c[1], placed(c)) + c[2]; }},
    {"sigmoid_layer", [](const Call& c) -> Results { return sigmoid(matmul(c[0], c[1], placed(c)) + c[2]); }},
    {"mlp", [](const Call& c) -> Results { return matmul(gelu(matmul(c[0], c[1])), c[2], placed(c)); }},
    {"swiglu",
     [](const Call& c) -> Results { return matmul(silu(matmul(c[0], c[1])) * matmul(c[0], c[2]), c[3], placed(c)); }},
};

const Table reductions{
    {"sum", [](const Call& c) -> Results { return sum(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"mean", [](const Call& c) -> Results { return mean(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"max", [](const Call& c) -> Results { return max(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"min", [](const Call& c) -> Results { return min(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"prod", [](const Call& c) -> Results { return prod(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"var", [](const Call& c) -> Results { return var(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"std", [](const Call& c) -> Results { return tessera::std(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"any", [](const Call& c) -> Results { return any(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"all", [](const Call& c) -> Results { return all(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"logsumexp", [](const Call& c) -> Results { return logsumexp(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"argmax", [](const Call& c) -> Results { return argmax(c[0], c.optional_dim("axis"), c.flag("keepdims")); }},
    {"argmin", [](const Call& c) -> Results { return argmin(c[0], c.optional_dim("axis"), c.flag("keepdims")); }},
    {"l2norm", [](const Call& c) -> Results { return norm(c[0], c.dims("axis")); }},
    {"sum_out_sharding", [](const Call& c) -> Results { return constrained(c, sum(c[0], c.dims("axes"))); }},
};

const Table shapes{
    {"transpose", [](const Call& c) -> Results { return transpose(c[0], c.dims("perm")); }},
    {"split_heads",
     [](const Call& c) -> Results {
       const Array& x = c[0];
       const int64_t heads = c.integer("heads");
       return transpose(reshape(x, {x.shape(0), x.shape(1), heads, x.shape(2) / heads}), {0, 2, 1, 3});
     }},
    {"merge_heads",
     [](const Call& c) -> Results {
       return reshape(transpose(c[0], {0, 2, 1, 3}), {c[0].shape(0), c[0].shape(2), -1});
     }},
    {"reshape", [](const Call& c) -> Results { return reshape(c[0], c.integers("shape"), placed(c)); }},
    {"flatten", [](const Call& c) -> Results { return ravel(c[0]); }},
    {"squeeze", [](const Call& c) -> Results { return squeeze(c[0], c.dims("axis")); }},
    {"expand_dims", [](const Call& c) -> Results { return expand_dims(c[0], c.dims("axis")); }},
    {"broadcast_to", [](const Call& c) -> Results { return broadcast_to(c[0], c.integers("shape"), placed(c)); }},
    {"broadcast_in_dim",
     [](const Call& c) -> Results { return broadcast_in_dim(c[0], c.integers("shape"), c.dims("dims"), placed(c)); }},
    {"repeat",
     [](const Call& c) -> Results {
       if (!c.has("axis")) return repeat(ravel(c[0]), c.integer("repeats"), 0, placed(c));
       return repeat(c[0], c.integer("repeats"), c.dim("axis"), placed(c));
     }},
};

const Table slices{
    {"concatenate", [](const Call& c) -> Results { return concatenate(c.inputs(), c.dim("axis")); }},
    {"stack", [](const Call& c) -> Results { return stack(c.inputs(), c.dim("axis")); }},
    {"split",
     [](const Call& c) -> Results {
       if (c.json("sections").is_array()) return split(c[0], c.integers("sections"), c.dim("axis"));
       return split(c[0], c.integer("sections"), c.dim("axis"));
     }},
    {"pad", [](const Call& c) -> Results { return pad(c[0], c.pairs("width", c[0].ndim())); }},
    {"flip", [](const Call& c) -> Results { return flip(c[0], c.dims("axis")); }},
    {"roll",
     [](const Call& c) -> Results {
       return c.has("axis") ? roll(c[0], c.integer("shift"), c.dim("axis")) : roll(c[0], c.integer("shift"));
     }},
    {"tile", [](const Call& c) -> Results { return tile(c[0], c.integers("reps")); }},
    {"slice",
     [](const Call& c) -> Results {
       return slice(c[0], c.integers("start"), c.integers("limit"), c.integers("strides"));
     }},
    {"index", [](const Call& c) -> Results { return index_in_dim(c[0], c.integer("index"), c.dim("axis"), false); }},
    {"getitem_int", [](const Call& c) -> Results { return c[0].at(c.integer("index")); }},
    {"getitem_slice",
     [](const Call& c) -> Results { return c[0].at(range(c.optional_integer("start"), c.optional_integer("stop"))); }},
    {"at_get", [](const Call& c) -> Results { return constrained(c, c[0].at(c.integer("index"))); }},
    {"dynamic_slice",
     [](const Call& c) -> Results { return dynamic_slice(c[0], c.integers("start"), c.integers("sizes")); }},
    {"dynamic_slice_traced", [](const Call& c) -> Results { return dynamic_slice(c[0], c[1], c.integers("sizes")); }},
    {"dynamic_index",
     [](const Call& c) -> Results { return dynamic_index_in_dim(c[0], c.integer("index"), c.dim("axis"), false); }},
    {"dynamic_update_slice",
     [](const Call& c) -> Results { return dynamic_update_slice(c[0], c[1], c.integers("start")); }},
    {"tril", [](const Call& c) -> Results { return tril(c[0]); }},
};

const Table lookups{
    {"take", [](const Call& c) -> Results { return take(c[0], c[1], c.optional_dim("axis")); }},
    {"embedding", [](const Call& c) -> Results { return embedding(c[0], c[1], placed(c)); }},
    {"one_hot", [](const Call& c) -> Results { return one_hot(c[0], c.integer("classes")); }},
    {"one_hot_matmul", [](const Call& c) -> Results { return embedding(c[0], c[1], placed(c)); }},
    {"take_along_axis", [](const Call& c) -> Results { return take_along_axis(c[0], c[1], c.dim("axis")); }},
    {"scatter_add", [](const Call& c) -> Results { return scatter_add(c[0], c[1], c[2]); }},
    {"scatter_set_row", [](const Call& c) -> Results { return scatter_set(c[0], c.integer("index"), c[1]); }},
};

const Table orders{
    {"cumsum",
     [](const Call& c) -> Results { return c.has("axis") ? cumsum(c[0], c.dim("axis")) : cumsum(ravel(c[0]), 0); }},
    {"cumprod",
     [](const Call& c) -> Results { return c.has("axis") ? cumprod(c[0], c.dim("axis")) : cumprod(ravel(c[0]), 0); }},
    {"sort", [](const Call& c) -> Results { return sort(c[0], c.dim("axis")); }},
    {"argsort", [](const Call& c) -> Results { return argsort(c[0], c.dim("axis")); }},
    {"top_k",
     [](const Call& c) -> Results {
       const TopK best = top_k(c[0], c.dim("k"));
       return std::vector{best.values, best.indices};
     }},
};

const Table compositions{
    {"softmax", [](const Call& c) -> Results { return softmax(c[0], c.dim("axis")); }},
    {"log_softmax", [](const Call& c) -> Results { return log_softmax(c[0], c.dim("axis")); }},
    {"layer_norm",
     [](const Call& c) -> Results { return c.inputs().size() == 3 ? layer_norm(c[0], c[1], c[2]) : layer_norm(c[0]); }},
    {"rms_norm", [](const Call& c) -> Results { return rms_norm(c[0], c[1], 1e-6); }},
    {"cross_entropy", [](const Call& c) -> Results { return cross_entropy(c[0], c[1]); }},
    {"mse", [](const Call& c) -> Results { return mean(square(c[0] - c[1])); }},
    {"attention",
     [](const Call& c) -> Results {
       const auto seq_first = [](const Array& x) { return swapaxes(x, 1, 2); };
       return swapaxes(dot_product_attention(seq_first(c[0]), seq_first(c[1]), seq_first(c[2]), {.causal = true}), 1,
                       2);
     }},
    {"conv2d",
     [](const Call& c) -> Results {
       return conv_general_dilated(c[0], c[1], {1, 1}, "SAME",
                                   {.dimension_numbers = {"NHWC", "HWIO", "NHWC"}, .out_sharding = c.out()});
     }},
};

const Table creations{
    {"zeros",
     [](const Call& c) -> Results {
       return zeros(c.integers("shape"), {.dtype = float32, .out_sharding = c.sharding()});
     }},
    {"full",
     [](const Call& c) -> Results {
       const DType dtype = c.json("value").is_double() ? float32 : int32;
       return full(c.integers("shape"), c.number("value"), {.dtype = dtype, .out_sharding = c.sharding()});
     }},
    {"arange",
     [](const Call& c) -> Results {
       return arange(Number(c.integer("n")), {.dtype = float32, .out_sharding = c.sharding()});
     }},
    {"iota",
     [](const Call& c) -> Results {
       return broadcasted_iota(int32, c.integers("shape"), c.dim("axis"), c.sharding());
     }},
    {"zeros_like", [](const Call& c) -> Results { return zeros_like(c[0]); }},
    {"ones_like_mul", [](const Call& c) -> Results { return ones_like(c[0]) * c[0]; }},
    {"random_normal",
     [](const Call& c) -> Results {
       return device_put(normal(Key(c.integer("seed")), c.integers("shape")), c.sharding());
     }},
    {"reshard", [](const Call& c) -> Results { return constrained(c, c[0]); }},
    {"constraint", [](const Call& c) -> Results { return constrained(c, c[0]); }},
};

}  // namespace

const std::map<std::string, Body>& propagation_operations() {
  static const Table all = [] {
    Table all;
    for (const Table* table :
         {&elementwise, &contractions, &reductions, &shapes, &slices, &lookups, &orders, &compositions, &creations})
      all.insert(table->begin(), table->end());
    return all;
  }();
  return all;
}

}  // namespace tessera::runner
