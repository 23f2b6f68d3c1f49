// Records the order of weight gathers in one step, and prefetches by it in the next.
#include "sharding/autodiff/weights/prefetch_schedule.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sharding/accounting/communication_event.h"
#include "sharding/base/bounded_cache.h"
#include "sharding/base/caller.h"
#include "sharding/base/environment.h"
#include "sharding/redistribution/replica_checks.h"

namespace tessera::detail {
namespace {

const Text& path_of(const ArrayImpl& a) {
  static const Text none;
  return a.details ? a.details->path : none;
}

bool are_same(const Text& a, const Text& b) { return a == b || (a && b && *a == *b); }

// A program: its line, its options, and the parameters' types and paths. It is looked up in each step by what the step
// has, of which nothing is copied: paths are compared by their words only where they are not the same text.
struct Asked {
  std::source_location where;
  const GradientOptions& options;
  const std::vector<ArrayPtr>& parameters;
};
struct Program {
  explicit Program(const Asked& asked)
      : where(asked.where), groups(asked.options.gather_groups), borrows(asked.options.reshard_after_forward) {
    for (const ArrayPtr& p : asked.parameters) {
      types.push_back(p->type);
      paths.push_back(path_of(*p));
    }
  }
  std::source_location where;
  GatherGroups groups;
  bool borrows;
  std::vector<const Type*> types;
  std::vector<Text> paths;
};

bool are_same(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && std::string_view(a.file_name()) == b.file_name();
}

// Types are interned, and tell most programs apart.
struct HashOfProgram {
  using is_transparent = void;
  static size_t mixed(size_t hash, size_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15 + (hash >> 29); }
  static size_t of(const Type* type) { return reinterpret_cast<size_t>(type) >> 4; }
  size_t operator()(const Asked& a) const {
    size_t hash = a.where.line();
    for (const ArrayPtr& p : a.parameters) hash = mixed(hash, of(p->type));
    return hash;
  }
  size_t operator()(const Program& p) const {
    size_t hash = p.where.line();
    for (const Type* type : p.types) hash = mixed(hash, of(type));
    return hash;
  }
};
struct IsSameProgram {
  using is_transparent = void;
  bool operator()(const Program& a, const Program& b) const {
    return are_same(a.where, b.where) && a.groups == b.groups && a.borrows == b.borrows && a.types == b.types &&
           std::equal(a.paths.begin(), a.paths.end(), b.paths.begin(),
                      [](const Text& x, const Text& y) { return are_same(x, y); });
  }
  bool operator()(const Asked& a, const Program& b) const {
    if (!are_same(a.where, b.where) || a.options.gather_groups != b.groups ||
        a.options.reshard_after_forward != b.borrows)
      return false;
    if (a.parameters.size() != b.types.size()) return false;
    for (size_t i = 0; i < b.types.size(); ++i)
      if (a.parameters[i]->type != b.types[i] || !are_same(path_of(*a.parameters[i]), b.paths[i])) return false;
    return true;
  }
  bool operator()(const Program& a, const Asked& b) const { return (*this)(b, a); }
};

constexpr size_t max_programs = 64;
using Orders =
    BoundedCache<std::unordered_map<Program, std::shared_ptr<KnownOrder>, HashOfProgram, IsSameProgram>, max_programs>;

Orders& orders() {
  thread_local Orders orders;
  return orders;
}

thread_local int64_t learned = 0;

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string block_of(const WeightGather& gather) {
  const Text& path = gather.resharding->cause.path;
  return path ? detail::block_of(*path) : "";
}

// Of consecutive gathers of one block in one pass; a weight that is gathered twice begins another group.
GatherOrder grouped(std::vector<WeightGather> gathers, GatherGroups by) {
  GatherOrder order{std::move(gathers), {}};
  const size_t n = order.gathers.size();
  for (size_t begin = 0, end; begin < n; begin = end) {
    const WeightGather& first = order.gathers[begin];
    const auto joins = [&](const WeightGather& next) {
      return by == GatherGroups::by_block && next.in_backward_pass == first.in_backward_pass &&
             !block_of(first).empty() && block_of(next) == block_of(first) &&
             std::none_of(order.gathers.begin() + static_cast<ptrdiff_t>(begin),
                          order.gathers.begin() + static_cast<ptrdiff_t>(end),
                          [&](const WeightGather& other) { return other.is_like(next); });
    };
    for (end = begin + 1; end < n && joins(order.gathers[end]);) ++end;
    order.group_end.resize(end, end);
  }
  return order;
}

}  // namespace

std::string block_of(const std::string& path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (is_digits(std::string_view(path).substr(begin, end - begin))) return path.substr(0, end);
    begin = end + 1;
  }
  return "";
}

bool is_leaf(const ArrayImpl& parameter, const ArrayPtr& a) {
  const std::vector<ArrayPtr>& leaves = parameter.details->leaves;
  return std::find(leaves.begin(), leaves.end(), a) != leaves.end();
}

bool WeightGather::is_like(const WeightGather& other) const {
  const auto same_weight = [&] {
    return !frozen.owner_before(other.frozen) && !other.frozen.owner_before(frozen) && !frozen.expired();
  };
  return parameter == other.parameter && in_backward_pass == other.in_backward_pass &&
         resharding->from == other.resharding->from && resharding->to == other.resharding->to &&
         (parameter >= 0 || same_weight());
}

PrefetchSchedule::PrefetchSchedule(std::vector<ArrayPtr> parameters, const GradientOptions& options)
    : parameters_(std::move(parameters)), options_(options) {}

int PrefetchSchedule::place_of(const ArrayImpl& parameter) const {
  const auto is_it = [&](const ArrayPtr& p) { return p.get() == &parameter; };
  const auto place = std::find_if(parameters_.begin(), parameters_.end(), is_it);
  return place == parameters_.end() ? -1 : static_cast<int>(place - parameters_.begin());
}

std::optional<WeightGather> PrefetchSchedule::gather_of(const ArrayPtr& a, const ArrayPtr& start,
                                                        std::shared_ptr<const Resharding> resharding) const {
  WeightGather gather{.resharding = std::move(resharding)};
  const ArrayImpl* origin = a.get();
  while (origin->details && origin->details->cast && origin->details->source) origin = origin->details->source.get();
  gather.parameter = place_of(*origin);
  if (gather.parameter < 0) {
    if (a != start || !a->details || !a->details->placed) return std::nullopt;
    gather.frozen = a;
    return gather;
  }
  const auto has_own_slots = [](const ArrayImpl& x) { return x.slots == x.type->slots; };
  if (!has_own_slots(*origin) || !has_own_slots(*start)) return std::nullopt;
  return start == a || is_leaf(*origin, start) ? std::optional(std::move(gather)) : std::nullopt;
}

Tensors PrefetchSchedule::tensors(WeightGather gather, const Tensors& start) {
  const auto alone = [&] { return gather.resharding->forward(start, gather.in_backward_pass); };
  if (ended_) return alone();
  if (!known_) {
    known_ = orders().get(Asked{CallerLine(), options_, parameters_}, std::make_shared<KnownOrder>).second;
    order_ = known_->order;
    follows_ = order_ != nullptr;
  }
  if (follows_ && next_ < order_->gathers.size() && order_->gathers[next_].is_like(gather)) {
    if (begun_.empty() && (is_guarded() || !begin(next_, order_->group_end[next_], gather))) return ++next_, alone();
    return take();
  }
  if (follows_) leave_order();
  Tensors made = alone();
  seen_.push_back(std::move(gather));
  return made;
}

// What was followed so far begins another order.
void PrefetchSchedule::leave_order() {
  follows_ = false;
  begun_.clear();
  seen_.assign(order_->gathers.begin(), order_->gathers.begin() + static_cast<ptrdiff_t>(next_));
}

// The tensors of the next gather in the order.
Tensors PrefetchSchedule::take() {
  Begun& group = begun_.front();
  if (group.transfer) {
    group.ready = group.transfer->finish();
    group.transfer.reset();
    begin_ahead();  // which leaves the first where it is
  }
  Tensors made = std::move(group.ready[next_ - group.begin]);
  if (++next_ == group.end) begun_.pop_front();
  return made;
}

// Where nothing goes between processes, nothing would be gained.
void PrefetchSchedule::begin_ahead() {
  size_t from = begun_.back().end;
  for (int ahead = static_cast<int>(begun_.size()) - 1; ahead < options_.prefetch_groups; ++ahead) {
    if (from == order_->gathers.size() || is_guarded()) return;
    const size_t end = order_->group_end[from];
    if (!crosses(from, end) || !begin(from, end, order_->gathers[from])) return;
    from = end;
  }
}

bool PrefetchSchedule::crosses(size_t begin, size_t end) const {
  for (size_t i = begin; i < end; ++i)
    for (const StepPtr& step : order_->gathers[i].resharding->steps)
      if (is_between_processes(*step)) return true;
  return false;
}

bool PrefetchSchedule::begin(size_t begin, size_t end, const WeightGather& first) {
  const at::AutoGradMode off(false);
  std::vector<TransferItem> items;
  for (size_t i = begin; i < end; ++i) {
    const WeightGather& gather = order_->gathers[i];
    const Resharding& r = *gather.resharding;
    Tensors start = start_of(gather);
    if (start.empty()) return false;
    start = as_dtype(start, r.to->dtype);
    bring_to_memory_of(r.to->mesh, start);
    if (checks && !r.to->mesh->abstract && crosses(i, i + 1)) check_replicas_across_processes(r.from, start, r.cause);
    items.push_back({r.steps, std::move(start), r.cause.path});
  }
  begun_.push_back(
      {begin,
       end,
       std::make_unique<Transfer>(std::move(items), EventContext{first.resharding->cause, first.resharding->from,
                                                                 first.resharding->to, first.in_backward_pass}),
       {}});
  return true;
}

// Empty if the frozen weight has been destroyed.
Tensors PrefetchSchedule::start_of(const WeightGather& gather) const {
  const Type* from = gather.resharding->from;
  if (gather.parameter < 0) {
    const ArrayPtr weight = gather.frozen.lock();
    return weight && weight->type == from ? weight->local : Tensors();
  }
  const ArrayImpl& a = materialized(Array(parameters_[gather.parameter]), "value_and_grad");
  Tensors tensors;
  for (int i = 0; i < from->mesh->slots(from->slots); ++i)
    tensors.push_back(a.local[project(from->mesh, from->slots, i, a.slots)]);
  return as_dtype(tensors, from->dtype);
}

void PrefetchSchedule::abandon() {
  ended_ = true;
  begun_.clear();
}

void PrefetchSchedule::end_step() {
  abandon();
  if (!known_) return;
  if (follows_ && next_ == order_->gathers.size()) return;
  if (follows_) leave_order();
  ++learned;
  known_->order = std::make_shared<const GatherOrder>(grouped(std::move(seen_), options_.gather_groups));
}

FreshGatherOrders::FreshGatherOrders() : before_(std::make_shared<Orders>(std::exchange(orders(), {}))) {}
FreshGatherOrders::~FreshGatherOrders() { orders() = std::move(*static_cast<Orders*>(before_.get())); }

void clear_gather_orders() { orders() = {}; }
int64_t learned_gather_orders() { return learned; }

}  // namespace tessera::detail
