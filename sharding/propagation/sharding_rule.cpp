// Rules as values, and their binding to the shapes of operands.
#include "sharding/propagation/sharding_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "sharding/base/fail.h"

namespace tessera::detail {

RuleFactor factor(std::string name, int64_t size) { return {std::move(name), FactorKind::free, size}; }
RuleFactor whole(std::string name, int64_t size) { return {std::move(name), FactorKind::whole, size}; }
RuleFactor reduced_inside(std::string name) { return {std::move(name), FactorKind::reduced_inside}; }

RuleDim any_dims() {
  RuleDim dim;
  dim.is_any = true;
  return dim;
}

RuleDims numbered_factors(size_t n) {
  RuleDims dims;
  for (size_t i = 0; i < n; ++i) dims.push_back(factor(fmt::format("d{}", i)));
  return dims;
}

// ---- operations

ShardingRule Operation::rule(const Attributes& attributes, const OperandTypes& operands) const {
  if (rule_of_call_) return rule_of_call_(attributes, operands);
  const ShardingRule* parsed = parsed_.load();
  if (!parsed) {
    auto mine = std::make_unique<const ShardingRule>(parse_rule(name, text_));
    if (parsed_.compare_exchange_strong(parsed, mine.get())) parsed = mine.release();  // else another thread was first
  }
  return *parsed;
}

// ---- binding

namespace {

// A dimension of an operand; the product of its factors' sizes is its size.
struct SizedDim {
  DimFactors factors;
  int64_t size;
};

std::string operand_list(const OperandTypes& operands) {
  std::vector<std::string> texts;
  for (const Type* type : operands) texts.push_back(type->to_string());
  return fmt::format("{}", fmt::join(texts, " and "));
}

class Binder {
 public:
  Binder(const char* operation, const OperandTypes& operands) : operation_(operation), operands_(operands) {}

  BoundRule bind(const ShardingRule& rule) {
    if (rule.elementwise) return elementwise();
    if (rule.in.size() != operands_.size()) mismatch(fmt::format("expected {} operands", rule.in.size()));
    for (size_t i = 0; i < rule.in.size(); ++i) rule_.in.push_back(bind(rule.in[i], *operands_[i]));
    while (std::any_of(sizes_.begin(), sizes_.end(), [&](const SizedDim& dim) { return infer(dim); })) {
    }
    for (const SizedDim& dim : sizes_) check(dim);
    for (const RuleDims& dims : rule.out) rule_.out.push_back(produce(dims));
    return std::move(rule_);
  }

 private:
  [[noreturn]] void mismatch(const std::string& why) const {
    fail(ErrorKind::shape_mismatch, operation_, "given {}: {}.", operand_list(operands_), why);
  }

  BoundRule elementwise() {
    size_t ndim = 0;
    for (const Type* type : operands_) ndim = std::max(ndim, type->shape.size());
    for (size_t k = 0; k < ndim; ++k) rule_.factors.push_back({fmt::format("*{}", k), 1});
    for (const Type* type : operands_) {
      rule_.in.emplace_back();
      for (size_t d = 0; d < type->shape.size(); ++d)
        rule_.in.back().push_back(broadcast(static_cast<int>(ndim - type->shape.size() + d), type->shape[d]));
    }
    // A dimension of size 1 that no operand broadcasts keeps its sharding, which may be padded.
    for (size_t i = 0; i < operands_.size(); ++i)
      for (size_t d = 0; d < rule_.in[i].size(); ++d) {
        const int k = static_cast<int>(ndim - rule_.in[i].size() + d);
        if (rule_.factors[k].size == 1 && operands_[i]->shape[d] == 1) rule_.in[i][d] = {k};
      }
    rule_.out.emplace_back();
    for (size_t k = 0; k < ndim; ++k) rule_.out.back().push_back({static_cast<int>(k)});
    return std::move(rule_);
  }

  // Binds a dimension to a factor that may be broadcast.
  DimFactors broadcast(int factor, int64_t size) {
    Factor& f = rule_.factors[factor];
    if (size == 1) return {};
    if (f.size != 1 && f.size != size) mismatch(fmt::format("dims of sizes {} and {} do not broadcast", f.size, size));
    f.size = size;
    return {factor};
  }

  int number_of(const RuleFactor& named) {
    const auto [found, fresh] = numbers_.emplace(named.name, static_cast<int>(rule_.factors.size()));
    if (fresh) rule_.factors.push_back({named.name, 0});
    Factor& f = rule_.factors[found->second];
    f.kind = std::max(f.kind, named.kind);
    if (named.size) f.size = named.size;
    return found->second;
  }

  std::vector<DimFactors> bind(const RuleDims& rule, const Type& type) {
    const bool dots = std::any_of(rule.begin(), rule.end(), [](const RuleDim& dim) { return dim.is_any; });
    const size_t named = rule.size() - dots;
    if (type.shape.size() < named || (!dots && type.shape.size() != named))
      mismatch(fmt::format("{} has {} dims, expected {}{}", type.to_string(), type.shape.size(),
                           dots ? "at least " : "", named));
    const int extra = static_cast<int>(type.shape.size() - named);
    std::vector<DimFactors> dims;
    for (const RuleDim& dim : rule) {
      if (!dim.is_any) {
        dims.push_back(bind_dim(dim, type.shape[dims.size()]));
        continue;
      }
      for (int k = 0; k < extra; ++k) {
        const size_t known = rule_.factors.size();
        const int f = number_of(factor(fmt::format("...{}", extra - k)));
        if (rule_.factors.size() > known) rule_.factors[f].size = 1;
        dims.push_back(broadcast(f, type.shape[dims.size()]));
      }
      max_dots_ = std::max(max_dots_, extra);
    }
    return dims;
  }

  DimFactors numbers_of(const RuleDim& dim) {
    DimFactors numbers;
    for (const RuleFactor& named : dim.factors) numbers.push_back(number_of(named));
    return numbers;
  }

  DimFactors bind_dim(const RuleDim& dim, int64_t size) {
    sizes_.push_back({numbers_of(dim), size});
    return sizes_.back().factors;
  }

  // Computes the size of the only factor of a dimension without a size. Returns true on success.
  bool infer(const SizedDim& dim) {
    int64_t known = 1;
    Factor* open = nullptr;
    for (int f : dim.factors) {
      if (rule_.factors[f].size)
        known *= rule_.factors[f].size;
      else if (open)
        return false;
      else
        open = &rule_.factors[f];
    }
    if (!open || dim.size % known || dim.size == 0) return false;
    open->size = dim.size / known;
    return true;
  }

  void check(const SizedDim& dim) const {
    int64_t known = 1;
    std::vector<std::string> names;
    for (int f : dim.factors) known *= rule_.factors[f].size, names.push_back(rule_.factors[f].name);
    if (known != dim.size)
      mismatch(fmt::format("dim \"{}\" is {} here and {} there", fmt::join(names, " "), known, dim.size));
  }

  std::vector<DimFactors> produce(const RuleDims& rule) {
    std::vector<DimFactors> dims;
    for (const RuleDim& dim : rule) {
      if (!dim.is_any) dims.push_back(numbers_of(dim));
      for (int k = dim.is_any ? max_dots_ : 0; k > 0; --k) dims.push_back({number_of(factor(fmt::format("...{}", k)))});
    }
    return dims;
  }

  const char* operation_;
  const OperandTypes& operands_;
  std::map<std::string, int> numbers_;
  std::vector<SizedDim> sizes_;
  int max_dots_ = 0;
  BoundRule rule_;
};

}  // namespace

BoundRule bind_rule(const char* operation, const ShardingRule& rule, const OperandTypes& operands) {
  return Binder(operation, operands).bind(rule);
}

}  // namespace tessera::detail
