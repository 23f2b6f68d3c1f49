// An observer that reads results and gradients, and throws at the first that is not finite.
#include "sharding/accounting/finite_check.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sharding/accounting/operation_event.h"
#include "sharding/base/caller.h"
#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/kernels/tensors.h"

namespace tessera {

using namespace detail;

namespace {

// ---- values

bool is_number(float x) { return std::isfinite(x); }

// Returns whether the loop here is faster than a kernel of LibTorch for this tensor.
bool is_small(const at::Tensor& t) {
  return t.numel() <= 4096 && t.scalar_type() == at::kFloat && t.is_cpu() && t.is_contiguous();
}

// Returns whether all values are finite. If a value is NaN or inf, the sum of all values is not finite. A sum of finite
// values may overflow as well, so the values are then tested one by one.
bool is_finite(const at::Tensor& t) {
  if (!t.defined() || t.is_meta() || !t.is_floating_point() || t.numel() == 0) return true;
  if (is_small(t))
    return std::all_of(detail::const_elements<float>(t), detail::const_elements<float>(t) + t.numel(), is_number);
  const at::Tensor values = t.detach();
  const auto wide = values.itemsize() < 4 ? at::kFloat : values.scalar_type();
  return std::isfinite(at::sum(values, wide).item<double>()) || at::isfinite(values).all().item<bool>();
}

bool are_finite(std::span<const at::Tensor> tensors) { return std::all_of(tensors.begin(), tensors.end(), is_finite); }

struct Values {
  int64_t all = 0, nan = 0, inf = 0;
  int first = -1, devices = 0;                    // by slot: the first with non-finite values, and how many have some
  double least = INFINITY, greatest = -INFINITY;  // range of the finite values

  bool finite() const { return nan + inf == 0; }

  void add(const at::Tensor& tensor, int number) {
    if (!tensor.defined() || tensor.is_meta() || !tensor.is_floating_point()) return;
    const at::Tensor t = tensor.detach();
    all += t.numel();
    const auto nans = at::isnan(t).sum().item<int64_t>(), infs = at::isinf(t).sum().item<int64_t>();
    nan += nans, inf += infs;
    if (nans + infs && devices++ == 0) first = number;
    if (nans + infs == t.numel()) return;
    const at::Tensor rest = at::masked_select(t, at::isfinite(t));
    least = std::min(least, rest.min().item<double>());
    greatest = std::max(greatest, rest.max().item<double>());
  }

  // Returns, for example, "3 of 32 values are NaN".
  std::string count() const {
    const std::string of = fmt::format("{} of {} values {}", nan + inf, all, nan + inf == 1 ? "is" : "are");
    if (!nan || !inf) return fmt::format("{} {}", of, nan ? "NaN" : "inf");
    return fmt::format("{} not finite ({} NaN, {} inf)", of, nan, inf);
  }
  // Returns, for example, "from -1 to 2.5".
  std::string range() const { return least <= greatest ? fmt::format("from {:.4g} to {:.4g}", least, greatest) : ""; }
};

Values look_at(std::span<const at::Tensor> tensors) {
  Values values;
  for (size_t i = 0; i < tensors.size(); ++i) values.add(tensors[i], static_cast<int>(i));
  return values;
}

// Counts the values of the first replica of each block. If these are finite, counts the values of all replicas.
Values look_at(const Type* type, AxisSet slots, std::span<const at::Tensor> local) {
  const MeshImpl* mesh = type->mesh;
  Values values;
  for (size_t i = 0; i < local.size(); ++i) {
    const int slot = static_cast<int>(i), block = mesh ? project(mesh, slots, slot, type->own()) : slot;
    if (!mesh || project(mesh, type->own(), block, slots) == slot) values.add(local[i], slot);
  }
  return values.finite() ? look_at(local) : values;
}
Values look_at(const ArrayImpl& a) { return look_at(a.type, a.slots, a.local); }

// ---- places

// Returns " on the device data=1 of process 2" for one of the tensors along `slots`; empty if there is one device.
std::string device_of(const MeshImpl* mesh, AxisSet slots, int slot) {
  if (!mesh || mesh->devices.size() == 1) return "";
  Coordinates along(mesh);
  unravel(mesh, slots, slot, along);
  std::string text;
  for (size_t axis = 0; axis < mesh->axes.size(); ++axis)
    if ((slots | mesh->crossing()) >> axis & 1 && mesh->axes[axis].size > 1)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", mesh->axes[axis].name, along[axis]);
  text = text.empty() ? " on every device" : " on the device " + text;
  return mesh->processes > 1 ? fmt::format("{} of process {}", text, mesh->process) : text;
}

std::string devices_of(const Values& values, const MeshImpl* mesh, AxisSet slots) {
  const std::string first = device_of(mesh, slots, values.first);
  return values.devices > 1 && !first.empty() ? fmt::format("{} and {} more", first, values.devices - 1) : first;
}

// Returns, for example, "layers.2.mlp: model.cpp:31, step 12: ".
std::string place_of(const Text& path, const std::source_location& where, bool backward) {
  std::string text = path ? *path + ": " : "";
  text += line_name(where);
  if (current_step()) text += fmt::format(", step {}", *current_step());
  return text + (backward ? ", backward: " : ": ");
}
std::string place_of(const OperationCall& call, bool backward) {
  return place_of(call.module ? call.module : call.parameter, call.where, backward);
}

constexpr const char* advice_of_operation =
    "Keep its operands in its domain (clip, a larger epsilon, where around them), or lower the learning rate; "
    "DetectNonFinite(false) allows it.";

// ---- operands

// Returns true for operations that sum their operands' values: no model intends an infinite sum.
bool adds_up(std::string_view operation) {
  constexpr std::string_view names[] = {"sum",    "mean",   "cross_entropy", "linear_cross_entropy",
                                        "matmul", "einsum", "avg_pool",      "conv_general_dilated"};
  return std::find(std::begin(names), std::end(names), operation) != std::end(names);
}

// Returns true for operations whose results contain only values of their operands and constants of the program.
bool computes_nothing(std::string_view operation) {
  return operation == "where" || operation == "pad" || operation == "pad_value";
}

struct OperandValues {
  const ArrayImpl* given;
  Values as_given, as_read;
};

std::vector<OperandValues> operands_of(const OperationArrays& arrays) {
  std::vector<OperandValues> operands;
  for (size_t i = 0; i < arrays.given.size(); ++i)
    operands.push_back({arrays.given[i], look_at(*arrays.given[i]), look_at(*arrays.read[i])});
  return operands;
}

std::string name_of(const ArrayImpl& a) {
  const bool has_path = a.details && a.details->path && !a.details->path->empty();
  return has_path ? fmt::format("parameter {}, {}", *a.details->path, a.type->to_string()) : a.type->to_string();
}

// Returns, for example, "operand 0, float32[8,4], from 0 to 3.5; operand 1, parameter layers.0.w, ...".
std::string ranges_of(const std::vector<OperandValues>& operands) {
  std::string text;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Values& values = operands[i].as_read;
    text += fmt::format("{}operand {}, {}", text.empty() ? "" : "; ", i, name_of(*operands[i].given));
    if (!values.range().empty()) text += ", " + values.range();
    if (!values.finite()) text += ", where " + values.count();
  }
  return text;
}

[[noreturn]] void fail_operand(const OperationCall& call, const OperationArrays& arrays, size_t i,
                               const OperandValues& operand) {
  const ArrayImpl& given = *operand.given;
  if (operand.as_given.finite())
    fail(ErrorKind::not_finite, call.operation,
         "{}operand {}, {}, is finite, {}, but not after it is resharded to {}: {}{}. Scale it down, or compute in a "
         "wider element type.",
         place_of(call, false), i, name_of(given), operand.as_given.range(), arrays.read[i]->type->to_string(),
         operand.as_read.count(), devices_of(operand.as_read, arrays.read[i]->type->mesh, arrays.read[i]->slots));
  fail(ErrorKind::not_finite, call.operation,
       "{}operand {}, {}, is not finite: {}{}. No operation under this check produced it. Check its source: "
       "the batch, an initial value, a checkpoint, an update before the check.",
       place_of(call, false), i, name_of(given), operand.as_given.count(),
       devices_of(operand.as_given, given.type->mesh, given.slots));
}

// Throws if an operand is at fault for a non-finite result.
void check_operands(const OperationCall& call, const OperationArrays& arrays,
                    const std::vector<OperandValues>& operands) {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].as_read.nan) fail_operand(call, arrays, i, operands[i]);
  for (size_t i = 0; i < operands.size(); ++i) {
    const OperandValues& operand = operands[i];
    if (!operand.as_read.inf) continue;
    const bool is_meant = !adds_up(call.operation) && !is_tape_parameter(origin_of(*operand.given));
    if (operand.as_given.finite() || !is_meant) fail_operand(call, arrays, i, operand);
  }
}

void check_results(const OperationCall& call, const OperationArrays& arrays) {
  for (const Array& array : arrays.results) {
    const ArrayImpl& result = *array.impl();
    if (are_finite(result.local)) continue;
    const Values values = look_at(result);
    const std::vector<OperandValues> operands = operands_of(arrays);
    check_operands(call, arrays, operands);
    const auto has_inf = [](const OperandValues& operand) { return operand.as_read.inf > 0; };
    const bool is_given = computes_nothing(call.operation) || std::any_of(operands.begin(), operands.end(), has_inf);
    if (!values.nan && is_given) continue;
    fail(ErrorKind::not_finite, call.operation, "{}{} of the result {}{}; given {}. {}", place_of(call, false),
         values.count(), result.type->to_string(), devices_of(values, result.type->mesh, result.slots),
         ranges_of(operands), advice_of_operation);
  }
}

void check_gradients(const OperationCall& call, const BackwardCall& part) {
  if (are_finite(part.outgoing)) return;
  const Values incoming = look_at(part.incoming), outgoing = look_at(part.outgoing);
  if (!incoming.finite())
    fail(ErrorKind::not_finite, call.operation,
         "{}the gradient of its result {} is not finite, as the sum of the gradients of its uses: {}. They are too "
         "large for its element type: scale the loss down, or compute in a wider one.",
         place_of(call, true), call.results[0]->to_string(), incoming.count());
  fail(ErrorKind::not_finite, call.operation,
       "{}{} of the gradients of its operands; the gradients of its result {} are {}. {}", place_of(call, true),
       outgoing.count(), call.results[0]->to_string(), incoming.range(), advice_of_operation);
}

}  // namespace

class DetectNonFinite::Check : public Observer {
 public:
  explicit Check(bool on) : Observer(on ? Events::operations : Events::none), innermost_(innermost_check(), this) {}

  void computed(const OperationCall& call, const OperationArrays& arrays) override {
    if (this == innermost_check()) check_results(call, arrays);
  }
  void differentiated(const OperationCall& call, const BackwardCall& part) override {
    if (this == innermost_check()) check_gradients(call, part);
  }

 private:
  ScopedValue<const Observer*> innermost_;
};

DetectNonFinite::DetectNonFinite(bool on) {
  are_operations_observed();  // creates the environment's check first, as the outermost one
  check_ = std::make_unique<Check>(on);
}
DetectNonFinite::~DetectNonFinite() = default;

bool detail::begin_thread() {
  observed_events &= ~Events::new_thread;
  if (static const bool in_environment = environment_flag("TESSERA_CHECK_FINITE"); in_environment)
    thread_local const DetectNonFinite check;
  return is_observed(Events::operations);
}

bool detail::checks_finite() {
  are_operations_observed();
  return innermost_check() && innermost_check()->events() != Events::none;
}

void detail::check_moved(const CheckedMove& move, std::span<const at::Tensor> before,
                         std::span<const at::Tensor> after) {
  if (are_finite(after)) return;
  const Values given = look_at(before), made = look_at(move.to, move.to->slots, after);
  if (!given.finite()) return;  // the operation that uses it throws
  const CallerLine line(move.cause.where);
  fail(ErrorKind::not_finite, move.cause.operation,
       "{}{}, {}, is resharded to {}, and there {}{}. Scale it down, or compute in a wider element type.",
       place_of(move.cause.path, line, move.backward), move.from->to_string(), given.range(), move.to->to_string(),
       made.count(), devices_of(made, move.to->mesh, move.to->slots));
}

void detail::check_value(const CheckedValue& value, const Array& x) {
  if (x.is_absent() || x.is_lazy()) return;
  const ArrayImpl& array = materialized(x, value.verb);
  if (are_finite(array.local)) return;
  const Values values = look_at(array);
  const Text path = value.path.empty() ? nullptr : as_text(value.path);
  fail(ErrorKind::not_finite, value.verb, "{}{} {} is not finite: {}{}. {}", place_of(path, CallerLine(), false),
       value.what, array.type->to_string(), values.count(), devices_of(values, array.type->mesh, array.slots),
       value.advice);
}

}  // namespace tessera
