// Wrong models and wrong calls: the error of each tree function names the array.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "nn/layers/mlp.h"
#include "nn/layers/module_scope.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/state.h"
#include "nn/tree/tree_at.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"
#include "tests/sharding/expressions.h"

namespace tessera::nn::errors_test {
namespace {

struct Layer {
  Mlp mlp = Mlp::init(Key(0), {"embed", 4}, {"hidden", 8});
  Buffer mean{zeros({4}), {"embed"}};
};
struct Model {
  std::vector<Layer> layers{3};
};

MeshRules mesh_rules_of(const Rules& rules) { return MeshRules(make_mesh({{"data", 2}, {"model", 3}}), rules); }
const Rules& fitting() {
  static const Rules rules{{"batch", "data"}, {"embed", "data"}, {"hidden", replicated}};
  return rules;
}
Model placed() { return filter_shard(Model(), mesh_rules_of(fitting())); }
Array loss_of(const Model& model, const Array& x) { return mean(square(model.layers[2].mlp(x))); }

struct Row {
  const char* verb;
  ErrorKind kind;
  const char* path;
  std::function<void()> call;
};

void change(Model& model, const std::function<void(Model&)>& how) {
  value_and_grad([&](Model& m, const Array& x) {
    how(m);
    return loss_of(m, x);
  })(model, ones({8, 4}));
}

std::vector<Row> rows() {
  return {
      {"filter_shard", ErrorKind::unknown_axis, "layers.0.mlp.up.kernel",
       CALL((void)filter_shard(Model(), mesh_rules_of({{"embed", "data"}})))},
      {"filter_shard", ErrorKind::not_divisible, "layers.0.mlp.up.kernel",
       CALL((void)filter_shard(Model(), mesh_rules_of({{"embed", "data"}, {"hidden", "model"}})))},
      {"filter_shard", ErrorKind::rank_mismatch, "layers.1.mlp.down.bias",
       [] {
         Model model;
         model.layers[1].mlp.down.bias->axes = {"embed", "hidden"};
         (void)filter_shard(model, mesh_rules_of(fitting()));
       }},
      {"filter_shard", ErrorKind::invalid_argument, "layers.1.mlp.up.kernel",
       [] {
         Model model;
         model.layers[1].mlp.up.kernel = model.layers[0].mlp.up.kernel;
         (void)filter_shard(model, mesh_rules_of(fitting()));
       }},
      {"filter_shard", ErrorKind::not_divisible, "layers.0.mlp.up.kernel",
       CALL((void)filter_shard(Model(), NamedSharding(make_mesh({{"model", 3}}), P{"model"})))},
      {"filter_shard", ErrorKind::not_divisible, "layers.0.mlp.up.kernel",
       [] {
         (void)filter_shard(Model(), [](const std::string&, const Array& x) {
           return NamedSharding(make_mesh({{"model", 3}}), x.ndim() == 2 ? P{"model"} : P{});
         });
       }},
      {"placement_table", ErrorKind::unknown_axis, "layers.0.mlp.up.kernel",
       CALL(placement_table(Model(), mesh_rules_of({{"embed", "data"}})))},
      {"value_and_grad", ErrorKind::invalid_argument, "layers.2.mlp.down.bias",
       [] {
         Model model;
         model.layers[2].mlp.down.bias = model.layers[0].mlp.down.bias;
         value_and_grad(loss_of)(model, ones({8, 4}));
       }},
      {"value_and_grad", ErrorKind::invalid_argument, "layers.0.mlp.up.kernel",
       CALL(value_and_grad(loss_of, by_path("layer.**"))(Model(), ones({8, 4})))},
      {"value_and_grad", ErrorKind::invalid_argument, "layers.1.mlp.up.kernel",
       [] {
         Model model;
         change(model, [](Model& m) { m.layers[1].mlp.up.kernel.value = ones({4, 8}); });
       }},
      {"value_and_grad", ErrorKind::shape_mismatch, "layers.1.mean",
       [] {
         Model model;
         change(model, [](Model& m) { m.layers[1].mean.value = ones({8}); });
       }},
      {"value_and_grad", ErrorKind::dtype_mismatch, "layers.1.mean",
       [] {
         Model model;
         change(model, [](Model& m) { m.layers[1].mean.value = ones({4}, bfloat16); });
       }},
      {"remat", ErrorKind::invalid_argument, "layers.1.mlp.up.kernel",
       [] {
         Model model;
         const auto assigns = [](Model& m, const Array& x) {
           m.layers[1].mlp.up.kernel.value = ones({4, 8});
           return loss_of(m, x);
         };
         remat(assigns)(model, ones({8, 4}));
       }},
      {"accumulate_gradients", ErrorKind::not_divisible, "x",
       [] {
         struct Batch {
           NamedArray x{"batch"};
         } batch;
         batch.x = ones({8, 4});
         accumulate_gradients([](const Model& m, const Batch& b) { return loss_of(m, b.x); }, 3)(Model(), batch);
       }},
      {"combine", ErrorKind::invalid_argument, "layers.2.mlp.up.kernel",
       [] {
         Model model;
         model.layers.pop_back();
         combine(Model(), model);
       }},
      {"tree_map", ErrorKind::invalid_argument, "layers.2.mlp.down.bias",
       [] {
         Model model;
         model.layers[2].mlp.down.bias.reset();
         tree_map([](const Array& x, const Array& y) { return x + y; }, Model(), model);
       }},
      {"tree_map", ErrorKind::missing_array, "layers.0.mean",
       [] { tree_map([](const Array& x, const Array& y) { return x + y; }, Model(), filter(Model(), !is_buffer)); }},
      {"tree_at", ErrorKind::invalid_argument, "layers.1.mlp.up.kernel",
       CALL(tree_at("layers.1.mlp.up.kernal", Model(), ones({4, 8})))},
      {"tree_at", ErrorKind::invalid_argument, "layers.1.mlp", CALL(tree_at("layers.1.mlp", Model(), ones({4, 8})))},
      {"update", ErrorKind::invalid_argument, "layers.1.mean",
       [] {
         Model model;
         update(model, state(filter(model, !by_path("layers.1.mean"))));
       }},
      {"copy_buffers", ErrorKind::shape_mismatch, "layers.0.mean",
       [] {
         Model from, to;
         from.layers[0].mean.value = ones({8});
         copy_buffers(from, to);
       }},
      {"Linear", ErrorKind::shape_mismatch, "layers.1.mlp.up.kernel", CALL(placed().layers[1].mlp(ones({8, 3})))},
      {"Linear", ErrorKind::shape_mismatch, "layers.1.mlp.up.kernel",
       [] {
         const Model model = placed();
         const ModuleScope scope(model.layers[1]);
         model.layers[1].mlp(ones({8, 3}));
       }},
      {"Linear", ErrorKind::missing_array, "layers.1.mlp.up: its parameter (embed, hidden) is absent",
       CALL(filter(placed(), !by_path("**.kernel")).layers[1].mlp(ones({8, 4})))},
      {"tree_at", ErrorKind::invalid_argument, "layers.0.lost: the tree has no such path. Near it are ",
       CALL(tree_at("layers.0.lost", Model(), ones({4, 8})))},
      {"tree_at", ErrorKind::invalid_argument, "the tree: it is a Model", CALL(tree_at("", Model(), ones({4, 8})))},
      {"update", ErrorKind::invalid_argument, "up.kernel: not in the tree, which has no such arrays",
       [] {
         Model empty{.layers = {}};
         update(empty, State{{"up.kernel", ones({2})}});
       }},
      {"matmul", ErrorKind::shape_mismatch, "layers.1: ",
       [] {
         const Model model = placed();
         const ModuleScope scope(model.layers[1]);
         matmul(ones({8, 3}), ones({8, 3}));
       }},
  };
}

TEST(Errors, NameThePath) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(std::string(row.verb) + ' ' + row.path);
    testing::expect_error_with(row.kind, {std::string("[") + row.verb + "] ", row.path}, row.call);
  }
}

}  // namespace
}  // namespace tessera::nn::errors_test
