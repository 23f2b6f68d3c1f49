// Python's operations, as chat templates use them, with limits.
#include <algorithm>
#include <limits>

#include "data/text/python_text.h"
#include "data/text/template_program.h"
#include "sharding/base/fail.h"

namespace tessera::data::jinja {
namespace {

// A step takes about 100 ns. The templates of models take at most 200 steps for each message, and quadratic ones 10
// for each pair of messages. They make at most 10 copies of a text.
constexpr size_t steps_of_any = 5'000'000, steps_per_byte = 100, bytes_of_any = size_t{1} << 24, bytes_per_byte = 64;
constexpr int max_run_levels = 300;   // of all that runs at one time; a macro that calls itself adds about 6
constexpr int max_value_levels = 64;  // of lists and dictionaries
// Keys of dictionaries are compared and copied one by one; those of models' templates have at most 30 bytes.
constexpr size_t max_key_bytes = 1000;

std::optional<int64_t> integer_of(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag;
  const int64_t* integer = value.as<int64_t>();
  return integer ? std::optional(*integer) : std::nullopt;
}

// Returns the text of a string, also after `safe`; else null.
const std::string* written_text(const Value& value) {
  return value.as<SafeText>() ? value.as<SafeText>()->text.get() : value.text();
}

int depth_of(const Value& value) { return value.list() ? value.list()->depth : value.dict() ? value.dict()->depth : 0; }

}  // namespace

Value text_value(std::string text) { return {std::make_shared<const std::string>(std::move(text))}; }

// ---- limits and errors

Run::Run(const Program& program, size_t bytes)
    : program_(program), steps_(steps_of_any + steps_per_byte * bytes), bytes_(bytes_of_any + bytes_per_byte * bytes) {}

Run::Level::Level(Run& run, int line) : run(run), outer_line(std::exchange(run.line_, line)) {
  if (++run.levels_ > max_run_levels)
    run.refuse(fmt::format("more than {} levels of macros and blocks.", max_run_levels));
  run.step();
}

void Run::refuse(std::string_view what) const {
  fail(ErrorKind::invalid_file, "ChatTemplate", "{}, line {}: {}", program_.file, line_, what);
}

void Run::refuse(std::string_view what, const Value& given) const {
  static constexpr const char* names[] = {
      "undefined", "None",         "a bool",      "an int",     "a string",
      "a list",    "a dictionary", "a namespace", "a function", "the result of `safe`"};
  const auto* undefined = given.as<Undefined>();
  const std::string name =
      undefined && undefined->name ? fmt::format("`{}` which is undefined", *undefined->name) : names[given.is.index()];
  refuse(fmt::format("{}: {} given.", what, name));
}

void Run::reject(std::string_view message) const {
  fail(ErrorKind::invalid_argument, "ChatTemplate", "{}, line {}: the template rejects the conversation: {}",
       program_.file, line_, message);
}

void Run::step(size_t count) {
  if (count > steps_) refuse("the template takes too many steps for this conversation.");
  steps_ -= count;
}

void Run::take(size_t bytes) {
  if (bytes > bytes_) refuse("the template makes too much text for this conversation.");
  bytes_ -= bytes;
}

// ---- values

Value Run::text(std::string text) {
  take(text.size() + sizeof(std::string));
  return text_value(std::move(text));
}

Value Run::list(std::vector<Value> items, bool is_tuple) {
  take(items.size() * sizeof(Value));
  List list{std::move(items), is_tuple};
  for (const Value& item : list.items) list.depth = std::max(list.depth, depth_of(item) + 1);
  if (list.depth > max_value_levels)
    refuse(fmt::format("a list with too many levels of lists, expected at most {}.", max_value_levels));
  return {std::make_shared<const List>(std::move(list))};
}

Value Run::dict(Members members) {
  for (const auto& [name, value] : members) {
    if (name.size() > max_key_bytes) refuse(fmt::format("a key of a dictionary of {} bytes.", name.size()));
    take(name.size() + sizeof(Members::value_type));
  }
  Dict dict{std::move(members)};
  for (const auto& [name, value] : dict.members) dict.depth = std::max(dict.depth, depth_of(value) + 1);
  if (dict.depth > max_value_levels)
    refuse(fmt::format("a dictionary with too many levels, expected at most {}.", max_value_levels));
  return {std::make_shared<const Dict>(std::move(dict))};
}

Value Run::make_namespace(Members members) {
  take(sizeof(Namespace));
  for (const auto& [name, value] : members) take(name.size() + sizeof(Members::value_type));
  return {&namespaces_.emplace_back(Namespace{std::move(members)})};
}

std::string Run::string_of(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.as<None>()) return "None";
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const int64_t* integer = value.as<int64_t>()) return std::to_string(*integer);
  const std::string* text = written_text(value);
  if (!text) refuse("only strings and numbers can be written; use tojson for others", value);
  take(text->size());
  return *text;
}

bool Run::is_true(const Value& value) const {
  if (const auto integer = integer_of(value)) return *integer != 0;
  if (const std::string* text = written_text(value)) return !text->empty();
  if (value.list()) return !value.list()->items.empty();
  if (value.dict()) return !value.dict()->members.empty();
  return !value.is_undefined() && !value.as<None>();
}

const Value* Run::find(const Members& members, std::string_view name) {
  step((members.size() + 16) * (name.size() / 64 + 1) / 16 - 1);
  const auto found = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == name; });
  return found == members.end() ? nullptr : &found->second;
}

void Run::set(Members& members, std::string_view name, Value value) {
  if (const Value* known = find(members, name))
    const_cast<Value&>(*known) = std::move(value);
  else
    members.emplace_back(name, std::move(value));
}

Value Run::look_up(const std::string& name, const Scope* scope) {
  for (size_t walked = 1; scope; scope = scope->outer, ++walked) {
    if (const Value* found = find(scope->names, name)) return *found;
    step(walked % 8 == 0);
  }
  return {Undefined{std::make_shared<const std::string>(name)}};
}

bool Run::are_equal(const Value& a, const Value& b) {
  step();
  if (const auto x = integer_of(a), y = integer_of(b); x && y) return *x == *y;
  if (const std::string* x = written_text(a), *y = written_text(b); x && y) return step(x->size() / 64), *x == *y;
  if (a.is.index() != b.is.index()) return false;
  if (const auto* function = a.shared<Function>()) return function == b.shared<Function>();
  if (a.list())
    return a.list()->is_tuple == b.list()->is_tuple &&
           std::equal(a.list()->items.begin(), a.list()->items.end(), b.list()->items.begin(), b.list()->items.end(),
                      [this](const Value& x, const Value& y) { return are_equal(x, y); });
  if (!a.dict()) return !a.as<Namespace*>() || *a.as<Namespace*>() == *b.as<Namespace*>();
  const Members &x = a.dict()->members, &y = b.dict()->members;
  return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&](const auto& member) {
           const Value* other = find(y, member.first);
           return other && are_equal(member.second, *other);
         });
}

bool Run::contains(const Value& all, const Value& one) {
  if (const std::string* text = all.text()) {
    if (!one.text()) refuse("`in` a string needs a string", one);
    step((text->size() / 64 + 1) * (std::min(one.text()->size(), text->size()) / 64 + 1));
    return text->find(*one.text()) != std::string::npos;
  }
  if (all.dict()) return one.text() && find(all.dict()->members, *one.text());
  const std::vector<Value> items = items_of(all);
  return std::any_of(items.begin(), items.end(), [&](const Value& item) { return are_equal(item, one); });
}

bool Run::compare(const std::string& op, const Value& a, const Value& b) {
  step();
  if (op == "==" || op == "!=") return are_equal(a, b) == (op == "==");
  if (op == "in" || op == "not in") return contains(b, a) == (op == "in");
  const auto ordered = [&](const auto& x, const auto& y) {
    return op == "<" ? x < y : op == "<=" ? x <= y : op == ">" ? x > y : x >= y;
  };
  if (a.text() && b.text()) return step(a.text()->size() / 64), ordered(*a.text(), *b.text());
  const auto x = integer_of(a), y = integer_of(b);
  if (!x || !y) refuse(fmt::format("`{}` needs two integers or two strings", op), x ? b : a);
  return ordered(*x, *y);
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
  const auto x = integer_of(a), y = integer_of(b);
  if (op == "*" && a.text() && y) {
    take(static_cast<size_t>(std::max<int64_t>(*y, 0)));
    std::string repeated;
    for (int64_t i = 0; i < *y; ++i) repeated += string_of(a);
    return text(std::move(repeated));
  }
  if (!x || !y) refuse(fmt::format("`{}` is not supported for its {} side", op, x ? "right" : "left"), x ? b : a);
  int64_t result = 0;
  if (op == "//" || op == "%") {
    // The quotient of the smallest integer and -1 has more than 64 bits.
    if (*y == 0 || (*y == -1 && *x == std::numeric_limits<int64_t>::min()))
      refuse("division by zero, or a quotient beyond 64 bits.");
    const bool rounds_down = *x % *y != 0 && (*x < 0) != (*y < 0);
    return {op == "//" ? *x / *y - rounds_down : *x % *y + (rounds_down ? *y : 0)};
  }
  const bool overflows = op == "+"   ? __builtin_add_overflow(*x, *y, &result)
                         : op == "-" ? __builtin_sub_overflow(*x, *y, &result)
                                     : __builtin_mul_overflow(*x, *y, &result);
  if (overflows) refuse("an integer beyond 64 bits is not supported.");
  return {result};
}

// ---- items

std::vector<Value> Run::items_of(const Value& value) {
  std::vector<Value> items;
  if (value.list()) return step(value.list()->items.size()), value.list()->items;
  const Dict* dict = value.dict();
  if (value.text())
    for (const std::string_view c : characters(*value.text())) items.push_back(text(std::string(c)));
  else if (dict)
    for (const auto& [name, of_name] : dict->members) items.push_back(text(name));
  else if (!value.is_undefined())
    refuse("a list, a dictionary or a string is expected", value);
  return items;
}

Value Run::member(const Value& value, const std::string& name) {
  step(name.size() / 64 + 1);
  if (value.is_undefined()) refuse(fmt::format("`{}` of a value", name), value);
  const auto* space = value.as<Namespace*>();
  const Value* found = value.dict() ? find(value.dict()->members, name)
                       : space      ? find((*space)->members, name)
                                    : nullptr;
  return found ? *found : Value{Undefined{std::make_shared<const std::string>(name)}};
}

Value Run::item(const Value& value, const Value& key) {
  if (key.text()) return member(value, *key.text());
  if (value.is_undefined()) refuse("an item of a value", value);
  const auto index = integer_of(key);
  if (!index || !(value.list() || value.text())) return {};
  const std::vector<Value> all = items_of(value);
  const int64_t place = *index < 0 ? *index + std::ssize(all) : *index;
  return place >= 0 && place < std::ssize(all) ? all[static_cast<size_t>(place)] : Value{};
}

Value Run::slice(const Value& value, const std::vector<Value>& bounds) {
  if (!value.list() && !value.text()) refuse("a slice of a list or a string is expected", value);
  for (const Value& bound : bounds)
    if (!integer_of(bound) && !bound.as<None>()) refuse("a slice needs integers", bound);
  const std::vector<Value> all = items_of(value);
  const int64_t size = std::ssize(all), by = integer_of(bounds[2]).value_or(1);
  if (by == 0) refuse("the step of a slice is 0.");
  const auto place = [&](const Value& bound, int64_t otherwise) {
    const auto given = integer_of(bound);
    if (!given) return otherwise;
    return std::clamp<int64_t>(*given < 0 ? *given + size : *given, by < 0 ? -1 : 0, by < 0 ? size - 1 : size);
  };
  const int64_t begin = place(bounds[0], by < 0 ? size - 1 : 0), end = place(bounds[1], by < 0 ? -1 : size);
  std::vector<Value> items;
  for (int64_t i = begin; by < 0 ? i > end : i < end; i += std::clamp(by, -size, size)) items.push_back(all[i]);
  if (value.list()) return list(std::move(items), value.list()->is_tuple);
  std::string joined;
  for (const Value& c : items) joined += *c.text();
  return text(std::move(joined));
}

// ---- output

void Run::write(std::string_view text) {
  take(text.size());
  output_.text += text;
}

std::string Run::captured(const Statement& statement, Scope& scope) {
  std::string outer = std::exchange(output_.text, {});
  ++captures_;
  statement(*this, scope);
  --captures_;
  return std::exchange(output_.text, std::move(outer));
}

void Run::generate(const Statement& statement, Scope& scope) {
  if (captures_) refuse("{% generation %} in a macro or a {% set %} is not supported.");
  const size_t begin = output_.text.size();
  statement(*this, scope);
  output_.generated.emplace_back(begin, output_.text.size());
}

Rendered Run::render(Members variables) {
  globals_.names = functions();
  for (auto& [name, value] : variables) set(globals_.names, name, std::move(value));
  program_.statement(*this, globals_);
  return std::move(output_);
}

}  // namespace tessera::data::jinja
