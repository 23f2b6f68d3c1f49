// Operations that programs define, kept by name and rule.
#include "sharding/operations/define_operation.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>

namespace tessera::detail {

namespace {

// What a rule says, read for what is wrong with it before any operand is known.
class Definition {
 public:
  Definition(const std::string& name, std::string_view rule) : name_(name), rule_(rule) {}

  void check() {
    if (rule_ == "*") return;
    const size_t arrow = rule_.find("->");
    if (arrow == std::string_view::npos)
      fail(ErrorKind::bad_argument, "define_operation",
           fmt::format(
               "{}: the rule \"{}\" has no ->. Write what becomes of the dims, as in \"i k, k j -> i j\", or \"*\".",
               name_, rule_));
    const std::string_view result = rule_.substr(arrow + 2);
    if (result.find("->") != std::string_view::npos) wrong("it has two arrows");
    if (result.find(',') != std::string_view::npos) wrong("it has two results, expected one");
    for (const std::string_view operand : split(rule_.substr(0, arrow))) read(operand);
    find_sizes();
    const bool dots = dots_;
    const auto operands = std::exchange(known_, {});
    dims_.clear();
    read(result);
    if (dots_ && !dots) wrong("the result has ..., which no operand has");
    for (const auto& [factor, sized] : known_)
      if (!sized && !operands.contains(factor))
        wrong(fmt::format("the result has \"{0}\", which no operand has. Give its size, as in {0}=4", factor));
  }

 private:
  using Names = std::vector<std::string>;

  [[noreturn]] void wrong(const std::string& why) const {
    fail(ErrorKind::bad_argument, "define_operation", fmt::format("{}: the rule \"{}\": {}.", name_, rule_, why));
  }

  static std::string_view trimmed(std::string_view term) {
    const size_t first = term.find_first_not_of(' ');
    return term.substr(first, term.find_last_not_of(' ') - first + 1);
  }

  static std::vector<std::string_view> split(std::string_view operands) {
    std::vector<std::string_view> terms;
    for (size_t comma; (comma = operands.find(',')) != std::string_view::npos; operands.remove_prefix(comma + 1))
      terms.push_back(operands.substr(0, comma));
    terms.push_back(operands);
    return terms;
  }

  // The dims of one operand, or of the result.
  void read(std::string_view term) {
    bool grouped = false;
    int dots = 0;
    std::set<std::string> here;
    for (size_t i = 0; i < term.size();) {
      const char c = term[i];
      if (c == '{' || c == '}') {
        if (grouped == (c == '{')) wrong(fmt::format("a {} too many", c));
        grouped = c == '{';
        if (grouped) dims_.emplace_back();
      }
      if (c == ' ' || c == '{' || c == '}') {
        ++i;
        continue;
      }
      const size_t end = std::min(term.find_first_of(" }", i), term.size());
      const std::string_view token = term.substr(i, end - i);
      i = end;
      if (token == "1") continue;
      if (token == "...") {
        if (grouped || ++dots > 1) wrong("an ellipsis stands once for an operand, and in no {}");
        dots_ = true;
        continue;
      }
      if (!grouped) dims_.emplace_back();
      const std::string& name = dims_.back().emplace_back(factor(token));
      if (!here.insert(name).second)
        wrong(fmt::format("\"{0}\" stands twice in \"{1}\". Name each dim once; diagonals are einsum's", name,
                          trimmed(term)));
    }
    if (grouped) wrong("a { is not closed");
  }

  std::string factor(std::string_view token) {
    std::string_view text = token;
    if (text.front() == '[') {
      if (text.back() != ']') wrong(fmt::format("\"{}\" is not closed", token));
      text = text.substr(1, text.size() - 2);
    }
    const size_t equals = std::min(text.find('='), text.size());
    const std::string name(text.substr(0, equals));
    const auto letter = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) ||
        !std::all_of(name.begin(), name.end(), letter))
      wrong(fmt::format("\"{}\" is no dim, expected i, [i], i=4, {{i j}}, 1 or ...", token));
    bool& sized = known_[name];
    if (equals == text.size()) return name;
    int64_t size = 0;
    const char *digits = text.data() + equals + 1, *last = text.data() + text.size();
    const auto [rest, error] = std::from_chars(digits, last, size);
    if (error != std::errc{} || rest != last || size < 1)
      wrong(fmt::format("\"{}\" gives no size, expected one from 1", token));
    sized = true;
    return name;
  }

  // A dim gives the size of its one factor whose size is open.
  void find_sizes() {
    for (bool found = true; found;) {
      found = false;
      for (const Names& dim : dims_) {
        const auto open = [&](const std::string& name) { return !known_[name]; };
        if (std::count_if(dim.begin(), dim.end(), open) != 1) continue;
        known_[*std::find_if(dim.begin(), dim.end(), open)] = found = true;
      }
    }
    for (const auto& [name, known] : known_)
      if (!known) wrong(fmt::format("the size of \"{0}\" does not follow from the shapes. Give it, as in {0}=4", name));
  }

  const std::string& name_;
  std::string_view rule_;
  std::vector<Names> dims_;
  std::map<std::string, bool> known_;  // factors, and whether their sizes are
  bool dots_ = false;
};

}  // namespace

const Operation& interned_operation(const std::string& name, const std::string& rule, Linearity linearity) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, std::string, Linearity>, std::unique_ptr<Operation>> operations;
  Definition(name, rule).check();
  std::lock_guard lock(mutex);
  const auto [found, fresh] = operations.try_emplace({name, rule, linearity});
  if (fresh) found->second = std::make_unique<Operation>(std::get<0>(found->first).c_str(), rule, linearity);
  return *found->second;
}

void check_result(const at::Tensor& result, const BlockContext& block, const char* operation) {
  const Type& type = *block.plan().out[0];
  if (!result.defined() || result.sizes() != c10::IntArrayRef(type.local))
    fail(ErrorKind::shape_mismatch, operation,
         fmt::format("the function gave {}, the rule says {} for a block of {}. Mend one of them.",
                     result.defined() ? to_string(result.sizes().vec()) : "nothing", to_string(type.local),
                     type.to_string()));
  if (result.scalar_type() != static_cast<at::ScalarType>(type.dtype))
    fail(ErrorKind::dtype_mismatch, operation,
         fmt::format("the function gave {}, expected {}. Say the result's element type with .out_dtype.",
                     c10::toString(result.scalar_type()), type.to_string()));
}

}  // namespace tessera::detail
