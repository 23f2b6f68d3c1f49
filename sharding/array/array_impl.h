// ArrayImpl: the state of an Array: its type, local tensors, and facts that a tape or a placement adds.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "sharding/array/array.h"
#include "sharding/array/once_ptr.h"
#include "sharding/base/caller.h"
#include "sharding/base/environment.h"
#include "sharding/base/error.h"
#include "sharding/kernels/tensors.h"
#include "sharding/placement/type.h"

namespace tessera {
class MeshRules;
}

namespace tessera::detail {

struct MeshRulesImpl;
struct Recipe;
struct Details;

inline at::ScalarType scalar_type(DType dtype) { return static_cast<at::ScalarType>(dtype); }

// Whether an array has its local tensors.
//
//   absent                     no ArrayImpl: never set, moved away, or removed by a filter
//   lazy     -- first use -->  ready    Details::recipe generates the tensors
//   pending  -- first use -->  ready    Details::arrival waits for a transfer; after an error the array remains pending
//   ready                      `local` has the tensors, permanently
//
// Only materialized() changes the state of an array that other code has seen.
enum class ArrayState : uint8_t { absent, lazy, pending, ready };

struct ArrayImpl {
  const Type* type = nullptr;
  AxisSet slots = 0;    // `local` has one tensor for each position of this process along these mesh axes
  bool weight = false;  // a parameter, or computed from parameters only
  bool gradient = false;  // a gradient that a tape returned
  bool direct = false;    // for a tape's leaf: some use is not a gather whose gradient is reduced by block
  std::atomic<ArrayState> state = ArrayState::ready;
  const MeshRulesImpl* mesh_rules = nullptr;
  Tensors local;
  OncePtr<Details> details;

  ArrayImpl();
  ~ArrayImpl();
  Details& detail();  // creates it on first use
  bool is_ready() const { return state == ArrayState::ready; }
};
using ArrayPtr = std::shared_ptr<ArrayImpl>;
inline ArrayState state_of(const Array& x) { return x.impl() ? x.impl()->state.load() : ArrayState::absent; }

struct TapeState;
class ReshardAfterForward;

// An array in another sharding (gathered, summed, reduced), cached for its next use.
struct Conversion {
  const Type* to;
  bool recorded;  // has an autograd graph; a conversion without one is never used where a gradient is needed
  ArrayPtr array;
};

// Rarely used facts about an array.
struct Details {
  Text path;
  std::unique_ptr<NamedSharding> placed;  // the sharding as the user or the mesh rules wrote it
  std::shared_ptr<const Recipe> recipe;
  std::function<Tensors()> arrival;           // waits for the transfer of the tensors; null in the state ready
  std::shared_ptr<TapeState> tape;            // if the array is a parameter inside value_and_grad
  std::vector<ArrayPtr> leaves;               // leaves of a tape parameter, one per set of reduced axes
  std::list<Conversion> conversions;          // a list, because cached_conversion returns pointers to its elements
  // For a cast, view or scaling of a parameter: `source` is its operand, `origin` the parameter at the start of the
  // chain, and `again` recomputes it from another leaf.
  ArrayPtr source, origin;
  void come_from(const ArrayPtr& x);
  std::function<ArrayPtr(const ArrayPtr&)> again;
  bool cast = false;                                           // differs from `source` only in the element type
  std::shared_ptr<ReshardAfterForward> reshard_after_forward;  // if this is a gathered weight
};

// Returns the mutex for changes at an array's first use: storing awaited tensors or a conversion. Threads may share
// arrays.
std::mutex& first_uses();

ArrayPtr make_array(const Type* type, AxisSet slots, Tensors local);
// Makes an array over the slots of the type.
ArrayPtr make_array(const Type* type, Tensors local);

// Makes `a`, a new array without tensors, pending. `arrival` returns its tensors at the first use.
void set_pending(ArrayImpl& a, std::function<Tensors()> arrival);

// Copies path, mesh rules, and the sharding as it was written.
void copy_facts(const ArrayImpl& from, ArrayImpl& to);

// Throws missing_array if x is absent. The message begins with `verb`.
void check_present(const Array& x, const char* verb);

// Returns x in the state ready: generates lazy tensors, waits for pending ones. Throws missing_array if x is absent;
// the message begins with `verb`.
ArrayImpl& materialized_now(const Array& x, const char* verb);  // the slow path
inline ArrayImpl& materialized(const Array& x, const char* verb) {
  ArrayImpl* const a = x.impl().get();
  return a && a->is_ready() && !checks ? *a : materialized_now(x, verb);
}

// Returns `t` in the memory of the mesh's devices; for a null mesh in the host's memory, where uncommitted arrays are
// stored. Returns `t` itself if it is there already, or if `t` or the mesh is abstract.
at::Tensor in_memory_of(const MeshImpl* mesh, const at::Tensor& t);
c10::Device memory_of(const MeshImpl* mesh);  // for an abstract mesh, the host's
void bring_to_memory_of(const MeshImpl* mesh, Tensors& tensors);

// Returns this block of a complete value, as a view.
at::Tensor cut(const at::Tensor& whole, const IndexRanges& block);

// Returns whether this process computes several local shards of x on the CPU.
bool lies_in_slots(const Array& x);

// Returns whether `a` is a parameter of an open tape.
bool is_tape_parameter(const ArrayImpl& a);
// Returns whether a tape records `a`: a parameter, or an array computed from one.
bool is_differentiated(const ArrayImpl& a);
// Returns whether an operation on `a` has to be recorded now: the only test for a gradient.
bool wants_gradient(const ArrayImpl& a);

// Returns the array from which `a` was made by casts, views and scalings (the end of the Details::source chain); else
// `a` itself.
const ArrayImpl& origin_of(const ArrayImpl& a);

}  // namespace tessera::detail
