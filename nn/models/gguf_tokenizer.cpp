// Converts tokenizer.json to the tokenizers of llama.cpp: "gpt2" for encodings over bytes, "llama" for SentencePiece's.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "nn/checkpoint/weight_files.h"
#include "nn/models/gguf_file.h"
#include "sharding/base/seeded_hash.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"

namespace tessera::nn::detail {

namespace {

namespace fs = std::filesystem;
using tessera::detail::JsonPart;
using Merges = std::vector<std::pair<std::string, std::string>>;

constexpr const char* advice = " You can export without a tokenizer.";
constexpr std::string_view space_mark = "\u2581";
// All splits of a token are compared. Tokens of models have at most 100 bytes.
constexpr size_t max_token_bytes = 512;
constexpr int64_t max_steps = 64;  // as of a Tokenizer

// llama_token_type of llama.h.
struct TokenType {
  enum : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
};

// Returns the steps of a Sequence in `list`, or the part itself as the only step; empty for null.
std::vector<JsonPart> steps_of(const JsonPart& part, const char* list) {
  std::vector<JsonPart> steps;
  if (!part.is_null() && part.text("type", "") != "Sequence") steps.push_back(part);
  if (part.has("type") && steps.empty())
    for (const JsonPart& step : part.at(list).items()) steps.push_back(step);
  if (std::ssize(steps) > max_steps)
    part.refuse(fmt::format("{} steps given, expected at most {}.", steps.size(), max_steps));
  return steps;
}

[[noreturn]] void refuse_step(const JsonPart& step) { step.refuse("llama.cpp has no such step."); }

[[noreturn]] void refuse_long(const JsonPart& place, const std::string& token) {
  place.refuse(fmt::format("a token of {} bytes given, expected at most {}.", token.size(), max_token_bytes));
}

// ---- the vocabulary

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::unordered_map<std::string, size_t, tessera::detail::SeededHash>
      ids;  // of the model's tokens, as the file spells them
  std::unordered_set<std::string, tessera::detail::SeededHash> added;
};

size_t id_in(const JsonPart& part, const Vocabulary& vocabulary) {
  return static_cast<size_t>(part.integer(0, static_cast<int64_t>(vocabulary.tokens.size()) - 1));
}

size_t id_of(const JsonPart& place, const std::string& token, const Vocabulary& vocabulary) {
  const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
  if (found == vocabulary.tokens.end())
    place.refuse(fmt::format("\"{}\" given, expected a token of the vocabulary.", token.substr(0, 60)));
  return static_cast<size_t>(found - vocabulary.tokens.begin());
}

void add_added_token(Vocabulary& all, const JsonPart& token) {
  for (const char* option : {"single_word", "lstrip", "rstrip"})
    if (token.flag(option, false)) token.at(option).refuse("llama.cpp has no such option.");
  std::string text = token.at("content").text();
  if (text.size() > max_token_bytes) refuse_long(token.at("content"), text);
  all.added.insert(text);
  const bool is_control = token.flag("special", false);
  for (size_t at; !is_control && (at = text.find(space_mark)) != text.npos;) text.replace(at, space_mark.size(), " ");
  const size_t id = id_in(token.at("id"), all);
  all.tokens[id] = std::move(text), all.types[id] = is_control ? TokenType::control : TokenType::user_defined;
}

Vocabulary vocabulary_of(const JsonPart& file, size_t size) {
  Vocabulary all{.tokens = std::vector<std::string>(size), .types = std::vector<int32_t>(size, TokenType::unused)};
  for (const auto& [token, part] : file.at("model").at("vocab").members()) {
    const size_t id = all.ids[token] = id_in(part, all);
    if (all.types[id] != TokenType::unused)
      part.refuse(fmt::format("{} given, which is the id of \"{}\" too.", id, all.tokens[id]));
    all.tokens[id] = token, all.types[id] = TokenType::normal;
  }
  if (file.has("added_tokens"))
    for (const JsonPart& token : file.at("added_tokens").items()) add_added_token(all, token);
  for (size_t id = 0; id < size; ++id)
    if (all.types[id] == TokenType::unused) all.tokens[id] = fmt::format("[PAD{}]", id);
  return all;
}

Merges merges_of(const JsonPart& list) {
  Merges merges;
  for (const JsonPart& item : list.items()) {
    const bool is_pair = item.value.is_array();
    const std::string text = is_pair ? item.item(0).text() + " " + item.item(1).text() : item.text();
    const size_t space = is_pair ? item.item(0).text().size() : text.find(' ', 1);
    if (space == text.npos) item.refuse("expected two tokens.");
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

// ---- encodings over bytes

constexpr std::string_view digits = R"(\p{N})";
constexpr std::string_view gpt2_splits =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Llama 3's and Qwen's, around the number of digits in a split.
constexpr std::string_view gpt4_begin = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
constexpr std::string_view gpt4_end = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken_splits =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns the regular expression of a step, and a newline; empty for a step that does not split.
std::string splits_of(const JsonPart& step) {
  const std::string type = step.text("type", "");
  if (type == "Digits" && step.flag("individual_digits", false)) return fmt::format("{}\n", digits);
  if (type == "ByteLevel" && !step.flag("add_prefix_space", true))
    return step.flag("use_regex", true) ? fmt::format("{}\n", gpt2_splits) : "";
  const std::string behavior = type == "Split" ? step.text("behavior", "") : "";
  if (behavior != (step.flag("invert", false) ? "Removed" : "Isolated")) refuse_step(step);
  return step.at("pattern").at("Regex").text() + "\n";
}

// Returns the name of the splits in llama.cpp (llm_tokenizer_bpe of llama-vocab.cpp). The name also selects whether
// words of the vocabulary are used without merges.
std::string pre_tokenizer_of(const JsonPart& file) {
  static const std::map<std::string, std::string> names{
      {fmt::format("{}\n", gpt2_splits), "gpt-2"},
      {fmt::format("{}\n{}\n", digits, gpt2_splits), "smollm"},
      {fmt::format("{}{}\n", gpt4_begin, gpt4_end), "qwen2"},
      {fmt::format("{}{{1,3}}{}\n", gpt4_begin, gpt4_end), "smaug-bpe"},
      {fmt::format("{}{{1,3}}{}\nignore_merges", gpt4_begin, gpt4_end), "llama-bpe"},
      {fmt::format("{}\nignore_merges", tekken_splits), "tekken"}};
  std::string splits;
  bool is_over_bytes = false;
  const JsonPart part = file.at_or_null("pre_tokenizer");
  for (const JsonPart& step : steps_of(part, "pretokenizers")) {
    splits += splits_of(step);
    is_over_bytes |= step.text("type", "") == "ByteLevel";
  }
  if (!is_over_bytes) part.refuse("no step of the type ByteLevel, which llama.cpp has always.");
  if (file.at("model").flag("ignore_merges", false)) splits += "ignore_merges";
  if (const auto found = names.find(splits); found != names.end()) return found->second;
  part.refuse("llama.cpp has no such splits, expected those of GPT-2, SmolLM, Llama 3, Qwen or Mistral NeMo.");
}

void add_byte_level(GgufMetadata& all, const JsonPart& file) {
  // llama.cpp does not normalize. Its converter accepts NFC too, because most texts are in this form.
  for (const JsonPart& step : steps_of(file.at_or_null("normalizer"), "normalizers"))
    if (step.text("type", "") != "NFC") refuse_step(step);
  std::vector<std::string> merges;
  for (const auto& [left, right] : merges_of(file.at("model").at("merges"))) merges.push_back(left + " " + right);
  all.emplace_back("tokenizer.ggml.model", "gpt2");
  all.emplace_back("tokenizer.ggml.pre", pre_tokenizer_of(file));
  all.emplace_back("tokenizer.ggml.merges", std::move(merges));
}

// ---- SentencePiece

// Returns whether llama.cpp puts a space before a text. Throws if it would split or normalize differently.
bool has_space_prefix(const JsonPart& file) {
  bool prefix = false;
  const auto is_space = [](const JsonPart& step) { return step.at("pattern").text("String", "") == " "; };
  for (const JsonPart& step : steps_of(file.at_or_null("normalizer"), "normalizers")) {
    const bool is_prepend = step.text("type", "") == "Prepend";
    if (step.text(is_prepend ? "prepend" : "content", "") != space_mark || !(is_prepend || is_space(step)))
      refuse_step(step);
    prefix |= is_prepend;
  }
  for (const JsonPart& step : steps_of(file.at_or_null("pre_tokenizer"), "pretokenizers")) {
    // Gemma's split at spaces does nothing, because its normalizer has replaced them.
    if (step.text("type", "") == "Split" && is_space(step)) continue;
    if (step.text("type", "") != "Metaspace" || step.flag("split", true)) refuse_step(step);
    prefix |= step.text("prepend_scheme", "always") != "never";
  }
  return prefix;
}

// llama.cpp merges any two pieces that form a token, the token with the highest score first. So the merges must be
// those of a SentencePiece vocabulary: all pairs that form a token, token by token.
std::vector<float> scores_of(const Vocabulary& all, const JsonPart& list) {
  std::vector<float> scores(all.tokens.size());
  // For each merged token, the sizes of its left parts.
  std::unordered_map<std::string, std::set<size_t>, tessera::detail::SeededHash> splits;
  const auto refuse = [&](const std::string& token) {
    list.refuse(fmt::format("not all merges to \"{}\" are there, one after the other, as llama.cpp assumes.", token));
  };
  std::string last;
  for (const auto& [left, right] : merges_of(list)) {
    const std::string token = left + right;
    if (!all.ids.contains(token) || (token != last && splits.contains(token) && !all.added.contains(token)))
      refuse(token);
    if (!splits.contains(token)) scores[all.ids.at(token)] = -static_cast<float>(splits.size());
    splits[last = token].insert(left.size());
  }
  const auto is_piece = [&](const std::string& piece) {
    const bool is_character = std::count_if(piece.begin(), piece.end(), [](char c) { return (c & 0xC0) != 0x80; }) == 1;
    return all.ids.contains(piece) && !all.added.contains(piece) && (is_character || splits.contains(piece));
  };
  for (const auto& [token, id] : all.ids) {
    if (token.size() > max_token_bytes) refuse_long(list, token);
    for (size_t n = 1; all.types[id] == TokenType::normal && n < token.size(); ++n)
      if (is_piece(token.substr(0, n)) && is_piece(token.substr(n)) && !splits[token].contains(n)) refuse(token);
  }
  return scores;
}

void add_sentence_piece(GgufMetadata& all, Vocabulary& vocabulary, const JsonPart& file) {
  const JsonPart model = file.at("model");
  for (int value = 0; value < 256; ++value)
    vocabulary.types[id_of(model.at("vocab"), fmt::format("<0x{:02X}>", value), vocabulary)] = TokenType::byte;
  if (model.has("unk_token"))
    vocabulary.types[id_of(model, model.at("unk_token").text(), vocabulary)] = TokenType::unknown;
  all.emplace_back("tokenizer.ggml.model", "llama");
  all.emplace_back("tokenizer.ggml.pre", "default");
  all.emplace_back("tokenizer.ggml.scores", scores_of(vocabulary, model.at("merges")));
  all.emplace_back("tokenizer.ggml.add_space_prefix", has_space_prefix(file));
}

// ---- special tokens and chat templates

// Special tokens by their names in the metadata: "bos", "unknown".
struct SpecialTokens {
  std::map<std::string, size_t> ids;
  std::map<std::string, bool> adds{{"bos", false}, {"eos", false}};  // bos before a text, eos after it
};

// Reads the tokens that a post-processor adds.
void read_template(SpecialTokens& special, const JsonPart& step, const Vocabulary& vocabulary) {
  if (step.text("type", "") == "ByteLevel") return;
  if (step.text("type", "") != "TemplateProcessing") refuse_step(step);
  special.adds["bos"] = special.adds["eos"] = false;
  std::string kind = "bos";
  for (const JsonPart& part : step.at("single").items()) {
    if (part.has("Sequence")) {
      kind = "eos";
      continue;
    }
    const JsonPart token = part.at("SpecialToken").at("id");
    const size_t id = id_of(token, token.text(), vocabulary);
    if (special.adds[kind] || special.ids.emplace(kind, id).first->second != id)
      token.refuse(fmt::format("llama.cpp adds no token but the {}_token here.", kind));
    special.adds[kind] = true;
  }
}

SpecialTokens special_tokens_of(const JsonPart& file, const JsonPart& config, const JsonPart& model,
                                const Vocabulary& vocabulary) {
  SpecialTokens special;
  for (auto& [kind, is_added] : special.adds) is_added = config.flag(fmt::format("add_{}_token", kind), false);
  for (const auto& [key, name] : {std::pair("bos_token", "bos"), std::pair("eos_token", "eos"),
                                  std::pair("unk_token", "unknown"), std::pair("pad_token", "padding")}) {
    const JsonPart& place = config.has(key) ? config : model;
    const std::string given = config.has(key) ? key : fmt::format("{}_id", key);
    if (!place.has(given)) continue;
    const JsonPart part = place.at(given), token = part.value.is_object()  ? part.at("content")
                                                   : part.value.is_array() ? part.item(0)
                                                                           : part;
    special.ids[name] = &place == &config ? id_of(token, token.text(), vocabulary) : id_in(token, vocabulary);
  }
  for (const JsonPart& step : steps_of(file.at_or_null("post_processor"), "processors"))
    read_template(special, step, vocabulary);
  for (const char* token : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"})
    if (vocabulary.added.contains(token)) special.ids.emplace("eos", id_of(file, token, vocabulary));
  if (!special.ids.contains("eos"))
    file.refuse("has no known end-of-text token. Add a tokenizer_config.json with \"eos_token\".");
  special.ids.emplace("bos", special.ids["eos"]);  // without one, llama.cpp assumes an id
  return special;
}

void add_special_tokens(GgufMetadata& all, const SpecialTokens& special) {
  for (const auto& [name, id] : special.ids)
    all.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(id));
  for (const auto& [kind, is_added] : special.adds)
    all.emplace_back(fmt::format("tokenizer.ggml.add_{}_token", kind), is_added);
}

// Adds the chat template of chat_template.jinja, or those of tokenizer_config.json: a text, or a list with names.
void add_chat_templates(GgufMetadata& all, const fs::path& folder, const JsonPart& config) {
  const std::string key = "tokenizer.chat_template";
  if (const fs::path file = folder / "chat_template.jinja"; is_there(file)) {
    detail::check_belongs_to(file, folder, gguf_verb);
    all.emplace_back(key, read_text(file, gguf_verb));
  } else if (config.has("chat_template") && config.at("chat_template").value.is_string()) {
    all.emplace_back(key, config.at("chat_template").text());
  } else if (config.has("chat_template")) {
    for (const JsonPart& item : config.at("chat_template").items()) {
      const std::string name = item.at("name").text();
      all.emplace_back(name == "default" ? key : key + "." + name, item.at("template").text());
    }
  }
}

}  // namespace

GgufMetadata gguf_tokenizer(const fs::path& tokenizer, int64_t vocab_size) {
  const bool is_file = !is_folder(tokenizer);
  const fs::path folder = is_file ? tokenizer.parent_path() : tokenizer;
  boost::json::value values[3];
  const char* names[] = {"tokenizer.json", "tokenizer_config.json", "config.json"};
  const auto part = [&](size_t i) {
    const fs::path path = is_file && i == 0 ? tokenizer : folder / names[i];
    if (path != tokenizer && is_there(path)) detail::check_belongs_to(path, folder, gguf_verb);
    if (i == 0 || is_there(path))
      values[i] = parse_json(read_text(path, gguf_verb, max_tokenizer_bytes), gguf_verb, path.string());
    return JsonPart{values[i], path.string(), gguf_verb, advice};
  };
  const JsonPart file = part(0), config = part(1), model = file.at("model");
  if (model.text("type", "BPE") != "BPE") model.at("type").refuse_type("\"BPE\"");
  Vocabulary vocabulary = vocabulary_of(file, static_cast<size_t>(vocab_size));
  GgufMetadata all;
  if (model.flag("byte_fallback", false))
    add_sentence_piece(all, vocabulary, file);
  else
    add_byte_level(all, file);
  add_special_tokens(all, special_tokens_of(file, config, part(2), vocabulary));
  add_chat_templates(all, folder, config);
  all.emplace_back("tokenizer.ggml.tokens", std::move(vocabulary.tokens));
  all.emplace_back("tokenizer.ggml.token_type", std::move(vocabulary.types));
  return all;
}

}  // namespace tessera::nn::detail
