// Opens chat templates, and finds the assistant's parts of a text.
#include "data/text/chat_template.h"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "data/sources/text_source.h"
#include "data/text/python_text.h"
#include "data/text/template_program.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"

namespace tessera::data {

using tessera::detail::JsonPart;

struct ChatTemplate::Parts {
  jinja::Program program;
  ChatVariables tokens;
};

namespace {

constexpr const char* verb = "ChatTemplate";
// A character for private use, which no template looks for and no function of texts changes.
constexpr const char* marker = "\uF8FF";

std::string default_template(const JsonPart& json) {
  if (json.value.is_string()) return json.text();
  std::string names;
  for (const JsonPart& item : json.items()) {
    if (item.at("name").text() == "default") return item.at("template").text();
    names += (names.empty() ? "" : ", ") + item.at("name").text();
  }
  json.refuse(fmt::format("the templates {} given, expected one named default.", names));
}

// Reads the special tokens of a tokenizer_config.json: strings, or objects with a content.
ChatVariables tokens_of(const JsonPart& config) {
  ChatVariables tokens;
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (config.has(key))
      tokens[key] = config.at(key).value.is_object() ? config.at(key).at("content").text() : config.at(key).text();
  return tokens;
}

jinja::Value value_of(const ChatVariables::mapped_type& variable) {
  if (const auto* text = std::get_if<std::string>(&variable)) return jinja::text_value(*text);
  if (const auto* flag = std::get_if<bool>(&variable)) return {*flag};
  return {std::get<int64_t>(variable)};
}

jinja::Rendered rendered(const jinja::Program& program, const ChatVariables& tokens,
                         const std::vector<ChatMessage>& messages, const RenderOptions& options) {
  size_t bytes = 0;
  for (const auto& [role, content] : messages) {
    if (first_invalid_utf8(role) >= 0 || first_invalid_utf8(content) >= 0)
      fail(ErrorKind::invalid_argument, verb, "a message that is not UTF-8, expected UTF-8. Convert the text first.");
    bytes += role.size() + content.size() + 64;
  }
  jinja::Run run(program, bytes);
  std::vector<jinja::Value> list;
  for (const auto& [role, content] : messages)
    list.push_back(run.dict({{"role", jinja::text_value(role)}, {"content", jinja::text_value(content)}}));
  jinja::Members variables{{"messages", run.list(std::move(list))},
                           {"tools", {jinja::None{}}},
                           {"documents", {jinja::None{}}},
                           {"add_generation_prompt", {options.add_generation_prompt}}};
  for (const ChatVariables* all : {&tokens, &options.variables})
    for (const auto& [name, value] : *all) variables.emplace_back(name, value_of(value));
  return run.render(std::move(variables));
}

}  // namespace

ChatTemplate ChatTemplate::open(const std::filesystem::path& folder) {
  const auto config_file = folder / "tokenizer_config.json", file = folder / "chat_template.jinja";
  const bool has_file = is_there(file);
  boost::json::value value;
  if (is_there(config_file)) value = parse_json(read_text(config_file, verb), verb, config_file.string());
  const JsonPart config{value, config_file.string(), verb};
  if (!has_file && !config.has("chat_template"))
    fail(ErrorKind::invalid_file, verb,
         "{}: no chat template, expected chat_template.jinja, or tokenizer_config.json with \"chat_template\". Was the "
         "model trained on conversations?",
         folder.string());
  return from_text(has_file ? read_text(file, verb) : default_template(config.at("chat_template")), tokens_of(config),
                   has_file ? file.string() : config_file.string() + ".chat_template");
}

ChatTemplate ChatTemplate::from_text(std::string_view source, const ChatVariables& tokens, const std::string& name) {
  if (first_invalid_utf8(source) >= 0)
    fail(ErrorKind::invalid_file, verb, "{}: bytes that are not UTF-8, expected a template.", name);
  return ChatTemplate(std::make_shared<const Parts>(Parts{jinja::parse_template(source, name), tokens}));
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages, const RenderOptions& options) const {
  if (messages.empty()) fail(ErrorKind::invalid_argument, verb, "no messages given, expected at least one.");
  return rendered(parts_->program, parts_->tokens, messages, options).text;
}

RenderedChat ChatTemplate::render_with_spans(const std::vector<ChatMessage>& messages,
                                             const ChatVariables& variables) const {
  std::vector<ChatMessage> marked = messages;
  const auto first = std::find_if(marked.begin(), marked.end(), [](const auto& m) { return m.role == "assistant"; });
  if (first == marked.end())
    fail(ErrorKind::invalid_argument, verb,
         "{} messages without one of the role assistant, from which a model learns. Remove the conversation.",
         messages.size());
  first->content = marker;
  // Templates of images and text read the content as a list of parts, and find none in a string.
  if (rendered(parts_->program, parts_->tokens, marked, {.variables = variables}).text.find(marker) ==
      std::string::npos)
    fail(ErrorKind::invalid_argument, verb, "{}: the template does not write a content that is a string.",
         parts_->program.file);
  jinja::Rendered all = rendered(parts_->program, parts_->tokens, messages, {.variables = variables});
  RenderedChat chat{std::move(all.text), std::move(all.generated)};
  if (parts_->program.has_generation) return chat;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == "assistant") chat.assistant.push_back(span(messages, i, chat.text, variables));
  return chat;
}

// Finds the part of message `index` in the text of all messages.
std::pair<size_t, size_t> ChatTemplate::span(const std::vector<ChatMessage>& messages, size_t index,
                                             const std::string& text, const ChatVariables& variables) const {
  const auto refuse = [&](std::string_view what) {
    fail(ErrorKind::invalid_argument, verb,
         "{}: message {} of {}: {} Mark the assistant's text in the template by {{% generation %}} blocks.",
         parts_->program.file, index + 1, messages.size(), what);
  };
  const auto text_of = [&](const std::vector<ChatMessage>& some, bool add_generation_prompt = false) {
    return rendered(parts_->program, parts_->tokens, some, {add_generation_prompt, variables}).text;
  };
  std::vector<ChatMessage> some(messages.begin(), messages.begin() + static_cast<ptrdiff_t>(index));
  const std::string prompt = text_of(some, true);
  const bool is_last = index + 1 == messages.size();
  some.push_back(messages[index]);
  if (text.starts_with(prompt) && is_last) return {prompt.size(), text.size()};
  if (const std::string up_to = text_of(some);
      text.starts_with(prompt) && text.starts_with(up_to) && prompt.size() < up_to.size())
    return {prompt.size(), up_to.size()};

  // The template renders this message differently at the end, so it is replaced in its place.
  some.back().content = marker;
  std::vector<ChatMessage> replaced = messages;
  replaced[index].content = marker;
  const std::string marked = text_of(replaced), marked_last = text_of(some);
  const size_t place = marked.find(marker), last_place = marked_last.find(marker);
  if (place == std::string::npos || last_place == std::string::npos) refuse("the template does not write its content.");
  const std::string before = marked.substr(0, place), after = marked.substr(place + std::string_view(marker).size());
  std::string end = marked_last.substr(last_place + std::string_view(marker).size());
  const auto eos = parts_->tokens.find("eos_token");
  // Phi 3's template adds the end-of-text token after the last turn.
  if (const auto* token = eos == parts_->tokens.end() ? nullptr : std::get_if<std::string>(&eos->second);
      token && !after.starts_with(end) && end.ends_with(*token))
    end.resize(end.size() - token->size());
  if (!after.starts_with(end)) refuse("the template ends a turn differently at the end of a conversation.");
  const std::string_view rest = std::string_view(after).substr(end.size());
  const std::string& begin = text.starts_with(prompt) ? prompt : before;
  if (!text.starts_with(begin) || !text.ends_with(rest) || begin.size() + rest.size() > text.size())
    refuse("the template writes the other messages differently if this one changes.");
  return {begin.size(), text.size() - rest.size()};
}

std::string ChatTemplate::end_of_turn(const ChatVariables& variables) const {
  const std::string text = render({{"user", "?"}, {"assistant", marker}}, {.variables = variables});
  const size_t place = text.find(marker);
  if (place == std::string::npos) return "";
  return std::string(jinja::stripped(std::string_view(text).substr(place + std::string_view(marker).size()),
                                     std::nullopt, true, true));
}

}  // namespace tessera::data
