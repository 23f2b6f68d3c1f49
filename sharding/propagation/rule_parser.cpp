// parse_rule: parses a rule, and reports its errors before any operand exists.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/propagation/sharding_rule.h"

namespace tessera::detail {

namespace {

class Parser {
 public:
  Parser(std::string_view operation, std::string_view text) : operation_(operation), text_(text) {}

  ShardingRule parse() {
    if (text_ == "*") return {.in = {}, .out = {}, .elementwise = true};
    const size_t arrow = text_.find("->");
    if (arrow == std::string_view::npos)
      fail(ErrorKind::invalid_argument, "define_operation",
           "{}: the rule \"{}\" has no ->. Write what becomes of the dims, as in \"i k, k j -> i j\", or \"*\".",
           operation_, text_);
    const std::string_view results = text_.substr(arrow + 2);
    if (results.find("->") != std::string_view::npos) wrong("it has two arrows");
    ShardingRule rule{.in = terms(text_.substr(0, arrow)), .out = {}};
    find_sizes(rule);
    const bool dots = dots_;
    const auto operands = std::exchange(sized_, {});
    rule.out = terms(results);
    if (dots_ && !dots) wrong("the result has ..., which no operand has");
    for (const auto& [factor, sized] : sized_)
      if (!sized && !operands.contains(factor))
        wrong(fmt::format("the result has \"{0}\", which no operand has. Give its size, as in {0}=4", factor));
    return rule;
  }

 private:
  [[noreturn]] void wrong(const std::string& why) const {
    fail(ErrorKind::invalid_argument, "define_operation", "{}: the rule \"{}\": {}.", operation_, text_, why);
  }

  static std::string_view trimmed(std::string_view term) {
    const size_t first = term.find_first_not_of(' ');
    return term.substr(first, term.find_last_not_of(' ') - first + 1);
  }

  std::vector<RuleDims> terms(std::string_view text) {
    std::vector<RuleDims> result;
    for (size_t comma; (comma = text.find(',')) != std::string_view::npos; text.remove_prefix(comma + 1))
      result.push_back(term(text.substr(0, comma)));
    result.push_back(term(text));
    return result;
  }

  // Parses the dimensions of one operand or result.
  RuleDims term(std::string_view text) {
    RuleDims dims;
    bool grouped = false, dots = false;
    std::set<std::string> here;
    for (size_t i = 0; i < text.size();) {
      const char c = text[i];
      if (c == '{' || c == '}') {
        if (grouped == (c == '{')) wrong(fmt::format("a {} too many", c));
        grouped = c == '{';
        if (grouped) dims.emplace_back();
      }
      if (c == ' ' || c == '{' || c == '}') {
        ++i;
        continue;
      }
      const size_t end = std::min(text.find_first_of(" }", i), text.size());
      const std::string_view token = text.substr(i, end - i);
      i = end;
      if (token == "...") {
        if (grouped || dots) wrong("an ellipsis may occur once in an operand, and not in {}");
        dots = dots_ = true;
        dims.push_back(any_dims());
        continue;
      }
      if (!grouped) dims.emplace_back();
      if (token == "1") continue;
      const RuleFactor& factor = dims.back().factors.emplace_back(read_factor(token));
      if (!here.insert(factor.name).second)
        wrong(fmt::format("\"{0}\" occurs twice in \"{1}\". Name each dim once; diagonals are einsum's", factor.name,
                          trimmed(text)));
    }
    if (grouped) wrong("a { is not closed");
    return dims;
  }

  RuleFactor read_factor(std::string_view token) {
    RuleFactor factor;
    std::string_view text = token;
    if (text.front() == '[' || text.front() == '(') {
      factor.kind = text.front() == '[' ? FactorKind::whole : FactorKind::reduced_inside;
      if (text.back() != (text.front() == '[' ? ']' : ')')) wrong(fmt::format("\"{}\" is not closed", token));
      text = text.substr(1, text.size() - 2);
    }
    const size_t equals = std::min(text.find('='), text.size());
    factor.name = text.substr(0, equals);
    const auto letter = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    if (factor.name.empty() || std::isdigit(static_cast<unsigned char>(factor.name[0])) ||
        !std::all_of(factor.name.begin(), factor.name.end(), letter))
      wrong(fmt::format("\"{}\" is not a dim, expected i, [i], i=4, {{i j}}, 1 or ...", token));
    bool& sized = sized_[factor.name];
    if (equals == text.size()) return factor;
    factor.size = parse_number<int64_t>(text.substr(equals + 1)).value_or(0);
    if (factor.size < 1) wrong(fmt::format("\"{}\" gives no size, expected one from 1", token));
    sized = true;
    return factor;
  }

  // Marks sizes as known: a dimension gives the size of its only factor without a size.
  void find_sizes(const ShardingRule& rule) {
    const auto is_open = [&](const RuleFactor& factor) { return !sized_[factor.name]; };
    for (bool found = true; found;) {
      found = false;
      for (const RuleDims& dims : rule.in)
        for (const RuleDim& dim : dims) {
          if (std::count_if(dim.factors.begin(), dim.factors.end(), is_open) != 1) continue;
          sized_[std::find_if(dim.factors.begin(), dim.factors.end(), is_open)->name] = found = true;
        }
    }
    for (const auto& [name, sized] : sized_)
      if (!sized) wrong(fmt::format("the size of \"{0}\" does not follow from the shapes. Give it, as in {0}=4", name));
  }

  std::string_view operation_, text_;
  std::map<std::string, bool> sized_;  // factors, and whether their sizes are known
  bool dots_ = false;
};

}  // namespace

ShardingRule parse_rule(std::string_view operation, std::string_view text) { return Parser(operation, text).parse(); }

}  // namespace tessera::detail
