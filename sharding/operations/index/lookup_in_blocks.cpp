// Looks up rows by copying bytes; LibTorch adds their gradients, block by block.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/index/sharded_lookup.h"

namespace tessera::detail {
namespace {

constexpr const char* ids_of = "v";  // the factor of the ids' range in the rule

// The ids of one sum, and the blocks of the table that its slots have.
struct Lookup {
  at::Tensor ids;  // int64
  const Plan::FactorPlace& rows;
  std::vector<const char*> blocks;  // null: belongs to another process
  size_t bytes;                     // bytes of a row
  at::Tensor absent;                // the term for a row of another process

  Lookup(const Prepared& call, const Plan::FactorPlace& rows, const std::vector<int>& slots, int64_t vocab)
      : ids(indices("embedding", *call.local(1, slots[0]), vocab).contiguous()), rows(rows) {
    const at::Tensor& table = *call.local(0, slots[0]);
    blocks.resize((rows.size + rows.local - 1) / rows.local);
    bytes = static_cast<size_t>(table.size(1)) * table.itemsize();
    absent = at::full({table.size(1)}, no_term, table.options().requires_grad(false));
    for (const int s : slots)
      if (const auto number = static_cast<size_t>(rows.offset[s] / rows.local); number < blocks.size())
        blocks[number] = static_cast<const char*>(call.local(0, s)->const_data_ptr());
  }

  void copy(int64_t from, int64_t to, char* out) const {
    const int64_t* const id = const_elements<int64_t>(ids);
    for (int64_t i = from; i < to; ++i, out += bytes) {
      const auto place = std::div(id[i], rows.local);
      const char* const block = blocks[place.quot];
      std::memcpy(out, block ? block + place.rem * bytes : absent.const_data_ptr(), bytes);
    }
  }
};

const Plan::FactorPlace& rows_of(const Plan& plan) {
  return *std::find_if(plan.factors.begin(), plan.factors.end(), [](const auto& f) { return f.name == ids_of; });
}

// Returns, for each id, its row in the block that begins at `offset`; -1 if it is not in the block.
at::Tensor places_in(const at::Tensor& ids, int64_t offset, int64_t size) {
  at::Tensor places = at::empty_like(ids);
  const int64_t* const id = const_elements<int64_t>(ids);
  int64_t* const place = places.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) place[i] = id[i] < offset || id[i] >= offset + size ? -1 : id[i] - offset;
  return places;
}

// The gradient of each block of the table: the rows' gradients, added at the rows' indices.
struct LookupBackward {
  Tensors ids;  // by slot
  std::vector<int64_t> offset;
  std::vector<int> table_of;
  int64_t size, cost;
  int tables;

  Tensors operator()(const Tensors& gradients) const {
    Tensors result(tables);
    parallel_for(tables, cost, [&](int table) {
      const at::AutoGradMode off(false);
      Tensors terms;
      for (size_t s = 0; s < gradients.size(); ++s)
        if (table_of[s] == table)
          terms.push_back(at::embedding_dense_backward(gradients[s], places_in(ids[s], offset[s], size), size,
                                                       /*padding_idx=*/-1, /*scale_grad_by_freq=*/false));
      if (!terms.empty()) result[table] = sum_tensors(terms);
    });
    return result;
  }
};

int64_t cost_of(const at::Tensor& out, int runs) { return runs * nanoseconds_of(1, out.numel()); }

}  // namespace

bool finds_rows_at_once(const Prepared& call) {
  const ArrayImpl& table = *call.array[0];
  return adds_up_here(*call.plan) && !is_nested() && !current_interceptor() && !table.type->unreduced &&
         table.type->elements != 0 && (table.type->dtype == float32 || table.type->dtype == float64) &&
         table.local[0].is_contiguous();
}

Array rows_in_blocks(const Prepared& call, int64_t vocab) try {
  const Plan& plan = *call.plan;
  const ScopedIntraOpThreads alone(plan.shares_the_cpu());
  const std::vector<std::vector<int>> sums = slots_by_sum(plan);
  const Plan::FactorPlace& rows = rows_of(plan);
  const Tensors& tables = call.array[0]->local;
  Tensors out(plan.runs);
  std::vector<Lookup> lookups;
  {
    const at::AutoGradMode off(false);
    for (const std::vector<int>& slots : sums) {
      lookups.emplace_back(call, rows, slots, vocab ? vocab : rows.size);
      c10::DimVector sizes(lookups.back().ids.sizes());
      sizes.push_back(tables[0].size(1));
      const at::Tensor all = at::empty(sizes, tables[0].options()), nothing = zero_placeholder(all);
      for (const int s : slots) out[s] = s == slots[0] ? all : nothing;
    }
  }
  const int parts = static_cast<int>(sums[0].size());
  const int64_t cost = cost_of(out[0], static_cast<int>(sums.size()));
  parallel_for(static_cast<int>(sums.size()) * parts, cost, [&](int job) {
    const Lookup& lookup = lookups[job / parts];
    const int64_t n = lookup.ids.numel(), from = n * (job % parts) / parts, to = n * (job % parts + 1) / parts;
    char* const to_rows = static_cast<char*>(out[sums[job / parts][0]].mutable_data_ptr());
    lookup.copy(from, to, to_rows + from * static_cast<int64_t>(lookup.bytes));
  });
  if (is_recorded(tables[0])) {
    LookupBackward backward{.ids = Tensors(plan.runs),
                            .offset = rows.offset,
                            .table_of = {call.index[0], call.index[0] + plan.runs},
                            .size = rows.local,
                            .cost = 2 * cost,
                            .tables = static_cast<int>(tables.size())};
    for (size_t i = 0; i < sums.size(); ++i)
      for (const int s : sums[i]) backward.ids[s] = lookups[i].ids;
    record_function("embedding", tables, out, std::move(backward));
  }
  return Array(finish(call, std::move(out)));
} catch (const std::exception& error) {
  refuse(call, "embedding", error);
}

}  // namespace tessera::detail
