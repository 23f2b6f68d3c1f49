// ArrayImpl: what an Array points to: a type, local tensors, and facts that a tape or a placement adds.
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
//   pending  -- first use -->  ready    Details::arrival waits for a transfer; an error leaves the array pending
//   ready                      `local` has the tensors, and never loses them
//
// Only materialized() changes the state of an array that other code has seen.
enum class ArrayState : uint8_t { absent, lazy, pending, ready };

struct ArrayImpl {
  const Type* type = nullptr;
  AxisSet slots = 0;    // one local tensor for each position of this process along these mesh axes
  bool weight = false;  // a parameter, or computed from parameters only
  bool gradient = false;  // as a tape gave it out
  bool direct = false;  // of a tape's leaf: it is used in other ways than by gathers whose gradients come by block
  std::atomic<ArrayState> state = ArrayState::ready;
  const MeshRulesImpl* mesh_rules = nullptr;
  Tensors local;
  OncePtr<Details> details;

  ArrayImpl();
  ~ArrayImpl();
  Details& detail();  // made on first use
  bool is_ready() const { return state == ArrayState::ready; }
};
using ArrayPtr = std::shared_ptr<ArrayImpl>;
inline ArrayState state_of(const Array& x) { return x.impl() ? x.impl()->state.load() : ArrayState::absent; }

struct TapeState;
class BorrowedGather;

// An array in another placement (gathered, summed, reduced), kept for its next use.
struct Conversion {
  const Type* to;
  bool recorded;  // with an autograd graph; one without is never used where a gradient is wanted
  ArrayPtr array;
};

// The rarer facts about an array.
struct Details {
  Text path;
  std::unique_ptr<NamedSharding> placed;  // as the user or the rules spelled it
  std::shared_ptr<const Recipe> recipe;
  std::function<Tensors()> arrival;           // waits for the tensors, which are on their way; null in the state ready
  std::shared_ptr<TapeState> tape;            // if the array is a parameter inside value_and_grad
  std::vector<ArrayPtr> leaves;               // a tape parameter's, one per set of reduced axes
  std::list<Conversion> conversions;  // known_form gives its elements out
  // Of a cast, view or scaling of a parameter: what it was made from, and how to make it again from another leaf.
  ArrayPtr source, origin;  // the latter by all of them
  void come_from(const ArrayPtr& x);
  std::function<ArrayPtr(const ArrayPtr&)> again;
  bool cast = false;                         // it differs from its source by the element type only
  std::shared_ptr<BorrowedGather> borrowed;  // if this is a gathered weight
};

// Held where an array gets what it keeps from a first use, values that were awaited or a form of it: threads may share
// arrays.
std::mutex& first_uses();

ArrayPtr make_array(const Type* type, AxisSet slots, Tensors local);
// The same with the type's own slots.
ArrayPtr make_array(const Type* type, Tensors local);

// Makes `a`, a new array without tensors, pending: `arrival` returns its tensors at the first use.
void set_pending(ArrayImpl& a, std::function<Tensors()> arrival);

// Copies path, mesh rules, and the placement as it was spelled.
void copy_facts(const ArrayImpl& from, ArrayImpl& to);

// Error (missing_array), which begins with `verb`.
void check_present(const Array& x, const char* verb);

// Returns x in the state ready: generates lazy tensors, waits for pending ones. Throws missing_array, with an error
// that begins with `verb`, if x is absent.
ArrayImpl& materialized_now(const Array& x, const char* verb);  // if it is not yet
inline ArrayImpl& materialized(const Array& x, const char* verb) {
  ArrayImpl* const a = x.impl().get();
  return a && a->is_ready() && !checks ? *a : materialized_now(x, verb);
}

// `t` in the memory of the mesh's devices; for a null mesh in the host's memory, where all unplaced arrays lie. Returns
// `t` itself if it lies there already, or if `t` or the mesh is abstract.
at::Tensor in_memory_of(const MeshImpl* mesh, const at::Tensor& t);
c10::Device memory_of(const MeshImpl* mesh);  // of an abstract mesh the host's
void bring_to_memory_of(const MeshImpl* mesh, Tensors& tensors);

// The part `block` of the whole value, as a view.
at::Tensor cut(const at::Tensor& whole, const IndexRanges& block);

// Whether x lies on a mesh of which several slots of this process compute on the CPU.
bool lies_in_slots(const Array& x);

// Returns whether `a` is a parameter of an open tape.
bool is_tape_parameter(const ArrayImpl& a);
// Returns whether a tape records `a`: a parameter, or an array computed from one.
bool is_differentiated(const ArrayImpl& a);
// Returns whether an operation on `a` has to be recorded now: the only test for a gradient.
bool wants_gradient(const ArrayImpl& a);

// The array that `a` was made from by casts, views and scalings (Details::source, to the end); else `a` itself.
const ArrayImpl& origin_of(const ArrayImpl& a);

}  // namespace tessera::detail
