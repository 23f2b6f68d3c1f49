// Values and statements of chat templates: a subset of Jinja2, parsed once and run for each conversation.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::data::jinja {

struct Node;
struct Value;
using Text = std::shared_ptr<const std::string>;
using Members = std::vector<std::pair<std::string, Value>>;  // in the order of insertion

struct Undefined {
  const Node* origin = nullptr;  // the expression that gave it, for errors
};
struct None {};
// A text after `safe`. Adding another text to it escapes that, which is not supported; it can only be written.
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
               Namespace*, const Node*, SafeText>
      is;  // a Node: a macro or a function

  template <class T>
  const T* as() const {
    return std::get_if<T>(&is);
  }
  bool is_undefined() const { return as<Undefined>(); }
  const std::string* text() const { return as<Text>() ? as<Text>()->get() : nullptr; }
  const List* list() const { return as<std::shared_ptr<const List>>() ? as<std::shared_ptr<const List>>()->get() : 0; }
  const Dict* dict() const { return as<std::shared_ptr<const Dict>>() ? as<std::shared_ptr<const Dict>>()->get() : 0; }
};

Value text_value(std::string text);

enum class Kind : uint8_t {
  // Statements. `block` has statements; `if_` has conditions and blocks by turns, and a last block for else; `for_` has
  // iterable, body, else or null, filter or null; `set` has the value and sets `names`; `set_member` sets names[1] of
  // the namespace names[0]; `set_block` and `generation` have a block; `macro` has a block, then the defaults of the
  // last parameters in `names`.
  block,
  data,
  output,
  if_,
  for_,
  set,
  set_member,
  set_block,
  macro,
  generation,
  break_,
  continue_,
  // Expressions. `text` is the name or the operator. `call` has arguments, with keywords in `names` ("": positional);
  // `method`, `filter` and `test` have their subject and then arguments by position, null for one that is left out;
  // `slice` has a subject, start, stop and step or null; `compare` has operands, with its operators in `names`.
  literal,
  name,
  attribute,
  item,
  slice,
  call,
  method,
  filter,
  test,
  not_,
  sign,
  binary,
  compare,
  and_,
  or_,
  condition,
  list,
  tuple,
  dict
};

struct Node {
  Kind kind;
  int line;
  std::string text = {};
  std::vector<std::unique_ptr<Node>> kids = {};
  std::vector<std::string> names = {};
  Value value = {};  // of a literal
  int depth = 1;     // levels of nodes, bounded as for lists
};

// A parsed template.
struct Program {
  std::string file;  // for errors
  std::unique_ptr<Node> block;
  bool has_generation = false;  // {% generation %}
};
// Errors (invalid_file), which name the file and the line: a construct that is malformed or not supported.
Program parse_template(std::string_view source, const std::string& file);

// The text of a conversation, and the bytes [first, second) inside of {% generation %}.
struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;
};

// Runs a template once, with limits on its steps and memory.
class Run {
 public:
  // `bytes` is the size of the conversation, to which the limits are proportional.
  Run(const Program& program, size_t bytes);

  // Errors
  //   invalid_file, which names the file and the line: an operation that Python rejects or that is not supported; more
  //     steps or memory than the limits
  //   invalid_argument: the template calls raise_exception
  Rendered render(Members variables);

  Value text(std::string text);
  Value list(std::vector<Value> items, bool is_tuple = false);
  Value dict(Members members);
  std::string string_of(const Value& value);  // str(value)
  bool is_true(const Value& value) const;
  bool are_equal(const Value& a, const Value& b);
  bool contains(const Value& all, const Value& one);  // one in all
  std::vector<Value> items_of(const Value& value);    // list(value)
  Value member(const Value& value, const std::string& name);
  void step(size_t count = 1);
  [[noreturn]] void refuse(std::string_view what) const;
  [[noreturn]] void refuse(std::string_view what, const Value& given) const;

 private:
  enum class Flow : uint8_t { next, break_, continue_ };
  struct Scope {
    Members names = {};
    Scope* outer = nullptr;
    void set(std::string_view name, Value value);
  };
  class Level;
  Flow execute(const Node& node, Scope& scope);
  Flow loop(const Node& node, Scope& scope);
  void assign(const Node& node, Scope& scope);
  void generate(const Node& node, Scope& scope);
  std::string captured(const Node& block, Scope& scope);
  void write(std::string_view text);
  Value evaluate(const Node& node, Scope& scope);
  Value look_up(const Node& name, Scope& scope);
  Value item(const Value& value, const Value& key);
  Value slice(const Node& node, Scope& scope);
  Value call(const Node& node, Scope& scope);
  Value call_macro(const Node& macro, const Node& call, Scope& scope);
  Value call_function(const Node& call, Scope& scope);
  Value binary(const std::string& op, const Value& a, const Value& b);
  bool compare(const std::string& op, const Value& a, const Value& b);

  const Program& program_;
  size_t steps_, bytes_;
  int line_ = 1, levels_ = 0, captures_ = 0;
  Rendered output_;
  Scope globals_;
  std::deque<Namespace> namespaces_;
};

// A filter, a test or a method of strings and dictionaries, with its parameters after the subject. An argument that is
// left out is undefined.
struct Function {
  std::string_view name;
  std::vector<std::string_view> parameters;
  Value (*apply)(Run& run, const Value& subject, std::span<const Value> arguments);
};
enum class FunctionKind : uint8_t { filter, test, method };
// Returns null for an unknown name.
const Function* find_function(FunctionKind kind, std::string_view name);

}  // namespace tessera::data::jinja
