// The operations of the reference's propagation_ops.py over this library, by name.
#include <cmath>

#include "sharding/operations.h"
#include "sharding/random.h"
#include "tests/runner/propagation.h"

namespace tessera::runner {
namespace {

using Table = std::map<std::string, Body>;

ResultOptions placed(const Call& c) {
  if (!c.out()) return {};
  return {.out_sharding = *c.out()};
}

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
    {"cast", [](const Call& c) -> Results { return astype(c[0], *dtype_of(c.text("dtype"))); }},
    {"add_scalar", [](const Call& c) -> Results { return c[0] + c.number("value"); }},
    {"mul_scalar", [](const Call& c) -> Results { return c[0] * c.number("value"); }},
    {"add", [](const Call& c) -> Results { return c[0] + c[1]; }},
    {"sub", [](const Call& c) -> Results { return c[0] - c[1]; }},
    {"mul", [](const Call& c) -> Results { return c[0] * c[1]; }},
    {"div", [](const Call& c) -> Results { return c[0] / c[1]; }},
    {"fma", [](const Call& c) -> Results { return c[0] * c[1] + c[2]; }},
    {"lerp", [](const Call& c) -> Results { return c[0] + (c[1] - c[0]) * c.number("t"); }},
};

const Table contractions{
    {"matmul", [](const Call& c) -> Results { return matmul(c[0], c[1]); }},
};

const Table reductions{
    {"sum", [](const Call& c) -> Results { return sum(c[0], c.dims("axis"), c.flag("keepdims")); }},
    {"mean", [](const Call& c) -> Results { return mean(c[0], c.dims("axis"), c.flag("keepdims")); }},
};

const Table shapes{
    {"transpose", [](const Call& c) -> Results { return transpose(c[0], c.dims("perm")); }},
    {"concatenate", [](const Call& c) -> Results { return concatenate(c.inputs(), c.dim("axis")); }},
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
};

const Table compositions{
    {"softmax", [](const Call& c) -> Results { return softmax(c[0], c.dim("axis")); }},
    {"rms_norm", [](const Call& c) -> Results { return rms_norm(c[0], c[1], 1e-6); }},
    {"cross_entropy", [](const Call& c) -> Results { return cross_entropy(c[0], c[1]); }},
    {"mse", [](const Call& c) -> Results { return mean(square(c[0] - c[1])); }},
};

}  // namespace

const std::map<std::string, Body>& propagation_operations() {
  static const Table all = [] {
    Table all;
    for (const Table* table : {&elementwise, &contractions, &reductions, &shapes, &compositions})
      all.insert(table->begin(), table->end());
    return all;
  }();
  return all;
}

}  // namespace tessera::runner
