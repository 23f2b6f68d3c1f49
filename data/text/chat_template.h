// ChatTemplate: writes a conversation as text, with the chat template of a model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::data {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  bool operator==(const ChatMessage&) const = default;
};

// Values of other variables of a template: {{"enable_thinking", false}, {"date_string", "26 Jul 2024"}}.
using ChatVariables = std::map<std::string, std::variant<bool, int64_t, std::string>>;

struct RenderOptions {
  bool add_generation_prompt = false;  // whether the text ends with the beginning of an answer
  ChatVariables variables = {};
};

// A conversation as text, and the bytes [first, second) that the assistant writes, ends of turns included.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> assistant = {};
};

// A chat template in Jinja2, with the options and functions of `transformers`. Rendered texts are equal to those of
// apply_chat_template(messages, tokenize=False). Supported are the tags if, for, set, macro, break, continue and
// generation; the filters, tests and methods in data/text/template_functions.cpp; and raise_exception, strftime_now,
// namespace and range. Not supported are fractions, case beyond ASCII, and lists or dictionaries as text.
//   const auto chat = data::ChatTemplate::open("Llama-3.2-1B-Instruct");
//   std::cout << chat.render({{"user", "Hello"}}, {.add_generation_prompt = true});
// Several threads may use one template; copies are handles.
class ChatTemplate {
 public:
  // Opens the template of a folder: its chat_template.jinja, else the "chat_template" in its tokenizer_config.json; of
  // several, the one named "default". Special tokens such as bos_token are read from tokenizer_config.json.
  // Errors (invalid_file)
  //   no template; a malformed file
  //   a template that is malformed, has a construct that is not supported, more than 256 KiB or 128 levels
  static ChatTemplate open(const std::filesystem::path& folder);

  // Parses a template. `tokens` are variables such as {"bos_token", "<s>"}; `name` replaces the path in messages.
  static ChatTemplate from_text(std::string_view source, const ChatVariables& tokens = {},
                                const std::string& name = "chat_template.jinja");

  // Returns the text of a conversation.
  // Errors
  //   invalid_argument: no messages; text that is not UTF-8; a conversation that the template rejects
  //   invalid_file, which names the line: a value that the template cannot use; more steps or text than an ordinary
  //     template needs (about 0.5 s and 16 MiB, and more for long conversations)
  std::string render(const std::vector<ChatMessage>& messages, const RenderOptions& options = {}) const;

  // Returns the text and the assistant's parts. If the template has {% generation %} blocks, the parts are these
  // blocks. Otherwise a part begins where the generation prompt after the earlier messages ends, and ends with the
  // message. `text` is always the rendered whole conversation. A template can render the same message differently if
  // others follow (Qwen 3 and DeepSeek remove thinking). Then the part is found by rendering another content in its
  // place. It begins with the content if the whole text does not begin with the generation prompt.
  // Errors: as render; invalid_argument: the conversation has no message of the assistant, or the parts cannot be
  // determined.
  RenderedChat render_with_spans(const std::vector<ChatMessage>& messages, const ChatVariables& variables = {}) const;

  // Returns the text after the content of a last message of the assistant, without white space around it. It begins
  // with the token that ends a turn: "<|im_end|>". Errors: as render.
  std::string end_of_turn(const ChatVariables& variables = {}) const;

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::pair<size_t, size_t> span(const std::vector<ChatMessage>& messages, size_t index, const std::string& text,
                                 const ChatVariables& variables) const;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace tessera::data
