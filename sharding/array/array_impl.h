// What stands behind an Array: its type, its local tensors, and what a tape or a placement hung on it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sharding/array/array.h"
#include "sharding/diagnostics/cause.h"
#include "sharding/diagnostics/error.h"
#include "sharding/placement/type.h"

namespace tessera {
class Layout;
}

namespace tessera::detail {

struct LayoutImpl;
struct Recipe;
struct Details;

using Tensors = c10::SmallVector<at::Tensor, 1>;

struct ArrayImpl {
  const Type* type = nullptr;
  AxisSet slots = 0;    // one local tensor per coordinate of these axes
  bool weight = false;  // a parameter, or computed from parameters only
  const LayoutImpl* layout = nullptr;
  Tensors local;
  std::unique_ptr<Details> details;

  ArrayImpl();
  ~ArrayImpl();
  Details& detail();  // made on first use
};
using ArrayPtr = std::shared_ptr<ArrayImpl>;

struct TapeState;
class BorrowedGather;

// A form of an array that was computed once: gathered, summed, reduced.
struct Conversion {
  const Type* to;
  bool recorded;  // with a graph behind it; one made without is never used where a gradient is wanted
  ArrayPtr array;
};

// The rarer facts about an array.
struct Details {
  Text path;
  std::unique_ptr<NamedSharding> placed;  // as the user or the rules spelled it
  std::shared_ptr<const Recipe> recipe;
  std::shared_ptr<TapeState> tape;  // of a parameter inside value_and_grad
  std::vector<ArrayPtr> leaves;     // one per set of reduced axes
  std::vector<Conversion> conversions;
  // A cast, view or scaling of a parameter can be made again from another leaf, so that it need not be converted.
  ArrayPtr source;
  std::function<ArrayPtr(const ArrayPtr&)> again;
  bool cast = false;                         // it differs from its source by the element type only
  std::shared_ptr<BorrowedGather> borrowed;  // of a gathered weight
};

ArrayPtr make_array(const Type* type, AxisSet slots, Tensors local);
// The same with the slots that the type says.
ArrayPtr make_array(const Type* type, Tensors local);

// What `from` knows beside its value: its path, its layout, and its placement as it was spelled.
void copy_facts(const ArrayImpl& from, ArrayImpl& to);

// The array's memory: a recipe is carried out (and kept) at its first use.
ArrayImpl& materialized(const Array& x, const char* verb);

// `t` in the memory of the mesh's devices; of no mesh, in the host's, where all arrays lie that are not placed. It is t
// itself where it lies there already, and where it or the mesh is abstract.
at::Tensor in_memory_of(const MeshImpl* mesh, const at::Tensor& t);
void bring_to_memory_of(const MeshImpl* mesh, Tensors& tensors);

// A view of the block's part of the whole value.
at::Tensor cut(const at::Tensor& whole, const IndexRanges& block);

// Whether `a` is a parameter of an open tape, and whether an operation on `a` has to be recorded for a gradient.
bool is_tape_parameter(const ArrayImpl& a);
bool wants_gradient(const ArrayImpl& a);

// What `a` was made of by casts, views and scalings that can be made again; `a` itself if by none.
const ArrayImpl& origin_of(const ArrayImpl& a);

}  // namespace tessera::detail
