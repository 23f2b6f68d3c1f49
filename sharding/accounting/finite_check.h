// DetectNonFinite and TESSERA_CHECK_FINITE=1: the first operation whose result is not finite is an Error.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace at {
class Tensor;
}

namespace tessera {

class Array;

// While it lives, the first operation of this thread whose result is not finite is an Error (not_finite), forward or
// backward, also where a value is computed again (remat), inside shard_map and on pretended devices. With
// TESSERA_CHECK_FINITE=1 in the environment all threads check, outside of scopes that are off. The Error names the
// operation, its module, the parameter among its operands, the line, the step (StepScope), the device and process, how
// many values are NaN or inf, and from where to where the operands reach. Of several processes each checks its own
// devices; one that finds something ends as with any other Error, and tells the others.
//
// An operation is at fault if
// - its result has NaN, and no operand has;
// - its result has inf, and no operand has inf or NaN, nor is it the number of a where or pad;
// - backward, a gradient that it passes on is not finite, and those that came to it are.
// An operand is, if no operation made it what it is:
// - it has NaN (a parameter, a batch, a creation), and so has the result;
// - it has inf, is a parameter or goes into a sum (sum, mean, cross_entropy, matmul, einsum, a convolution), and the
//   result is not finite. Else inf may go on: where(mask, scores, -inf) and what it becomes on its way to a softmax are
//   as they should be, until NaN comes of them.
// A result that is finite is never at fault, whatever its operands: where(isnan(x), 0, x) is allowed. A move is at
// fault if it sums or casts finite values to some that are not, a sum of gradients likewise, and Optimizer::update if
// it would leave a parameter or its state so: then both stay what they were.
//
// What is computed while it lives is checked in the backward pass as well, if that runs while it lives: enclose all of
// value_and_grad. Arrays on abstract meshes have no values, and are not checked. Every result and every gradient is
// read once more; on a GPU the program waits for each. Off, it costs the reading of one flag per operation.
//   const DetectNonFinite check;
//   auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
// DetectNonFinite(false) allows, inside it, what an outer scope or the environment checks.
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

// Returns whether this thread checks: as the innermost DetectNonFinite requests; without one, as the environment does.
bool checks_finite();

// Values that were summed or cast on their way from one placement to another.
struct CheckedMove {
  const Provenance& cause;
  const Type* from;
  const Type* to;
  bool backward;
};
// Called only while checks_finite(). Throws Error (not_finite) if finite values became others that are not.
void check_moved(const CheckedMove& move, std::span<const at::Tensor> before, std::span<const at::Tensor> after);

// An array that a function takes or returns and that no known operation made: "[gradients] layers.0.w: ...". `what`
// describes it, `advice` is what to do.
struct CheckedValue {
  const char* verb;
  std::string path;
  const char* what;
  const char* advice;
};
// Called only while checks_finite(). Throws Error (not_finite); skips absent arrays and lazy initializers.
void check_value(const CheckedValue& value, const Array& x);

}  // namespace detail

}  // namespace tessera
