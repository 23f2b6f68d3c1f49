// Parsing of rules.
#include "sharding/propagation/sharding_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "sharding/diagnostics/error.h"

namespace tessera::detail {
namespace {

struct Token {
  std::string name;
  FactorKind kind = FactorKind::free;
  int64_t size = 0;
};

using DimTokens = std::vector<Token>;

// A dim of an operand: its factors' sizes multiply to its own.
struct SizedDim {
  DimFactors factors;
  int64_t size;
};

std::string operand_list(const std::vector<const Type*>& operands) {
  std::vector<std::string> texts;
  for (const Type* type : operands) texts.push_back(type->to_string());
  return fmt::format("{}", fmt::join(texts, " and "));
}

class Reader {
 public:
  Reader(const char* operation, std::string_view text, const std::vector<const Type*>& operands)
      : operation_(operation), text_(text), operands_(operands) {}

  ShardingRule read() {
    if (text_ == "*") return elementwise();
    const size_t arrow = text_.find("->");
    std::vector<std::vector<DimTokens>> in = terms(text_.substr(0, arrow));
    std::vector<std::vector<DimTokens>> out = terms(text_.substr(arrow + 2));
    if (in.size() != operands_.size()) mismatch(fmt::format("expected {} operands", in.size()));
    for (size_t i = 0; i < in.size(); ++i) rule_.in.push_back(bind(in[i], *operands_[i]));
    while (std::any_of(sizes_.begin(), sizes_.end(), [&](const SizedDim& dim) { return infer(dim); })) {
    }
    for (const SizedDim& dim : sizes_) check(dim);
    for (const auto& term : out) rule_.out.push_back(produce(term));
    return std::move(rule_);
  }

 private:
  [[noreturn]] void mismatch(const std::string& why) const {
    fail(ErrorKind::shape_mismatch, operation_, fmt::format("given {}: {}.", operand_list(operands_), why));
  }

  ShardingRule elementwise() {
    size_t ndim = 0;
    for (const Type* type : operands_) ndim = std::max(ndim, type->shape.size());
    for (size_t k = 0; k < ndim; ++k) rule_.factors.push_back({fmt::format("*{}", k), 1});
    for (const Type* type : operands_) {
      rule_.in.emplace_back();
      for (size_t d = 0; d < type->shape.size(); ++d)
        rule_.in.back().push_back(broadcast(static_cast<int>(ndim - type->shape.size() + d), type->shape[d]));
    }
    rule_.out.emplace_back();
    for (size_t k = 0; k < ndim; ++k) rule_.out.back().push_back({static_cast<int>(k)});
    return std::move(rule_);
  }

  // Binds a dim to a factor that may be broadcast.
  DimFactors broadcast(int factor, int64_t size) {
    Factor& f = rule_.factors[factor];
    if (size == 1) return {};
    if (f.size != 1 && f.size != size) mismatch(fmt::format("dims of sizes {} and {} do not broadcast", f.size, size));
    f.size = size;
    return {factor};
  }

  // "b t, {a b} c" -> operands of dims of tokens.
  static std::vector<std::vector<DimTokens>> terms(std::string_view text) {
    std::vector<std::vector<DimTokens>> result(1);
    bool grouped = false;
    for (size_t i = 0; i < text.size();) {
      const char c = text[i];
      if (c == ' ') {
        ++i;
      } else if (c == ',') {
        result.emplace_back();
        ++i;
      } else if (c == '{') {
        grouped = true;
        result.back().emplace_back();
        ++i;
      } else if (c == '}') {
        grouped = false;
        ++i;
      } else {
        const size_t end = std::min(text.find_first_of(" ,}", i), text.size());
        if (!grouped) result.back().emplace_back();
        const std::string_view name = text.substr(i, end - i);
        if (name != "1") result.back().back().push_back(token(name));
        i = end;
      }
    }
    return result;
  }

  static Token token(std::string_view text) {
    Token t;
    if (text[0] == '[') t.kind = FactorKind::whole;
    if (text[0] == '(') t.kind = FactorKind::reduced_inside;
    if (t.kind != FactorKind::free) text = text.substr(1, text.size() - 2);
    const size_t equals = text.find('=');
    t.name = text.substr(0, equals);
    if (equals != std::string_view::npos) std::from_chars(text.data() + equals + 1, text.data() + text.size(), t.size);
    return t;
  }

  int factor(const Token& t) {
    const auto [found, fresh] = ids_.emplace(t.name, static_cast<int>(rule_.factors.size()));
    if (fresh) rule_.factors.push_back({t.name, 0});
    Factor& f = rule_.factors[found->second];
    f.kind = std::max(f.kind, t.kind);
    if (t.size) f.size = t.size;
    return found->second;
  }

  static bool is_ellipsis(const DimTokens& dim) { return dim.size() == 1 && dim[0].name == "..."; }

  std::vector<DimFactors> bind(const std::vector<DimTokens>& term, const Type& type) {
    const auto dots = std::find_if(term.begin(), term.end(), is_ellipsis);
    const size_t named = term.size() - (dots != term.end());
    if (type.shape.size() < named || (dots == term.end() && type.shape.size() != named))
      mismatch(fmt::format("{} has {} dims, expected {}{}", type.to_string(), type.shape.size(),
                           dots == term.end() ? "" : "at least ", named));
    const int extra = static_cast<int>(type.shape.size() - named);
    std::vector<DimFactors> dims;
    for (const DimTokens& tokens : term) {
      if (!is_ellipsis(tokens)) {
        dims.push_back(bind_dim(tokens, type.shape[dims.size()]));
        continue;
      }
      for (int k = 0; k < extra; ++k) {
        const int f = factor({fmt::format("...{}", extra - k)});
        if (rule_.factors[f].size == 0) rule_.factors[f].size = 1;
        dims.push_back(broadcast(f, type.shape[dims.size()]));
      }
      most_dots_ = std::max(most_dots_, extra);
    }
    return dims;
  }

  DimFactors bind_dim(const DimTokens& tokens, int64_t size) {
    SizedDim dim{{}, size};
    for (const Token& t : tokens) dim.factors.push_back(factor(t));
    sizes_.push_back(dim);
    return dim.factors;
  }

  // Gives the one factor of a dim whose size is still open what the others leave. Says whether it did.
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

  std::vector<DimFactors> produce(const std::vector<DimTokens>& term) {
    std::vector<DimFactors> dims;
    for (const DimTokens& tokens : term) {
      if (is_ellipsis(tokens)) {
        for (int k = most_dots_; k > 0; --k) dims.push_back({factor({fmt::format("...{}", k)})});
        continue;
      }
      dims.emplace_back();
      for (const Token& t : tokens) dims.back().push_back(factor(t));
    }
    return dims;
  }

  const char* operation_;
  std::string_view text_;
  const std::vector<const Type*>& operands_;
  std::map<std::string, int> ids_;
  std::vector<SizedDim> sizes_;
  int most_dots_ = 0;
  ShardingRule rule_;
};

}  // namespace

namespace {

std::vector<const Operation*>& operations() {
  static std::vector<const Operation*> all;
  return all;
}

}  // namespace

Operation::Operation(const char* name, std::string rule, Linearity linearity)
    : name(name), rule(std::move(rule)), linearity(linearity) {
  operations().push_back(this);
}

Operation::~Operation() { std::erase(operations(), this); }

const std::vector<const Operation*>& registered_operations() { return operations(); }

ShardingRule read_rule(const char* operation, std::string_view rule, const std::vector<const Type*>& operands) {
  return Reader(operation, rule, operands).read();
}

}  // namespace tessera::detail
