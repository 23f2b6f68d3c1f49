// The masks of attention, by triangles.
#include "sharding/operations/neural/attention_masks.h"

#include <ATen/ATen.h>

namespace tessera::detail {

bool are_out_of_sight(const Places& p) {
  const int64_t nearest_behind = p.offset - (p.keys - 1), nearest_ahead = -(p.offset + p.queries - 1);
  const bool ahead = p.causal ? nearest_ahead > 0 : p.window && nearest_ahead >= p.window;
  return ahead || (p.window && nearest_behind >= p.window);
}

at::Tensor mask_of_places(const Places& p, const at::Tensor& like) {
  const bool ends = p.causal && p.offset < p.keys - 1;
  const bool begins = p.window && p.offset + p.queries > p.window;
  const bool ends_by_window = p.window && !p.causal && p.keys - 1 - p.offset >= p.window;
  if (!ends && !begins && !ends_by_window) return {};
  at::Tensor mask = at::ones({p.queries, p.keys}, like.options().dtype(at::kBool).requires_grad(false));
  if (begins) mask.triu_(p.offset - p.window + 1);
  if (ends_by_window) mask.tril_(p.offset + p.window - 1);
  return ends ? mask.tril_(p.offset) : mask;
}

at::Tensor mask_of_segments(const at::Tensor& queries, const at::Tensor& keys) {
  return queries.unsqueeze(2).eq(keys.unsqueeze(1)).unsqueeze(1);
}

}  // namespace tessera::detail
