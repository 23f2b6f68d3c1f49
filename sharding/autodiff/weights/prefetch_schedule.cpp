// Records the order of weight gathers in one step, and prefetches by it in the next.
#include "sharding/autodiff/weights/prefetch_schedule.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sharding/accounting/communication_event.h"
#include "sharding/base/caller.h"
#include "sharding/base/environment.h"
#include "sharding/base/thread_state.h"
#include "sharding/redistribution/communicate.h"

namespace tessera::detail {
namespace {

const Text& path_of(const ArrayImpl& a) {
  static const Text none;
  return a.details ? a.details->path : none;
}

bool are_same(const Text& a, const Text& b) { return a == b || (a && b && *a == *b); }

bool are_same(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && std::string_view(a.file_name()) == b.file_name();
}

// Identifies a program: its line, its options, and the parameters' types and paths.
struct Program {
  Program(const GradientOptions& options, const std::vector<ArrayPtr>& parameters)
      : groups(options.gather_groups), reshards(options.reshard_after_forward) {
    for (const ArrayPtr& p : parameters) {
      types.push_back(p->type);
      paths.push_back(path_of(*p));
    }
  }
  bool operator==(const Program& o) const {
    return are_same(where, o.where) && groups == o.groups && reshards == o.reshards && types == o.types &&
           std::equal(paths.begin(), paths.end(), o.paths.begin(),
                      [](const Text& x, const Text& y) { return are_same(x, y); });
  }

  std::source_location where = CallerLine();
  GatherGroups groups;
  bool reshards;
  std::vector<const Type*> types;
  std::vector<Text> paths;
};

// Hashes the line and the types, which are interned and distinguish most programs.
struct HashOfProgram {
  size_t operator()(const Program& p) const {
    size_t hash = p.where.line();
    for (const Type* type : p.types)
      hash = (hash ^ reinterpret_cast<size_t>(type) >> 4) * 0x9e3779b97f4a7c15 + (hash >> 29);
    return hash;
  }
};

constexpr size_t max_programs = 64;
using Orders = BoundedCache<std::unordered_map<Program, std::shared_ptr<KnownOrder>, HashOfProgram>, max_programs>;

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

// Groups consecutive gathers of one block in one pass. A weight that is gathered twice begins another group.
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
    known_ = orders().get(Program(options_, parameters_), std::make_shared<KnownOrder>).second;
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

// Stops following the order; the gathers up to this point begin a new order.
void PrefetchSchedule::leave_order() {
  follows_ = false;
  begun_.clear();
  seen_.assign(order_->gathers.begin(), order_->gathers.begin() + static_cast<ptrdiff_t>(next_));
}

// Returns the tensors of the next gather in the order.
Tensors PrefetchSchedule::take() {
  Begun& group = begun_.front();
  group.transfer.wait();
  if (next_ == group.begin) begin_ahead();  // `group` stays valid: begin_ahead only appends to the deque
  Tensors made = group.transfer.take(next_ - group.begin);
  if (++next_ == group.end) begun_.pop_front();
  return made;
}

// Prefetches the next groups, if they cross processes: otherwise prefetching gains nothing.
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
  const Resharding& r = *first.resharding;
  begun_.push_back({begin, end, Transfer(std::move(items), {r.cause, r.from, r.to, first.in_backward_pass})});
  return true;
}

// Returns the tensors from which the weight is gathered; empty if the frozen weight has been destroyed.
Tensors PrefetchSchedule::start_of(const WeightGather& gather) const {
  const Type* from = gather.resharding->from;
  if (gather.parameter < 0) {
    const ArrayPtr weight = gather.frozen.lock();
    return weight && weight->type == from ? weight->local : Tensors();
  }
  const Array parameter(parameters_[gather.parameter]);
  const ArrayImpl& a = materialized(parameter, "value_and_grad");
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
