// x.at({...}).set(v) and .add(v), implemented by updates of slices and scatters.
#include <algorithm>
#include <optional>

#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/operations/index/index_entries.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera {

using namespace detail;

namespace {

// Returns the dimension along which a scatter makes this update: one integer or array, and all of the other dimensions.
std::optional<int> scattered_dim(const Array& x, const ReadIndex& read) {
  if (!read.fresh.empty() || read.gone.size() + (read.ids ? 1 : 0) != 1) return std::nullopt;
  const int dim = read.ids ? read.taken : read.gone[0];
  for (int d = 0; d < x.ndim(); ++d)
    if (d != dim && read.parts[d] != Part{0, x.shape(d), 1}) return std::nullopt;
  return dim;
}

}  // namespace

Array ArrayUpdate::number(double v) const { return full({}, v, materialized(x_, "at").type->dtype); }

Array ArrayUpdate::set(const Array& v) && {
  const ReadIndex read = read_index("at", x_, entries_);
  const Operand x(x_, where_);
  if (const auto dim = scattered_dim(x_, read))
    return read.ids ? scatter_set(x, *read.ids, v, *dim) : scatter_set(x, read.parts[*dim].start, v, *dim);
  if (read.ids || !read.fresh.empty() ||
      std::any_of(read.parts.begin(), read.parts.end(), [](const Part& p) { return p.step != 1; }))
    fail(ErrorKind::invalid_argument, "at",
         "set of {} at a new dim, a range with a step, or an array with other entries; expected integers and ranges of "
         "step 1, or one array alone. For other elements use where(mask, v, x).",
         x_.type_string());
  Shape start, selected;
  for (int d = 0; d < x_.ndim(); ++d) {
    start.push_back(read.parts[d].start);
    if (std::find(read.gone.begin(), read.gone.end(), d) == read.gone.end()) selected.push_back(read.parts[d].count);
  }
  if (v.ndim() == 0 && !selected.empty()) return x_.at(entries_, where_).set(broadcast_to({v, where_}, selected));
  if (materialized(v, "at").type->shape != selected)
    fail(ErrorKind::shape_mismatch, "at",
         "set of {} to {}, expected the shape {} of the selected elements. Use broadcast_to.", x_.type_string(),
         v.type_string(), to_string(selected));
  return dynamic_update_slice(x, read.gone.empty() ? v : expand_dims({v, where_}, read.gone), start);
}

Array ArrayUpdate::add(const Array& v) && {
  const ReadIndex read = read_index("at", x_, entries_);
  const auto dim = scattered_dim(x_, read);
  if (!dim)
    fail(ErrorKind::invalid_argument, "at",
         "add to {} given, expected one integer or one array of integers, and all of the other dims. For ranges of "
         "step 1 use x.at({{...}}).set(x.index({{...}}) + v).",
         x_.type_string());
  const Operand x(x_, where_);
  if (read.ids) return scatter_add(x, *read.ids, v, *dim);
  return scatter_add(x, array(std::vector<int64_t>{read.parts[*dim].start}, {}), v, *dim);
}

}  // namespace tessera
