// DetectNonFinite: finds values planted in each kind of layer, forward and backward, with their operation and line.
#include "sharding/accounting/finite_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "nn/layers.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations.h"
#include "sharding/base/caller.h"
#include "sharding/operations.h"
#include "sharding/placement.h"
#include "sharding/random.h"
#include "sharding/shard_map.h"
#include "tests/sharding/expect_error.h"

namespace tessera::nn::finite_check_test {
namespace {

using tessera::testing::error_of;

// Returns x with one element replaced.
Array with_value(const Array& x, double value, int64_t place = 0) {
  return where(equal(reshape(arange(x.size()), x.shape()), place), value, x);
}
Array with_nan(const Array& x) { return with_value(x, NAN); }

template <class Layer>
struct Net {
  Layer layer;
};
template <class Layer>
Net<Layer> placed(Layer layer, const MeshRules& mesh_rules) {
  return filter_shard(Net<Layer>{std::move(layer)}, mesh_rules);
}

// Shards the rows of x over "data".
Array rows_on(const MeshRules& mesh_rules, const Array& x) {
  return device_put(x, NamedSharding(mesh_rules.mesh(), P{"data"}));
}
Array rows_of(const MeshRules& mesh_rules, Shape shape) {
  return rows_on(mesh_rules, normal(Key(1), std::move(shape)));
}
Array ones_of(const MeshRules& mesh_rules, Shape shape, double value = 1, DType dtype = float32) {
  return rows_on(mesh_rules, full(std::move(shape), value, {.dtype = dtype}));
}

Array half_weights(const MeshRules& mesh_rules) {
  return device_put(full({4}, 1e-4, {.dtype = float16}), NamedSharding(mesh_rules.mesh(), P{}));
}

// Computes the gradient of sum(f(x)).
template <class F>
void differentiate(const F& f, const Array& x) {
  value_and_grad([&](const Array& rows) { return sum(f(rows)); })(x);
}

const Axis in{"in", 4}, out{"out", 4};

struct Planted {
  std::string name, operation, words, line;
  // Makes the arrays, and returns the call that fails.
  std::function<std::function<void()>(const MeshRules&)> plant;
};

void PrintTo(const Planted& p, std::ostream* out) { *out << p.name; }

const Planted table[] = {
    {"linear", "matmul", "operand 1, parameter layer.kernel, float32[4,4], is not finite: 1 of 16 values is NaN",
     "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       Linear layer = Linear::init(Key(0), in, out);
       layer.kernel.value = with_nan(layer.kernel.value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 4})] { net.layer(x); };
     }},
    {"linear_infinite", "matmul",
     "operand 1, parameter layer.kernel, float32[4,4], is not finite: 1 of 16 values is inf", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       Linear layer = Linear::init(Key(0), in, out);
       layer.kernel.value = with_value(layer.kernel.value, INFINITY);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 4})] { net.layer(x); };
     }},
    {"linear_batch", "matmul", "operand 0, float32[8@data,4], is not finite: 1 of 32 values is NaN", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       return [net = placed(Linear::init(Key(0), in, out), mesh_rules),
               x = rows_on(mesh_rules, with_nan(ones({8, 4})))] { net.layer(x); };
     }},
    {"linear_too_large", "matmul", "32 of 32 values are inf of the result", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       Linear layer = Linear::init(Key(0), in, out);
       layer.kernel.value = full({4, 4}, 1e30);
       return [net = placed(layer, mesh_rules), x = ones_of(mesh_rules, {8, 4}, 1e30)] { net.layer(x); };
     }},
    {"bias", "matmul", "parameter layer.bias, float32[4], is not finite: 1 of 4 values is NaN", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       Linear layer = Linear::init(Key(0), in, out);
       layer.bias->value = with_nan(layer.bias->value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 4})] { net.layer(x); };
     }},
    {"conv", "conv_general_dilated", "parameter layer.kernel", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       Conv layer = Conv::init(Key(0), in, out, {3});
       layer.kernel.value = with_nan(layer.kernel.value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 5, 4})] { net.layer(x); };
     }},
    {"layer_norm", "layer_norm", "operand 1, parameter layer.scale, float32[4], is not finite", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       LayerNorm layer = LayerNorm::init(in);
       layer.scale.value = with_nan(layer.scale.value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 4})] { net.layer(x); };
     }},
    {"rms_norm", "rms_norm", "32 of 32 values are NaN of the result", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       return [net = placed(RMSNorm::init(in, 0), mesh_rules), x = ones_of(mesh_rules, {8, 4}, 0)] { net.layer(x); };
     }},
    {"group_norm", "rsqrt", "are inf of the result", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       return
           [net = placed(GroupNorm::init(in, 2, 0), mesh_rules), x = ones_of(mesh_rules, {8, 3, 4})] { net.layer(x); };
     }},
    {"batch_norm", "rsqrt", "4 of 4 values are inf of the result", "copy.layer(x)",
     [](const MeshRules& mesh_rules) {
       return [net = placed(BatchNorm::init(in, {.eps = 0}), mesh_rules), x = ones_of(mesh_rules, {8, 4})] {
         auto copy = net;
         copy.layer(x);
       };
     }},
    {"attention", "matmul", "parameter layer.o.kernel", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       auto layer = MultiheadAttention::init(Key(0), {"embed", 8}, {"heads", 8}, 2);
       layer.o.kernel.value = with_nan(layer.o.kernel.value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 3, 8})] { net.layer(x); };
     }},
    {"attention_bias", "dot_product_attention", "operand 3", "net.layer(x, {.bias = bias})",
     [](const MeshRules& mesh_rules) {
       const auto layer = MultiheadAttention::init(Key(0), {"embed", 8}, {"heads", 8}, 2);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 3, 8}), bias = with_nan(zeros({3, 3}))] {
         net.layer(x, {.bias = bias});
       };
     }},
    {"softmax", "softmax", "4 of 32 values are NaN of the result", "softmax(where(mask, x, -INFINITY))",
     [](const MeshRules& mesh_rules) {
       const Array first_row = equal(reshape(arange(8), {8, 1}), 0);
       return [mask = logical_not(first_row), x = rows_of(mesh_rules, {8, 4})] { softmax(where(mask, x, -INFINITY)); };
     }},
    {"embedding", "embedding", "parameter layer.tokens", "net.layer(ids)",
     [](const MeshRules& mesh_rules) {
       Embedding layer = Embedding::init(Key(0), {"vocab", 8}, {"embed", 4});
       layer.tokens.value = with_nan(layer.tokens.value);
       return [net = placed(layer, mesh_rules), ids = rows_on(mesh_rules, arange(8))] { net.layer(ids); };
     }},
    {"lstm", "einsum", "parameter layer.recurrent", "net.layer(x, net.layer.start(x))",
     [](const MeshRules& mesh_rules) {
       LSTMCell layer = LSTMCell::init(Key(0), in, {"hidden", 4});
       layer.recurrent.value = with_nan(layer.recurrent.value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 4})] { net.layer(x, net.layer.start(x)); };
     }},
    {"gru", "einsum", "parameter layer.input", "net.layer(x, net.layer.start(x))",
     [](const MeshRules& mesh_rules) {
       GRUCell layer = GRUCell::init(Key(0), in, {"hidden", 4});
       layer.input.value = with_nan(layer.input.value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 4})] { net.layer(x, net.layer.start(x)); };
     }},
    {"experts", "matmul", "parameter layer.router", "net.layer(x)",
     [](const MeshRules& mesh_rules) {
       MoeMlp layer = MoeMlp::init(Key(0), {"embed", 4}, {"hidden", 8}, {"experts", 4});
       layer.router.value = with_nan(layer.router.value);
       return [net = placed(layer, mesh_rules), x = rows_of(mesh_rules, {8, 3, 4})] { net.layer(x); };
     }},
    {"dropout", "dropout", "are inf of the result", "Dropout{}(x, Key(3))",
     [](const MeshRules& mesh_rules) { return [x = ones_of(mesh_rules, {8, 4}, 3e38)] { Dropout{}(x, Key(3)); }; }},
    {"pool", "avg_pool", "are inf of the result", "AvgPool{{2}}(x)",
     [](const MeshRules& mesh_rules) { return [x = ones_of(mesh_rules, {8, 4, 4}, 3e38)] { AvgPool{{2}}(x); }; }},
    {"cross_entropy", "cross_entropy", "operand 0, float32[8@data,4], is not finite", "cross_entropy(logits, labels)",
     [](const MeshRules& mesh_rules) {
       return [logits = rows_on(mesh_rules, with_value(ones({8, 4}), -INFINITY)),
               labels = rows_on(mesh_rules, zeros({8}, {.dtype = int32}))] { cross_entropy(logits, labels); };
     }},
    {"one_device", "log",
     "1 of 32 values is inf of the result float32[8@data,4] on the device data=3; given operand 0, "
     "float32[8@data,4], from 0 to 1",
     "log(x)",
     [](const MeshRules& mesh_rules) {
       return [x = rows_on(mesh_rules, with_value(ones({8, 4}), 0, 30))] { log(x); };
     }},
    {"square_root_backward", "sqrt",
     "backward: 1 of 32 values is inf of the gradients of its operands; the gradients of its result float32[8@data,4] "
     "are from 1 to 1",
     "return sqrt(rows)",
     [](const MeshRules& mesh_rules) {
       return [x = rows_on(mesh_rules, with_value(ones({8, 4}), 0))] {
         differentiate([](const Array& rows) { return sqrt(rows); }, x);
       };
     }},
    {"division_backward", "div", "backward: ", "return 1 / rows",
     [](const MeshRules& mesh_rules) {
       return
           [x = ones_of(mesh_rules, {8, 4}, 1e-30)] { differentiate([](const Array& rows) { return 1 / rows; }, x); };
     }},
    {"recomputed", "sqrt", "backward: ", "return sqrt(values)",
     [](const MeshRules& mesh_rules) {
       return [x = rows_on(mesh_rules, with_value(ones({8, 4}), 0))] {
         const auto block = [](const Array& values) { return sqrt(values); };
         differentiate([&](const Array& rows) { return remat(block)(rows); }, x);
       };
     }},
    {"micro_batch", "log", "inf of the result", "sum(log(rows))",
     [](const MeshRules& mesh_rules) {
       return [x = rows_on(mesh_rules, with_value(ones({8, 4}), 0, 31)), w = ones({4})] {
         const auto loss = [](const Array& weights, const Array& rows) { return sum(log(rows)) + sum(weights); };
         accumulate_gradients(loss, 2)(w, x);
       };
     }},
    {"cast", "astype", "32 of 32 values are inf of the result float16[8@data,4]", "astype(x, float16)",
     [](const MeshRules& mesh_rules) { return [x = ones_of(mesh_rules, {8, 4}, 1e5)] { astype(x, float16); }; }},
    {"pending_sum", "tanh", "float16[4]{U:data}, from 4e+04 to 4e+04, is resharded to float16[4], and there 4 of 4",
     "tanh(sum(x, {0}))",
     [](const MeshRules& mesh_rules) {
       return [x = ones_of(mesh_rules, {4, 4}, 4e4, float16)] { tanh(sum(x, {0})); };
     }},
    {"shard_map", "psum", "is resharded to float16[1,4]", "psum(block, \"data\")",
     [](const MeshRules& mesh_rules) {
       return [x = ones_of(mesh_rules, {4, 4}, 4e4, float16), mesh = mesh_rules.mesh()] {
         shard_map([](const Array& block) { return psum(block, "data"); }, mesh, P{"data"}, P{})(x);
       };
     }},
    {"slots_share_a_weight", "mul", "backward: 4 of 4 values are inf of the gradients of its operands", "sum(w * rows)",
     [](const MeshRules& mesh_rules) {
       return [x = ones_of(mesh_rules, {4, 4}, 4e4, float16), weights = half_weights(mesh_rules)] {
         value_and_grad([](const Array& w, const Array& rows) { return sum(w * rows); })(weights, x);
       };
     }},
};

// The source line that a message names.
std::string line_of(const std::string& message) {
  std::smatch found;
  if (!std::regex_search(message, found, std::regex(R"(finite_check_test\.cpp:(\d+))"))) return "no line: " + message;
  std::ifstream file(std::source_location::current().file_name());
  std::string line;
  for (int left = std::stoi(found[1]); left > 0; --left) std::getline(file, line);
  return line;
}

class FiniteCheck : public ::testing::TestWithParam<Planted> {};
INSTANTIATE_TEST_SUITE_P(Planted, FiniteCheck, ::testing::ValuesIn(table),
                         [](const auto& info) { return info.param.name; });

MeshRules mesh_rules_of(const MeshOptions& options) {
  return {make_mesh({{"data", 4}}, options),
          {{"batch", "data"},
           {"in", replicated},
           {"out", replicated},
           {"embed", replicated},
           {"heads", replicated},
           {"kv_heads", replicated},
           {"vocab", replicated},
           {"hidden", replicated},
           {"experts", replicated}}};
}

TEST_P(FiniteCheck, FindsTheOperationAndTheLine) {
  const std::function<void()> call = GetParam().plant(mesh_rules_of({}));
  call();
  const DetectNonFinite scope;
  const StepScope step(12);
  const std::string said = error_of(ErrorKind::not_finite, call);
  EXPECT_TRUE(said.starts_with("[" + GetParam().operation + "] ")) << said;
  EXPECT_NE(said.find(GetParam().words), std::string::npos) << said;
  EXPECT_NE(said.find(", step 12"), std::string::npos) << said;
  EXPECT_NE(line_of(said).find(GetParam().line), std::string::npos) << said << "\n" << line_of(said);
}

TEST(DetectNonFinite, NamesWhatIsAddedUpOverDevices) {
  const MeshRules mesh_rules = mesh_rules_of({.private_replicas = true});
  const Array x = ones_of(mesh_rules, {4, 4}, 4e4, float16), weights = half_weights(mesh_rules);
  const DetectNonFinite scope;
  const auto loss = [](const Array& w, const Array& rows) { return sum(w * rows); };
  tessera::testing::expect_error(ErrorKind::not_finite,
                                 {"[gradients] finite_check_test.cpp:",
                                  "the sum of the gradients of all uses and devices, float16[4] is not finite"},
                                 [&] { value_and_grad(loss)(weights, x); });
}

TEST(DetectNonFinite, AllowsMasksAndWhatIsFiniteInTheEnd) {
  const MeshRules mesh_rules = mesh_rules_of({});
  const Array x = rows_of(mesh_rules, {8, 4}), nan = rows_on(mesh_rules, with_nan(ones({8, 4})));
  const Array mask = x > 0.5;
  const DetectNonFinite scope;
  differentiate([&](const Array& rows) { return softmax(where(mask, rows, -INFINITY) * 0.5, 0) * rows; }, x);
  differentiate([&](const Array& rows) { return logsumexp(where(mask, -INFINITY, rows) + rows, 0); }, x);
  where(isnan(nan), 0, nan);
  {
    const DetectNonFinite off(false);
    log(zeros({3}));
  }
  error_of(ErrorKind::not_finite, [] { log(zeros({3})); });
}

TEST(DetectNonFinite, LeavesAbstractMeshesAlone) {
  const MeshRules mesh_rules = mesh_rules_of({.abstract = true});
  const DetectNonFinite scope;
  differentiate([](const Array& rows) { return log(rows); }, rows_of(mesh_rules, {8, 4}));
}

}  // namespace
}  // namespace tessera::nn::finite_check_test
