// Programs of chat templates: a subset of Jinja2, parsed once into functions and run for each conversation.
#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::data::jinja {

class Run;
struct Value;
using Text = std::shared_ptr<const std::string>;
using Members = std::vector<std::pair<std::string, Value>>;  // in the order of insertion
// A macro or a function, called with arguments by position and by name.
using Function = std::function<Value(Run& run, std::vector<Value> given, Members named)>;

struct Undefined {
  Text name;  // for errors, or null
};
struct None {};
// A text after the filter `safe`. It can be written and compared. Jinja2 escapes a text that is added to it, which is
// not supported.
struct SafeText {
  Text text;
};
// `depth` is the number of levels of lists and dictionaries, which is bounded: destructors recurse.
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
};
struct Dict {
  Members members;
  int depth = 1;
};
// The only mutable value. A run owns its namespaces, so that namespaces which contain each other are freed.
struct Namespace {
  Members members;
};

// A Python value. Lists and dictionaries are immutable, as in the sandbox of `transformers`, and copies share them.
struct Value {
  std::variant<Undefined, None, bool, int64_t, Text, std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               Namespace*, std::shared_ptr<const Function>, SafeText>
      is;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&is);
  }
  template <class T>
  const T* shared() const {
    const auto* pointer = as<std::shared_ptr<const T>>();
    return pointer ? pointer->get() : nullptr;
  }
  bool is_undefined() const { return as<Undefined>(); }
  const std::string* text() const { return shared<std::string>(); }
  const List* list() const { return shared<List>(); }
  const Dict* dict() const { return shared<Dict>(); }
};
Value text_value(std::string text);

struct Scope {
  Members names = {};
  Scope* outer = nullptr;
};
enum class Flow : uint8_t { next, break_, continue_ };

// A parsed part of a template. Copies share it.
template <class Result>
class Code {
 public:
  Code() = default;
  template <std::invocable<Run&, Scope&> F>
  Code(F f) : run_(std::make_shared<const std::function<Result(Run&, Scope&)>>(std::move(f))) {}
  Result operator()(Run& run, Scope& scope) const { return (*run_)(run, scope); }
  explicit operator bool() const { return run_ != nullptr; }

 private:
  std::shared_ptr<const std::function<Result(Run&, Scope&)>> run_;
};
using Expression = Code<Value>;
using Statement = Code<Flow>;

struct Program {
  std::string file;  // for errors
  Statement statement;
  bool has_generation = false;  // {% generation %}
};
// Errors (invalid_file), which name the file and the line: a construct that is malformed or not supported.
Program parse_template(std::string_view source, const std::string& file);

// The text of a conversation, and the bytes [first, second) inside of {% generation %}.
struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;
};

// Runs a program once, with limits on its steps and memory, and does Python's operations.
class Run {
 public:
  // `bytes` is the size of the conversation, to which the limits are proportional.
  Run(const Program& program, size_t bytes);

  // Errors
  //   invalid_file, which names the file and the line: an operation that Python rejects or that is not supported; more
  //     steps or memory than the limits
  //   invalid_argument: the template calls raise_exception
  Rendered render(Members variables);

  // Counts a level while an expression or a statement runs, and a step.
  struct Level {
    Level(Run& run, int line);
    ~Level() { --run.levels_, run.line_ = outer_line; }
    Run& run;
    int outer_line;
  };
  void step(size_t count = 1);
  void take(size_t bytes);
  [[noreturn]] void refuse(std::string_view what) const;
  [[noreturn]] void refuse(std::string_view what, const Value& given) const;
  [[noreturn]] void reject(std::string_view message) const;  // raise_exception

  Value text(std::string text);
  Value list(std::vector<Value> items, bool is_tuple = false);
  Value dict(Members members);
  Value make_namespace(Members members);
  std::string string_of(const Value& value);  // str(value)
  bool is_true(const Value& value) const;
  bool are_equal(const Value& a, const Value& b);
  bool contains(const Value& all, const Value& one);  // one in all
  bool compare(const std::string& op, const Value& a, const Value& b);
  Value binary(const std::string& op, const Value& a, const Value& b);
  std::vector<Value> items_of(const Value& value);  // list(value)
  const Value* find(const Members& members, std::string_view name);
  void set(Members& members, std::string_view name, Value value);
  Value look_up(const std::string& name, const Scope* scope);
  Value member(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  Value slice(const Value& value, const std::vector<Value>& bounds);

  void write(std::string_view text);
  std::string captured(const Statement& statement, Scope& scope);
  void generate(const Statement& statement, Scope& scope);
  Scope& globals() { return globals_; }

 private:
  const Program& program_;
  size_t steps_, bytes_;
  int line_ = 1, levels_ = 0, captures_ = 0;
  Rendered output_;
  Scope globals_;
  std::deque<Namespace> namespaces_;
};

// A filter, a test or a method of strings and dictionaries, with its parameters after the subject. An argument that is
// left out is undefined.
struct Operation {
  std::string_view name;
  std::vector<std::string_view> parameters;
  Value (*apply)(Run& run, const Value& subject, std::span<const Value> arguments);
};
enum class OperationKind : uint8_t { filter, test, method };
// Returns null for an unknown name.
const Operation* find_operation(OperationKind kind, std::string_view name);
// Returns raise_exception, strftime_now, namespace and range.
Members functions();

}  // namespace tessera::data::jinja
