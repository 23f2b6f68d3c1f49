// The filters, tests, methods and functions of chat templates.
#include <time.h>

#include <algorithm>
#include <optional>

#include "data/text/python_text.h"
#include "data/text/template_program.h"
#include "sharding/base/fail.h"

namespace tessera::data::jinja {
namespace {

using Arguments = std::span<const Value>;

const std::string& text_of(Run& run, const Value& value, std::string_view what) {
  if (!value.text()) run.refuse(what, value);
  return *value.text();
}
std::optional<std::string_view> optional_text(Run& run, const Value& value) {
  if (value.is_undefined() || value.as<None>()) return std::nullopt;
  return text_of(run, value, "an argument must be a string");
}
int64_t integer_or(Run& run, const Value& value, int64_t otherwise) {
  if (value.is_undefined() || value.as<None>()) return otherwise;
  if (!value.as<int64_t>()) run.refuse("an argument must be an integer", value);
  return *value.as<int64_t>();
}

// Charges a search for `part` in `text`, which may look at all bytes of `part` at each byte of `text`.
std::string_view searched(Run& run, const Value& value, std::string_view text) {
  const std::string_view part = text_of(run, value, "an argument must be a string");
  run.step((text.size() / 64 + 1) * (std::min(part.size(), text.size()) / 64 + 1));
  return part;
}

enum class Case : uint8_t { lower, upper, capital, title };
std::string cased(Run& run, std::string_view text, Case to) {
  std::string result(text);
  bool is_first = true;
  for (char& c : result) {
    if (static_cast<unsigned char>(c) >= 0x80) run.refuse("upper and lower case beyond ASCII are not supported.");
    const bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
    const bool raises = to == Case::upper || (to != Case::lower && is_first);
    if (raises ? is_lower : is_upper) c = static_cast<char>(c ^ 0x20);
    // In a title of Jinja2, words begin after white space, hyphens and opening brackets.
    is_first =
        to == Case::title && std::string_view(" \t\n\v\f\r\x1c\x1d\x1e\x1f-({[<").find(c) != std::string_view::npos;
  }
  return result;
}

template <Case to>
Value cased(Run& run, const Value& subject, Arguments) {
  return run.text(cased(run, run.string_of(subject), to));
}

template <bool left, bool right>
Value strip(Run& run, const Value& subject, Arguments arguments) {
  const std::string text = run.string_of(subject);
  const auto dropped = optional_text(run, arguments[0]);
  run.step(text.size() * (dropped ? dropped->size() : 1) / 64);
  return run.text(std::string(stripped(text, dropped, left, right)));
}

Value split_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string& text = text_of(run, subject, "`split` needs a string");
  const auto separator = optional_text(run, arguments[0]);
  if (separator) searched(run, arguments[0], text);
  if (separator && separator->empty()) run.refuse("`split` by an empty string.");
  std::vector<Value> parts;
  for (const std::string_view part : split(text, separator, integer_or(run, arguments[1], -1)))
    parts.push_back(run.text(std::string(part)));
  return run.list(std::move(parts));
}

Value replace(Run& run, const Value& subject, Arguments arguments) {
  const std::string text = run.string_of(subject);
  const std::string_view from = searched(run, arguments[0], text);
  const std::string& to = text_of(run, arguments[1], "`replace` needs a string");
  if (from.empty()) run.refuse("`replace` of an empty string is not supported.");
  // The number of replacements bounds the length before it is made.
  size_t count = 0;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += from.size()) ++count;
  run.step(count + count * to.size() / 64);
  return run.text(replaced(text, from, to, integer_or(run, arguments[2], -1)));
}

template <bool at_start>
Value is_affix(Run& run, const Value& subject, Arguments arguments) {
  const std::string& text = text_of(run, subject, "`startswith` and `endswith` need a string");
  const auto fits = [&](const Value& value) {
    const std::string& part = text_of(run, value, "`startswith` and `endswith` need a string");
    run.step(part.size() / 64 + 1);
    return at_start ? text.starts_with(part) : text.ends_with(part);
  };
  if (!arguments[0].list() || !arguments[0].list()->is_tuple) return {fits(arguments[0])};
  const auto& parts = arguments[0].list()->items;
  return {std::any_of(parts.begin(), parts.end(), fits)};
}

// ---- dictionaries

const Dict& dict_of(Run& run, const Value& value, std::string_view what) {
  if (!value.dict()) run.refuse(what, value);
  return *value.dict();
}
Value pairs_of(Run& run, const Members& members) {
  std::vector<Value> pairs;
  for (const auto& [name, value] : members) pairs.push_back(run.list({run.text(name), value}, /*is_tuple=*/true));
  return run.list(std::move(pairs));
}
Value items(Run& run, const Value& subject, Arguments) {
  if (subject.is_undefined()) return run.list({});
  return pairs_of(run, dict_of(run, subject, "`items` needs a dictionary").members);
}
Value sorted_items(Run& run, const Value& subject, Arguments) {
  Members members = dict_of(run, subject, "`dictsort` needs a dictionary").members;
  const auto key = [&](const auto& member) { return cased(run, member.first, Case::lower); };
  std::stable_sort(members.begin(), members.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return pairs_of(run, members);
}

// json.dumps(value, ensure_ascii=False, indent=indent)
void write_json(Run& run, const Value& value, int64_t indent, int64_t level, std::string& to) {
  run.step();
  const auto line = [&](int64_t levels) {
    if (indent >= 0) to.append("\n").append(static_cast<size_t>(indent * levels), ' ');
  };
  const auto all = [&](char open, const auto& parts, const auto& write, char close) {
    to += open;
    for (bool is_first = true; const auto& part : parts) {
      if (!std::exchange(is_first, false)) to += indent >= 0 ? "," : ", ";
      line(level + 1);
      write(part);
    }
    if (!parts.empty()) line(level);
    to += close;
  };
  if (value.text()) {
    run.take(value.text()->size());
    to += json_string(*value.text());
  } else if (value.list()) {
    all(
        '[', value.list()->items, [&](const Value& item) { write_json(run, item, indent, level + 1, to); }, ']');
  } else if (value.dict()) {
    const auto write = [&](const auto& member) {
      to.append(json_string(member.first)).append(": ");
      write_json(run, member.second, indent, level + 1, to);
    };
    all('{', value.dict()->members, write, '}');
  } else if (const bool* flag = value.as<bool>()) {
    to += *flag ? "true" : "false";
  } else if (value.as<None>()) {
    to += "null";
  } else if (value.as<int64_t>()) {
    to += run.string_of(value);
  } else {
    run.refuse("JSON cannot hold this", value);
  }
  run.step(to.size() / 4096);
}
Value tojson(Run& run, const Value& subject, Arguments arguments) {
  if (run.is_true(arguments[0])) run.refuse("`tojson` with ensure_ascii is not supported.");
  std::string text;
  const int64_t indent = integer_or(run, arguments[1], -1);
  if (indent > 16) run.refuse("`tojson` with this indent is not supported, expected at most 16.");
  write_json(run, subject, indent, 0, text);
  return run.text(std::move(text));
}

// ---- lists

Value length(Run& run, const Value& subject, Arguments) {
  if (subject.dict()) return {std::ssize(subject.dict()->members)};
  return {std::ssize(run.items_of(subject))};
}
template <bool is_first>
Value end(Run& run, const Value& subject, Arguments) {
  const std::vector<Value> items = run.items_of(subject);
  return items.empty() ? Value{} : is_first ? items.front() : items.back();
}
Value attribute(Run& run, Value value, std::string_view path) {
  for (const std::string_view name : split(path, ".", -1)) value = run.member(value, std::string(name));
  return value;
}
Value join(Run& run, const Value& subject, Arguments arguments) {
  std::vector<Value> items = run.items_of(subject);
  if (const auto path = optional_text(run, arguments[1]))
    for (Value& item : items) item = attribute(run, item, *path);
  std::string text;
  for (bool is_first = true; const Value& item : items) {
    if (!std::exchange(is_first, false)) text += run.string_of(arguments[0]);
    text += run.string_of(item);
  }
  return run.text(std::move(text));
}
Value map(Run& run, const Value& subject, Arguments arguments) {
  std::vector<Value> items = run.items_of(subject);
  const auto name = optional_text(run, arguments[0]), path = optional_text(run, arguments[1]);
  const Operation* filter = name ? find_operation(OperationKind::filter, *name) : nullptr;
  if ((name && !filter) || !name == !path) run.refuse("`map` needs a known filter or an attribute.");
  const std::vector<Value> none(filter ? filter->parameters.size() : 0);
  for (Value& item : items) item = filter ? filter->apply(run, item, none) : attribute(run, item, *path);
  return run.list(std::move(items));
}
// select, reject, selectattr and rejectattr
template <bool keeps, bool has_attribute>
Value select(Run& run, const Value& subject, Arguments arguments) {
  const auto path = has_attribute ? optional_text(run, arguments[0]) : std::nullopt;
  const auto name = optional_text(run, arguments[has_attribute]);
  const Operation* test = name ? find_operation(OperationKind::test, *name) : nullptr;
  if ((name && !test) || (has_attribute && !path)) run.refuse("this test of `select` or `reject` is not supported.");
  std::vector<Value> items = run.items_of(subject);
  std::erase_if(items, [&](const Value& item) {
    const Value value = path ? attribute(run, item, *path) : item;
    const Arguments more = arguments.subspan(has_attribute + 1, test ? test->parameters.size() : 0);
    return run.is_true(test ? test->apply(run, value, more) : value) != keeps;
  });
  return run.list(std::move(items));
}

// ---- tables

template <bool is_string, bool is_list, bool is_dict>
Value is_kind(Run&, const Value& v, Arguments) {
  return {(is_string && (v.text() || v.as<SafeText>())) || (is_list && (v.list() || v.is_undefined())) ||
          (is_dict && v.dict())};
}
template <class... T>
Value is_type(Run&, const Value& v, Arguments) {
  return {(... || (v.as<T>() != nullptr))};
}
template <bool value>
Value is_flag(Run&, const Value& v, Arguments) {
  return {v.as<bool>() && *v.as<bool>() == value};
}
Value equals(Run& run, const Value& v, Arguments arguments) { return {run.are_equal(v, arguments[0])}; }
Value default_value(Run& run, const Value& v, Arguments arguments) {
  const bool is_missing = v.is_undefined() || (run.is_true(arguments[1]) && !run.is_true(v));
  return !is_missing ? v : arguments[0].is_undefined() ? run.text("") : arguments[0];
}
Value string(Run& run, const Value& v, Arguments) { return run.text(run.string_of(v)); }
Value list(Run& run, const Value& v, Arguments) { return run.list(run.items_of(v)); }

const Operation filters[] = {
    {"trim", {"chars"}, strip<true, true>},
    {"tojson", {"ensure_ascii", "indent"}, tojson},
    {"length", {}, length},
    {"join", {"d", "attribute"}, join},
    {"upper", {}, cased<Case::upper>},
    {"lower", {}, cased<Case::lower>},
    {"capitalize", {}, cased<Case::capital>},
    {"title", {}, cased<Case::title>},
    {"first", {}, end<true>},
    {"last", {}, end<false>},
    {"default", {"default_value", "boolean"}, default_value},
    {"string", {}, string},
    {"safe",
     {},
     [](Run& run, const Value& v, Arguments) { return Value{SafeText{*run.text(run.string_of(v)).as<Text>()}}; }},
    {"list", {}, list},
    {"items", {}, items},
    {"dictsort", {}, sorted_items},
    {"replace", {"old", "new", "count"}, replace},
    {"map", {"", "attribute"}, map},
    {"select", {"", " "}, select<true, false>},
    {"reject", {"", " "}, select<false, false>},
    {"selectattr", {"", " ", "  "}, select<true, true>},
    {"rejectattr", {"", " ", "  "}, select<false, true>},
};
const Operation tests[] = {
    {"defined", {}, [](Run&, const Value& v, Arguments) { return Value{!v.is_undefined()}; }},
    {"undefined", {}, is_type<Undefined>},
    {"none", {}, is_type<None>},
    {"string", {}, is_kind<true, false, false>},
    {"mapping", {}, is_kind<false, false, true>},
    {"iterable", {}, is_kind<true, true, true>},
    {"sequence", {}, is_kind<true, true, true>},
    {"number", {}, is_type<bool, int64_t>},
    {"integer", {}, is_type<int64_t>},
    {"boolean", {}, is_type<bool>},
    {"true", {}, is_flag<true>},
    {"false", {}, is_flag<false>},
    {"equalto", {"other"}, equals},
    {"eq", {"other"}, equals},
    {"ne", {"other"}, [](Run& run, const Value& v, Arguments a) { return Value{!run.are_equal(v, a[0])}; }},
    {"in", {"seq"}, [](Run& run, const Value& v, Arguments a) { return Value{run.contains(a[0], v)}; }},
};
const Operation methods[] = {
    {"strip", {"chars"}, strip<true, true>},
    {"lstrip", {"chars"}, strip<true, false>},
    {"rstrip", {"chars"}, strip<false, true>},
    {"split", {"sep", "maxsplit"}, split_method},
    {"replace", {"old", "new", "count"}, replace},
    {"startswith", {"prefix"}, is_affix<true>},
    {"endswith", {"suffix"}, is_affix<false>},
    {"upper", {}, cased<Case::upper>},
    {"lower", {}, cased<Case::lower>},
    {"capitalize", {}, cased<Case::capital>},
    {"items", {}, items},
    {"get",
     {"key", "default"},
     [](Run& run, const Value& v, Arguments a) {
       dict_of(run, v, "`get` needs a dictionary");
       const Value found = run.member(v, text_of(run, a[0], "`get` needs a string"));
       return !found.is_undefined() ? found : a[1].is_undefined() ? Value{None{}} : a[1];
     }},
};

}  // namespace

const Operation* find_operation(OperationKind kind, std::string_view name) {
  const std::span<const Operation> all = kind == OperationKind::filter ? std::span<const Operation>(filters)
                                         : kind == OperationKind::test ? std::span<const Operation>(tests)
                                                                       : std::span<const Operation>(methods);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Operation& f) { return f.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// ---- functions

namespace {

const std::string& only_text(Run& run, const std::vector<Value>& given, const Members& named) {
  if (given.size() != 1 || !named.empty() || !given[0].text()) run.refuse("the function needs one string.");
  return *given[0].text();
}

Value raise_exception(Run& run, std::vector<Value> given, Members named) { run.reject(only_text(run, given, named)); }
Value strftime_now(Run& run, std::vector<Value> given, Members named) {
  const time_t now = ::time(nullptr);
  struct tm parts {};
  char text[1024];
  const std::string& format = only_text(run, given, named);
  // At most 9 bytes for each byte, as of %B, or 29 of %c.
  if (format.size() > sizeof text / 32) run.refuse("`strftime_now` of a longer format than models use.");
  return run.text({text, ::strftime(text, sizeof text, format.c_str(), ::localtime_r(&now, &parts))});
}
Value make_namespace(Run& run, std::vector<Value> given, Members named) {
  if (!given.empty()) run.refuse("`namespace` with a positional argument is not supported.");
  return run.make_namespace(std::move(named));
}
Value range(Run& run, std::vector<Value> given, Members named) {
  constexpr int64_t max = 100'000;  // as in the sandbox of Jinja2
  std::vector<int64_t> numbers;
  for (const Value& value : given) numbers.push_back(integer_or(run, value, max + 1));
  const size_t count = numbers.size();
  const int64_t begin = count > 1 ? numbers[0] : 0, by = count > 2 ? numbers[2] : 1;
  const int64_t end = count == 0 ? 0 : count > 1 ? numbers[1] : numbers[0];
  for (const int64_t number : {begin, end, by})
    if (count == 0 || count > 3 || !named.empty() || number < -max || number > max || by == 0)
      run.refuse(fmt::format("`range` needs one to three integers of at most {}, and a step other than 0.", max));
  std::vector<Value> items;
  for (int64_t i = begin; by < 0 ? i > end : i < end; i += by) items.push_back({i});
  return run.list(std::move(items));
}

}  // namespace

Members functions() {
  static const Members all = [] {
    Members members;
    const auto add = [&](const char* name, Function f) {
      members.push_back({name, {std::make_shared<const Function>(std::move(f))}});
    };
    add("raise_exception", raise_exception), add("strftime_now", strftime_now), add("range", range);
    add("namespace", make_namespace);
    return members;
  }();
  return all;
}

}  // namespace tessera::data::jinja
