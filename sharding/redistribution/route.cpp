// Finds the cheapest sequence of table rows from one sharding to another.
#include "sharding/redistribution/route.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"

namespace tessera::detail {

namespace {

// clang-format off
constexpr TableRow rows[] = {
    {Row::unreduced_to_replicated, "unreduced",   "replicated", Collective::all_reduce,     Collective::identity},
    {Row::unreduced_to_reduced,    "unreduced",   "reduced",    Collective::all_reduce,     Collective::all_reduce},
    {Row::unreduced_to_sharded,    "unreduced",   "sharded",    Collective::reduce_scatter, Collective::all_gather},
    {Row::sharded_to_replicated,   "sharded",     "replicated", Collective::all_gather,     Collective::slice},
    {Row::sharded_to_reduced,      "sharded",     "reduced",    Collective::all_gather,     Collective::reduce_scatter},
    {Row::sharded_to_sharded,      "sharded(i)",  "sharded(j)", Collective::all_to_all,     Collective::all_to_all},
    {Row::sharded_to_unreduced,    "sharded",     "unreduced",  Collective::pad,            Collective::slice},
    {Row::replicated_to_sharded,   "replicated",  "sharded",    Collective::slice,          Collective::all_gather},
    {Row::replicated_to_reduced,   "replicated",  "reduced",    Collective::identity,       Collective::all_reduce},
    {Row::replicated_to_unreduced, "replicated",  "unreduced",  Collective::keep_first,     Collective::identity},
    {Row::reduced_to_replicated,   "reduced",     "replicated", Collective::identity,       Collective::keep_first},
    {Row::exchanged,               "any blocks",  "any blocks", Collective::block_exchange, Collective::block_exchange},
    {Row::spread,                  "uncommitted", "replicated", Collective::identity,       Collective::identity},
    {Row::varying_to_varying,      "varying",     "varying",    Collective::permute,        Collective::permute},
};

int64_t same(int64_t bytes, int) { return bytes; }
int64_t times(int64_t bytes, int n) { return bytes * n; }
int64_t part(int64_t bytes, int n) { return bytes / n; }
double none(double, int) { return 0; }
double all_but_own(double result, int n) { return result * (n - 1) / n; }
double all_but_own_twice(double result, int n) { return 2 * result * (n - 1) / n; }
double of_all_blocks(double result, int n) { return result * (n - 1); }

constexpr CollectiveTraits collectives[] = {
    {Collective::identity,           nullptr,              same,  none},
    {Collective::all_reduce,         "all_reduce",         same,  all_but_own_twice},
    {Collective::all_gather,         "all_gather",         times, all_but_own},
    {Collective::reduce_scatter,     "reduce_scatter",     part,  of_all_blocks},
    {Collective::all_to_all,         "all_to_all",         same,  all_but_own},
    {Collective::slice,              nullptr,              part,  none},
    {Collective::pad,                nullptr,              times, none},
    {Collective::keep_first,         nullptr,              same,  none},
    {Collective::all_reduce_max,     "all_reduce_max",     same,  none},
    {Collective::all_reduce_min,     "all_reduce_min",     same,  none},
    {Collective::all_reduce_product, "all_reduce_product", same,  none},
    {Collective::permute,            "permute",            same,  none},
    {Collective::block_exchange,     "block_exchange",     same,  none},
};
// clang-format on

// Checks that there is one entry for each enumerator, in order.
template <class Entry, size_t n, class Key>
constexpr bool is_complete(const Entry (&entries)[n], Key Entry::*key) {
  for (size_t i = 0; i < n; ++i)
    if (static_cast<size_t>(entries[i].*key) != i) return false;
  return n == static_cast<size_t>(Key::count);
}
static_assert(is_complete(rows, &TableRow::row), "each Row has its line in `rows`, in the order of the enumerators");
static_assert(is_complete(collectives, &CollectiveTraits::collective),
              "each Collective has its line in `collectives`, in the order of the enumerators");

}  // namespace

const TableRow& table_row(Row row) { return rows[static_cast<size_t>(row)]; }
std::span<const TableRow> table() { return rows; }
const CollectiveTraits& traits_of(Collective collective) { return collectives[static_cast<size_t>(collective)]; }

namespace {

DimAxes in_mesh_order(AxisSet axes) {
  DimAxes order;
  for (int a = 0; a < max_axes; ++a)
    if (axes >> a & 1) order.push_back(a);
  return order;
}

void unravel(const MeshImpl* mesh, const DimAxes& axes, int index, int* coordinates) {
  for (int i = axes.size(); i-- > 0; index /= static_cast<int>(mesh->axes[axes[i]].size))
    coordinates[axes[i]] = index % static_cast<int>(mesh->axes[axes[i]].size);
}

// Returns, for each process along these axes, the numbers of its devices.
std::vector<std::vector<int>> numbers_by_process(const MeshImpl* mesh, const DimAxes& order) {
  const AxisSet axes = order.axis_set();
  std::vector<std::vector<int>> numbers(mesh->count(axes) / mesh->slots(axes));
  for (int k = 0; k < mesh->count(axes); ++k) {
    Coordinates coordinates(mesh);
    unravel(mesh, order, k, coordinates);
    numbers[process_along(mesh, axes, coordinates)].push_back(k);
  }
  return numbers;
}

}  // namespace

void form_groups(Step& step, const DimAxes& given) {
  const MeshImpl* mesh = step.mesh;
  const DimAxes order = given.empty() ? in_mesh_order(step.axes) : given;
  const AxisSet others = (step.slots_in | step.slots_out) & ~step.axes;
  const bool apart_in = (step.slots_in & step.axes) != 0, apart_out = (step.slots_out & step.axes) != 0;
  const bool remote = (step.axes & mesh->crossing()) != 0;
  const int self = process_along(mesh, step.axes, Coordinates(mesh));
  std::vector<std::vector<int>> numbers{{0}};
  if (remote || apart_in || apart_out) numbers = numbers_by_process(mesh, order);
  step.groups.resize(mesh->slots(others));
  for (size_t g = 0; g < step.groups.size(); ++g) {
    Group& group = step.groups[g];
    Coordinates coordinates(mesh);
    unravel(mesh, others, static_cast<int>(g), coordinates);
    for (const int number : numbers[self]) {
      if (apart_in || apart_out) unravel(mesh, order, number, coordinates);
      if (apart_in || group.in.empty()) group.in.push_back(ravel(mesh, step.slots_in, coordinates));
      if (apart_out || group.out.empty()) group.out.push_back(ravel(mesh, step.slots_out, coordinates));
    }
  }
  if (remote) step.processes = {processes_along(mesh, step.axes), self, std::move(numbers)};
}

namespace {

class RouteMaker {
 public:
  RouteMaker(const Type* from, AxisSet slots, const Type* to)
      : current_(*on_mesh(from, to->mesh)), slots_(slots), to_(to) {}

  Route make() {
    if (!to_->mesh) return {};
    refuse_leaving_varying();
    spread();
    leave_reduced();
    while (shrink() || sum() || exchange() || gather()) {
    }
    if (const AxisSet axes = to_->unreduced & ~current_.unreduced) {
      add(Row::replicated_to_unreduced, axes, 0, 0, slots_ | axes);
      current_.unreduced |= axes;
    }
    if (const AxisSet axes = to_->reduced & ~current_.reduced) add(Row::replicated_to_reduced, axes, 0, 0, slots_);
    return std::move(route_);
  }

  // Returns a route that exchanges all blocks at once, then marks the result reduced where the target is. Returns
  // nullopt if the conversion reduces or finishes sums.
  std::optional<Route> at_once() {
    const Type& from = *intern(current_);
    if (!to_->mesh || from.unreduced != to_->unreduced || (from.reduced & ~to_->reduced) ||
        from.varying != to_->varying || from.slots != slots_ || from.elements == 0)
      return std::nullopt;
    const Type* there = with_reduced(to_, from.reduced & ~to_->own());
    Step step = exchange_step(
        &from, there,
        std::make_shared<const BlockExchange>(make_block_exchange({&from}, there, identity_map(to_->shape))));
    route_.cost = step.cost;
    slots_ = step.slots_out;
    route_.steps.push_back(std::make_shared<const Step>(std::move(step)));
    current_ = *there;
    if (const AxisSet axes = to_->reduced & ~there->reduced) add(Row::replicated_to_reduced, axes, 0, 0, slots_);
    return std::move(route_);
  }

 private:
  // Throws for a varying array that would become equal along an axis: only an explicit collective does that, never a
  // sharding.
  void refuse_leaving_varying() const {
    if (current_.varying != to_->varying || (to_->varying & (to_->sharded | to_->unreduced | to_->reduced)))
      fail(ErrorKind::varying_axis, "redistribute",
           "{} differs along \"{}\" inside shard_map and cannot become {}. Use psum, all_gather or another collective.",
           intern(current_)->to_string(), to_->mesh->names(current_.varying | to_->varying), to_->to_string());
  }

  // Copies the tensor of an uncommitted array if each device needs its own (private replicas).
  void spread() {
    const AxisSet missing = to_->mesh->private_replicas ? to_->mesh->all() & ~slots_ : 0;
    if (missing && to_->mesh->count(missing) > 1) add(Row::spread, missing, 0, 0, slots_ | missing);
    slots_ |= missing;
  }

  void leave_reduced() {
    if (const AxisSet axes = current_.reduced & ~to_->reduced) add(Row::reduced_to_replicated, axes, 0, 0, slots_);
    current_.reduced &= to_->reduced;
  }

  // Slices or reduce-scatters over the next axes of the target's sharding, so that every later step moves less data.
  bool shrink() {
    for (size_t d = 0; d < current_.dims.size(); ++d) {
      DimAxes& now = current_.dims[d];
      const DimAxes& wanted = to_->dims[d];
      if (now == wanted || !now.is_prefix_of(wanted)) continue;
      if (is_padded(d, wanted) && !may_be_cut_at_once(d)) continue;
      const bool pending = current_.unreduced >> wanted[now.size()] & 1;
      DimAxes axes;
      for (int i = now.size(); i < wanted.size() && may_join(wanted[i], pending); ++i) axes.push_back(wanted[i]);
      if (axes.empty()) continue;
      for (int axis : axes) now.push_back(axis);
      add(pending ? Row::unreduced_to_sharded : Row::replicated_to_sharded, axes, d, 0, slots_ | axes.axis_set());
      current_.unreduced &= ~axes.axis_set();
      return true;
    }
    return false;
  }

  // Blocks of a padded dimension do not nest, so it is sharded over all of its axes at once, or over none.
  bool is_padded(size_t d, const DimAxes& axes) const { return !axes.empty() && current_.shape[d] % count(axes) != 0; }
  bool may_be_cut_at_once(size_t d) const {
    const AxisSet wanted = to_->dims[d].axis_set(), pending = wanted & current_.unreduced;
    return current_.dims[d].empty() && !(sharded() & wanted) && (pending == 0 || pending == wanted);
  }
  // Returns the axes of partial sums that a padded dimension cannot reduce-scatter, because the target also shards it
  // over axes without a partial sum.
  AxisSet summed_first() const {
    AxisSet axes = 0;
    for (size_t d = 0; d < current_.dims.size(); ++d)
      if (const AxisSet wanted = to_->dims[d].axis_set(); is_padded(d, to_->dims[d]) && (wanted & ~current_.unreduced))
        axes |= wanted & current_.unreduced;
    return axes;
  }

  // Axes of one dimension form one group if they are unused and all have the same state.
  bool may_join(int axis, bool pending) const {
    return !(sharded() >> axis & 1) && static_cast<bool>(current_.unreduced >> axis & 1) == pending;
  }

  // Adds one all_reduce over all partial sums that no dimension scatters.
  bool sum() {
    const AxisSet wanted = axis_set_of(to_->dims) & ~summed_first();
    const AxisSet pending = current_.unreduced & ~to_->unreduced & ~wanted;
    for (const AxisSet axes : {pending & ~to_->reduced, pending & to_->reduced}) {
      if (!axes) continue;
      const bool reduced = (axes & to_->reduced) != 0;
      add(reduced ? Row::unreduced_to_reduced : Row::unreduced_to_replicated, axes, 0, 0, without(axes));
      current_.unreduced &= ~axes;
      if (reduced) current_.reduced |= axes;
      return true;
    }
    return false;
  }

  // Moves the minor-most axis of a dimension to the dimension that the target shards over it next (all_to_all).
  bool exchange() {
    for (size_t d = 0; d < current_.dims.size(); ++d) {
      DimAxes& now = current_.dims[d];
      if (now.is_prefix_of(to_->dims[d])) continue;
      const int axis = now.back();
      for (size_t e = 0; e < current_.dims.size(); ++e) {
        DimAxes& other = current_.dims[e];
        const DimAxes& wanted = to_->dims[e];
        if (e == d || wanted.size() <= other.size() || !other.is_prefix_of(wanted) || wanted[other.size()] != axis)
          continue;
        if ((is_padded(d, now) && now.size() > 1) || (is_padded(e, wanted) && wanted.size() > 1)) continue;
        now.pop_back();
        other.push_back(axis);
        add(Row::sharded_to_sharded, AxisSet{1} << axis, d, e, slots_);
        return true;
      }
    }
    return false;
  }

  // Gathers a minor axis that exchange() cannot move, together with the preceding axes that have the same row of the
  // table. If the target is unreduced over the axis, the block is padded with zeros instead. The smallest group is
  // gathered first, so that later steps transfer less data.
  bool gather() {
    DimAxes axes;
    int dim = -1;
    for (size_t d = 0; d < current_.dims.size(); ++d) {
      const DimAxes leaving = is_torn(d) ? current_.dims[d] : leaving_together(current_.dims[d], to_->dims[d]);
      if (leaving.empty() || (dim >= 0 && count(leaving) >= count(axes))) continue;
      axes = leaving;
      dim = static_cast<int>(d);
    }
    if (dim < 0) return false;
    const Row row = is_alike(axes) ? row_of_gather(axes.back()) : Row::sharded_to_replicated;
    for (int i = 0; i < axes.size(); ++i) current_.dims[dim].pop_back();
    if (row == Row::sharded_to_reduced) current_.reduced |= axes.axis_set();
    if (row == Row::sharded_to_unreduced) current_.unreduced |= axes.axis_set();
    add(row, axes, dim, 0, row == Row::sharded_to_unreduced ? slots_ : without(axes.axis_set()));
    return true;
  }

  // Returns true if all axes of a dimension must be gathered to change some of them, because its blocks or the target's
  // are padded.
  bool is_torn(size_t d) const {
    const DimAxes &now = current_.dims[d], &wanted = to_->dims[d];
    return !now.empty() && now != wanted && (is_padded(d, now) || is_padded(d, wanted));
  }
  bool is_alike(const DimAxes& leaving) const {
    return std::all_of(leaving.begin(), leaving.end(),
                       [&](int axis) { return row_of_gather(axis) == row_of_gather(leaving.back()); });
  }

  // Returns the minor axes of a dimension that its target lacks and that take the same table row.
  DimAxes leaving_together(DimAxes now, const DimAxes& wanted) const {
    DimAxes reversed, axes;
    while (!now.is_prefix_of(wanted) && (reversed.empty() || row_of_gather(now.back()) == row_of_gather(reversed[0]))) {
      reversed.push_back(now.back());
      now.pop_back();
    }
    for (int i = reversed.size() - 1; i >= 0; --i) axes.push_back(reversed[i]);
    return axes;
  }

  int count(const DimAxes& axes) const { return to_->mesh->count(axes.axis_set()); }

  Row row_of_gather(int axis) const {
    if (to_->unreduced >> axis & 1) return Row::sharded_to_unreduced;
    return to_->reduced >> axis & 1 ? Row::sharded_to_reduced : Row::sharded_to_replicated;
  }

  AxisSet sharded() const { return axis_set_of(current_.dims); }

  AxisSet without(AxisSet axes) const { return to_->mesh->private_replicas ? slots_ : slots_ & ~axes; }

  // Returns the bytes of one device's block of current_, without padding, as block exchanges count them.
  double bytes() const {
    double b = static_cast<double>(item_size(current_.dtype));
    for (size_t d = 0; d < current_.dims.size(); ++d)
      b *= static_cast<double>(current_.shape[d]) / count(current_.dims[d]);
    return b;
  }

  void add(Row row, AxisSet axes, int dim, int to_dim, AxisSet slots_out) {
    add(row, in_mesh_order(axes), dim, to_dim, slots_out);
  }

  void add(Row row, const DimAxes& order, int dim, int to_dim, AxisSet slots_out) {
    const AxisSet axes = order.axis_set();
    slots_out = to_->mesh->distinct(slots_out);
    Step step{.row = row, .mesh = to_->mesh, .axes = axes, .dim = dim, .to_dim = to_dim};
    step.slots_in = slots_;
    step.slots_out = slots_out;
    step.tensors_in = to_->mesh->slots(slots_);
    step.tensors_out = to_->mesh->slots(slots_out);
    form_groups(step, order);
    const int n = to_->mesh->count(axes);
    step.size = size_if_padded(dim, n);
    step.to_size = size_if_padded(to_dim, n);
    const double before = row == Row::sharded_to_reduced || row == Row::sharded_to_replicated     ? bytes() / n
                          : row == Row::unreduced_to_sharded || row == Row::replicated_to_sharded ? bytes() * n
                                                                                                  : bytes();
    const auto& [_, from, to, forward, backward] = table_row(row);
    step.cost = traits_of(forward).sent_bytes(bytes(), n) + traits_of(backward).sent_bytes(before, n);
    route_.cost += step.cost;
    route_.steps.push_back(std::make_shared<const Step>(std::move(step)));
    slots_ = slots_out;
  }

  // Returns the dimension's size if the devices do not divide it, else 0. A step takes all axes of a padded dimension
  // at once.
  int64_t size_if_padded(int dim, int devices) const {
    return !current_.shape.empty() && current_.shape[dim] % devices ? current_.shape[dim] : 0;
  }

  TypeKey current_;
  AxisSet slots_;
  const Type* to_;
  Route route_;
};

// Networks handle the patterns of collectives well. So blocks are exchanged at once only if that moves less data, or
// equally much while the route has detours through other devices.
Route cheapest(const Type* from, AxisSet slots, const Type* to) {
  Route rows = RouteMaker(from, slots, to).make();
  if (rows.steps.size() < 2) return rows;
  std::optional<Route> exchanged = RouteMaker(from, slots, to).at_once();
  const auto takes = [&](Row row) {
    return std::any_of(rows.steps.begin(), rows.steps.end(), [&](const auto& step) { return step->row == row; });
  };
  const bool gathers = takes(Row::sharded_to_replicated) || takes(Row::sharded_to_reduced);
  const bool detours = takes(Row::sharded_to_sharded) || (gathers && takes(Row::replicated_to_sharded));
  if (!exchanged || exchanged->cost > rows.cost || (exchanged->cost == rows.cost && !detours)) return rows;
  return *std::move(exchanged);
}

}  // namespace

const Route& route(const Type* from, AxisSet slots, const Type* to) {
  thread_local BoundedCache<std::map<std::tuple<const Type*, const Type*, AxisSet>, Route>, 1 << 14> routes;
  return routes.get(std::tuple(from, to, slots), [&] { return cheapest(from, slots, to); }).second;
}

Step exchange_step(const Type* from, const Type* to, std::shared_ptr<const BlockExchange> exchange) {
  Step step{.row = Row::exchanged, .mesh = to->mesh, .axes = from->sharded | to->sharded};
  step.slots_in = from->slots;
  step.slots_out = to->slots;
  step.tensors_in = exchange->slots_in;
  step.tensors_out = exchange->slots_out;
  step.cost = static_cast<double>((exchange->received + exchange->returned) * item_size(to->dtype));
  step.exchange = std::move(exchange);
  return step;
}

Tensors as_dtype(const Tensors& tensors, DType dtype) {
  Tensors cast;
  for (const at::Tensor& t : tensors) cast.push_back(t.to(scalar_type(dtype)));
  return cast;
}

}  // namespace tessera::detail
