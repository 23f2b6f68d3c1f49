// Parses chat templates with the rules for white space of `transformers`: trim_blocks and lstrip_blocks are on.
#include <algorithm>
#include <optional>

#include "data/text/python_text.h"
#include "data/text/template_program.h"
#include "data/text/unicode_text.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::data::jinja {
namespace {

// The largest chat templates of models have 30 KB, with at most 20 levels.
constexpr size_t max_template_bytes = 1 << 18;
constexpr int max_levels = 128;

enum class TokenType : uint8_t { data, open_output, open_tag, close, name, string, integer, op, end };
struct Token {
  TokenType type;
  std::string text;
  int line;
};

[[noreturn]] void refuse(const std::string& file, int line, std::string_view what) {
  fail(ErrorKind::invalid_file, "ChatTemplate", "{}, line {}: {}", file, line, what);
}

// Returns the source with \n for all line ends, and without the last one.
std::string normalized_lines(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i)
    if (source[i] != '\r')
      text += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      text += '\n';
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

class Lexer {
 public:
  Lexer(const std::string& source, const std::string& file) : source_(source), file_(file) {}

  std::vector<Token> tokens() {
    while (at_ < source_.size()) {
      size_t open = at_;
      do open = source_.find('{', open);
      while (open != std::string::npos && std::string_view("{%#").find(at(open + 1)) == std::string::npos && ++open);
      const bool is_last = open == std::string::npos;
      add_data(open, is_last ? ' ' : at(open + 1), is_last ? ' ' : at(open + 2));
      if (!is_last) read_tag(at(open + 1));
    }
    add(TokenType::end);
    return std::move(tokens_);
  }

 private:
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  bool follows(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  void add(TokenType type, std::string text = {}) { tokens_.push_back({type, std::move(text), line_}); }
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + to, '\n'));
    at_ = to;
  }

  // Adds the text up to `open`, and moves behind the two characters there and a sign.
  void add_data(size_t open, char kind, char sign) {
    std::string_view text = std::string_view(source_).substr(at_, std::min(open, source_.size()) - at_);
    const size_t line_begin = text.rfind('\n') + 1;
    if (sign == '-')
      text = stripped(text, std::nullopt, /*left=*/false, /*right=*/true);
    else if (sign != '+' && (kind == '%' || kind == '#') && (line_begin > 0 || starts_line_) &&
             stripped(text.substr(line_begin), std::nullopt, true, false).empty())
      text = text.substr(0, line_begin);
    if (!text.empty()) add(TokenType::data, std::string(text));
    if (open == std::string::npos) return advance(source_.size());
    advance(std::min(open + (sign == '-' || sign == '+' ? 3 : 2), source_.size()));
  }

  void read_tag(char kind) {
    if (kind == '#') {
      const size_t end = source_.find("#}", at_);
      if (end == std::string::npos) refuse(file_, line_, "a comment has no end, expected #}.");
      const char sign = end > at_ ? source_[end - 1] : ' ';
      return close(end + 2, sign, true);
    }
    add(kind == '%' ? TokenType::open_tag : TokenType::open_output);
    const std::string_view end = kind == '%' ? "%}" : "}}";
    for (int brackets = 0;;) {
      const size_t word = source_.find_first_not_of(" \t\n\f\v", at_);
      if (word == std::string::npos) refuse(file_, line_, fmt::format("a tag has no end, expected {}.", end));
      advance(word);
      const char sign = at(at_) == '-' || (kind == '%' && at(at_) == '+') ? at(at_) : ' ';
      if (brackets == 0 && source_.compare(at_ + (sign != ' '), 2, end) == 0) {
        add(TokenType::close);
        return close(at_ + (sign != ' ') + 2, sign, kind == '%');
      }
      read_token();
      if (tokens_.back().type != TokenType::op) continue;
      const char op = tokens_.back().text[0];
      brackets += (op == '(' || op == '[' || op == '{') - (op == ')' || op == ']' || op == '}');
    }
  }

  // Moves behind the end of a tag and the white space that it removes.
  void close(size_t end, char sign, bool trims_line) {
    if (sign == '-') {
      const std::string_view rest = std::string_view(source_).substr(end);
      end = source_.size() - stripped(rest, std::nullopt, /*left=*/true, /*right=*/false).size();
    } else if (trims_line && sign != '+' && at(end) == '\n') {
      ++end;
    }
    advance(end);
    starts_line_ = source_[end - 1] == '\n';
  }

  void read_token() {
    const char c = at(at_);
    size_t end = at_;
    if (c == '\'' || c == '"') {
      do end += at(end) == '\\' ? 2 : 1;
      while (end < source_.size() && source_[end] != c);
      if (end >= source_.size()) refuse(file_, line_, "a string has no end.");
      add(TokenType::string, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
      return advance(end + 1);
    }
    if (is_digit(c)) {
      while (is_digit(at(end)) || at(end) == '_') ++end;
      if (is_name(at(end)) || (at(end) == '.' && is_digit(at(end + 1))))
        refuse(file_, line_, "only integers of decimal digits are supported.");
      std::string digits = source_.substr(at_, end - at_);
      std::erase(digits, '_');
      add(TokenType::integer, digits);
      return advance(end);
    }
    if (is_name(c)) {
      while (is_name(at(end))) ++end;
      add(TokenType::name, source_.substr(at_, end - at_));
      return advance(end);
    }
    for (const char* two : {"**", "//", "==", "!=", "<=", ">="})
      if (follows(two)) {
        add(TokenType::op, two);
        return advance(at_ + 2);
      }
    if (std::string_view("+-*/%~[](){}<>=.:|,;").find(c) == std::string::npos)
      refuse(file_, line_, fmt::format("the character \"{}\" is not expected in a tag.", detail::shortened({&c, 1})));
    add(TokenType::op, {c});
    advance(at_ + 1);
  }

  std::string unescaped(std::string_view text) const {
    constexpr std::string_view escapes = "abfnrtv\\'\"", meant = "\a\b\f\n\r\t\v\\'\"";
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        result += text[i];
        continue;
      }
      const size_t which = escapes.find(text[++i]);
      if (which == std::string::npos)
        refuse(file_, line_, fmt::format("the escape \\{} is not supported.", detail::shortened(text.substr(i, 1))));
      result += meant[which];
    }
    return result;
  }

  const std::string& source_;
  const std::string& file_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::vector<Token> tokens_;
};

using Ends = std::vector<std::string_view>;
bool contains(const Ends& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Parser {
 public:
  Parser(std::vector<Token> tokens, Program& program) : tokens_(std::move(tokens)), program_(program) {}

  Statement program() { return block({}); }

 private:
  // Bounds the nesting of the functions that are made, whose destructors recurse.
  struct Level {
    explicit Level(Parser& parser) : parser(parser), outer(parser.levels_) { parser.enter(); }
    ~Level() { parser.levels_ = outer; }
    Parser& parser;
    int outer;
  };
  void enter() {
    if (++levels_ > max_levels) refuse(fmt::format("more than {} levels.", max_levels));
  }

  const Token& now() const { return tokens_[at_]; }
  Token next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenType type, std::string_view text) const { return now().type == type && now().text == text; }
  bool is_op(std::string_view op) const { return is(TokenType::op, op); }
  bool is_word(std::string_view word) const { return is(TokenType::name, word); }
  bool accept(std::string_view op) { return is_op(op) && (++at_, true); }
  bool accept_word(std::string_view word) { return is_word(word) && (++at_, true); }
  void expect(std::string_view op) {
    if (!accept(op)) refuse_token(fmt::format("`{}`", op));
  }
  std::string expect_name() {
    if (now().type != TokenType::name) refuse_token("a name");
    return next().text;
  }
  void expect_close() {
    if (now().type != TokenType::close) refuse_token("the end of the tag");
    ++at_;
  }
  [[noreturn]] void refuse(std::string_view what) const { jinja::refuse(program_.file, now().line, what); }
  [[noreturn]] void refuse_token(std::string_view expected) const {
    const std::string given = now().type == TokenType::close ? "the end of the tag"
                              : now().type == TokenType::end ? "the end of the template"
                                                             : "`" + detail::shortened(now().text) + "`";
    refuse(fmt::format("{} given, expected {}.", given, expected));
  }

  // Returns a function that also counts a level and a step, and sets the line for errors.
  template <class F>
  auto counted(F f) {
    return [line = now().line, f = std::move(f)](Run& run, Scope& scope) {
      const Run::Level level(run, line);
      return f(run, scope);
    };
  }

  // ---- statements

  // Parses statements up to the first tag whose name is in `ends`, which becomes the next token.
  Statement block(const Ends& ends) {
    const Level level(*this);
    std::vector<Statement> statements;
    for (;;) {
      const Token token = next();
      if (token.type == TokenType::data) {
        statements.push_back([text = token.text](Run& run, Scope&) { return run.write(text), Flow::next; });
      } else if (token.type == TokenType::open_output) {
        statements.push_back([value = tuple_or_expression()](Run& run, Scope& scope) {
          return run.write(run.string_of(value(run, scope))), Flow::next;
        });
        expect_close();
      } else if (token.type == TokenType::open_tag && !contains(ends, now().text)) {
        statements.push_back(statement());
      } else {
        if (token.type == TokenType::end && !ends.empty())
          refuse(fmt::format("the template ends before {{% {} %}}.", ends.back()));
        return counted([statements = std::move(statements)](Run& run, Scope& scope) {
          for (const Statement& statement : statements) {
            run.step();
            if (const Flow flow = statement(run, scope); flow != Flow::next) return flow;
          }
          return Flow::next;
        });
      }
    }
  }

  Statement statement() {
    const std::string name = expect_name();
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro();
    if (name == "generation") {
      program_.has_generation = true;
      return counted([statement = body("endgeneration", /*loops=*/0)](Run& run, Scope& scope) {
        Scope inner{.outer = &scope};
        return run.generate(statement, inner), Flow::next;
      });
    }
    if (name != "break" && name != "continue")
      refuse(fmt::format("the tag `{}` is not supported.", detail::shortened(name)));
    if (loops_ == 0) refuse(fmt::format("`{}` outside of a loop.", name));
    expect_close();
    return [flow = name == "break" ? Flow::break_ : Flow::continue_](Run&, Scope&) { return flow; };
  }

  // Parses the end of a tag, a block, and its end tag.
  Statement body(std::string_view end, int loops) {
    const int outer = std::exchange(loops_, loops);
    expect_close();
    Statement result = block({end});
    ++at_, expect_close();
    loops_ = outer;
    return result;
  }

  Statement if_statement() {
    std::vector<std::pair<Expression, Statement>> cases;
    do {
      Expression condition = expression();
      expect_close();
      cases.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
    } while (accept_word("elif"));
    if (accept_word("else")) {
      expect_close();
      cases.emplace_back(literal({true}), block({"endif"}));
    }
    ++at_, expect_close();
    return [cases = std::move(cases)](Run& run, Scope& scope) {
      for (const auto& [condition, statement] : cases) {
        run.step();
        if (run.is_true(condition(run, scope))) return statement(run, scope);
      }
      return Flow::next;
    };
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    do names.push_back(expect_name());
    while (accept(","));
    return names;
  }

  // Sets one name to a value, or several names to its items.
  static void assign(Run& run, const std::vector<std::string>& names, const Value& value, Scope& scope) {
    if (names.size() == 1) return run.set(scope.names, names[0], value);
    const std::vector<Value> items = run.items_of(value);
    if (items.size() != names.size()) run.refuse(fmt::format("{} values for {} names.", items.size(), names.size()));
    for (size_t i = 0; i < items.size(); ++i) run.set(scope.names, names[i], items[i]);
  }

  Statement for_statement() {
    ++scopes_;
    const bool has_brackets = accept("(");
    const std::vector<std::string> names = targets();
    if (has_brackets) expect(")");
    if (!accept_word("in")) refuse_token("`in`");
    const Expression iterable = or_expression();
    const Expression filter = accept_word("if") ? expression() : Expression();
    const Statement statement = body("endfor", loops_ + 1);
    --scopes_;
    return counted([=](Run& run, Scope& scope) {
      std::vector<Value> items = run.items_of(iterable(run, scope));
      if (filter)
        std::erase_if(items, [&](const Value& item) {
          Scope inner{.outer = &scope};
          assign(run, names, item, inner);
          return !run.is_true(filter(run, inner));
        });
      for (size_t i = 0; i < items.size(); ++i) {
        Scope inner{.outer = &scope};
        assign(run, names, items[i], inner);
        run.set(inner.names, "loop", loop_of(run, items, i));
        if (statement(run, inner) == Flow::break_) break;
      }
      return Flow::next;
    });
  }

  static Value loop_of(Run& run, const std::vector<Value>& items, size_t i) {
    const int64_t index = static_cast<int64_t>(i), count = std::ssize(items);
    Members loop{{"index0", {index}},
                 {"index", {index + 1}},
                 {"first", {i == 0}},
                 {"last", {index + 1 == count}},
                 {"length", {count}},
                 {"revindex", {count - index}},
                 {"revindex0", {count - index - 1}},
                 {"depth", {int64_t{1}}},
                 {"depth0", {int64_t{0}}}};
    if (i > 0) loop.emplace_back("previtem", items[i - 1]);
    if (i + 1 < items.size()) loop.emplace_back("nextitem", items[i + 1]);
    run.step(loop.size());
    return {std::make_shared<const Dict>(Dict{std::move(loop)})};
  }

  Statement set_statement() {
    const std::vector<std::string> names = targets();
    const std::string member = names.size() == 1 && accept(".") ? expect_name() : "";
    if (!is_op("=") && names.size() == 1 && member.empty())
      return counted([name = names[0], statement = body("endset", loops_)](Run& run, Scope& scope) {
        Scope inner{.outer = &scope};
        return run.set(scope.names, name, run.text(run.captured(statement, inner))), Flow::next;
      });
    expect("=");
    const Expression value = tuple_or_expression();
    expect_close();
    if (member.empty())
      return counted([=](Run& run, Scope& scope) { return assign(run, names, value(run, scope), scope), Flow::next; });
    return counted([=](Run& run, Scope& scope) {
      Value result = value(run, scope);
      const Value owner = run.look_up(names[0], &scope);
      if (!owner.as<Namespace*>()) run.refuse("only a member of a namespace can be set", owner);
      return run.set((*owner.as<Namespace*>())->members, member, std::move(result)), Flow::next;
    });
  }

  struct Macro {
    std::string name;
    std::vector<std::string> parameters;
    std::vector<Expression> defaults;  // or empty
    Statement body;
  };

  Statement macro() {
    if (scopes_ > 0) refuse("a macro inside of a loop or a macro is not supported.");
    ++scopes_;
    Macro macro{expect_name()};
    expect("(");
    while (!accept(")")) {
      macro.parameters.push_back(expect_name());
      macro.defaults.push_back(accept("=") ? expression() : Expression());
      if (!is_op(")")) expect(",");
    }
    macro.body = body("endmacro", /*loops=*/0);
    --scopes_;
    const std::string name = macro.name;
    const auto function =
        std::make_shared<const Function>([macro = std::move(macro)](Run& run, std::vector<Value> given, Members named) {
          return call(macro, run, std::move(given), std::move(named));
        });
    return [=](Run& run, Scope& scope) { return run.set(scope.names, name, {function}), Flow::next; };
  }

  static Value call(const Macro& macro, Run& run, std::vector<Value> given, Members named) {
    Scope scope{std::move(named), &run.globals()};
    const auto& parameters = macro.parameters;
    for (const auto& [name, value] : scope.names)
      if (std::find(parameters.begin(), parameters.end(), name) == parameters.end())
        run.refuse(fmt::format("the macro `{}` has no parameter `{}`.", macro.name, name));
    if (given.size() > parameters.size())
      run.refuse(fmt::format("{} arguments for the {} of `{}`.", given.size(), parameters.size(), macro.name));
    for (size_t i = 0; i < parameters.size(); ++i)
      if (i < given.size())
        run.set(scope.names, parameters[i], std::move(given[i]));
      else if (!run.find(scope.names, parameters[i]))
        run.set(scope.names, parameters[i], macro.defaults[i] ? macro.defaults[i](run, scope) : Value{});
    return run.text(run.captured(macro.body, scope));
  }

  // ---- expressions, from the operators that bind least

  static Expression literal(Value value) {
    return [value = std::move(value)](Run&, Scope&) { return value; };
  }

  Expression tuple_or_expression() {
    std::vector<Expression> items{expression()};
    if (!is_op(",")) return items[0];
    while (accept(",") && !is_op(")") && now().type != TokenType::close) items.push_back(expression());
    return list(std::move(items), /*is_tuple=*/true);
  }
  Expression list(std::vector<Expression> items, bool is_tuple) {
    return counted([items = std::move(items), is_tuple](Run& run, Scope& scope) {
      std::vector<Value> values;
      for (const Expression& item : items) values.push_back(item(run, scope));
      return run.list(std::move(values), is_tuple);
    });
  }

  Expression expression() {
    const Level level(*this);
    Expression value = or_expression();
    while (accept_word("if")) {
      enter();
      const Expression condition = or_expression(), otherwise = accept_word("else") ? expression() : literal({});
      value = counted([=](Run& run, Scope& scope) {
        return run.is_true(condition(run, scope)) ? value(run, scope) : otherwise(run, scope);
      });
    }
    return value;
  }
  Expression or_expression() { return either("or", &Parser::and_expression); }
  Expression and_expression() { return either("and", &Parser::not_expression); }
  Expression either(std::string_view word, Expression (Parser::*operand)()) {
    Expression left = (this->*operand)();
    while (accept_word(word)) {
      enter();
      left = counted([left, right = (this->*operand)(), is_and = word == "and"](Run& run, Scope& scope) {
        Value value = left(run, scope);
        return run.is_true(value) == is_and ? right(run, scope) : value;
      });
    }
    return left;
  }
  Expression not_expression() {
    const Level level(*this);
    return accept_word("not") ? negated(not_expression()) : comparison();
  }
  Expression negated(Expression value) {
    return counted(
        [value = std::move(value)](Run& run, Scope& scope) { return Value{!run.is_true(value(run, scope))}; });
  }
  Expression comparison() {
    const Expression first = binary(0);
    std::vector<std::pair<std::string, Expression>> rest;
    for (;;) {
      const bool is_not_in = is_word("not") && tokens_[at_ + 1].text == "in";
      if (is_not_in) ++at_;
      if (!is_word("in") && (now().type != TokenType::op || !contains({"==", "!=", "<", "<=", ">", ">="}, now().text)))
        break;
      const std::string op = is_not_in ? "not in" : now().text;
      ++at_;
      rest.emplace_back(op, binary(0));
    }
    if (rest.empty()) return first;
    return counted([=](Run& run, Scope& scope) {
      Value left = first(run, scope);
      for (const auto& [op, operand] : rest) {
        Value right = operand(run, scope);
        if (!run.compare(op, left, right)) return Value{false};
        left = std::move(right);
      }
      return Value{true};
    });
  }
  Expression binary(size_t precedence) {
    static const Ends operators[] = {{"+", "-"}, {"~"}, {"*", "//", "%"}};
    if (precedence == std::size(operators)) return unary(true);
    Expression left = binary(precedence + 1);
    while (now().type == TokenType::op && contains(operators[precedence], now().text)) {
      enter();
      const std::string op = next().text;
      left = counted([op, left, right = binary(precedence + 1)](Run& run, Scope& scope) {
        const Value value = left(run, scope);
        return run.binary(op, value, right(run, scope));
      });
    }
    return left;
  }
  Expression unary(bool with_filters) {
    const Level level(*this);
    Expression value;
    if (is_op("-") || is_op("+")) {
      const std::string op = next().text;
      value = counted([op, operand = unary(false)](Run& run, Scope& scope) {
        return run.binary(op, {int64_t{0}}, operand(run, scope));
      });
    } else {
      value = postfix(primary());
    }
    while (with_filters && (is_op("|") || is_word("is"))) {
      enter();
      value = accept("|") ? operation(OperationKind::filter, expect_name(), value) : test(value);
    }
    return value;
  }

  Expression primary() {
    const Token token = next();
    const auto opens = [&](std::string_view op) { return token.type == TokenType::op && token.text == op; };
    if (token.type == TokenType::name) return name(token.text);
    if (token.type == TokenType::string) {
      std::string text = token.text;
      while (now().type == TokenType::string) text += next().text;
      return literal(text_value(text));
    }
    if (token.type == TokenType::integer) {
      const auto number = tessera::detail::parse_number<int64_t>(token.text);
      if (!number) refuse("a number is too large.");
      return literal({*number});
    }
    if (opens("(")) {
      Expression inner = is_op(")") ? list({}, true) : tuple_or_expression();
      expect(")");
      return inner;
    }
    if (opens("[")) {
      std::vector<Expression> items;
      while (!accept("]")) {
        items.push_back(expression());
        if (!is_op("]")) expect(",");
      }
      return list(std::move(items), false);
    }
    if (opens("{")) return dict();
    --at_;
    refuse_token("an expression");
  }
  Expression name(const std::string& name) {
    if (name == "true" || name == "True") return literal({true});
    if (name == "false" || name == "False") return literal({false});
    if (name == "none" || name == "None") return literal({None{}});
    if (!is_op("(")) return counted([=](Run& run, Scope& scope) { return run.look_up(name, &scope); });
    return counted([name, given = arguments()](Run& run, Scope& scope) {
      const Value callee = run.look_up(name, &scope);
      const Function* function = callee.shared<Function>();
      if (!function) run.refuse(fmt::format("`{}` is not a macro or a supported function", name), callee);
      std::vector<Value> values;
      Members named;
      for (const auto& [keyword, value] : given)
        if (keyword.empty())
          values.push_back(value(run, scope));
        else
          named.emplace_back(keyword, value(run, scope));
      return (*function)(run, std::move(values), std::move(named));
    });
  }
  Expression dict() {
    std::vector<std::pair<Expression, Expression>> members;
    while (!accept("}")) {
      Expression key = expression();
      expect(":");
      members.emplace_back(std::move(key), expression());
      if (!is_op("}")) expect(",");
    }
    return counted([members = std::move(members)](Run& run, Scope& scope) {
      Members values;
      for (const auto& [key, value] : members) {
        run.step();
        const Value name = key(run, scope);
        if (!name.text()) run.refuse("a key of a dictionary must be a string", name);
        run.set(values, *name.text(), value(run, scope));
      }
      return run.dict(std::move(values));
    });
  }

  Expression postfix(Expression value) {
    for (;; enter()) {
      if (accept(".")) {
        const std::string name = expect_name();
        value = is_op("(") ? operation(OperationKind::method, name, value) : attribute(name, value);
      } else if (accept("[")) {
        value = item(value);
      } else if (is_op("(")) {
        refuse("a call of this expression is not supported, expected a macro, a function or a method.");
      } else {
        return value;
      }
    }
  }
  Expression attribute(const std::string& name, const Expression& of) {
    static const Ends of_dict{"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                              "pop",   "popitem", "setdefault", "update", "values"};
    const bool is_dict_method = contains(of_dict, name);
    const bool is_text_method = !is_dict_method && find_operation(OperationKind::method, name);
    return counted([=](Run& run, Scope& scope) {
      const Value value = of(run, scope);
      if ((value.dict() && is_dict_method) || (value.text() && is_text_method))
        run.refuse(fmt::format("the method `{}` without a call is not supported.", name));
      return run.member(value, name);
    });
  }
  Expression item(const Expression& of) {
    std::vector<Expression> bounds(1);
    for (; !accept("]");) {
      if (accept(":") && bounds.size() < 3)
        bounds.emplace_back();
      else if (!bounds.back())
        bounds.back() = expression();
      else
        refuse_token("`]`");
    }
    if (bounds.size() == 1 && bounds[0])
      return counted([of, key = bounds[0]](Run& run, Scope& scope) {
        const Value value = of(run, scope);
        return run.item(value, key(run, scope));
      });
    if (bounds.size() == 1) refuse("[] without an index.");
    bounds.resize(3);
    return counted([of, bounds](Run& run, Scope& scope) {
      const Value value = of(run, scope);
      std::vector<Value> values;
      for (const Expression& bound : bounds) values.push_back(bound ? bound(run, scope) : Value{None{}});
      return run.slice(value, values);
    });
  }

  using Given = std::vector<std::pair<std::string, Expression>>;  // keyword or "", and argument

  Given arguments() {
    Given given;
    expect("(");
    while (!accept(")")) {
      if (is_op("*")) refuse("an argument with * is not supported.");
      const bool has_keyword =
          now().type == TokenType::name && tokens_[at_ + 1].text == "=" && tokens_[at_ + 1].type == TokenType::op;
      const std::string keyword = has_keyword ? next().text : "";
      if (has_keyword) ++at_;
      given.emplace_back(keyword, expression());
      if (!is_op(")")) expect(",");
    }
    return given;
  }

  Expression test(const Expression& subject) {
    ++at_;
    const bool is_not = accept_word("not");
    const std::string name = expect_name();
    Given given;
    const TokenType type = now().type;
    if (type == TokenType::string || type == TokenType::integer || is_op("[") ||
        (type == TokenType::name && !contains({"else", "or", "and", "is"}, now().text)))
      given.emplace_back("", postfix(primary()));
    const Expression result = operation(OperationKind::test, name, subject, std::move(given));
    return is_not ? negated(result) : result;
  }

  // Applies a filter, a test or a method. Its arguments are brought into the order of its parameters.
  Expression operation(OperationKind kind, const std::string& name, const Expression& subject, Given given = {}) {
    static constexpr const char* kinds[] = {"filter", "test", "method"};
    const std::string what = fmt::format("the {} `{}`", kinds[static_cast<size_t>(kind)], detail::shortened(name));
    const Operation* found = find_operation(kind, name);
    if (!found) refuse(what + " is not supported.");
    if (is_op("(")) given = arguments();
    const auto& parameters = found->parameters;
    std::vector<Expression> bound(parameters.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const auto& [keyword, value] = given[i];
      const auto place = keyword.empty()
                             ? static_cast<ptrdiff_t>(i)
                             : std::find(parameters.begin(), parameters.end(), keyword) - parameters.begin();
      if (place >= std::ssize(parameters) || bound[place])
        refuse(fmt::format("{} with the argument {} is not supported.", what,
                           keyword.empty() ? std::to_string(i + 1) : detail::shortened(keyword)));
      bound[place] = value;
    }
    return counted([subject, found, kind, bound = std::move(bound)](Run& run, Scope& scope) {
      const Value value = subject(run, scope);
      if (kind == OperationKind::method && !value.text() && !value.as<SafeText>() && !value.dict())
        run.refuse(fmt::format("`{}` needs a string or a dictionary", found->name), value);
      std::vector<Value> arguments;
      for (const Expression& argument : bound) arguments.push_back(argument ? argument(run, scope) : Value{});
      if (value.text()) run.step(value.text()->size() / 64);
      return found->apply(run, value, arguments);
    });
  }

  std::vector<Token> tokens_;
  Program& program_;
  size_t at_ = 0;
  int levels_ = 0, loops_ = 0, scopes_ = 0;
};

}  // namespace

Program parse_template(std::string_view source, const std::string& file) {
  if (source.size() > max_template_bytes)
    refuse(file, 1, fmt::format("a template of {} bytes, expected at most {}.", source.size(), max_template_bytes));
  const std::string text = normalized_lines(source);
  Program program{file};
  program.statement = Parser(Lexer(text, file).tokens(), program).program();
  return program;
}

}  // namespace tessera::data::jinja
