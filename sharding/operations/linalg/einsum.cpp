// einsum: uses the equation as the sharding rule.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

// ---- the equation

constexpr char dots = '.';  // an ellipsis

// The letters of each operand and of the result.
struct Equation {
  std::vector<std::string> in;
  std::string out;
};

class EquationReader {
 public:
  EquationReader(std::string_view text, size_t operands) : text_(text), operands_(operands) {}

  Equation read() const {
    std::string plain;
    for (const char c : text_)
      if (c != ' ') plain += c;
    const size_t arrow = plain.find("->");
    Equation e;
    std::string_view rest = std::string_view(plain).substr(0, arrow);
    for (size_t comma = 0; comma != std::string_view::npos; rest.remove_prefix(comma + 1)) {
      comma = rest.find(',');
      e.in.push_back(term(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
    }
    if (e.in.size() != operands_) malformed(fmt::format("it is for {} operands, given {}", e.in.size(), operands_));
    e.out = arrow == std::string::npos ? implicit(e) : term(std::string_view(plain).substr(arrow + 2));
    check_result(e);
    return e;
  }

 private:
  [[noreturn]] void malformed(const std::string& why) const {
    fail(ErrorKind::invalid_argument, "einsum", "\"{}\": {}.", text_, why);
  }

  // Returns one character per dimension or ellipsis.
  std::string term(std::string_view text) const {
    std::string letters;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool ellipsis = text.substr(i, 3) == "...";
      if (!ellipsis && !std::isalpha(static_cast<unsigned char>(text[i])))
        malformed(fmt::format("'{}' is neither a letter nor an ellipsis", text[i]));
      if (ellipsis && letters.find(dots) != std::string::npos) malformed("two ellipses for one operand");
      letters += text[i];
      if (ellipsis) i += 2;
    }
    return letters;
  }

  // Returns the letters that occur once, in order, after the ellipsis.
  static std::string implicit(const Equation& e) {
    std::map<char, int> count;
    for (const std::string& letters : e.in)
      for (const char c : letters) ++count[c];
    std::string out;
    for (const auto& [c, n] : count)
      if (n == 1 || c == dots) out += c;
    return out;
  }

  void check_result(const Equation& e) const {
    for (const char c : e.out) {
      if (std::none_of(e.in.begin(), e.in.end(), [&](const auto& in) { return in.find(c) != std::string::npos; }))
        malformed(fmt::format("the result has '{}', which no operand has", c));
      if (std::count(e.out.begin(), e.out.end(), c) > 1) malformed(fmt::format("the result has '{}' twice", c));
    }
  }

  std::string_view text_;
  size_t operands_;
};

// ---- the rule

// Returns the dimension of an operand that its i-th letter names; -1 for an ellipsis, or if the ranks do not fit.
int dim_of(const std::string& letters, size_t i, size_t ndim) {
  const size_t ellipsis = letters.find(dots);
  const bool fits = ellipsis == std::string::npos ? ndim == letters.size() : ndim + 1 >= letters.size();
  if (!fits || i == ellipsis) return -1;
  return static_cast<int>(i < ellipsis ? i : ndim - (letters.size() - i));
}

// Returns the largest size of each letter's dimensions.
std::map<char, int64_t> letter_sizes(const Equation& e, const OperandTypes& operands) {
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t k = 0; k < e.in[i].size(); ++k)
      if (const int d = dim_of(e.in[i], k, operands[i]->shape.size()); d >= 0)
        sizes[e.in[i][k]] = std::max(sizes[e.in[i][k]], operands[i]->shape[d]);
  return sizes;
}

// Returns the dimensions of an operand as factors. A dimension of size one broadcasts if other dimensions of its letter
// are longer: it has no factor. The second dimension of a letter in one operand is not sharded; each block of the first
// dimension uses the corresponding range of it.
RuleDims operand_dims(const std::string& letters, const Type& type, const std::map<char, int64_t>& sizes) {
  RuleDims dims;
  for (size_t k = 0; k < letters.size(); ++k) {
    const char c = letters[k];
    const int d = dim_of(letters, k, type.shape.size());
    if (c == dots)
      dims.push_back(any_dims());
    else if (d >= 0 && type.shape[d] == 1 && sizes.at(c) != 1)
      dims.emplace_back();
    else if (letters.find(c) == k || d < 0)
      dims.push_back(factor({c}));
    else
      dims.push_back(whole(fmt::format("{}{}", c, k), sizes.at(c)));
  }
  return dims;
}

// Checks that each operand has the dimensions that its letters name, and that a letter's dimensions in one operand are
// equal.
void check_operands(const std::string& text, const Equation& e, const OperandTypes& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = operands[i]->shape;
    const bool open = e.in[i].find(dots) != std::string::npos;
    const size_t named = e.in[i].size() - open;
    if (open ? shape.size() < named : shape.size() != named)
      fail(ErrorKind::shape_mismatch, "einsum", "\"{}\": {} has {} dims, expected {}{}.", text,
           operands[i]->to_string(), shape.size(), open ? "at least " : "", named);
    for (size_t k = 0; k < e.in[i].size(); ++k) {
      const int first = dim_of(e.in[i], e.in[i].find(e.in[i][k]), shape.size()), d = dim_of(e.in[i], k, shape.size());
      if (d >= 0 && shape[d] != shape[first])
        fail(ErrorKind::shape_mismatch, "einsum", "\"{}\": '{}' of {} is {} and {}, expected one size.", text,
             e.in[i][k], operands[i]->to_string(), shape[first], shape[d]);
    }
  }
}

Numbers<std::string>& numbers_of_equations() {
  static auto& numbers = *new Numbers<std::string>;  // never destroyed: see make_mesh
  return numbers;
}

// Returns the rule of einsum. Attribute: the number of the equation.
ShardingRule einsum_rule(const Attributes& attributes, const OperandTypes& operands) {
  const std::string& text = numbers_of_equations()[attributes[0]];
  const Equation e = EquationReader(text, operands.size()).read();
  check_operands(text, e, operands);
  const auto sizes = letter_sizes(e, operands);
  ShardingRule rule{.in = {}, .out = {{}}};
  for (size_t i = 0; i < operands.size(); ++i) rule.in.push_back(operand_dims(e.in[i], *operands[i], sizes));
  for (const char c : e.out) rule.out[0].push_back(c == dots ? any_dims() : RuleDim(factor({c})));
  return rule;
}

const Operation einsum_op{"einsum", einsum_rule, Linearity::multilinear, Padded::zeros};
const Operation diagonal_op{"einsum", einsum_rule, Linearity::multilinear};  // for operands with a letter twice

// ---- diagonals

// Returns true if an operand has a letter twice.
bool has_diagonal(std::string_view equation) {
  uint64_t seen = 0;
  for (const char c : equation.substr(0, equation.find('-'))) {
    if (c == ',') seen = 0;
    if (!std::isalpha(static_cast<unsigned char>(c))) continue;
    const uint64_t bit = uint64_t{1} << (c - 'A');
    if (seen & bit) return true;
    seen |= bit;
  }
  return false;
}

// Narrows a second dimension, which is not sharded, to the range that corresponds to this block of the first.
at::Tensor beside_block(const std::string& letters, at::Tensor t, const BlockContext& block) {
  for (size_t k = 1; k < letters.size(); ++k) {
    const size_t first = letters.find(letters[k]);
    const std::string_view factor(&letters[k], 1);
    if (first == k || block.is_whole(factor)) continue;
    const int64_t size = t.size(dim_of(letters, first, t.dim()));
    t = t.narrow(dim_of(letters, k, t.dim()), block.offset(factor), size);
  }
  return t;
}

// ---- the call

using Pointers = std::vector<const Array*>;

Pointers pointers_to(const std::vector<Array>& arrays) {
  Pointers pointers;
  for (const Array& x : arrays) pointers.push_back(&x);
  return pointers;
}

Array contracted(std::string_view equation, const Pointers& operands, std::source_location where) {
  Prepared call;
  const bool is_diagonal = has_diagonal(equation);
  prepare(call,
          {.operation = is_diagonal ? diagonal_op : einsum_op,
           .attributes = {numbers_of_equations().number_of(std::string(equation))},
           .where = where},
          operands.data(), static_cast<int>(operands.size()));
  const bool cuts = call.plan->mesh && is_diagonal;
  const Equation e = cuts ? EquationReader(equation, operands.size()).read() : Equation();
  return run(call, einsum_op.name, [&](Locals t, const BlockContext& block) {
    c10::SmallVector<at::Tensor, max_operands> tensors;
    for (int i = 0; i < call.operands; ++i) tensors.push_back(cuts ? beside_block(e.in[i], t[i], block) : t[i]);
    const auto type = tensors[0].scalar_type();
    if (at::isFloatingType(type)) return at::einsum(equation, tensors);
    for (at::Tensor& x : tensors) x = x.to(at::kLong);  // the type in which LibTorch adds integers
    return at::einsum(equation, tensors).to(type);
  });
}

// Contracts all operands in one type; booleans are counted.
Array contracted_promoted(std::string_view equation, const Pointers& operands, std::source_location where) {
  const DType first = materialized(*operands[0], "einsum").type->dtype;
  DType common = first;
  bool mixed = false;
  for (const Array* x : operands) {
    const DType dtype = materialized(*x, "einsum").type->dtype;
    mixed |= dtype != first;
    common = promote(common, dtype);
  }
  if (!mixed && common != boolean) return contracted(equation, operands, where);
  std::vector<Array> cast;
  for (const Array* x : operands) cast.push_back(astype({*x, where}, common == boolean ? int32 : common));
  const Array result = contracted(equation, pointers_to(cast), where);
  return common == boolean ? not_equal(Operand(result, where), 0) : result;
}

// Returns true if the equation multiplies by a matrix: "bsk,kj->bsj", "...k,kj->...j".
bool is_matmul(std::string_view equation, const Array& x, const Array& w) {
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string_view::npos || arrow != comma + 3 || comma < 2) return false;
  const std::string_view a = equation.substr(0, comma), out = equation.substr(arrow + 2);
  const char k = equation[comma + 1], j = equation[comma + 2];
  const std::string_view rows = a.substr(0, comma - 1);
  if (k == j || a.back() != k || out.size() != a.size() || out.back() != j || out.substr(0, rows.size()) != rows)
    return false;
  std::string_view letters = rows;
  const bool ellipsis = letters.substr(0, 3) == "...";
  if (ellipsis) letters.remove_prefix(3);
  for (size_t i = 0; i < letters.size(); ++i)
    if (!std::isalpha(static_cast<unsigned char>(letters[i])) || letters[i] == k || letters[i] == j ||
        letters.find(letters[i], i + 1) != std::string_view::npos)
      return false;
  if (x.is_absent() || w.is_absent() || w.ndim() != 2 || x.ndim() < 2) return false;
  const int named = static_cast<int>(letters.size()) + 1;
  return (ellipsis ? x.ndim() >= named : x.ndim() == named) && x.shape(-1) == w.shape(0);
}

// Merges the first two operands, since one call takes a limited number. Keeps the letters that are still needed.
std::string merge_first_two(std::string_view equation, std::vector<Array>& operands, std::source_location where) {
  const Equation e = EquationReader(equation, operands.size()).read();
  std::string needed = e.out, kept;
  for (size_t i = 2; i < e.in.size(); ++i) needed += e.in[i];
  for (const char c : e.in[0] + e.in[1])
    if (needed.find(c) != std::string::npos && kept.find(c) == std::string::npos) kept += c;
  const auto written = [](const std::string& letters) {
    const size_t ellipsis = letters.find(dots);
    return ellipsis == std::string::npos ? letters : std::string(letters).replace(ellipsis, 1, "...");
  };
  const std::string first = fmt::format("{},{}->{}", written(e.in[0]), written(e.in[1]), written(kept));
  Array merged = contracted_promoted(first, {&operands[0], &operands[1]}, where);
  operands.erase(operands.begin());
  operands[0] = std::move(merged);
  std::string rest = written(kept);
  for (size_t i = 2; i < e.in.size(); ++i) rest += "," + written(e.in[i]);
  return rest + "->" + written(e.out);
}

Array product(std::string_view equation, const Array& a, const Array& b, std::source_location where) {
  if (is_matmul(equation, a, b)) return matmul({a, where}, {b, where});
  return contracted_promoted(equation, {&a, &b}, where);
}

}  // namespace

Array einsum(std::string_view equation, const std::vector<Array>& operands, const ResultOptions& options,
             std::source_location where) {
  if (operands.empty()) fail(ErrorKind::invalid_argument, "einsum", "\"{}\": no operands given.", equation);
  if (operands.size() == 2)
    return placed_result(product(equation, operands[0], operands[1], where), options, "einsum", where);
  std::vector<Array> rest = operands;
  std::string merged;
  while (rest.size() > max_operands) {
    merged = merge_first_two(equation, rest, where);
    equation = merged;
  }
  return placed_result(contracted_promoted(equation, pointers_to(rest), where), options, "einsum", where);
}

}  // namespace tessera
