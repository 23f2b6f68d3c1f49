// Parses chat templates with the rules for white space of `transformers`: trim_blocks and lstrip_blocks are on.
#include <algorithm>
#include <charconv>
#include <optional>

#include "data/text/python_text.h"
#include "data/text/template_nodes.h"
#include "data/text/unicode_text.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::data::jinja {
namespace {

using NodePtr = std::unique_ptr<Node>;

// The largest chat templates of models have 30 KB, with at most 20 levels.
constexpr size_t max_template_bytes = 1 << 20;
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
      const char c = text[++i];
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (const size_t which = escapes.find(c); which != std::string::npos) {
        result += meant[which];
      } else if (digits) {
        uint32_t code = 0x110000;
        const char *begin = text.data() + i + 1, *end = begin + std::min(digits, text.size() - i - 1);
        const auto [rest, error] = std::from_chars(begin, end, code, 16);
        if (error != std::errc{} || rest != begin + digits || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
          refuse(file_, line_, fmt::format("\\{} needs {} digits of a character.", c, digits));
        append_character(result, code);
        i += digits;
      } else if (c == 'N' || is_digit(c)) {
        refuse(file_, line_, fmt::format("the escape \\{} is not supported, expected \\x, \\u or \\U.", c));
      } else if (c != '\n') {
        result += {'\\', c};
      }
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

  NodePtr program() { return block({}); }

 private:
  struct Level {
    explicit Level(Parser& parser) : levels(parser.levels_) {
      if (++levels > max_levels) parser.refuse(fmt::format("more than {} levels.", max_levels));
    }
    ~Level() { --levels; }
    int& levels;
  };

  const Token& now() const { return tokens_[at_]; }
  Token next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_op(std::string_view op) const { return now().type == TokenType::op && now().text == op; }
  bool is_word(std::string_view word) const { return now().type == TokenType::name && now().text == word; }
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

  template <class... Kids>
  NodePtr make(Kind kind, std::string text, Kids... kids) {
    auto node = std::make_unique<Node>(Node{kind, now().line, std::move(text)});
    (add(*node, std::move(kids)), ...);
    return node;
  }
  void add(Node& node, NodePtr kid) {
    if (kid) node.depth = std::max(node.depth, kid->depth + 1);
    if (node.depth > max_levels) refuse(fmt::format("more than {} levels.", max_levels));
    node.kids.push_back(std::move(kid));
  }
  NodePtr literal(Value value) {
    NodePtr node = make(Kind::literal, "");
    node->value = std::move(value);
    return node;
  }

  // ---- statements

  // Parses statements up to the first tag whose name is in `ends`, which becomes the next token.
  NodePtr block(const Ends& ends) {
    const Level level(*this);
    NodePtr block = make(Kind::block, "");
    for (;;) {
      const Token token = next();
      if (token.type == TokenType::end) {
        if (!ends.empty()) refuse(fmt::format("the template ends before {{% {} %}}.", ends.back()));
        return block;
      } else if (token.type == TokenType::data) {
        NodePtr data = literal(text_value(token.text));
        data->kind = Kind::data;
        add(*block, std::move(data));
      } else if (token.type == TokenType::open_output) {
        add(*block, make(Kind::output, "", expression()));
        expect_close();
      } else if (contains(ends, now().text)) {
        return block;
      } else {
        add(*block, statement());
      }
    }
  }

  NodePtr statement() {
    const std::string name = expect_name();
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro();
    if (name == "generation") {
      program_.has_generation = true;
      return make(Kind::generation, "", body("endgeneration", /*loops=*/0));
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) refuse(fmt::format("`{}` outside of a loop.", name));
      expect_close();
      return make(name == "break" ? Kind::break_ : Kind::continue_, "");
    }
    refuse(fmt::format("the tag `{}` is not supported.", detail::shortened(name)));
  }

  // Parses the end of a tag, a block and its end tag.
  NodePtr body(std::string_view end, int loops) {
    const int outer = std::exchange(loops_, loops);
    expect_close();
    NodePtr result = block({end});
    ++at_, expect_close();
    loops_ = outer;
    return result;
  }

  NodePtr if_statement() {
    NodePtr node = make(Kind::if_, "");
    do {
      add(*node, expression());
      expect_close();
      add(*node, block({"elif", "else", "endif"}));
    } while (accept_word("elif"));
    if (accept_word("else")) {
      expect_close();
      add(*node, block({"endif"}));
    }
    ++at_, expect_close();
    return node;
  }

  NodePtr for_statement() {
    ++scopes_, ++loops_;
    NodePtr node = make(Kind::for_, "");
    const bool has_brackets = accept("(");
    node->names = targets();
    if (has_brackets) expect(")");
    if (!accept_word("in")) refuse_token("`in`");
    add(*node, or_expression());
    NodePtr filter = accept_word("if") ? expression() : nullptr;
    expect_close();
    add(*node, block({"else", "endfor"}));
    --loops_;
    NodePtr otherwise;
    if (accept_word("else")) {
      expect_close();
      otherwise = block({"endfor"});
    }
    add(*node, std::move(otherwise)), add(*node, std::move(filter));
    ++at_, expect_close();
    --scopes_;
    return node;
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    do names.push_back(expect_name());
    while (accept(","));
    return names;
  }

  NodePtr set_statement() {
    NodePtr node = make(Kind::set, "");
    node->names = targets();
    if (node->names.size() == 1 && accept(".")) {
      node->kind = Kind::set_member;
      node->names.push_back(expect_name());
    }
    if (accept("=")) {
      add(*node, tuple_or_expression());
      expect_close();
    } else {
      if (node->kind == Kind::set_member || node->names.size() > 1) refuse_token("`=`");
      node->kind = Kind::set_block;
      add(*node, body("endset", loops_));
    }
    return node;
  }

  NodePtr macro() {
    if (scopes_ > 0) refuse("a macro inside of a loop or a macro is not supported.");
    ++scopes_;
    NodePtr node = make(Kind::macro, expect_name(), nullptr);
    expect("(");
    while (!accept(")")) {
      node->names.push_back(expect_name());
      if (accept("="))
        add(*node, expression());
      else if (node->kids.size() > 1)
        refuse_token("a default value");
      if (!is_op(")")) expect(",");
    }
    NodePtr statements = body("endmacro", /*loops=*/0);
    node->depth = std::max(node->depth, statements->depth + 1);
    node->kids[0] = std::move(statements);
    --scopes_;
    return node;
  }

  // ---- expressions, from the operators that bind least

  NodePtr tuple_or_expression() {
    NodePtr first = expression();
    return is_op(",") ? tuple(std::move(first)) : std::move(first);
  }
  NodePtr tuple(NodePtr first) {
    NodePtr node = make(Kind::tuple, "", std::move(first));
    while (accept(",") && !is_op(")") && now().type != TokenType::close) add(*node, expression());
    return node;
  }

  NodePtr expression() {
    const Level level(*this);
    NodePtr value = or_expression();
    while (accept_word("if")) {
      NodePtr condition = or_expression();
      NodePtr otherwise = accept_word("else") ? expression() : literal({});
      value = make(Kind::condition, "", std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }
  NodePtr or_expression() {
    NodePtr left = and_expression();
    while (accept_word("or")) left = make(Kind::or_, "", std::move(left), and_expression());
    return left;
  }
  NodePtr and_expression() {
    NodePtr left = not_expression();
    while (accept_word("and")) left = make(Kind::and_, "", std::move(left), not_expression());
    return left;
  }
  NodePtr not_expression() {
    const Level level(*this);
    if (accept_word("not")) return make(Kind::not_, "", not_expression());
    return comparison();
  }
  NodePtr comparison() {
    NodePtr left = binary(0);
    NodePtr node = make(Kind::compare, "", std::move(left));
    for (;;) {
      const bool is_not_in = is_word("not") && tokens_[at_ + 1].text == "in";
      if (is_not_in) ++at_;
      if (!is_word("in") && (now().type != TokenType::op || !contains({"==", "!=", "<", "<=", ">", ">="}, now().text)))
        break;
      node->names.push_back(is_not_in ? "not in" : now().text);
      ++at_;
      add(*node, binary(0));
    }
    return node->names.empty() ? std::move(node->kids[0]) : std::move(node);
  }
  NodePtr binary(size_t precedence) {
    static const Ends operators[] = {{"+", "-"}, {"~"}, {"*", "//", "%"}};
    if (precedence == std::size(operators)) return unary(true);
    NodePtr left = binary(precedence + 1);
    while (now().type == TokenType::op && contains(operators[precedence], now().text)) {
      const std::string op = next().text;
      left = make(Kind::binary, op, std::move(left), binary(precedence + 1));
    }
    return left;
  }
  NodePtr unary(bool with_filters) {
    const Level level(*this);
    NodePtr node;
    if (is_op("-") || is_op("+")) {
      const std::string op = next().text;
      node = make(Kind::sign, op, unary(false));
    } else {
      node = postfix(primary());
    }
    while (with_filters && (is_op("|") || is_word("is")))
      node = accept("|") ? filter(std::move(node)) : test(std::move(node));
    return node;
  }

  NodePtr primary() {
    const Token token = next();
    if (token.type == TokenType::name) {
      if (token.text == "true" || token.text == "True") return literal({true});
      if (token.text == "false" || token.text == "False") return literal({false});
      if (token.text == "none" || token.text == "None") return literal({None{}});
      if (is_op("(")) return call(token.text);
      return make(Kind::name, token.text);
    }
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
    if (token.type == TokenType::op && token.text == "(") {
      NodePtr inner = is_op(")") ? make(Kind::tuple, "") : tuple_or_expression();
      expect(")");
      return inner;
    }
    if (token.type == TokenType::op && token.text == "[") {
      NodePtr node = make(Kind::list, "");
      while (!accept("]")) {
        add(*node, expression());
        if (!is_op("]")) expect(",");
      }
      return node;
    }
    if (token.type == TokenType::op && token.text == "{") {
      NodePtr node = make(Kind::dict, "");
      while (!accept("}")) {
        add(*node, expression());
        expect(":");
        add(*node, expression());
        if (!is_op("}")) expect(",");
      }
      return node;
    }
    --at_;
    refuse_token("an expression");
  }
  NodePtr postfix(NodePtr node) {
    for (;;) {
      if (accept(".")) {
        const std::string name = expect_name();
        node = is_op("(") ? method(name, std::move(node)) : make(Kind::attribute, name, std::move(node));
      } else if (accept("[")) {
        node = item(std::move(node));
      } else if (is_op("(")) {
        refuse("a call of this expression is not supported, expected a macro, a function or a method.");
      } else {
        return node;
      }
    }
  }
  NodePtr item(NodePtr node) {
    NodePtr bounds[3];
    int colons = 0;
    while (!accept("]")) {
      if (accept(":") ? ++colons > 2 : bounds[colons] != nullptr) refuse_token("`]`");
      if (!is_op(":") && !is_op("]")) bounds[colons] = expression();
    }
    if (colons)
      return make(Kind::slice, "", std::move(node), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2]));
    if (!bounds[0]) refuse("[] without an index.");
    return make(Kind::item, "", std::move(node), std::move(bounds[0]));
  }

  // Parses arguments in brackets.
  void arguments(Node& node) {
    expect("(");
    while (!accept(")")) {
      if (is_op("*") || is_op("**")) refuse("an argument with * is not supported.");
      const bool has_keyword =
          now().type == TokenType::name && tokens_[at_ + 1].type == TokenType::op && tokens_[at_ + 1].text == "=";
      node.names.push_back(has_keyword ? next().text : "");
      if (has_keyword) ++at_;
      add(node, expression());
      if (!is_op(")")) expect(",");
    }
  }
  NodePtr call(const std::string& name) {
    NodePtr node = make(Kind::call, name);
    arguments(*node);
    return node;
  }
  NodePtr method(const std::string& name, NodePtr subject) {
    NodePtr node = make(Kind::method, name, std::move(subject));
    arguments(*node);
    bind(*node, FunctionKind::method, "method");
    return node;
  }
  NodePtr filter(NodePtr subject) {
    NodePtr node = make(Kind::filter, expect_name(), std::move(subject));
    if (is_op("(")) arguments(*node);
    bind(*node, FunctionKind::filter, "filter");
    return node;
  }
  NodePtr test(NodePtr subject) {
    ++at_;
    const bool is_not = accept_word("not");
    NodePtr node = make(Kind::test, is_word("in") ? next().text : expect_name(), std::move(subject));
    const TokenType type = now().type;
    if (is_op("("))
      arguments(*node);
    else if (type == TokenType::string || type == TokenType::integer || is_op("[") || is_op("{") ||
             (type == TokenType::name && !contains({"else", "or", "and", "is", "if"}, now().text)))
      add(*node, postfix(primary())), node->names.emplace_back();
    bind(*node, FunctionKind::test, "test");
    return is_not ? make(Kind::not_, "", std::move(node)) : std::move(node);
  }

  // Brings the arguments into the order of the function's parameters.
  void bind(Node& node, FunctionKind kind, std::string_view what) {
    const Function* function = find_function(kind, node.text);
    if (!function) refuse(fmt::format("the {} `{}` is not supported.", what, detail::shortened(node.text)));
    const auto& parameters = function->parameters;
    std::vector<NodePtr> given(parameters.size() + 1);
    for (size_t i = 0; i < node.names.size(); ++i) {
      const std::string& keyword = node.names[i];
      const size_t place =
          keyword.empty() ? i : std::find(parameters.begin(), parameters.end(), keyword) - parameters.begin();
      if (place >= parameters.size() || given[place + 1])
        refuse(fmt::format("the {} `{}` with the argument {} is not supported.", what, node.text,
                           keyword.empty() ? std::to_string(i + 1) : detail::shortened(keyword)));
      given[place + 1] = std::move(node.kids[i + 1]);
    }
    given[0] = std::move(node.kids[0]);
    node.kids = std::move(given);
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
  program.block = Parser(Lexer(text, file).tokens(), program).program();
  return program;
}

}  // namespace tessera::data::jinja
