// The validator's cases of lookups, scatters and one_hot.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Arrays = const std::vector<Array>&;
using Tensors = const std::vector<at::Tensor>&;

at::Tensor wrapped(const at::Tensor& ids, int64_t size) { return at::where(ids < 0, ids + size, ids).to(at::kLong); }

// From -below on, so that some count from the end.
at::Tensor signed_ids(const Shape& shape, int64_t below, uint64_t seed) {
  return random_integers(shape, 2 * below, seed) - below;
}

// Updates along dim 1 of (4, 8, 4), added or set one by one in the order of the ids.
at::Tensor written(const at::Tensor& x, const at::Tensor& ids, const at::Tensor& updates, bool adds) {
  std::vector<at::Tensor> columns = x.unbind(1);
  const at::Tensor places = wrapped(ids.reshape({-1}), x.size(1));
  const at::Tensor rows = updates.expand({4, 2, 4, 4}).reshape({4, 8, 4});
  for (int64_t i = 0; i < places.numel(); ++i) {
    at::Tensor& column = columns[places[i].item<int64_t>()];
    column = adds ? column + rows.select(1, i) : rows.select(1, i);
  }
  return at::stack(columns, 1);
}

Case lookup_in_table() {
  return {{"embedding"},
          {"embedding",
           {random_tensor({8, 4}, 1), random_integers({4, 8}, 8, 2)},
           [](Arrays x) { return embedding(x[0], x[1]); },
           [](Tensors t) { return at::embedding(t[0], t[1]); }}};
}

Case take_rows() {
  return {{"take"},
          {"take rows",
           {random_tensor({8, 4}, 3), signed_ids({4, 2}, 8, 4)},
           [](Arrays x) { return take(x[0], x[1], 0); },
           [](Tensors t) { return at::embedding(t[0], wrapped(t[1], 8)); }}};
}

Case take_inside() {
  return {{"take"},
          {"take along the middle dim",
           {random_tensor({2, 8, 4}, 5), signed_ids({4}, 8, 6)},
           [](Arrays x) { return take(x[0], x[1], -2); },
           [](Tensors t) { return t[0].index_select(1, wrapped(t[1], 8)); }}};
}

Case take_flat() {
  return {{"take", "reshape"},
          {"take of all",
           {random_tensor({4, 4}, 7), signed_ids({8}, 16, 8)},
           [](Arrays x) { return take(x[0], x[1]); },
           [](Tensors t) { return t[0].reshape({-1}).index_select(0, wrapped(t[1], 16)); }}};
}

Case take_pairs() {
  return {{"take_along_axis"},
          {"take_along_axis",
           {random_tensor({4, 8}, 9), signed_ids({4, 4}, 8, 10)},
           [](Arrays x) { return take_along_axis(x[0], x[1], 1); },
           [](Tensors t) { return at::gather(t[0], 1, wrapped(t[1], 8)); }}};
}

Case take_pairs_broadcast() {
  return {{"take_along_axis"},
          {"take_along_axis, broadcast",
           {random_tensor({1, 8, 4}, 11), signed_ids({4, 4, 1}, 8, 12)},
           [](Arrays x) { return take_along_axis(x[0], x[1], -2); },
           [](Tensors t) {
             return at::gather(t[0].expand({4, 8, 4}), 1, wrapped(t[1], 8).expand({4, 4, 4}));
           }}};
}

Case unit_rows() {
  return {{"one_hot"},
          {"one_hot",
           {signed_ids({4, 8}, 6, 13)},
           [](Arrays x) { return one_hot(x[0], 5); },
           [](Tensors t) { return t[0].unsqueeze(-1).eq(at::arange(5)).to(at::kFloat); }}};
}

Case write(bool adds, const std::string& what, const Shape& updates) {
  return {{adds ? "scatter_add" : "scatter_set"},
          {what,
           {random_tensor({4, 8, 4}, 14), signed_ids({2, 4}, 8, 15), random_tensor(updates, 16)},
           [=](Arrays x) { return adds ? scatter_add(x[0], x[1], x[2], 1) : scatter_set(x[0], x[1], x[2], 1); },
           [=](Tensors t) { return written(t[0], t[1], t[2], adds); }}};
}

Case write_row() {
  return {{"scatter_set"},
          {"one row set",
           {random_tensor({8, 4}, 17), random_tensor({4}, 18)},
           [](Arrays x) { return scatter_set(x[0], -3, x[1]); },
           [](Tensors t) {
             return at::cat({t[0].narrow(0, 0, 5), t[1].unsqueeze(0), t[0].narrow(0, 6, 2)});
           }}};
}

Case counts() {
  return {{"scatter_add"},
          {"bincount",
           {random_integers({4, 8}, 6, 19)},
           [](Arrays x) { return bincount(x[0], 8); },
           [](Tensors t) { return at::bincount(t[0].reshape({-1}), {}, 8); }}};
}

}  // namespace

std::vector<Case> indexing_cases() {
  return {lookup_in_table(),
          take_rows(),
          take_inside(),
          take_flat(),
          take_pairs(),
          take_pairs_broadcast(),
          unit_rows(),
          write(true, "scatter_add", {4, 2, 4, 4}),
          write(true, "scatter_add, broadcast", {4, 1}),
          write(false, "scatter_set", {4, 2, 4, 4}),
          write(false, "scatter_set, broadcast", {2, 1, 1}),
          write_row(),
          counts()};
}

}  // namespace tessera::testing
