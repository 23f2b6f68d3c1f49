// The validator's cases of lookups, scatters and one_hot.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

at::Tensor wrapped(const at::Tensor& ids, int64_t size) { return at::where(ids < 0, ids + size, ids).to(at::kLong); }

// Ids from -below on, so that some count from the end.
at::Tensor signed_ids(const Shape& shape, int64_t below, uint64_t seed) {
  return random_integers(shape, 2 * below, seed) - below;
}

// Adds or sets updates along dimension 1 of (4, 8, 4), one by one in the order of the ids.
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

Case write(bool adds, const std::string& what, const Shape& updates) {
  return {{adds ? "scatter_add" : "scatter_set"},
          {what,
           {random_tensor({4, 8, 4}, 14), signed_ids({2, 4}, 8, 15), random_tensor(updates, 16)},
           OURS(adds ? scatter_add(x[0], x[1], x[2], 1) : scatter_set(x[0], x[1], x[2], 1)),
           THEIRS(written(x[0], x[1], x[2], adds))}};
}

}  // namespace

std::vector<Case> indexing_cases() {
  return {{{"embedding"},
           {"embedding",
            {random_tensor({8, 4}, 1), random_integers({4, 8}, 8, 2)},
            OURS(embedding(x[0], x[1])),
            THEIRS(at::embedding(x[0], x[1]))}},
          {{"take"},
           {"take rows",
            {random_tensor({8, 4}, 3), signed_ids({4, 2}, 8, 4)},
            OURS(take(x[0], x[1], 0)),
            THEIRS(at::embedding(x[0], wrapped(x[1], 8)))}},
          {{"take"},
           {"take along the middle dim",
            {random_tensor({2, 8, 4}, 5), signed_ids({4}, 8, 6)},
            OURS(take(x[0], x[1], -2)),
            THEIRS(x[0].index_select(1, wrapped(x[1], 8)))}},
          {{"take", "reshape"},
           {"take of all",
            {random_tensor({4, 4}, 7), signed_ids({8}, 16, 8)},
            OURS(take(x[0], x[1])),
            THEIRS(x[0].reshape({-1}).index_select(0, wrapped(x[1], 16)))}},
          {{"take_along_axis"},
           {"take_along_axis",
            {random_tensor({4, 8}, 9), signed_ids({4, 4}, 8, 10)},
            OURS(take_along_axis(x[0], x[1], 1)),
            THEIRS(at::gather(x[0], 1, wrapped(x[1], 8)))}},
          {{"take_along_axis"},
           {"take_along_axis, broadcast",
            {random_tensor({1, 8, 4}, 11), signed_ids({4, 4, 1}, 8, 12)},
            OURS(take_along_axis(x[0], x[1], -2)),
            THEIRS(at::gather(x[0].expand({4, 8, 4}), 1, wrapped(x[1], 8).expand({4, 4, 4})))}},
          {{"one_hot"},
           {"one_hot",
            {signed_ids({4, 8}, 6, 13)},
            OURS(one_hot(x[0], 5)),
            THEIRS(x[0].unsqueeze(-1).eq(at::arange(5)).to(at::kFloat))}},
          write(true, "scatter_add", {4, 2, 4, 4}),
          write(true, "scatter_add, broadcast", {4, 1}),
          write(false, "scatter_set", {4, 2, 4, 4}),
          write(false, "scatter_set, broadcast", {2, 1, 1}),
          {{"scatter_set"},
           {"one row set",
            {random_tensor({8, 4}, 17), random_tensor({4}, 18)},
            OURS(scatter_set(x[0], -3, x[1])),
            THEIRS(at::cat({x[0].narrow(0, 0, 5), x[1].unsqueeze(0), x[0].narrow(0, 6, 2)}))}},
          {{"scatter_add"},
           {"at add, an array",
            {random_tensor({4, 8, 4}, 20), signed_ids({2, 4}, 8, 21), random_tensor({4, 2, 4, 4}, 22)},
            OURS(x[0].at({{}, x[1]}).add(x[2])),
            THEIRS(written(x[0], x[1], x[2], true))}},
          {{"expand_dims", "dynamic_update_slice"},
           {"at set, an integer and a range",
            {random_tensor({4, 8, 4}, 23), random_tensor({4, 2}, 24)},
            OURS(x[0].at({{}, -1, range(1, 3)}).set(x[1])),
            THEIRS(x[0].select_scatter(x[0].select(1, 7).slice_scatter(x[1], 1, 1, 3), 1, 7))}},
          {{"scatter_add"},
           {"bincount",
            {random_integers({4, 8}, 6, 19)},
            OURS(bincount(x[0], 8)),
            THEIRS(at::bincount(x[0].reshape({-1}), {}, 8))}}};
}

}  // namespace tessera::testing
