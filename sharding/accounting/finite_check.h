// DetectNonFinite and TESSERA_CHECK_FINITE=1: the first operation with a non-finite result throws.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace at {
class Tensor;
}

namespace tessera {

class Array;

// Makes the first operation of this thread with a non-finite result throw not_finite in its scope. This covers the
// forward and backward pass, recomputation (remat), shard_map, and virtual devices. With TESSERA_CHECK_FINITE=1 in the
// environment, all threads check, except in DetectNonFinite(false).
// The message contains the operation and its module; the parameter among its operands; the line and the step
// (StepScope); the device and process; how many values are NaN or inf; and the ranges of the operands. With several
// processes, each checks its own devices. A process that throws ends and reports it to the others, as with any Error.
//
// An operation is at fault in these cases:
// - its result has NaN, and no operand has;
// - its result has inf, no operand has inf or NaN, and inf is not the constant of a where or pad;
// - backward: it returns a non-finite gradient, and its incoming gradients are finite.
// An operand is at fault in these cases, if no operation made its value:
// - it has NaN (a parameter, a batch, a creation), and so has the result;
// - it has inf, the result is not finite, and the operand is a parameter or enters a sum (sum, mean, cross_entropy,
//   linear_cross_entropy, matmul, einsum, avg_pool, a convolution). Other uses of inf are allowed until they produce
//   NaN, for example where(mask, scores, -inf) before a softmax.
// A finite result is never at fault, whatever its operands: where(isnan(x), 0, x) is allowed. A resharding is at fault
// if it sums or casts finite values to non-finite ones; the same holds for a sum of gradients. Optimizer::update is at
// fault if it would make a parameter or its state non-finite: both then keep their values.
//
// The backward pass is checked if it runs in the scope, so enclose all of value_and_grad. Arrays on abstract meshes
// have no values and are not checked. Each result and each gradient is read once more; on a GPU, the program waits for
// each. Without the check, an operation reads one flag.
//   const DetectNonFinite check;
//   auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
// DetectNonFinite(false) disables, in its scope, the check of an outer scope or of the environment.
class DetectNonFinite {
 public:
  explicit DetectNonFinite(bool on = true);
  ~DetectNonFinite();
  DetectNonFinite(const DetectNonFinite&) = delete;
  DetectNonFinite& operator=(const DetectNonFinite&) = delete;

 private:
  class Check;
  std::unique_ptr<Check> check_;
};

namespace detail {

struct Provenance;
struct Type;

// Returns whether this thread checks. The innermost DetectNonFinite decides, or the environment if there is none.
bool checks_finite();

// Values that were summed or cast when an array was resharded.
struct CheckedMove {
  const Provenance& cause;
  const Type* from;
  const Type* to;
  bool backward;
};
// Throws not_finite if finite values became non-finite. Call it only if checks_finite().
void check_moved(const CheckedMove& move, std::span<const at::Tensor> before, std::span<const at::Tensor> after);

// An array that a function takes or returns, and that no known operation made: "[gradients] layers.0.w: ...". `what`
// describes it; `advice` is the remedy.
struct CheckedValue {
  const char* verb;
  std::string path;
  const char* what;
  const char* advice;
};
// Throws not_finite if x is not finite. Skips absent arrays and lazy initializers. Call it only if checks_finite().
void check_value(const CheckedValue& value, const Array& x);

}  // namespace detail

}  // namespace tessera
