// When a captured step is recorded, what its graph reads, and copies of what it leaves.
#include "nn/transformations/captured.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "sharding/array/array_impl.h"
#include "sharding/array/late_checks.h"
#include "sharding/distributed/graph.h"

namespace tessera::nn::detail {
namespace {

using tessera::detail::ArrayImpl;
using tessera::detail::Graph;
using tessera::detail::materialized;
using tessera::detail::Tensors;

using Memory = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Where an input lies. It keeps nothing alive: who updates an array in place must be its only owner.
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

// The same facts over other tensors, without what has been derived from `a`.
Array like(const ArrayImpl& a, Tensors local) {
  auto same = tessera::detail::make_array(a.type, a.slots, std::move(local));
  tessera::detail::copy_facts(a, *same);
  same->weight = a.weight;
  return Array(std::move(same));
}

Tensors empty_like(const Tensors& all) {
  Tensors result;
  for (const at::Tensor& t : all) result.push_back(at::empty_like(t, at::MemoryFormat::Contiguous));
  return result;
}

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::AutoGradMode off(false);
  if (!to.empty()) at::_foreach_copy_(to, from);
}

}  // namespace

// One kind of arguments.
struct Recordings::Recorded {
  // What says that arguments are of this kind.
  std::string rest;
  std::vector<const tessera::detail::Type*> types;
  std::vector<tessera::detail::AxisSet> slots;

  std::vector<Location> places;  // of the latest call before the recording, then of what is read in place
  std::vector<Array> own;        // what is copied into; absent: read in place
  std::any result;
  std::unique_ptr<Graph> graph;
  tessera::detail::RecordedChecks checks;

  explicit Recorded(const CapturedCall& call) : rest(call.rest) {
    for (const Array* x : call.inputs) {
      const bool there = !x->is_absent();
      types.push_back(there ? x->impl()->type : nullptr);
      slots.push_back(there ? x->impl()->slots : 0);
      places.emplace_back(there ? x->impl()->local : Tensors());
    }
  }

  bool is_for(const CapturedCall& call) const {
    if (rest != call.rest || types.size() != call.inputs.size()) return false;
    for (size_t i = 0; i < types.size(); ++i) {
      const Array& x = *call.inputs[i];
      if (x.is_absent() ? types[i] != nullptr : x.impl()->type != types[i] || x.impl()->slots != slots[i]) return false;
    }
    return true;
  }

  // Whether all that the graph reads in place still lies there.
  bool is_in_place(const CapturedCall& call) const {
    for (size_t i = 0; i < types.size(); ++i)
      if (types[i] && own[i].is_absent() && !places[i].is_that_of(*call.inputs[i]->impl())) return false;
    return true;
  }

  void copy_inputs(const CapturedCall& call) const {
    std::vector<at::Tensor> to, from;
    for (size_t i = 0; i < types.size(); ++i) {
      if (own[i].is_absent()) continue;
      const ArrayImpl &mine = *own[i].impl(), &given = *call.inputs[i]->impl();
      to.insert(to.end(), mine.local.begin(), mine.local.end());
      from.insert(from.end(), given.local.begin(), given.local.end());
    }
    copy_all(to, from);
  }

  void record(const CapturedCall& call, std::unique_ptr<Graph> made) {
    result.reset(), graph.reset(), own.clear();
    for (size_t i = 0; i < types.size(); ++i) {
      const bool moves = types[i] && !places[i].is_that_of(*call.inputs[i]->impl());
      own.push_back(moves ? like(*call.inputs[i]->impl(), empty_like(call.inputs[i]->impl()->local)) : Array());
    }
    copy_inputs(call);
    for (size_t i = 0; i < types.size(); ++i)
      if (types[i]) {
        const ArrayImpl& given = *call.inputs[i]->impl();
        *call.inputs[i] = own[i].is_absent() ? like(given, given.local) : own[i];
      }
    checks.during([&] {
      made->record([&] {
        result = call.step();
        for (Array* x : call.arrays(result))
          if (!x->is_absent()) materialized(*x, "Captured");
      });
    });
    graph = std::move(made);
  }

  std::any copied_result(const CapturedCall& call) const {
    std::any copy = result;
    std::vector<at::Tensor> to, from;
    for (Array* x : call.arrays(copy)) {
      if (x->is_absent()) continue;
      const ArrayImpl& a = *x->impl();
      from.insert(from.end(), a.local.begin(), a.local.end());
      *x = like(a, empty_like(a.local));
      to.insert(to.end(), x->impl()->local.begin(), x->impl()->local.end());
    }
    copy_all(to, from);
    return copy;
  }
};

Recordings::Recordings() = default;
Recordings::~Recordings() = default;

namespace {

// What makes the graphs of the device where the inputs lie; null where they lie on none that has them, on several, or
// are recorded for a gradient.
std::unique_ptr<Graph> graph_for(const CapturedCall& call) {
  std::optional<c10::Device> device;
  for (const Array* x : call.inputs) {
    if (x->is_absent()) continue;
    const ArrayImpl& a = materialized(*x, "Captured");
    if (tessera::detail::wants_gradient(a) || a.local.empty()) return nullptr;
    for (const at::Tensor& t : a.local) {
      if (device && t.device() != *device) return nullptr;
      device = t.device();
    }
  }
  const auto make = device ? tessera::detail::graphs_of(device->type()) : nullptr;
  return make ? make(device->index()) : nullptr;
}

}  // namespace

Recordings::Recorded* Recordings::find(const CapturedCall& call) {
  constexpr size_t kept = 8;
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->is_for(call); });
  if (found == all_.end()) {
    if (all_.size() == kept) all_.pop_back();
    all_.insert(all_.begin(), std::make_unique<Recorded>(call));
    return nullptr;
  }
  std::rotate(all_.begin(), found, found + 1);
  return all_.front().get();
}

std::any Recordings::run(const CapturedCall& call) {
  const auto as_it_is = [&] {
    const tessera::detail::Recording forbidden;
    return call.step();
  };
  std::unique_ptr<Graph> graph = tessera::detail::is_recording() ? nullptr : graph_for(call);
  if (!graph) return as_it_is();
  Recorded* recorded = find(call);
  if (!recorded) return as_it_is();  // what is made at a first call, as handles of libraries, is no part of a graph
  if (recorded->graph && recorded->is_in_place(call)) {
    recorded->copy_inputs(call);
  } else {
    const tessera::detail::Recording forbidden;
    recorded->record(call, std::move(graph));
    ++count_;
  }
  recorded->graph->replay();
  recorded->checks.note();
  return recorded->copied_result(call);
}

}  // namespace tessera::nn::detail
