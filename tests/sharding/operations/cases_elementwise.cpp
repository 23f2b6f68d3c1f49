// The validator's cases of elementwise operations and array creation.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Arrays = const std::vector<Array>&;
using Tensors = const std::vector<at::Tensor>&;

at::Tensor anywhere() { return random_tensor({4, 8}, 1); }
at::Tensor positive() { return at::abs(anywhere()) + 0.5; }
at::Tensor within_one() { return at::tanh(anywhere()) * 0.9; }
at::Tensor above_one() { return positive() + 1; }

struct Row {
  const char* operation;
  Array (*ours)(Operand);
  at::Tensor (*theirs)(const at::Tensor&);
  at::Tensor (*values)() = anywhere;
};

at::Tensor cube_root(const at::Tensor& t) { return at::pow(t, 1.0 / 3); }
at::Tensor softly_signed(const at::Tensor& t) { return t / (1 + at::abs(t)); }
at::Tensor log_of_sum(const at::Tensor& t) { return at::log1p(at::exp(t)); }

const Row functions[] = {
    {"reciprocal", reciprocal, at::reciprocal, positive},
    {"sqrt", sqrt, at::sqrt, positive},
    {"rsqrt", rsqrt, at::rsqrt, positive},
    {"cbrt", cbrt, cube_root, positive},
    {"exp", exp, at::exp},
    {"exp2", exp2, at::exp2},
    {"expm1", expm1, at::expm1},
    {"log", log, at::log, positive},
    {"log1p", log1p, at::log1p, positive},
    {"log2", log2, at::log2, positive},
    {"log10", log10, at::log10, positive},
    {"sin", sin, at::sin},
    {"cos", cos, at::cos},
    {"tan", tan, at::tan, within_one},
    {"arcsin", arcsin, at::asin, within_one},
    {"arccos", arccos, at::acos, within_one},
    {"arctan", arctan, at::atan},
    {"sinh", sinh, at::sinh},
    {"cosh", cosh, at::cosh},
    {"tanh", tanh, at::tanh},
    {"arcsinh", arcsinh, at::asinh},
    {"arccosh", arccosh, at::acosh, above_one},
    {"arctanh", arctanh, at::atanh, within_one},
    {"erf", erf, at::erf},
    {"erfc", erfc, at::erfc},
    {"erf_inv", erf_inv, at::erfinv, within_one},
    {"nan_to_num", nan_to_num, [](const at::Tensor& t) { return at::nan_to_num(t); }},
    {"abs", abs, at::abs},
    {"sign", sign, at::sign},
    {"floor", floor, at::floor},
    {"ceil", ceil, at::ceil},
    {"trunc", trunc, at::trunc},
    {"round", [](Operand x) { return round(x, 1); }, [](const at::Tensor& t) { return at::round(t, 1); }},
    {"square", square, at::square},
    {"scale", [](Operand x) { return -x; }, at::neg},
    {"sigmoid", sigmoid, at::sigmoid},
    {"log_sigmoid", log_sigmoid, at::log_sigmoid},
    {"relu", relu, at::relu},
    {"leaky_relu", [](Operand x) { return leaky_relu(x, 0.1); },
     [](const at::Tensor& t) { return at::leaky_relu(t, 0.1); }},
    {"silu", silu, at::silu},
    {"softplus", softplus, log_of_sum},
    {"soft_sign", soft_sign, softly_signed},
    {"elu", [](Operand x) { return elu(x, 0.5); }, [](const at::Tensor& t) { return at::elu(t, 0.5); }},
    {"celu", [](Operand x) { return celu(x, 0.5); }, [](const at::Tensor& t) { return at::celu(t, 0.5); }},
    {"selu", selu, at::selu},
    {"mish", mish, at::mish},
    {"gelu", [](Operand x) { return gelu(x); }, [](const at::Tensor& t) { return at::gelu(t, "tanh"); }},
    {"gelu", [](Operand x) { return gelu(x, false); }, [](const at::Tensor& t) { return at::gelu(t); }},
};

Case of_row(const Row& row) {
  return {{row.operation},
          {row.operation,
           {row.values()},
           [ours = row.ours](Arrays x) { return ours(x[0]); },
           [theirs = row.theirs](Tensors t) { return theirs(t[0]); },
           1e-12,
           true}};
}

// Multiplies a condition, which has no gradient, by something that has one.
Array counted(const Array& condition, const Array& x) { return astype(condition, float64) * x; }
at::Tensor counted(const at::Tensor& condition, const at::Tensor& x) { return condition.to(at::kDouble) * x; }

// In LibTorch, equal() compares two tensors as wholes.
Array eq(ArrayOrNumber a, ArrayOrNumber b) { return equal(a, b); }
Array ne(ArrayOrNumber a, ArrayOrNumber b) { return not_equal(a, b); }

// Integers with few distinct values, so that many are equal; then floats.
std::vector<at::Tensor> count() { return {random_integers({4, 8}, 3, 1), anywhere()}; }
std::vector<at::Tensor> counts() { return {random_integers({4, 8}, 3, 1), random_integers({8}, 3, 2), anywhere()}; }

std::vector<Case> comparisons() {
  return {
      {{"less"}, {"less", counts(), BOTH(counted(x[0] < x[1], x[2]))}},
      {{"less_equal"}, {"less_equal", counts(), BOTH(counted(x[0] <= x[1], x[2]))}},
      {{"greater"}, {"greater", counts(), BOTH(counted(x[0] > x[1], x[2]))}},
      {{"greater_equal"}, {"greater_equal", count(), BOTH(counted(x[0] >= 1, x[1]))}},
      {{"equal"}, {"equal", counts(), BOTH(counted(eq(x[0], x[1]), x[2]))}},
      {{"not_equal"}, {"not_equal", counts(), BOTH(counted(ne(x[0], x[1]), x[2]))}},
      {{"logical_and"}, {"logical_and", counts(), BOTH(counted(logical_and(x[0], x[1]), x[2]))}},
      {{"logical_or"}, {"logical_or", counts(), BOTH(counted(logical_or(x[0], x[1]), x[2]))}},
      {{"logical_xor"}, {"logical_xor", counts(), BOTH(counted(logical_xor(x[0], x[1]), x[2]))}},
      {{"logical_not"}, {"logical_not", count(), BOTH(counted(logical_not(x[0]), x[1]))}},
      {{"bitwise_and"}, {"bitwise_and", counts(), BOTH(counted(bitwise_and(x[0], x[1]), x[2]))}},
      {{"bitwise_or"}, {"bitwise_or", counts(), BOTH(counted(bitwise_or(x[0], x[1]), x[2]))}},
      {{"bitwise_xor"}, {"bitwise_xor", counts(), BOTH(counted(bitwise_xor(x[0], x[1]), x[2]))}},
      {{"bitwise_not"}, {"bitwise_not", count(), BOTH(counted(bitwise_not(x[0]), x[1]))}},
      {{"isfinite"}, {"isfinite", {anywhere()}, BOTH(counted(isfinite(x[0]), x[0]))}},
      {{"isinf"}, {"isinf", {anywhere()}, BOTH(counted(isinf(log(relu(x[0]))), x[0]))}},
      {{"isnan"}, {"isnan", {anywhere()}, BOTH(counted(isnan(x[0]), x[0]))}},
      {{"negative"}, {"negative", count(), BOTH(counted(-x[0], x[1]))}},
  };
}

// LibTorch's functions under our names, and ours under LibTorch's.
template <class A, class B>
  requires(std::same_as<A, at::Tensor> || std::same_as<B, at::Tensor>)
at::Tensor power(const A& a, const B& b) {
  return at::pow(a, b);
}
Array modulo(ArrayOrNumber a, ArrayOrNumber b) { return a % b; }
at::Tensor modulo(const at::Tensor& a, const at::Tensor& b) { return at::remainder(a, b); }
Array floored(const Array& a, const Array& b) { return floor_divide(a, b); }
at::Tensor floored(const at::Tensor& a, const at::Tensor& b) { return at::div(a, b, "floor"); }
at::Tensor clip(const at::Tensor& x, double min, double max) { return at::clamp(x, min, max); }

std::vector<at::Tensor> two() { return {anywhere(), random_tensor({8}, 2)}; }
std::vector<at::Tensor> three() { return {random_integers({4, 8}, 2, 3), anywhere(), random_tensor({8}, 2)}; }

std::vector<Case> arithmetic() {
  return {
      {{"add"}, {"add", two(), BOTH(x[0] + x[1]), 1e-12, true}},
      {{"sub"}, {"sub", two(), BOTH(x[1] - x[0]), 1e-12, true}},
      {{"mul"}, {"mul", two(), BOTH(x[0] * x[1]), 1e-12, true}},
      {{"mul"}, {"outer product", {random_tensor({4, 1}, 1), random_tensor({1, 8}, 2)}, BOTH(x[0] * x[1])}},
      {{"div"}, {"div", {anywhere(), positive()}, BOTH(x[0] / x[1]), 1e-12, true}},
      {{"div"}, {"number / array", {positive()}, BOTH(2 / x[0]), 1e-12, true}},
      {{"scale"}, {"array / number", {anywhere()}, BOTH(3 * x[0] / 7), 1e-12, true}},
      {{"add_scalar"}, {"numbers", {anywhere()}, BOTH(1 - (x[0] + 2.5) - 4), 1e-12, true}},
      {{"power"}, {"power", {positive(), random_tensor({8}, 2)}, BOTH(power(x[0], x[1])), 1e-12, true}},
      {{"power"}, {"array ^ number", {anywhere()}, BOTH(power(x[0], 3)), 1e-12, true}},
      {{"power"}, {"number ^ array", {anywhere()}, BOTH(power(2.0, x[0])), 1e-8, true}},
      {{"floor_divide"}, {"floor_divide", {anywhere(), positive()}, BOTH(floored(x[0], x[1])), 1e-12, true}},
      {{"remainder"}, {"remainder", {anywhere(), positive()}, BOTH(modulo(x[0], x[1])), 1e-12, true}},
      {{"maximum"}, {"maximum", two(), BOTH(maximum(x[0], x[1])), 1e-12, true}},
      {{"minimum"}, {"minimum", two(), BOTH(minimum(x[0], x[1])), 1e-12, true}},
      {{"clip"}, {"clip", {anywhere()}, BOTH(clip(x[0], -0.5, 0.5)), 1e-12, true}},
      {{"logaddexp"}, {"logaddexp", two(), BOTH(logaddexp(x[0], x[1])), 1e-12, true}},
      {{"arctan2"}, {"arctan2", two(), BOTH(arctan2(x[0], x[1])), 1e-12, true}},
      {{"where"}, {"where", three(), BOTH(where(x[0] > 0, x[1], x[2])), 1e-12, true}},
      {{"where"}, {"where of a number", three(), BOTH(where(x[0] > 0, x[1], 0.5) + where(x[0] > 0, 2.0, x[2]))}},
      {{"astype"},
       {"astype", two(), OURS(astype(astype(x[0], float32) * astype(x[1], float32), float64)),
        THEIRS((x[0].to(at::kFloat) * x[1].to(at::kFloat)).to(at::kDouble)), 1e-6}},
      {{"astype"},
       {"astype to integers", count(), OURS(counted(astype(astype(x[0], float64), int32), x[1])),
        THEIRS(counted(x[0], x[1]))}},
  };
}

std::vector<Case> triangles() {
  const at::Tensor matrices = random_tensor({2, 4, 8}, 1);
  return {
      {{"tril"}, {"tril", {matrices}, BOTH(tril(x[0], 1)), 1e-12, true}},
      {{"triu"}, {"triu", {matrices}, BOTH(triu(x[0], -1)), 1e-12, true}},
      {{"tril", "triu"}, {"tril and triu", {random_tensor({8, 4}, 1)}, BOTH(tril(x[0]) + triu(x[0], 3)), 1e-12, true}},
  };
}

}  // namespace

std::vector<Case> elementwise_cases() {
  std::vector<Case> cases;
  for (const Row& row : functions) cases.push_back(of_row(row));
  for (const auto& table : {comparisons(), arithmetic(), triangles()})
    cases.insert(cases.end(), table.begin(), table.end());
  return cases;
}

}  // namespace tessera::testing
