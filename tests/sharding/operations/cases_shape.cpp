// The validator's cases of shapes: the same elements elsewhere.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Arrays = const std::vector<Array>&;
using Tensors = const std::vector<at::Tensor>&;

constexpr double exact = 1e-12;

at::Tensor matrix() { return random_tensor({8, 4}, 1); }
at::Tensor cube() { return random_tensor({4, 2, 8}, 2); }

std::vector<Case> other_shapes() {
  const auto to = [](const std::string& name, const at::Tensor& x, Shape shape, bool keeps) {
    return Case{{"reshape"},
                {"reshape " + name,
                 {x},
                 [shape](Arrays x) { return reshape(x[0], shape); },
                 [shape](Tensors x) { return x[0].reshape(shape); },
                 exact,
                 keeps}};
  };
  return {
      to("splits a dim", matrix(), {2, 4, 4}, true),
      to("splits the last dim", matrix(), {8, 2, 2}, true),
      to("merges dims", cube(), {8, 8}, false),
      to("merges all", matrix(), {-1}, false),
      to("cuts across", random_tensor({4, 6}, 3), {3, 8}, false),
      to("moves a boundary", random_tensor({12, 4}, 4), {4, 12}, false),
      {{"transpose"},
       {"transpose",
        {cube()},
        [](Arrays x) {
          return transpose(x[0], {2, 0, 1});
        },
        [](Tensors x) {
          return x[0].permute({2, 0, 1});
        },
        exact,
        true}},
      {{"squeeze", "expand_dims"},
       {"squeeze of expand_dims",
        {matrix()},
        [](Arrays x) {
          return squeeze(square(expand_dims(x[0], {0, 2})), {2});
        },
        [](Tensors x) { return x[0].square().unsqueeze(0); },
        exact,
        true}},
  };
}

std::vector<Case> copies() {
  return {
      {{"broadcast_to"},
       {"broadcast_to",
        {random_tensor({8, 1, 4}, 4)},
        [](Arrays x) {
          return broadcast_to(x[0], {2, 8, 4, 4});
        },
        [](Tensors x) {
          return x[0].expand({2, 8, 4, 4});
        },
        exact,
        true}},
      {{"broadcast_to", "expand_dims", "transpose"},
       {"broadcast_in_dim",
        {matrix()},
        [](Arrays x) {
          return broadcast_in_dim(x[0], {8, 2, 4}, {0, 2});
        },
        [](Tensors x) {
          return x[0].unsqueeze(1).expand({8, 2, 4});
        },
        exact,
        true}},
      {{"repeat"},
       {"repeat",
        {matrix()},
        [](Arrays x) { return repeat(x[0], 3, 1); },
        [](Tensors x) { return x[0].repeat_interleave(3, 1); },
        exact,
        true}},
      {{"tile"},
       {"tile",
        {matrix()},
        [](Arrays x) {
          return tile(x[0], {2, 1, 3});
        },
        [](Tensors x) {
          return x[0].repeat({2, 1, 3});
        },
        exact}},
      {{"flip"},
       {"flip",
        {cube()},
        [](Arrays x) {
          return flip(x[0], {0, 2});
        },
        [](Tensors x) {
          return x[0].flip({0, 2});
        },
        exact,
        true}},
      {{"roll"},
       {"roll",
        {matrix()},
        [](Arrays x) { return roll(x[0], 3, 0); },
        [](Tensors x) { return x[0].roll(3, 0); },
        exact,
        true}},
  };
}

std::vector<Case> parts() {
  return {
      {{"slice"},
       {"slice",
        {matrix()},
        [](Arrays x) {
          return slice(x[0], {1, 0}, {7, 4}, {2, 1});
        },
        [](Tensors x) { return x[0].slice(0, 1, 7, 2); },
        exact}},
      {{"slice"},
       {"slice, half of each dim",
        {matrix()},
        [](Arrays x) {
          return slice(x[0], {4, 2}, {8, 4});
        },
        [](Tensors x) { return x[0].slice(0, 4, 8).slice(1, 2, 4); },
        exact}},
      {{"slice", "squeeze", "flip", "expand_dims"},
       {"at",
        {cube()},
        [](Arrays x) { return x[0].at(1, ellipsis, newaxis, range({}, {}, -2)); },
        [](Tensors x) { return x[0].select(0, 1).flip({1}).slice(1, 0, 8, 2).unsqueeze(1); },
        exact}},
      {{"slice"},
       {"dynamic_slice",
        {matrix()},
        [](Arrays x) {
          return dynamic_slice(x[0], {6, 1}, {4, 3});
        },
        [](Tensors x) { return x[0].slice(0, 4, 8).slice(1, 1, 4); },
        exact}},
      {{"dynamic_slice"},
       {"dynamic_slice from an array",
        {matrix(), at::tensor({6, 1})},
        [](Arrays x) {
          return dynamic_slice(x[0], x[1], {4, 3});
        },
        [](Tensors x) { return x[0].slice(0, 4, 8).slice(1, 1, 4); },
        exact}},
      {{"split"},
       {"split",
        {matrix()},
        [](Arrays x) { return split(x[0], 2, 0)[1]; },
        [](Tensors x) { return x[0].slice(0, 4, 8); },
        exact}},
      {{"split"},
       {"split at places",
        {matrix()},
        [](Arrays x) {
          const std::vector<Array> all = split(x[0], std::vector<int64_t>{1, 5}, 0);
          return sum(all[0]) * all[1] + sum(all[2]);
        },
        [](Tensors x) { return x[0].slice(0, 0, 1).sum() * x[0].slice(0, 1, 5) + x[0].slice(0, 5, 8).sum(); },
        exact}},
  };
}

std::vector<Case> joins() {
  return {
      {{"pad", "pad_value"},
       {"pad",
        {matrix()},
        [](Arrays x) {
          return pad(x[0], {{1, 3}, {0, 0}});
        },
        [](Tensors x) {
          return at::constant_pad_nd(x[0], {0, 0, 1, 3});
        },
        exact}},
      {{"pad", "pad_value"},
       {"pad with ones",
        {matrix()},
        [](Arrays x) {
          return pad(x[0], {{0, 0}, {2, 2}}, 1);
        },
        [](Tensors x) {
          return at::constant_pad_nd(x[0], {2, 2}, 1);
        },
        exact}},
      {{"concatenate"},
       {"concatenate",
        {matrix(), random_tensor({4, 4}, 5)},
        [](Arrays x) {
          return concatenate({x[0], x[1]});
        },
        [](Tensors x) {
          return at::cat({x[0], x[1]});
        },
        exact}},
      {{"concatenate"},
       {"concatenate along the last dim",
        {matrix(), random_tensor({8, 2}, 6)},
        [](Arrays x) {
          return concatenate({x[0], x[1], x[0]}, -1);
        },
        [](Tensors x) {
          return at::cat({x[0], x[1], x[0]}, -1);
        },
        exact}},
      {{"concatenate", "expand_dims"},
       {"stack",
        {matrix(), random_tensor({8, 4}, 7)},
        [](Arrays x) {
          return stack({x[0], x[1]}, 1);
        },
        [](Tensors x) {
          return at::stack({x[0], x[1]}, 1);
        },
        exact,
        true}},
      {{"dynamic_update_slice"},
       {"dynamic_update_slice from an array",
        {matrix(), random_tensor({8, 2}, 8), at::tensor({0, -3})},
        [](Arrays x) { return dynamic_update_slice(x[0], x[1], x[2]); },
        [](Tensors x) {
          at::Tensor y = x[0].clone();
          y.slice(1, 1, 3).copy_(x[1]);
          return y;
        },
        exact}},
      {{"dynamic_update_slice", "overlay"},
       {"dynamic_update_slice",
        {matrix(), random_tensor({4, 2}, 8)},
        [](Arrays x) {
          return dynamic_update_slice(x[0], x[1], {3, 1});
        },
        [](Tensors x) {
          at::Tensor y = x[0].clone();
          y.slice(0, 3, 7).slice(1, 1, 3).copy_(x[1]);
          return y;
        },
        exact}},
  };
}

}  // namespace

std::vector<Case> shape_cases() {
  std::vector<Case> all;
  for (const auto subject : {other_shapes, copies, parts, joins})
    for (Case& one : subject()) all.push_back(std::move(one));
  return all;
}

}  // namespace tessera::testing
