// Decides when a step is recorded, tracks the memory that its graph uses, and copies its results.
#include "nn/transformations/graphed_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "sharding/array/array_impl.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/ownership.h"
#include "sharding/base/fail.h"
#include "sharding/runtime/graph.h"

namespace tessera::nn::detail {
namespace {

using tessera::detail::ArrayImpl;
using tessera::detail::Graph;
using tessera::detail::HostWork;
using tessera::detail::materialized;
using tessera::detail::RecordedFunction;
using tessera::detail::Recording;
using tessera::detail::Tensors;
using tessera::detail::with_tensors;

using Memory = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Memory of an input. Holds no reference to it, because an in-place update requires a sole owner of the array.
struct Location {
  std::vector<Memory> memory;
  std::vector<void*> at;

  explicit Location(const Tensors& local) {
    for (const at::Tensor& t : local) {
      memory.emplace_back(t.storage().getWeakStorageImpl());
      at.push_back(t.storage().data_ptr() ? t.data_ptr() : nullptr);
    }
  }
  bool is_that_of(const ArrayImpl& a) const {
    for (size_t i = 0; i < at.size(); ++i) {
      const auto alive = memory[i].lock();
      if (!alive || alive.get() != a.local[i].storage().unsafeGetStorageImpl() || a.local[i].data_ptr() != at[i])
        return false;
    }
    return true;
  }
};

Tensors empty_like(const Tensors& all) {
  Tensors result;
  for (const at::Tensor& t : all) result.push_back(at::empty_like(t, at::MemoryFormat::Contiguous));
  return result;
}

RecordedFunction function_of(const CapturedCall& call, HostWork* work) {
  RecordedFunction function{.changed = {}, .work = work};
  for (const CapturedCall::Object& object : call.objects) function.changed.push_back({object.at, object.size});
  return function;
}

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::AutoGradMode off(false);
  if (!to.empty()) at::_foreach_copy_(to, from);
}

// Memory of the arrays that a recorded step changes, held while it is recorded.
class ChangedMemory {
 public:
  explicit ChangedMemory(const std::vector<Array*>& arrays) : arrays_(arrays) {
    for (const Array* x : arrays) {
      Tensors memory;
      if (!x->is_absent())
        for (const at::Tensor& t : x->impl()->local) memory.push_back(t.detach());
      types_.push_back(x->is_absent() ? nullptr : x->impl()->type);
      slots_.push_back(x->is_absent() ? 0 : x->impl()->slots);
      memory_.push_back(std::move(memory));
    }
  }

  // Copies arrays whose memory has changed back to their former memory. This is the last part of the recording.
  void copy_back() const {
    std::vector<at::Tensor> to, from;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      check_type(*arrays_[i], i);
      if (!types_[i] || has_same_memory(i)) continue;
      const ArrayImpl& now = materialized(*arrays_[i], "GraphedStep");
      to.insert(to.end(), memory_[i].begin(), memory_[i].end());
      from.insert(from.end(), now.local.begin(), now.local.end());
    }
    copy_all(to, from);
    put_back();
  }

  // Restores the arrays' former memory.
  void put_back() const {
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (types_[i] && !arrays_[i]->is_absent() && !has_same_memory(i))
        *arrays_[i] = with_tensors(*arrays_[i]->impl(), memory_[i]);
  }

 private:
  bool has_same_memory(size_t i) const {
    const Tensors& now = arrays_[i]->impl()->local;
    for (size_t k = 0; k < memory_[i].size(); ++k)
      if (now.size() != memory_[i].size() || now[k].data_ptr() != memory_[i][k].data_ptr()) return false;
    return true;
  }
  void check_type(const Array& now, size_t i) const {
    if (now.is_absent() ? !types_[i] : types_[i] == now.impl()->type && slots_[i] == now.impl()->slots) return;
    fail(ErrorKind::invalid_argument, "GraphedStep",
         "{} given, the step makes it {}, expected an array of the same type.",
         types_[i] ? types_[i]->to_string() : "an absent array", now.is_absent() ? "absent" : now.type_string());
  }

  std::vector<Array*> arrays_;
  std::vector<const tessera::detail::Type*> types_;
  std::vector<tessera::detail::AxisSet> slots_;
  std::vector<Tensors> memory_;
};

}  // namespace

// The recording for one kind of arguments.
struct Recordings::Recorded {
  // Properties by which arguments are compared.
  struct Kind {
    const tessera::detail::Type* type;
    tessera::detail::AxisSet slots;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  std::string rest;
  std::vector<Kind> inputs, changed;
  std::vector<const void*> objects;
  std::vector<std::string> numbers;
  std::vector<std::shared_ptr<const void>> identities;
  std::vector<bool> counted;  // which numbers the first call changed: the host counts these

  std::vector<Location> places;          // inputs: at the latest call; once recorded, those read in place
  std::vector<Location> changed_places;  // arrays changed in place
  std::vector<Array> own;                // memory into which inputs are copied; absent: read in place
  std::any result;
  std::unique_ptr<Graph> graph;
  tessera::detail::RecordedChecks checks;
  HostWork work;

  explicit Recorded(const CapturedCall& call)
      : rest(call.rest),
        inputs(kinds_of(call.inputs)),
        changed(kinds_of(call.changed)),
        objects(addresses_of(call)),
        numbers(call.numbers),
        identities(call.identities) {
    for (const Array* x : call.inputs) places.emplace_back(x->is_absent() ? Tensors() : x->impl()->local);
  }

  static std::vector<Kind> kinds_of(const std::vector<Array*>& arrays) {
    std::vector<Kind> kinds;
    for (const Array* x : arrays)
      kinds.push_back(x->is_absent() ? Kind{nullptr, 0} : Kind{x->impl()->type, x->impl()->slots});
    return kinds;
  }
  static std::vector<const void*> addresses_of(const CapturedCall& call) {
    std::vector<const void*> all;
    for (const CapturedCall::Object& object : call.objects) all.push_back(object.at);
    return all;
  }

  bool is_for(const CapturedCall& call) const {
    return rest == call.rest && inputs == kinds_of(call.inputs) && changed == kinds_of(call.changed) &&
           objects == addresses_of(call) && identities == call.identities && has_numbers(call.numbers);
  }
  bool has_numbers(const std::vector<std::string>& now) const {
    if (now.size() != numbers.size()) return false;
    for (size_t i = 0; i < now.size(); ++i)
      if (!counted[i] && now[i] != numbers[i]) return false;
    return true;
  }

  // Runs the step and records which numbers change.
  std::any run_first(const CapturedCall& call) {
    const RecordedFunction function = function_of(call, nullptr);
    const Recording recording(function);
    std::any made = call.step();
    const std::vector<std::string> now = call.numbers_now();
    for (size_t i = 0; i < numbers.size(); ++i) counted.push_back(i >= now.size() || now[i] != numbers[i]);
    return made;
  }

  // Returns true if everything that the graph reads or writes in place has the same memory, and each written array has
  // one owner.
  bool is_in_place(const CapturedCall& call) const {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].type && own[i].is_absent() && !places[i].is_that_of(*call.inputs[i]->impl())) return false;
    for (size_t i = 0; i < changed.size(); ++i) {
      if (!changed[i].type) continue;
      forget_derived(*call.changed[i]);
      if (!changed_places[i].is_that_of(*call.changed[i]->impl()) || !tessera::detail::is_sole_owner(*call.changed[i]))
        return false;
    }
    return true;
  }

  void copy_inputs(const CapturedCall& call) const {
    std::vector<at::Tensor> to, from;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (own[i].is_absent()) continue;
      const ArrayImpl &mine = *own[i].impl(), &given = *call.inputs[i]->impl();
      to.insert(to.end(), mine.local.begin(), mine.local.end());
      from.insert(from.end(), given.local.begin(), given.local.end());
    }
    copy_all(to, from);
  }

  void record(const CapturedCall& call, c10::Device device, std::unique_ptr<Graph> made) {
    result.reset(), graph.reset(), own.clear(), changed_places.clear();
    work = HostWork(device);
    take_inputs(call);
    for (Array* x : call.changed) {
      if (x->is_absent()) continue;
      tessera::detail::make_sole_owner(*x);
      for (const at::Tensor& t : x->impl()->local) work.kept.insert(t.storage().unsafeGetStorageImpl());
    }
    {
      const ChangedMemory saved(call.changed);
      try {
        checks.during([&] { made->record([&] { run_recorded(call, saved); }); });
        check_numbers(call);
      } catch (...) {
        saved.put_back();
        throw;
      }
    }
    for (const Array* x : call.changed) changed_places.emplace_back(x->is_absent() ? Tensors() : x->impl()->local);
    graph = std::move(made);
  }

  void replay(const CapturedCall& call) const {
    work.put_numbers();
    graph->replay();
    for (const auto& f : work.after) f();
    for (Array* x : call.changed)
      if (!x->is_absent()) forget_derived(*x);
    checks.note();
  }

  std::any copied_result(const CapturedCall& call) const {
    std::any copy = result;
    std::vector<at::Tensor> to, from;
    for (Array* x : call.arrays(copy)) {
      if (x->is_absent()) continue;
      const ArrayImpl& a = *x->impl();
      from.insert(from.end(), a.local.begin(), a.local.end());
      *x = with_tensors(a, empty_like(a.local));
      to.insert(to.end(), x->impl()->local.begin(), x->impl()->local.end());
    }
    copy_all(to, from);
    return copy;
  }

 private:
  static void forget_derived(const Array& x) {
    if (x.impl()->details) x.impl()->details->conversions.clear();
  }

  // Inputs whose memory differs from the previous call's are copied from now on.
  void take_inputs(const CapturedCall& call) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool moves = inputs[i].type && !places[i].is_that_of(*call.inputs[i]->impl());
      own.push_back(moves ? with_tensors(*call.inputs[i]->impl(), empty_like(call.inputs[i]->impl()->local)) : Array());
    }
    copy_inputs(call);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].type) {
        const ArrayImpl& given = *call.inputs[i]->impl();
        *call.inputs[i] = own[i].is_absent() ? with_tensors(given, given.local) : own[i];
      }
  }

  void run_recorded(const CapturedCall& call, const ChangedMemory& saved) {
    const RecordedFunction function = function_of(call, &work);
    const Recording recording(function);
    result = call.step();
    for (Array* x : call.arrays(result))
      if (!x->is_absent()) materialized(*x, "GraphedStep");
    saved.copy_back();
  }

  // Replays update the numbers that the host counts, so the recording itself must not change any.
  void check_numbers(const CapturedCall& call) const {
    const std::vector<std::string> now = call.numbers_now();
    for (size_t i = 0; i < now.size(); ++i)
      if (i >= call.numbers.size() || now[i] != call.numbers[i])
        fail(ErrorKind::invalid_argument, "GraphedStep",
             "{} after a captured step that began with {}, expected that the step changes no numbers except those of "
             "an Optimizer's state. Change it after the call.",
             now[i], i < call.numbers.size() ? call.numbers[i] : "none");
  }
};

Recordings::Recordings() = default;
Recordings::~Recordings() = default;

namespace {

// Returns the device of all arrays if it supports graphs; none if they are on several devices or a gradient records
// them.
std::optional<c10::Device> device_of(const CapturedCall& call) {
  std::optional<c10::Device> device;
  for (const auto* arrays : {&call.inputs, &call.changed})
    for (const Array* x : *arrays) {
      if (x->is_absent()) continue;
      const ArrayImpl& a = materialized(*x, "GraphedStep");
      if (tessera::detail::wants_gradient(a) || a.local.empty()) return std::nullopt;
      for (const at::Tensor& t : a.local) {
        if (device && t.device() != *device) return std::nullopt;
        device = t.device();
      }
    }
  return device && tessera::detail::graphs_of(device->type()) ? device : std::nullopt;
}

}  // namespace

Recordings::Recorded* Recordings::find(const CapturedCall& call) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->is_for(call); });
  if (found == all_.end()) return nullptr;
  std::rotate(all_.begin(), found, found + 1);
  return all_.front().get();
}

// Runs the first call without recording it, because objects that it creates, such as library handles, cannot be part of
// a graph.
std::any Recordings::run_first(const CapturedCall& call) {
  constexpr size_t max_recordings = 8;
  auto made = std::make_unique<Recorded>(call);
  std::any result = made->run_first(call);
  if (all_.size() == max_recordings) all_.pop_back();
  all_.insert(all_.begin(), std::move(made));
  return result;
}

std::any Recordings::run(const CapturedCall& call) {
  if (tessera::detail::is_recording()) return call.step();
  const std::optional<c10::Device> device = device_of(call);
  if (!device) {
    const RecordedFunction function = function_of(call, nullptr);
    const Recording recording(function);
    return call.step();
  }
  Recorded* recorded = find(call);
  if (!recorded) return run_first(call);
  if (recorded->graph && recorded->is_in_place(call)) {
    recorded->copy_inputs(call);
  } else {
    recorded->record(call, *device, tessera::detail::graphs_of(device->type())(device->index()));
    ++count_;
  }
  recorded->replay(call);
  return recorded->copied_result(call);
}

}  // namespace tessera::nn::detail
