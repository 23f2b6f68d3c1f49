// The validator's cases of shape operations, which move elements without changing them.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Arrays = const std::vector<Array>&;
using Tensors = const std::vector<at::Tensor>&;

at::Tensor matrix() { return random_tensor({8, 4}, 1); }
at::Tensor cube() { return random_tensor({4, 2, 8}, 2); }

std::vector<Case> other_shapes() {
  const auto to = [](const std::string& name, const at::Tensor& x, Shape shape, bool keeps) {
    return Case{{"reshape"},
                {"reshape " + name, {x}, OURS(reshape(x[0], shape)), THEIRS(x[0].reshape(shape)), 1e-12, keeps}};
  };
  return {
      to("splits a dim", matrix(), {2, 4, 4}, true),
      to("splits the last dim", matrix(), {8, 2, 2}, true),
      to("merges dims", cube(), {8, 8}, false),
      to("merges all", matrix(), {-1}, false),
      to("cuts across", random_tensor({4, 6}, 3), {3, 8}, false),
      to("moves a boundary", random_tensor({12, 4}, 4), {4, 12}, false),
      {{"transpose"},
       {"transpose", {cube()}, OURS(transpose(x[0], {2, 0, 1})), THEIRS(x[0].permute({2, 0, 1})), 1e-12, true}},
      {{"squeeze", "expand_dims"},
       {"squeeze of expand_dims",
        {matrix()},
        OURS(squeeze(square(expand_dims(x[0], {0, 2})), {2})),
        THEIRS(x[0].square().unsqueeze(0)),
        1e-12,
        true}},
  };
}

std::vector<Case> copies() {
  return {
      {{"broadcast_to"},
       {"broadcast_to",
        {random_tensor({8, 1, 4}, 4)},
        OURS(broadcast_to(x[0], {2, 8, 4, 4})),
        THEIRS(x[0].expand({2, 8, 4, 4})),
        1e-12,
        true}},
      {{"broadcast_to", "expand_dims", "transpose"},
       {"broadcast_in_dim",
        {matrix()},
        OURS(broadcast_in_dim(x[0], {8, 2, 4}, {0, 2})),
        THEIRS(x[0].unsqueeze(1).expand({8, 2, 4})),
        1e-12,
        true}},
      {{"repeat"}, {"repeat", {matrix()}, OURS(repeat(x[0], 3, 1)), THEIRS(x[0].repeat_interleave(3, 1)), 1e-12, true}},
      {{"tile"}, {"tile", {matrix()}, OURS(tile(x[0], {2, 1, 3})), THEIRS(x[0].repeat({2, 1, 3}))}},
      {{"flip"}, {"flip", {cube()}, OURS(flip(x[0], {0, 2})), THEIRS(x[0].flip({0, 2})), 1e-12, true}},
      {{"roll"}, {"roll", {matrix()}, OURS(roll(x[0], 3, 0)), THEIRS(x[0].roll(3, 0)), 1e-12, true}},
  };
}

// The start of a slice of `size` elements of x[0] along `dim`, from the index x[1][dim]. A negative index counts from
// the end, and the start is clamped so that all elements exist.
int64_t first(Tensors x, int64_t dim, int64_t size) {
  const int64_t start = x[1][dim].item<int64_t>(), all = x[0].size(dim);
  return std::min(std::max<int64_t>(start < 0 ? start + all : start, 0), all - size);  // LibTorch refuses start < 0
}

std::vector<Case> parts() {
  return {
      {{"slice"}, {"slice", {matrix()}, OURS(slice(x[0], {1, 0}, {7, 4}, {2, 1})), THEIRS(x[0].slice(0, 1, 7, 2))}},
      {{"slice"},
       {"slice, half of each dim",
        {matrix()},
        OURS(slice(x[0], {4, 2}, {8, 4})),
        THEIRS(x[0].slice(0, 4, 8).slice(1, 2, 4))}},
      {{"slice", "squeeze", "flip", "expand_dims"},
       {"index",
        {cube()},
        OURS(x[0].index({1, ellipsis, newaxis, range({}, {}, -2)})),
        THEIRS(x[0].select(0, 1).flip({1}).slice(1, 0, 8, 2).unsqueeze(1))}},
      {{"slice"},
       {"dynamic_slice",
        {matrix()},
        OURS(dynamic_slice(x[0], {6, 1}, {4, 3})),
        THEIRS(x[0].slice(0, 4, 8).slice(1, 1, 4))}},
      {{"dynamic_slice"},
       {"dynamic_slice from an array",
        {matrix(), at::tensor({6, 1})},
        OURS(dynamic_slice(x[0], x[1], {4, 3})),
        THEIRS(x[0].narrow(0, first(x, 0, 4), 4).narrow(1, first(x, 1, 3), 3))}},
      {{"split"}, {"split", {matrix()}, OURS(split(x[0], 2, 0)[1]), THEIRS(x[0].slice(0, 4, 8))}},
      {{"split"},
       {"split at places",
        {matrix()},
        [](Arrays x) {
          const std::vector<Array> all = split(x[0], std::vector<int64_t>{1, 5}, 0);
          return sum(all[0]) * all[1] + sum(all[2]);
        },
        THEIRS(x[0].slice(0, 0, 1).sum() * x[0].slice(0, 1, 5) + x[0].slice(0, 5, 8).sum())}},
  };
}

std::vector<Case> joins() {
  return {
      {{"pad", "pad_value"},
       {"pad", {matrix()}, OURS(pad(x[0], {{1, 3}, {0, 0}})), THEIRS(at::constant_pad_nd(x[0], {0, 0, 1, 3}))}},
      {{"pad", "pad_value"},
       {"pad with ones",
        {matrix()},
        OURS(pad(x[0], {{0, 0}, {2, 2}}, 1)),
        THEIRS(at::constant_pad_nd(x[0], {2, 2}, 1))}},
      {{"concatenate"},
       {"concatenate",
        {matrix(), random_tensor({4, 4}, 5)},
        OURS(concatenate({x[0], x[1]})),
        THEIRS(at::cat({x[0], x[1]}))}},
      {{"concatenate"},
       {"concatenate along the last dim",
        {matrix(), random_tensor({8, 2}, 6)},
        OURS(concatenate({x[0], x[1], x[0]}, -1)),
        THEIRS(at::cat({x[0], x[1], x[0]}, -1))}},
      {{"concatenate", "expand_dims"},
       {"stack",
        {matrix(), random_tensor({8, 4}, 7)},
        OURS(stack({x[0], x[1]}, 1)),
        THEIRS(at::stack({x[0], x[1]}, 1)),
        1e-12,
        true}},
      {{"dynamic_update_slice"},
       {"dynamic_update_slice from an array",
        {matrix(), random_tensor({8, 2}, 8), at::tensor({0, -3})},
        OURS(dynamic_update_slice(x[0], x[1], x[2])),
        [](Tensors x) {
          at::Tensor y = x[0].clone();
          y.narrow(0, first({x[0], x[2]}, 0, 8), 8).narrow(1, first({x[0], x[2]}, 1, 2), 2).copy_(x[1]);
          return y;
        }}},
      {{"dynamic_update_slice", "overlay"},
       {"dynamic_update_slice",
        {matrix(), random_tensor({4, 2}, 8)},
        OURS(dynamic_update_slice(x[0], x[1], {3, 1})),
        [](Tensors x) {
          at::Tensor y = x[0].clone();
          y.slice(0, 3, 7).slice(1, 1, 3).copy_(x[1]);
          return y;
        }}},
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
