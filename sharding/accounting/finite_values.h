// What DetectNonFinite looks at: results, gradients, moves, and what an update leaves.
#pragma once

#include "sharding/accounting/finite_check.h"
#include "sharding/accounting/operation_event.h"

namespace tessera::detail {

// Called only while checks_finite(). Each throws Error (not_finite) as DetectNonFinite says, or does nothing.
void check_results(const OperationCall& call, const OperationArrays& arrays);
void check_gradients(const OperationCall& call, const BackwardCall& part);

// Values that were summed or cast on their way from one placement to another.
struct CheckedMove {
  const Provenance& cause;
  const Type* from;
  const Type* to;
  bool backward;
};
void check_moved(const CheckedMove& move, const Tensors& before, const Tensors& after);

// An array that a verb takes or leaves behind, of which no operation is known: "[gradients] layers.0.w: ...". `what`
// says what it is, `advice` what to do. One that is absent, or a recipe still, is passed over.
struct CheckedValue {
  const char* verb;
  std::string path;
  const char* what;
  const char* advice;
};
void check_value(const CheckedValue& value, const Array& x);

}  // namespace tessera::detail
