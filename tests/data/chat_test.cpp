// Chat templates: texts equal to those of `transformers`, the assistant's parts, and limits. Tokens of conversations.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/text.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"
#include "tests/data/skip_without.h"

namespace tessera::data::chat_test {
namespace {

namespace json = boost::json;
using Messages = std::vector<ChatMessage>;

const std::string reference = TESSERA_REFERENCE_DIR;

ChatVariables variables_of(const json::value& object) {
  ChatVariables variables;
  for (const auto& [name, value] : object.as_object())
    if (value.is_string())
      variables[name] = std::string(value.as_string());
    else if (value.is_bool())
      variables[name] = value.as_bool();
    else
      variables[name] = value.as_int64();
  return variables;
}

struct Reference {
  ChatTemplate chat;
  json::array cases;
};

std::map<std::string, Reference> references() {
  std::map<std::string, Reference> all;
  const auto file = parse_json_file(reference + "/chat_templates/templates.json");
  for (const json::value& one : file.as_array())
    all.emplace(one.at("name").as_string(),
                Reference{ChatTemplate::from_text(one.at("template").as_string(), variables_of(one.at("tokens"))),
                          one.at("cases").as_array()});
  return all;
}

Messages messages_of(const json::value& list) {
  Messages messages;
  for (const json::value& message : list.as_array())
    messages.push_back({std::string(message.at("role").as_string()), std::string(message.at("content").as_string())});
  return messages;
}

TEST(ChatTemplate, WritesWhatTransformersWrites) {
  int texts = 0, errors = 0, spans = 0;
  for (const auto& [name, reference] : references())
    for (const json::value& one : reference.cases) {
      const Messages messages = messages_of(one.at("messages"));
      const ChatVariables variables = variables_of(one.at("variables"));
      const bool prompt = one.at("add_generation_prompt").as_bool();
      const auto render = [&] { return reference.chat.render(messages, {prompt, variables}); };
      if (one.as_object().contains("error")) {
        testing::error_of(ErrorKind::invalid_argument, render), ++errors;
        continue;
      }
      EXPECT_EQ(render(), one.at("text").as_string()) << name << json::serialize(one.at("messages"));
      ++texts;
      const auto* generated = one.as_object().if_contains("generated");
      if (!generated || prompt || generated->as_array().empty()) continue;
      json::array found;
      for (const auto& [begin, end] : reference.chat.render_with_spans(messages, variables).assistant)
        found.push_back(json::array{begin, end});
      EXPECT_EQ(json::value(found), *generated) << name;
      ++spans;
    }
  EXPECT_GT(texts, 350);
  EXPECT_EQ(errors, 18);
  EXPECT_GT(spans, 15);
}

const Messages two_turns{
    {"user", "Hi"}, {"assistant", "<think>\nhm\n</think>\n\nYes"}, {"user", "Ok"}, {"assistant", "Bye"}};

std::vector<std::string> parts_of(const RenderedChat& chat) {
  std::vector<std::string> parts;
  for (const auto& [begin, end] : chat.assistant) parts.push_back(chat.text.substr(begin, end - begin));
  return parts;
}

// The parts of templates that only append messages, that remove thinking from earlier turns, and that end the last turn
// with another token.
TEST(ChatTemplate, FindsTheAssistantsParts) {
  const auto all = references();
  const std::string thought = "<think>\nhm\n</think>\n\nYes";
  const std::vector<std::tuple<std::string, ChatVariables, std::vector<std::string>>> cases = {
      {"chatml", {}, {thought + "<|im_end|>\n", "Bye<|im_end|>\n"}},
      {"llama2", {}, {" " + thought + " </s>", " Bye </s>"}},
      {"llama3", {}, {thought + "<|eot_id|>", "Bye<|eot_id|>"}},
      {"gemma", {}, {thought + "<end_of_turn>\n", "Bye<end_of_turn>\n"}},
      {"zephyr", {}, {thought + "</s>\n", "Bye</s>\n"}},
      {"phi3", {}, {thought + "<|end|>\n", "Bye<|end|>\n<|endoftext|>"}},
      {"qwen3", {}, {"Yes<|im_end|>\n", "<think>\n\n</think>\n\nBye<|im_end|>\n"}},
      {"qwen3", {{"enable_thinking", false}}, {"Yes<|im_end|>\n", "Bye<|im_end|>\n"}},
      {"deepseek",
       {},
       {"\n\nYes<\uff5cend\u2581of\u2581sentence\uff5c>", "Bye<\uff5cend\u2581of\u2581sentence\uff5c>"}},
      {"chatml_training", {}, {thought + "<|im_end|>", "Bye<|im_end|>"}},
  };
  for (const auto& [name, variables, parts] : cases)
    EXPECT_EQ(parts_of(all.at(name).chat.render_with_spans(two_turns, variables)), parts) << name;
  EXPECT_EQ(all.at("phi3").chat.end_of_turn(), "<|end|>\n<|endoftext|>");
  EXPECT_EQ(all.at("llama2").chat.end_of_turn(), "</s>");
}

TEST(ChatTemplate, RefusesConversationsWhosePartsAreUnknown) {
  const auto expect = [](const std::string& source, const Messages& messages, const std::string& words) {
    const auto chat = ChatTemplate::from_text(source);
    expect_error(ErrorKind::invalid_argument, {"[ChatTemplate]", words}, [&] { chat.render_with_spans(messages); });
  };
  const std::string plain = "{% for m in messages %}{{ m.content }}";
  expect(plain + "{% endfor %}", {{"user", "Hi"}}, "without one of the role assistant");
  expect(plain + "{% endfor %}", {}, "without one of the role assistant");
  expect(plain + "{{ '!' if loop.last else '.' }}{% endfor %}", two_turns, "ends a turn differently");
  expect("{{ messages[-1].content | length }}" + plain + "{% endfor %}", two_turns,
         "writes the other messages differently");
  expect("{{ messages | length }}", two_turns, "does not write a content that is a string");
  expect("{{ raise_exception('No ' ~ 'chats') }}", two_turns,
         "line 1: the template rejects the conversation: No chats");
  expect(plain + "{% endfor %}", {{"assistant", "\xff"}}, "not UTF-8");
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// begin0end begin1end ...
std::string numbered(const std::string& begin, const std::string& end) {
  std::string all;
  for (int i = 0; i < 9999; ++i) all += begin + std::to_string(i) + end;
  return all;
}

TEST(ChatTemplate, NamesConstructsThatItDoesNotSupport) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\n\n{% include 'x' %}", "line 3: the tag `include` is not supported"},
      {"{{ x | wordwrap }}", "the filter `wordwrap` is not supported"},
      {"{{ x | tojson(separators=1) }}", "the filter `tojson` with the argument separators"},
      {"{{ 'a'.encode() }}", "the method `encode` is not supported"},
      {"{{ {}.values() }}", "the method `values` is not supported"},
      {"{% for x in y %}{% else %}{% endfor %}", "the tag `else` is not supported"},
      {"{{ x is callable }}", "the test `callable` is not supported"},
      {"{{ 1.5 }}", "only integers"},
      {"{% if x %}a", "the template ends before {% endif %}"},
      {"{{ x", "a tag has no end, expected }}"},
      {"{# x", "a comment has no end"},
      {"{{ 'x }}", "a string has no end"},
      {"{{ ) }}", "a tag has no end"},
      {"{{ x y }}", "`y` given, expected the end of the tag"},
      {"{{ x is none if y }}", "the test `none`"},
      {"{{ }}", "the end of the tag given, expected an expression"},
      {"{% break %}", "`break` outside of a loop"},
      {"{{ a(*c) }}", "an argument with *"},
      {"{{ ns.f()() }}", "is not supported"},
      {"{{ 'a' ? }}", "\"?\" is not expected"},
      {"{{ '\\u00e9' }}", "the escape \\u is not supported"},
      {"{% for x in y recursive %}{% endfor %}", "`recursive` given"},
      {"{{" + std::string(200, '(') + "}}", "a tag has no end"},
      {"{{" + repeated("(", 200) + "1" + repeated(")", 200) + "}}", "128 levels"},
      {"{{ 1" + std::string(400, '~') + "}}", "expected an expression"},
      {"{{ 0" + repeated("+1", 200) + "}}", "128 levels"},
      {repeated("{% if x %}", 200), "128 levels"},
      {std::string(1 << 19, ' '), "expected at most 262144"},
      {"\xff", "not UTF-8"},
  };
  for (const auto& [source, words] : cases)
    expect_error(ErrorKind::invalid_file, {"[ChatTemplate] chat_template.jinja", words},
                 [&] { ChatTemplate::from_text(source); });
}

// Texts by transformers 5.24.
TEST(ChatTemplate, CalculatesAsJinjaDoes) {
  const std::pair<std::string, std::string> cases[] = {
      {"{{ 'they\\'re a-b (c) d_e f.g\\th' | title }}", "They're A-B (C) D_e F.g\tH"},
      {"{{ ('a' | safe) == ('b' | safe) }} {{ ('a' | safe) == 'a' }}", "False True"},
      {"{{ 1 if ('' | safe) else 2 }} {{ ('a' | safe) is string }}", "2 True"},
      {"{{ raise_exception == range }} {{ range == range }}", "False True"},
      {"{% set x %}{% set y = 1 %}a{% endset %}{{ y is defined }} {{ x }}", "False a"},
      {"{% for i in 'abc' %}{% if i == 'b' %}{% continue %}{% endif %}{{ i }}{% endfor %}", "ac"},
      {"{% for i in 'ab' %}{% if i == 'b' %}{% break %}{% endif %}{{ i }}{% endfor %}", "a"},
      {"{% for i in 'ab' %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "1010"},
  };
  for (const auto& [source, text] : cases)
    EXPECT_EQ(ChatTemplate::from_text(source).render({{"user", "Hi"}}), text) << source;
}

// Operations that Python rejects, and templates that would take too much time or memory.
TEST(ChatTemplate, StopsAtOperationsThatFail) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n{{ x.y }}", "line 2: `y` of a value: `x` which is undefined given"},
      {"{{ messages[0].role + 1 }}", "`+` is not supported for its left side: a string given"},
      {"{{ messages }}", "use tojson for others: a list given"},
      {"{{ messages() }}", "is not a macro or a supported function: a list given"},
      {"{{ none | length }}", "None given"},
      {"{{ 'é' | upper }}", "beyond ASCII"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "beyond 64 bits"},
      {"{{ ('<' | safe) + 'a' }}", "the result of `safe` given"},
      {"{% set x.y = 1 %}", "only a member of a namespace"},
      {"{% set a, b = [1] %}", "1 values for 2 names"},
      {"{{ range(1000000) }}", "`range` needs one to three integers of at most 100000"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels of macros and blocks"},
      {"{% macro f() %}{% endmacro %}{{ f(1) }}", "1 arguments for the 0 of `f`"},
      {"{% set x %}{% generation %}{% endgeneration %}{% endset %}", "{% generation %} in a macro"},
      {"{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "too many steps"},
      {"{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}", "too much text"},
      {"{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}", "too much text"},
      {"{% set n = namespace(x=[]) %}{% for i in range(99) %}{% set n.x = [n.x] %}{% endfor %}", "too many levels"},
      {"{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x == n.x[0] "
       "or "
       "n.x | tojson }}",
       "too m"},
      {"{% set a = 'a' * 9999999 %}{{ a | replace('a', a) }}", "too m"},
      {"{% set a = 'a' * 999999 %}{% for i in range(9999) %}{{ a.split('b') }}{% endfor %}", "a list given"},
      {"{% set a = 'a' * 999999 %}{{ (a + 'b') in (a + a) }}", "too many steps"},
      {"{% set a = 'a' * 9999999999 %}", "too much text"},
      {"{% set n = namespace() %}{% set n.n = n %}{{ n.n.n.n | tojson }}", "a namespace given"},
      {"{% for i in range(99999) %}" + numbered("{% set a", "=1 %}") + "{% endfor %}", "too many steps"},
      {"{% set n = namespace() %}{% for i in range(99999) %}" + numbered("{% set n.a", "=1 %}") + "{% endfor %}",
       "too many steps"},
      {"{% for i in range(99999) %}{% set d = {" + numbered("'a", "': 1,") + "} %}{% endfor %}", "too many steps"},
      // Each operation on long or many parts takes more than one step.
      {"{% set b = 'a' * 99999 %}{% set n = namespace(t=(b ~ 'b',)) %}{% for i in range(13) %}{% set n.t = n.t + n.t "
       "%}{% endfor %}{{ (b ~ 'a').startswith(n.t) }}",
       "too many steps"},
      {"{% set p = 'a.' * 50000 ~ 'a' %}{% set n = namespace() %}{% set n.a = n %}{% for i in range(200) %}"
       "{% set z = [n] | map(attribute=p) | list %}{% endfor %}",
       "too many steps"},
      {"{% set c = 'a' * 999999 ~ 'b' %}{% set s = 'b' * 63 %}{% for i in range(9) %}{% set z = s | trim(c) %}"
       "{% endfor %}",
       "too many steps"},
      {"{% for i in range(600) %}" + repeated("{{''}}", 9999) + "{% endfor %}", "too many steps"},
      {"{% for i in range(600) %}{{ 1" + repeated(" <= 1", 9999) + " }}{% endfor %}", "too many steps"},
      {"{% for i in range(600) %}{% if false %}" + repeated("{% elif false %}", 9999) + "{% endif %}{% endfor %}",
       "too many steps"},
      {"{% for i in range(600) %}{% set d = {" + repeated("'a': 1,", 9999) + "} %}{% endfor %}", "too many steps"},
      {"{% set n = namespace() %}{% for i in range(4000) %}{{ n." + repeated("a", 99999) + " }}{% endfor %}",
       "too many steps"},
      {"{% for i in range(4000) %}{{ " + repeated("a", 99999) + " }}{% endfor %}", "too many steps"},
      {repeated("{% for i in 'a' %}", 99) + "{% for i in range(9999) %}" + repeated("{{ x }}", 99) +
           repeated("{% endfor %}", 100),
       "too many steps"},
      {"{% for i in range(99) %}{% set n = namespace(" + numbered("a", "=1,") + ") %}{% endfor %}", "too much text"},
      {"{% set a = 'a' * 999999 %}{{ {a: 1} | length }}", "a key of a dictionary of 999999 bytes"},
      {"{% set a = 'a' * 999999 %}{{ [" + repeated("a,", 9999) + "] | tojson }}", "too much text"},
      {"{{ messages[0].thinking.strip() }}", "`strip` needs a string or a dictionary: `thinking` which is undefined"},
      {"{{ 1.upper() }}", "`upper` needs a string or a dictionary: an int given"},
      {"{{ x.items() }}", "`items` needs a string or a dictionary"},
      {"{{ 'ab'.get('a') }}", "`get` needs a dictionary: a string given"},
      {"{{ 'ab'.startswith(['a']) }}", "a list given"},
      {"{{ strftime_now('" + repeated("%Y", 99) + "') }}", "a longer format"},
  };
  for (const auto& [source, words] : cases)
    expect_error(ErrorKind::invalid_file, {"[ChatTemplate] chat_template.jinja, line ", words}, [&] {
      ChatTemplate::from_text(source).render({{"user", "Hi"}});
    });
}

TEST(ChatTemplate, IsReadFromAFolder) {
  const ScratchFolder folder;
  const auto text = [&] { return ChatTemplate::open(folder.path()).render({{"user", "Hi"}}); };
  const auto refused = [&](const std::string& words) {
    expect_error(ErrorKind::invalid_file, {"[ChatTemplate] " + folder.path(), words}, text);
  };
  refused("no chat template");
  folder.write("tokenizer_config.json", R"({"bos_token": null})");
  refused("no chat template");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": ""}]})");
  refused("the templates rag given, expected one named default");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "a"},
      {"name": "default", "template": "{{ bos_token ~ eos_token ~ pad_token }}"}],
      "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})");
  EXPECT_EQ(text(), "<s></s>");
  folder.write("chat_template.jinja", "{{ eos_token }}{{ messages[0].role }}\n");
  EXPECT_EQ(text(), "</s>user");
  folder.write("tokenizer_config.json", R"({"bos_token": 3})");
  refused("expected a string");
}

TEST(ChatLines, AreMessagesOrConversations) {
  const ScratchFolder folder;
  const auto read = [&](const std::string& line) { return chat_lines({folder.write("chat.jsonl", line + "\n")})[0]; };
  const Messages expected{{"system", "s"}, {"user", "a"}, {"assistant", "b"}};
  const std::string first = R"({"role": "system", "content": "s"}, {"role": "user", "content": "a"}, )";
  EXPECT_EQ(
      read(R"({"id": 1, "messages": [)" + first + R"({"role": "assistant", "content": "b", "tool_calls": null}]})"),
      expected);
  EXPECT_EQ(read(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"},)"
                 R"({"from": "gpt", "value": "b"}]})"),
            expected);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": "a", "completion": "b"})", "no \"messages\" given"},
      {R"({"messages": []})", "messages: no messages given"},
      {R"({"messages": [{"role": "user"}]})", "messages.0: has no \"content\""},
      {R"({"messages": [{"role": "user", "content": ["a"]}]})", "messages.0.content"},
      {R"({"messages": [{"role": "user", "content": "a", "name": "b"}]})", "messages.0.name: is not supported"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": [1]})", "record.tools: is not supported"},
      {R"({"conversations": [{"from": "tool", "value": "a"}]})", "conversations.0.from: expected human, gpt or system"},
  };
  for (const auto& [line, words] : cases)
    expect_error(ErrorKind::invalid_file, {"[chat_lines]", "chat.jsonl, line 1: record", words}, [&] { read(line); });
}

class ChatTokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::skip_without("without ICU", [&] { Tokenizer::open(reference + "/tokenizers/gpt2"); });
  }
  Tokenizer tokenizer() const { return Tokenizer::open(reference + "/tokenizers/gpt2"); }
};

std::string learned(const Tokenizer& tokenizer, const ChatTokens& chat) {
  std::vector<int32_t> ids;
  for (const WeightedToken& token : chat.tokens)
    if (token.weight == 1) ids.push_back(token.id);
  return tokenizer.decode(ids);
}

const auto chat = ChatTemplate::from_text(
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}");

TEST_F(ChatTokensTest, AreLearnedInTheAssistantsPartsOnly) {
  const Messages messages{{"user", "Grüße 日本"}, {"assistant", "é日🙂 ok"}, {"user", "x"}, {"assistant", "Bye"}};
  const ChatTokens all = chat_tokens(chat, tokenizer(), messages);
  EXPECT_EQ(learned(tokenizer(), all), "é日🙂 ok\n\nBye\n\n");
  EXPECT_EQ(all.dropped_turns, 0);
  std::vector<int32_t> ids;
  for (const WeightedToken& token : all.tokens) ids.push_back(token.id);
  EXPECT_EQ(tokenizer().decode(ids), chat.render(messages));
  // A conversation is cut after a whole turn.
  for (int64_t most = 1; most <= std::ssize(ids); ++most) {
    const ChatTokens some = chat_tokens(chat, tokenizer(), messages, {.max_length = most});
    EXPECT_LE(std::ssize(some.tokens), most);
    EXPECT_EQ(learned(tokenizer(), some), some.dropped_turns == 2   ? ""
                                          : some.dropped_turns == 1 ? "é日🙂 ok\n\n"
                                                                    : "é日🙂 ok\n\nBye\n\n");
    EXPECT_TRUE(std::equal(some.tokens.begin(), some.tokens.end(), all.tokens.begin()));
  }
  expect_error(ErrorKind::invalid_argument, {"max_length = -1"},
               [&] { chat_tokens(chat, tokenizer(), messages, {.max_length = -1}); });
  expect_error(ErrorKind::invalid_argument, {"a tokenizer of bytes"},
               [&] { chat_tokens(chat, Tokenizer::bytes(), messages); });
}

TEST(ChatTokens, ArePackedWithTheWeightsOfTheirTargets) {
  using Chats = std::vector<Messages>;
  const auto chats =
      Dataset<Messages>::from_vector(Chats{{{"user", "a"}, {"assistant", "b"}}, {{"user", "c"}, {"assistant", "d"}}});
  const auto rows =
      chats.map([](const Messages& messages) { return chat_tokens(chat, Tokenizer::bytes(), messages).tokens; })
          .pack({.length = 49});
  Loader loader(rows, packed_tokens, {.batch_size = 1});
  const PackedTokens batch = *loader.next();
  const auto targets = batch.targets.value.to_host<int32_t>();
  const auto weights = batch.weights.value.to_host<float>();
  std::string text;
  for (size_t t = 0; t < targets.size(); ++t)
    if (weights[t] == 1) text += static_cast<char>(targets[t]);
  EXPECT_EQ(text, "b\n\nd\n\n");
  EXPECT_EQ(batch.segment_ids.value.to_host<int32_t>()[30], 2);
}

}  // namespace
}  // namespace tessera::data::chat_test
