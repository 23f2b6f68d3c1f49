// Runs chat templates: scopes, loops, macros, operators and indexing as in Jinja2 and Python.
#include <time.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "data/text/python_text.h"
#include "data/text/template_nodes.h"
#include "sharding/base/fail.h"

namespace tessera::data::jinja {
namespace {

// A step takes about 50 ns. The templates of models take at most 200 steps for each message, and quadratic ones 10
// for each pair of messages. They make at most 10 copies of a text.
constexpr size_t steps_of_any = 5'000'000, steps_per_byte = 100, bytes_of_any = size_t{1} << 24, bytes_per_byte = 64;
constexpr int max_levels = 300;         // of nodes that run, macros included; a macro that calls itself adds about 6
constexpr int max_value_levels = 64;    // of lists and dictionaries
constexpr int64_t max_range = 100'000;  // as in the sandbox of Jinja2

}  // namespace

Value text_value(std::string text) { return {std::make_shared<const std::string>(std::move(text))}; }

Run::Run(const Program& program, size_t bytes)
    : program_(program), steps_(steps_of_any + steps_per_byte * bytes), bytes_(bytes_of_any + bytes_per_byte * bytes) {}

void Run::refuse(std::string_view what) const {
  fail(ErrorKind::invalid_file, "ChatTemplate", "{}, line {}: {}", program_.file, line_, what);
}

void Run::refuse(std::string_view what, const Value& given) const {
  static constexpr const char* names[] = {"undefined", "None",         "a bool",      "an int", "a string",
                                          "a list",    "a dictionary", "a namespace", "a macro"};
  std::string name = names[given.is.index()];
  if (const auto* undefined = given.as<Undefined>(); undefined && undefined->origin)
    name = fmt::format("`{}` which is undefined", undefined->origin->text);
  refuse(fmt::format("{}: {} given.", what, name));
}

void Run::step(size_t count) {
  if (count > steps_) refuse("the template takes too many steps for this conversation.");
  steps_ -= count;
}

class Run::Level {
 public:
  explicit Level(Run& run) : run_(run) {
    if (++run.levels_ > max_levels) run.refuse(fmt::format("more than {} levels of macros and blocks.", max_levels));
    run.step();
  }
  ~Level() { --run_.levels_; }

 private:
  Run& run_;
};

// ---- values

namespace {

void take(size_t& bytes, size_t more, const Run& run) {
  if (more > bytes) run.refuse("the template makes too much text for this conversation.");
  bytes -= more;
}

int depth_of(const Value& value) { return value.list() ? value.list()->depth : value.dict() ? value.dict()->depth : 0; }

}  // namespace

Value Run::text(std::string text) {
  take(bytes_, text.size() + sizeof(std::string), *this);
  return text_value(std::move(text));
}

Value Run::list(std::vector<Value> items, bool is_tuple) {
  take(bytes_, items.size() * sizeof(Value), *this);
  List list{std::move(items), is_tuple};
  for (const Value& item : list.items) list.depth = std::max(list.depth, depth_of(item) + 1);
  if (list.depth > max_value_levels) refuse("a list in a list in a list, with too many levels.");
  return {std::make_shared<const List>(std::move(list))};
}

Value Run::dict(Members members) {
  take(bytes_, members.size() * sizeof(Members::value_type), *this);
  Dict dict{std::move(members)};
  for (const auto& [name, value] : dict.members) dict.depth = std::max(dict.depth, depth_of(value) + 1);
  if (dict.depth > max_value_levels) refuse("a dictionary in a dictionary, with too many levels.");
  return {std::make_shared<const Dict>(std::move(dict))};
}

std::string Run::string_of(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.as<None>()) return "None";
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const int64_t* integer = value.as<int64_t>()) return std::to_string(*integer);
  const std::string* text = value.as<SafeText>() ? value.as<SafeText>()->text.get() : value.text();
  if (!text) refuse("only strings and numbers can be written; use tojson for others", value);
  take(bytes_, text->size(), *this);
  return *text;
}

bool Run::is_true(const Value& value) const {
  if (const bool* flag = value.as<bool>()) return *flag;
  if (const int64_t* integer = value.as<int64_t>()) return *integer != 0;
  if (value.text()) return !value.text()->empty();
  if (value.list()) return !value.list()->items.empty();
  if (value.dict()) return !value.dict()->members.empty();
  return !value.is_undefined() && !value.as<None>();
}

namespace {

std::optional<int64_t> integer_of(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag;
  const int64_t* integer = value.as<int64_t>();
  return integer ? std::optional(*integer) : std::nullopt;
}

const Value* find(const Members& members, std::string_view name, Run& run) {
  run.step(members.size() / 16);
  for (const auto& [key, value] : members)
    if (key == name) return &value;
  return nullptr;
}

}  // namespace

bool Run::are_equal(const Value& a, const Value& b) {
  step();
  if (const auto x = integer_of(a), y = integer_of(b); x && y) return *x == *y;
  if (a.is.index() != b.is.index()) return false;
  if (a.text()) return step(a.text()->size() / 64), *a.text() == *b.text();
  if (a.list())
    return a.list()->is_tuple == b.list()->is_tuple &&
           std::equal(a.list()->items.begin(), a.list()->items.end(), b.list()->items.begin(), b.list()->items.end(),
                      [this](const Value& x, const Value& y) { return are_equal(x, y); });
  if (!a.dict()) return !a.as<Namespace*>() || *a.as<Namespace*>() == *b.as<Namespace*>();
  const Members &x = a.dict()->members, &y = b.dict()->members;
  return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&](const auto& member) {
           const Value* other = find(y, member.first, *this);
           return other && are_equal(member.second, *other);
         });
}

bool Run::contains(const Value& all, const Value& one) {
  if (const std::string* text = all.text()) {
    if (!one.text()) refuse("`in` a string needs a string", one);
    step((text->size() / 64 + 1) * (std::min(one.text()->size(), text->size()) / 64 + 1));
    return text->find(*one.text()) != std::string::npos;
  }
  if (all.dict()) return one.text() && find(all.dict()->members, *one.text(), *this);
  if (all.is_undefined()) return false;
  if (!all.list()) refuse("`in` needs a string, a list or a dictionary", all);
  return std::any_of(all.list()->items.begin(), all.list()->items.end(),
                     [&](const Value& item) { return are_equal(item, one); });
}

std::vector<Value> Run::items_of(const Value& value) {
  std::vector<Value> items;
  if (value.list()) {
    step(value.list()->items.size());
    return value.list()->items;
  }
  if (value.text())
    for (const std::string_view c : characters(*value.text())) items.push_back(text(std::string(c)));
  else if (value.dict())
    for (const auto& [name, of_name] : value.dict()->members) items.push_back(text(name));
  else if (!value.is_undefined())
    refuse("a list, a dictionary or a string is expected here", value);
  return items;
}

Value Run::member(const Value& value, const std::string& name) {
  if (value.is_undefined()) refuse(fmt::format("`{}` of a value", name), value);
  const Members* members = value.dict()             ? &value.dict()->members
                           : value.as<Namespace*>() ? &(*value.as<Namespace*>())->members
                                                    : nullptr;
  const Value* found = members ? find(*members, name, *this) : nullptr;
  return found ? *found : Value{};
}

Value Run::item(const Value& value, const Value& key) {
  if (key.text()) return member(value, *key.text());
  if (value.is_undefined()) refuse("an item of a value", value);
  const auto index = integer_of(key);
  if (!index || !(value.list() || value.text())) return {};
  const auto at = [&](const auto& all) {
    const int64_t place = *index < 0 ? *index + std::ssize(all) : *index;
    return place >= 0 && place < std::ssize(all) ? &all[static_cast<size_t>(place)] : nullptr;
  };
  if (value.list()) {
    const Value* found = at(value.list()->items);
    return found ? *found : Value{};
  }
  step(value.text()->size());
  const auto all = characters(*value.text());
  const std::string_view* found = at(all);
  return found ? text(std::string(*found)) : Value{};
}

Value Run::slice(const Node& node, Scope& scope) {
  const Value subject = evaluate(*node.kids[0], scope);
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const Value bound = node.kids[i + 1] ? evaluate(*node.kids[i + 1], scope) : Value{None{}};
    bounds[i] = integer_of(bound);
    if (!bounds[i] && !bound.as<None>()) refuse("a slice needs integers", bound);
  }
  if (!subject.list() && !subject.text()) refuse("a slice of a list or a string is expected", subject);
  const std::vector<Value> all = items_of(subject);
  const int64_t size = std::ssize(all), by = bounds[2].value_or(1);
  if (by == 0) refuse("the step of a slice is 0.");
  const auto place = [&](const std::optional<int64_t>& given, int64_t otherwise) {
    if (!given) return otherwise;
    return std::clamp<int64_t>(*given < 0 ? *given + size : *given, by < 0 ? -1 : 0, by < 0 ? size - 1 : size);
  };
  const int64_t begin = place(bounds[0], by < 0 ? size - 1 : 0), end = place(bounds[1], by < 0 ? -1 : size);
  std::vector<Value> items;
  for (int64_t i = begin; by < 0 ? i > end : i < end; i += std::clamp(by, -size, size)) items.push_back(all[i]);
  if (subject.list()) return list(std::move(items), subject.list()->is_tuple);
  std::string joined;
  for (const Value& c : items) joined += *c.text();
  return text(std::move(joined));
}

// ---- expressions

void Run::Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : names)
    if (known == name) {
      old = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

Value Run::look_up(const Node& name, Scope& scope) {
  for (Scope* s = &scope; s; s = s->outer)
    if (const Value* found = find(s->names, name.text, *this)) return *found;
  return {Undefined{&name}};
}

Value Run::evaluate(const Node& node, Scope& scope) {
  const Level level(*this);
  line_ = node.line;
  const auto kid = [&](size_t i) { return evaluate(*node.kids[i], scope); };
  switch (node.kind) {
    case Kind::literal:
      return node.value;
    case Kind::name:
      return look_up(node, scope);
    case Kind::attribute: {
      const Value subject = kid(0);
      if ((subject.dict() || subject.text()) && find_function(FunctionKind::method, node.text))
        refuse(fmt::format("the method `{}` without a call is not supported.", node.text));
      Value found = member(subject, node.text);
      return found.is_undefined() ? Value{Undefined{&node}} : found;
    }
    case Kind::item: {
      const Value subject = kid(0);
      return item(subject, kid(1));
    }
    case Kind::slice:
      return slice(node, scope);
    case Kind::call:
      return call(node, scope);
    case Kind::method:
    case Kind::filter:
    case Kind::test: {
      std::vector<Value> arguments;
      for (const auto& argument : node.kids) arguments.push_back(argument ? evaluate(*argument, scope) : Value{});
      line_ = node.line;
      const auto kind = node.kind == Kind::filter ? FunctionKind::filter
                        : node.kind == Kind::test ? FunctionKind::test
                                                  : FunctionKind::method;
      if (const std::string* text = arguments[0].text()) step(text->size() / 64);
      return find_function(kind, node.text)->apply(*this, arguments[0], std::span(arguments).subspan(1));
    }
    case Kind::not_:
      return {!is_true(kid(0))};
    case Kind::sign:
      return binary(node.text, {int64_t{0}}, kid(0));
    case Kind::binary: {
      const Value a = kid(0), b = kid(1);
      line_ = node.line;
      return binary(node.text, a, b);
    }
    case Kind::compare: {
      Value left = kid(0);
      for (size_t i = 1; i < node.kids.size(); ++i) {
        Value right = kid(i);
        line_ = node.line;
        if (!compare(node.names[i - 1], left, right)) return {false};
        left = std::move(right);
      }
      return {true};
    }
    case Kind::and_:
    case Kind::or_: {
      Value left = kid(0);
      return is_true(left) == (node.kind == Kind::and_) ? kid(1) : left;
    }
    case Kind::condition:
      return kid(is_true(kid(0)) ? 1 : 2);
    case Kind::list:
    case Kind::tuple: {
      std::vector<Value> items;
      for (size_t i = 0; i < node.kids.size(); ++i) items.push_back(kid(i));
      return list(std::move(items), node.kind == Kind::tuple);
    }
    default: {
      Scope members;  // a repeated key keeps its first place and its last value
      for (size_t i = 0; i < node.kids.size(); i += 2) {
        const Value key = kid(i);
        if (!key.text()) refuse("a key of a dictionary must be a string", key);
        members.set(*key.text(), kid(i + 1));
      }
      return dict(std::move(members.names));
    }
  }
}

Value Run::binary(const std::string& op, const Value& a, const Value& b) {
  if (op == "~" || (op == "+" && a.text() && b.text())) {
    std::string joined = string_of(a);
    return text(joined += string_of(b));
  }
  if (op == "+" && a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
    std::vector<Value> items = items_of(a);
    const std::vector<Value> more = items_of(b);
    items.insert(items.end(), more.begin(), more.end());
    return list(std::move(items), a.list()->is_tuple);
  }
  if (const auto count = integer_of(b); op == "*" && a.text() && count) {
    take(bytes_, static_cast<size_t>(std::max<int64_t>(*count, 0)), *this);
    std::string repeated;
    for (int64_t i = 0; i < *count; ++i) repeated += string_of(a);
    return text(std::move(repeated));
  }
  const auto x = integer_of(a), y = integer_of(b);
  if (!x || !y) refuse(fmt::format("`{}` is not supported for its {} side", op, x ? "right" : "left"), x ? b : a);
  int64_t result = 0;
  if (op == "//" || op == "%") {
    // The quotient of the smallest integer and -1 has more than 64 bits.
    if (*y == 0 || (*y == -1 && *x == std::numeric_limits<int64_t>::min())) refuse("division by zero, or by -1.");
    const bool rounds_down = *x % *y != 0 && (*x < 0) != (*y < 0);
    return {op == "//" ? *x / *y - rounds_down : *x % *y + (rounds_down ? *y : 0)};
  }
  const bool overflows = op == "+"   ? __builtin_add_overflow(*x, *y, &result)
                         : op == "-" ? __builtin_sub_overflow(*x, *y, &result)
                                     : __builtin_mul_overflow(*x, *y, &result);
  if (overflows) refuse("an integer beyond 64 bits is not supported.");
  return {result};
}

bool Run::compare(const std::string& op, const Value& a, const Value& b) {
  if (op == "==" || op == "!=") return are_equal(a, b) == (op == "==");
  if (op == "in" || op == "not in") return contains(b, a) == (op == "in");
  const auto ordered = [&](const auto& x, const auto& y) {
    return op == "<" ? x < y : op == "<=" ? x <= y : op == ">" ? x > y : x >= y;
  };
  if (a.text() && b.text()) return step(a.text()->size() / 64), ordered(*a.text(), *b.text());
  const auto x = integer_of(a), y = integer_of(b);
  if (!x || !y) refuse(fmt::format("`{}` needs two numbers or two strings", op), x ? b : a);
  return ordered(*x, *y);
}

// ---- calls

Value Run::call(const Node& node, Scope& scope) {
  const Value callee = look_up({Kind::name, node.line, node.text}, scope);
  const auto* called = callee.as<const Node*>();
  if (!called) refuse(fmt::format("`{}` is not a macro or a supported function", node.text), callee);
  return (*called)->kind == Kind::macro ? call_macro(**called, node, scope) : call_function(node, scope);
}

Value Run::call_macro(const Node& macro, const Node& call, Scope& scope) {
  Scope inner{.outer = &globals_};
  for (size_t i = 0; i < call.kids.size(); ++i) {
    const bool is_known = call.names[i].empty() ? i < macro.names.size()
                                                : std::count(macro.names.begin(), macro.names.end(), call.names[i]) > 0;
    if (!is_known) refuse(fmt::format("the macro `{}` has no parameter for argument {}.", macro.text, i + 1));
    inner.set(call.names[i].empty() ? macro.names[i] : call.names[i], evaluate(*call.kids[i], scope));
  }
  const size_t first_default = macro.names.size() - (macro.kids.size() - 1);
  for (size_t i = 0; i < macro.names.size(); ++i)
    if (!find(inner.names, macro.names[i], *this) || look_up({Kind::name, 0, macro.names[i]}, inner).is_undefined())
      inner.set(macro.names[i], i < first_default ? Value{} : evaluate(*macro.kids[i - first_default + 1], inner));
  return text(captured(*macro.kids[0], inner));
}

Value Run::call_function(const Node& call, Scope& scope) {
  std::vector<Value> given;
  Members named;
  for (size_t i = 0; i < call.kids.size(); ++i) {
    Value argument = evaluate(*call.kids[i], scope);
    if (call.names[i].empty())
      given.push_back(std::move(argument));
    else
      named.emplace_back(call.names[i], std::move(argument));
  }
  line_ = call.line;
  if (call.text == "namespace" && given.empty()) return {&namespaces_.emplace_back(Namespace{std::move(named)})};
  if (call.text == "dict" && given.empty()) return dict(std::move(named));
  const bool has_text = given.size() == 1 && named.empty() && given[0].text();
  if (call.text == "raise_exception" && has_text)
    fail(ErrorKind::invalid_argument, "ChatTemplate", "{}, line {}: the template rejects the conversation: {}",
         program_.file, line_, *given[0].text());
  if (call.text == "strftime_now" && has_text) {
    const time_t now = ::time(nullptr);
    struct tm parts {};
    char written[256];
    return text({written, ::strftime(written, sizeof written, given[0].text()->c_str(), ::localtime_r(&now, &parts))});
  }
  if (call.text == "range" && !given.empty() && given.size() <= 3 && named.empty()) {
    std::vector<int64_t> numbers;
    for (const Value& value : given) {
      if (!integer_of(value)) refuse("`range` needs integers", value);
      numbers.push_back(*integer_of(value));
    }
    const int64_t begin = numbers.size() > 1 ? numbers[0] : 0, end = numbers.size() > 1 ? numbers[1] : numbers[0];
    const int64_t by = numbers.size() > 2 ? numbers[2] : 1;
    for (const int64_t number : {begin, end, by})
      if (number < -max_range || number > max_range || by == 0)
        refuse(fmt::format("`range` needs numbers up to {} and a step other than 0.", max_range));
    std::vector<Value> items;
    for (int64_t i = begin; by < 0 ? i > end : i < end; i += by) items.push_back({i});
    return list(std::move(items));
  }
  refuse(fmt::format("the function `{}` with these arguments is not supported.", call.text));
}

// ---- statements

void Run::write(std::string_view text) {
  take(bytes_, text.size(), *this);
  output_.text += text;
}

std::string Run::captured(const Node& block, Scope& scope) {
  std::string outer = std::exchange(output_.text, {});
  ++captures_;
  execute(block, scope);
  --captures_;
  return std::exchange(output_.text, std::move(outer));
}

Run::Flow Run::execute(const Node& node, Scope& scope) {
  const Level level(*this);
  line_ = node.line;
  switch (node.kind) {
    case Kind::block:
      for (const auto& statement : node.kids)
        if (const Flow flow = execute(*statement, scope); flow != Flow::next) return flow;
      return Flow::next;
    case Kind::data:
      write(*node.value.text());
      return Flow::next;
    case Kind::output:
      write(string_of(evaluate(*node.kids[0], scope)));
      return Flow::next;
    case Kind::if_:
      for (size_t i = 0; i + 1 < node.kids.size(); i += 2)
        if (is_true(evaluate(*node.kids[i], scope))) return execute(*node.kids[i + 1], scope);
      return node.kids.size() % 2 ? execute(*node.kids.back(), scope) : Flow::next;
    case Kind::for_:
      return loop(node, scope);
    case Kind::macro:
      scope.set(node.text, {&node});
      return Flow::next;
    case Kind::generation:
      generate(node, scope);
      return Flow::next;
    case Kind::break_:
      return Flow::break_;
    case Kind::continue_:
      return Flow::continue_;
    default:
      assign(node, scope);
      return Flow::next;
  }
}

void Run::generate(const Node& node, Scope& scope) {
  if (captures_) refuse("{% generation %} in a macro or a {% set %} is not supported.");
  const size_t begin = output_.text.size();
  Scope inner{.outer = &scope};
  execute(*node.kids[0], inner);
  output_.generated.emplace_back(begin, output_.text.size());
}

void Run::assign(const Node& node, Scope& scope) {
  if (node.kind == Kind::set_block) return scope.set(node.names[0], text(captured(*node.kids[0], scope)));
  Value value = evaluate(*node.kids[0], scope);
  line_ = node.line;
  if (node.kind == Kind::set_member) {
    const Value owner = look_up({Kind::name, node.line, node.names[0]}, scope);
    if (!owner.as<Namespace*>()) refuse("only a member of a namespace can be set", owner);
    Scope members{std::move((*owner.as<Namespace*>())->members)};
    members.set(node.names[1], std::move(value));
    (*owner.as<Namespace*>())->members = std::move(members.names);
    return;
  }
  if (node.names.size() == 1) return scope.set(node.names[0], std::move(value));
  const std::vector<Value> items = items_of(value);
  if (items.size() != node.names.size())
    refuse(fmt::format("{} values for {} names.", items.size(), node.names.size()));
  for (size_t i = 0; i < items.size(); ++i) scope.set(node.names[i], items[i]);
}

Run::Flow Run::loop(const Node& node, Scope& scope) {
  const Value iterable = evaluate(*node.kids[0], scope);
  const auto set_targets = [&](const Value& item, Scope& inner) {
    if (node.names.size() == 1) return inner.set(node.names[0], item);
    const std::vector<Value> parts = items_of(item);
    if (parts.size() != node.names.size())
      refuse(fmt::format("{} values for {} names of a loop.", parts.size(), node.names.size()));
    for (size_t i = 0; i < parts.size(); ++i) inner.set(node.names[i], parts[i]);
  };
  std::vector<Value> items = items_of(iterable);
  if (node.kids[3])
    std::erase_if(items, [&](const Value& item) {
      Scope inner{.outer = &scope};
      set_targets(item, inner);
      return !is_true(evaluate(*node.kids[3], inner));
    });
  for (size_t i = 0; i < items.size(); ++i) {
    Scope inner{.outer = &scope};
    set_targets(items[i], inner);
    const int64_t index = static_cast<int64_t>(i), count = std::ssize(items);
    Members loop{{"index0", {index}},
                 {"index", {index + 1}},
                 {"first", {i == 0}},
                 {"last", {index + 1 == count}},
                 {"length", {count}},
                 {"revindex", {count - index}},
                 {"revindex0", {count - index - 1}}};
    if (i > 0) loop.emplace_back("previtem", items[i - 1]);
    if (i + 1 < items.size()) loop.emplace_back("nextitem", items[i + 1]);
    step(loop.size());
    inner.set("loop", {std::make_shared<const Dict>(Dict{std::move(loop)})});
    if (execute(*node.kids[1], inner) == Flow::break_) break;
  }
  if (items.empty() && node.kids[2]) {
    Scope inner{.outer = &scope};
    return execute(*node.kids[2], inner);
  }
  return Flow::next;
}

Rendered Run::render(Members variables) {
  static const Node functions[] = {{Kind::call, 0, "raise_exception"},
                                   {Kind::call, 0, "strftime_now"},
                                   {Kind::call, 0, "namespace"},
                                   {Kind::call, 0, "dict"},
                                   {Kind::call, 0, "range"}};
  for (const Node& function : functions) globals_.set(function.text, {&function});
  for (auto& [name, value] : variables) globals_.set(name, std::move(value));
  execute(*program_.block, globals_);
  return std::move(output_);
}

}  // namespace tessera::data::jinja
