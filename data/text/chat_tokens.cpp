// Reads conversations, and assigns weights to their tokens.
#include "data/text/chat_tokens.h"

#include <boost/json.hpp>

#include "data/sources/json_lines.h"
#include "data/text/unicode_text.h"
#include "sharding/base/fail.h"

namespace tessera::data {

using tessera::detail::JsonPart;

namespace {

std::string role_of(const JsonPart& from) {
  const std::string name = from.text();
  for (const auto& [given, role] : {std::pair("human", "user"),
                                    {"user", "user"},
                                    {"gpt", "assistant"},
                                    {"assistant", "assistant"},
                                    {"system", "system"}})
    if (name == given) return role;
  from.refuse("expected human, gpt or system.");
}

}  // namespace

std::vector<ChatMessage> detail::ChatSource::operator[](int64_t index) const {
  const std::string where = lines.where(index);
  const boost::json::value value = parse_line(lines[index], where);
  const JsonPart record{value, where + ": record", "chat_lines"};
  const bool has_messages = record.has("messages");
  if (!has_messages && !record.has("conversations"))
    record.refuse(
        "no \"messages\" given, expected {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}. Write a "
        "prompt and its answer as messages of the roles user and assistant.");
  for (const char* key : {"tools", "functions", "system"})
    if (record.has(key)) record.at(key).refuse("is not supported, expected only messages.");
  const std::string role = has_messages ? "role" : "from", content = has_messages ? "content" : "value";
  const JsonPart all = record.at(has_messages ? "messages" : "conversations");
  std::vector<ChatMessage> messages;
  for (const JsonPart& message : all.items()) {
    messages.push_back(
        {has_messages ? message.at(role).text() : role_of(message.at(role)), message.at(content).text()});
    for (const auto& [name, member] : message.members())
      if (name != role && name != content && !member.is_null())
        member.refuse("is not supported, expected only " + role + " and " + content + ".");
  }
  if (messages.empty()) all.refuse("no messages given, expected at least one.");
  return messages;
}

ChatTokens chat_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                       const ChatTokensOptions& options) {
  if (options.max_length < 0)
    fail(ErrorKind::invalid_argument, "chat_tokens", "max_length = {}, expected 0 or more.", options.max_length);
  const RenderedChat rendered = chat.render_with_spans(messages, options.variables);
  const Encoding encoding = tokenizer.encode(rendered.text, {.add_special_tokens = false});
  // Offsets of tokens count characters, and spans count bytes.
  detail::CharacterCounts characters(rendered.text);
  ChatTokens result;
  for (const int32_t id : encoding.ids) result.tokens.push_back({id, 0});
  if (!encoding.offsets.empty() && encoding.offsets.back().second > characters.before(rendered.text.size()))
    fail(ErrorKind::invalid_argument, "chat_tokens", "a tokenizer of bytes for a text beyond ASCII, expected ASCII.");
  size_t token = 0, kept = 0;
  for (const auto& [begin, end] : rendered.assistant) {
    const int64_t first = characters.before(begin), last = characters.before(end);
    while (token < encoding.ids.size() && encoding.offsets[token].second <= first) ++token;
    for (; token < encoding.ids.size() && encoding.offsets[token].first < last; ++token)
      result.tokens[token].weight = 1;
    if (options.max_length > 0 && std::ssize(encoding.ids) > options.max_length) {
      if (static_cast<int64_t>(token) <= options.max_length)
        kept = token;
      else
        ++result.dropped_turns;
    }
  }
  if (options.max_length > 0 && std::ssize(encoding.ids) > options.max_length) result.tokens.resize(kept);
  return result;
}

}  // namespace tessera::data
