// chat_lines and chat_tokens: conversations of JSONL files, and their tokens with weights for the loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/batches/packed_tokens.h"
#include "data/sources/text_source.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer.h"

namespace tessera::data {

namespace detail {
struct ChatSource {
  LineSource lines;
  int64_t size() const { return lines.size(); }
  std::string describe() const { return lines.describe() + " | chats"; }
  std::vector<ChatMessage> operator[](int64_t index) const;
};
}  // namespace detail

// Returns the conversations of JSONL files, one per line, as a dataset of std::vector<ChatMessage>:
//   {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]}
// ShareGPT's form is read as well: {"conversations": [{"from": "human", "value": "Hello"}, ...]}. Other members of a
// line, such as an id, are ignored.
// Errors (invalid_file), which name the file, the line and the place
//   neither messages nor conversations, or none in them
//   a message without role or content, with another type of content, or with other members than these
//   the members tools, functions or system next to the messages, which are not supported
// Other errors: as json_lines.
inline auto chat_lines(const std::vector<std::string>& paths, const TextOptions& options = {}) {
  return from_source(detail::ChatSource{LineSource::open(paths, options).without_empty_ends()});
}

struct ChatTokensOptions {
  // A longer conversation is cut after the last turn of the assistant that fits completely; if none fits, it has no
  // tokens. 0: any length.
  int64_t max_length = 0;
  ChatVariables variables = {};
};

struct ChatTokens {
  // The tokens of the text. The weight is 1 for those that cover a character of the assistant's parts, else 0.
  std::vector<WeightedToken> tokens;
  int64_t dropped_turns = 0;  // turns of the assistant that max_length removed
};

// Returns the tokens of a conversation, for pack() and PackedTokensBatcher:
//   const auto rows = data::chat_lines({"train.jsonl"}).shuffle(0).repeat().map([=](const auto& messages) {
//     return data::chat_tokens(chat, tokenizer, messages, {.max_length = 1025}).tokens;
//   }).pack({.length = 1025});
// Errors: as ChatTemplate::render_with_spans and Tokenizer::encode; invalid_argument: max_length below 0, or a
// tokenizer that counts bytes for a text beyond ASCII.
ChatTokens chat_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                       const ChatTokensOptions& options = {});

}  // namespace tessera::data
