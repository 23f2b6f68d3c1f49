// Tokenizer: combines added tokens, normalizer, pre-tokenizer, model, template and decoder.
#include "data/text/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/json.hpp>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "data/sources/text_source.h"
#include "data/text/added_tokens.h"
#include "data/text/byte_pair_encoding.h"
#include "data/text/tokenizer_steps.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"

namespace tessera::data {

using namespace detail;

namespace detail {

// Caches the tokens of recent words, so that most words are merged once. Any number of threads may encode concurrently:
// each borrows its own cache. The number of caches is the maximum number of threads that encoded concurrently. A cache
// takes 2 MiB. A word replaces an earlier one of the same slot; long words are encoded each time.
class WordCache {
  using Token = BytePairEncoding::Token;
  struct Slot {
    std::array<char, 23> word;
    uint8_t bytes;  // 0: free
    std::array<Token, 5> tokens;
  };
  static_assert(sizeof(Slot) == 64);
  using Slots = std::array<Slot, 32'768>;

 public:
  class Loan {
   public:
    explicit Loan(WordCache& from) : from_(from) {
      const std::lock_guard lock(from_.mutex_);
      if (from_.free_.empty()) return;
      slots_ = std::move(from_.free_.back());
      from_.free_.pop_back();
    }
    ~Loan() {
      if (!slots_) return;
      const std::lock_guard lock(from_.mutex_);
      from_.free_.push_back(std::move(slots_));
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    // Returns model.encode(word), valid until the next call. A cache belongs to one model.
    std::span<const Token> encode(const BytePairEncoding& model, std::string_view word) {
      Slot wanted{};
      if (word.size() > wanted.word.size()) return encoded_ = model.encode(word);
      std::copy(word.begin(), word.end(), wanted.word.begin());
      wanted.bytes = static_cast<uint8_t>(word.size());
      if (!slots_) slots_ = std::make_unique<Slots>();
      Slot& slot = (*slots_)[hash_of(wanted)];
      if (slot.bytes != wanted.bytes || slot.word != wanted.word) {
        encoded_ = model.encode(word);
        if (encoded_.size() > wanted.tokens.size()) return encoded_;
        std::copy(encoded_.begin(), encoded_.end(), wanted.tokens.begin());
        slot = wanted;
      }
      size_t count = 0;
      for (int32_t left = slot.bytes; left > 0; ++count) left -= slot.tokens[count].bytes;
      return std::span(slot.tokens).first(count);
    }

   private:
    // Returns an index of Slots.
    static size_t hash_of(const Slot& slot) {
      uint64_t parts[3];
      std::memcpy(parts, &slot, sizeof parts);
      constexpr uint64_t factor = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: Knuth's multiplicative hashing
      const uint64_t hash = ((parts[0] * factor ^ parts[1]) * factor ^ parts[2]) * factor;
      return (hash ^ hash >> 32) * factor >> (64 - std::countr_zero(std::tuple_size_v<Slots>));
    }

    WordCache& from_;
    std::unique_ptr<Slots> slots_;
    std::vector<Token> encoded_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slots>> free_;
};

}  // namespace detail

struct Tokenizer::Parts {
  std::vector<AddedToken> added;
  AddedTokens in_text, in_normalized;
  Normalizer normalizer;
  BytePairEncoding model;
  PreTokenizer pre_tokenizer;
  Template post;
  Decoder decoder;
  std::unordered_map<int32_t, const AddedToken*> added_by_id;
  std::unordered_map<std::string_view, int32_t, tessera::detail::SeededHash> added_by_content;
  std::vector<std::string> tokens;  // by id; of the model and added tokens
  mutable WordCache word_cache;

  explicit Parts(const JsonPart& file);
  bool is_new(const JsonPart& file, const AddedToken& token) const;
  const std::string& token(int32_t id, const char* verb) const;
};

namespace {

std::vector<std::pair<std::string, std::string>> merges_of(const JsonPart& json) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const JsonPart& item : json.items()) {
    if (item.value.is_array()) {
      if (item.length() != 2) item.refuse(fmt::format("{} parts given, expected the two of a merge.", item.length()));
      merges.emplace_back(item.item(0).text(), item.item(1).text());
      continue;
    }
    const std::string text = item.text();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      item.refuse(fmt::format("\"{}\" given, expected two tokens with a space between.", shortened(text)));
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

BytePairEncoding model_of(const JsonPart& json, bool is_byte_level) {
  if (const std::string type = json.text("type", "BPE"); type != "BPE")
    json.refuse(fmt::format("the type \"{}\" is not supported, expected BPE.", shortened(type)));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!json.text(key, "").empty()) json.at(key).refuse("is not supported, expected null.");
  if (json.has("dropout") && json.at("dropout").value != 0.0)
    json.at("dropout").refuse("is not supported, expected null.");
  const JsonPart vocabulary = json.at("vocab");
  const auto* entries = vocabulary.value.if_object();
  if (!entries) vocabulary.refuse_type("an object of ids");
  TokenIds ids;
  ids.reserve(entries->size());
  for (const auto& [token, id] : *entries) {
    const auto* number = id.if_int64();
    if (!number || *number < 0 || *number > INT32_MAX)
      vocabulary.refuse(fmt::format("\"{}\" has no id, expected an integer from 0 on.", shortened(token)));
    ids.emplace(token, static_cast<int32_t>(*number));
  }
  BytePairOptions options;
  if (json.has("unk_token")) options.unknown = json.at("unk_token").text();
  options.fuse_unknown = json.flag("fuse_unk", false);
  options.byte_fallback = json.flag("byte_fallback", false);
  options.ignore_merges = json.flag("ignore_merges", false);
  options.over_bytes = is_byte_level && !options.byte_fallback;
  return BytePairEncoding(std::move(ids), merges_of(json.at("merges")), options, json.place());
}

// A text is compared with added tokens at each of its bytes; the added tokens of models have at most a few hundred
// bytes.
constexpr size_t max_added_bytes = 4096;

std::string content_of_added(const JsonPart& json) {
  const std::string content = json.text();
  if (content.size() > max_added_bytes)
    json.refuse(fmt::format("{} bytes given, expected at most {}.", content.size(), max_added_bytes));
  return content;
}

std::vector<AddedToken> added_tokens_of(const JsonPart& json) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  for (const JsonPart& item : json.items())
    tokens.push_back({static_cast<int32_t>(item.at("id").integer(0, INT32_MAX)), content_of_added(item.at("content")),
                      item.flag("single_word", false), item.flag("lstrip", false), item.flag("rstrip", false),
                      item.flag("normalized", false), item.flag("special", false)});
  return tokens;
}

[[noreturn]] void refuse_one_id(const JsonPart& place, const std::string& one, const std::string& other, int32_t id) {
  const auto& [first, second] = std::minmax(one, other);
  place.refuse(fmt::format("\"{}\" and \"{}\" both have the id {}, expected one token for each id.", shortened(first),
                           shortened(second), id));
}

}  // namespace

Tokenizer::Parts::Parts(const JsonPart& file)
    : added(added_tokens_of(file.at_or_null("added_tokens"))),
      normalizer(normalizer_of(file.at_or_null("normalizer"))),
      model(model_of(file.at("model"), ends_in_byte_level(file.at_or_null("pre_tokenizer")))),
      pre_tokenizer(pre_tokenizer_of(file.at_or_null("pre_tokenizer"), !model.is_over_bytes())),
      post(template_of(file.at_or_null("post_processor"))),
      decoder(decoder_of(file.at_or_null("decoder"))) {
  // Ids without a token are allowed, because models pad their vocabularies; the limit bounds the memory for a large id.
  const size_t id_limit = 16 * (model.vocabulary().size() + added.size()) + 65'536;
  const auto place_of = [&](const std::string& token, int32_t id) -> std::string& {
    if (static_cast<size_t>(id) >= id_limit)
      file.refuse(fmt::format("\"{}\" has the id {}, expected one below {} in so small a vocabulary.", shortened(token),
                              id, id_limit));
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    return tokens[static_cast<size_t>(id)];
  };
  for (const auto& [token, id] : model.vocabulary()) {
    std::string& kept = place_of(token, id);
    if (!kept.empty()) refuse_one_id(file.at("model").at("vocab"), kept, token, id);
    kept = token;
  }
  const size_t bytes_of_added =
      std::accumulate(added.begin(), added.end(), size_t{0},
                      [](size_t sum, const AddedToken& token) { return sum + token.content.size(); });
  StepBudget budget(bytes_of_added);
  auto next_id = static_cast<int64_t>(model.vocabulary().size());
  for (const AddedToken& token : added) {
    if (token.content.empty()) continue;  // matches nothing, and has no id in `tokenizers`
    std::string& kept = place_of(token.content, token.id);
    if (!is_new(file, token)) continue;
    if (!kept.empty() && kept != token.content) refuse_one_id(file.at("added_tokens"), kept, token.content, token.id);
    // `tokenizers` ignores the ids of these tokens and counts on from the vocabulary.
    if (kept.empty() && token.id != next_id++)
      file.at("added_tokens")
          .refuse(
              fmt::format("\"{}\" has the id {}, but tokenizers numbers it {}: the vocabulary has {} tokens, and those "
                          "that it lacks follow in the file's order. Change the id, or add the missing tokens.",
                          shortened(token.content), token.id, next_id - 1, model.vocabulary().size()));
    const std::string spelled =
        token.normalized ? normalizer(AlignedText(token.content, 0), budget).text() : token.content;
    if (spelled.size() > max_added_bytes)
      file.at("added_tokens")
          .refuse(fmt::format("\"{}\" is {} bytes long as the normalizer spells it, expected at most {}.",
                              shortened(token.content), spelled.size(), max_added_bytes));
    (token.normalized ? in_normalized : in_text).add(spelled, token);
    kept = spelled;
    added_by_id[token.id] = &token;
    added_by_content[token.content] = token.id;
  }
  in_text.sort(file.place()), in_normalized.sort(file.place());
  for (const std::vector<int32_t>* ids : {&post.before, &post.after})
    for (const int32_t id : *ids)
      if (static_cast<size_t>(id) >= tokens.size() || tokens[static_cast<size_t>(id)].empty())
        file.at("post_processor").refuse(fmt::format("the id {} is not in the vocabulary of {}.", id, tokens.size()));
}

// Returns true if no earlier entry has this id; a repeated entry changes nothing. Contradictory ids are an error:
// `tokenizers` ignores them and numbers such tokens itself, so the ids of the training data are unknown.
bool Tokenizer::Parts::is_new(const JsonPart& file, const AddedToken& token) const {
  const JsonPart place = file.at("added_tokens");
  const auto refuse_two_ids = [&](int64_t other) {
    place.refuse(fmt::format("\"{}\" has the ids {} and {}, expected one id for each token.", shortened(token.content),
                             other, token.id));
  };
  const auto in_vocabulary = model.vocabulary().find(token.content);
  if (in_vocabulary != model.vocabulary().end() && in_vocabulary->second != token.id)
    refuse_two_ids(in_vocabulary->second);
  if (const auto same = added_by_content.find(token.content);
      same != added_by_content.end() && same->second != token.id)
    refuse_two_ids(same->second);
  const auto earlier = added_by_id.find(token.id);
  if (earlier == added_by_id.end()) return true;
  if (*earlier->second == token) return false;
  if (earlier->second->content != token.content)
    refuse_one_id(place, earlier->second->content, token.content, token.id);
  place.refuse(
      fmt::format("\"{}\" occurs twice with different options, expected one entry.", shortened(token.content)));
}

const std::string& Tokenizer::Parts::token(int32_t id, const char* verb) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens.size() || tokens[static_cast<size_t>(id)].empty())
    fail(ErrorKind::invalid_argument, verb, "id {} given, expected one of the vocabulary's {}.", id, tokens.size());
  return tokens[static_cast<size_t>(id)];
}

Tokenizer Tokenizer::bytes() { return Tokenizer(nullptr); }

namespace {

constexpr int32_t byte_values = 256;

Encoding encoded_bytes(std::string_view text) {
  Encoding encoding;
  for (size_t i = 0; i < text.size(); ++i) {
    encoding.ids.push_back(static_cast<unsigned char>(text[i]));
    encoding.offsets.emplace_back(i, i + 1);
  }
  return encoding;
}

const std::string& byte_token(int32_t id, const char* verb) {
  static const std::vector<std::string> tokens = [] {
    std::vector<std::string> all;
    for (int32_t byte = 0; byte < byte_values; ++byte) all.emplace_back(1, static_cast<char>(byte));
    return all;
  }();
  if (id < 0 || id >= byte_values)
    fail(ErrorKind::invalid_argument, verb, fmt::format("id {} given, expected a byte, 0 to 255.", id));
  return tokens[static_cast<size_t>(id)];
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& name) {
  require_unicode();
  const boost::json::value value = parse_json(text, "Tokenizer", name);
  return Tokenizer(std::make_shared<const Parts>(JsonPart{value, name, "Tokenizer"}));
}

namespace {

constexpr const char* end_of_text = "<|endoftext|>";
constexpr const char* give_json =
    "Give its tokenizer.json, which AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers "
    "writes.";

// Throws unless the two files are GPT-2's. vocab.json and merges.txt do not contain how text is split or which tokens
// are special. Both are known only for GPT-2, whose tokens are the bytes, the results of the merges and
// "<|endoftext|>".
void check_is_gpt2(const std::filesystem::path& folder, const JsonPart& model, const BytePairEncoding& encoding) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::invalid_file, "Tokenizer", "{}: vocab.json and merges.txt are read as GPT-2's, but {}. {}",
         folder.string(), what, give_json);
  };
  std::unordered_set<std::string, tessera::detail::SeededHash> known{end_of_text};
  for (const auto& [left, right] : merges_of(model.at("merges"))) known.insert(left + right);
  for (const std::string& byte : spelled_bytes()) {
    if (!encoding.vocabulary().contains(byte)) refuse(fmt::format("\"{}\", a byte, is not in the vocabulary", byte));
    known.insert(byte);
  }
  for (const auto& [token, id] : encoding.vocabulary())
    if (!known.contains(token))
      refuse(fmt::format("\"{}\" is neither a byte nor the result of a merge", shortened(token)));
}

// Checks the other files of a slow tokenizer of transformers.
void check_config_is_gpt2(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer_config.json", added = folder / "added_tokens.json";
  if (is_there(added))
    fail(ErrorKind::invalid_file, "Tokenizer", "{}: only a tokenizer.json may have added tokens. {}", added.string(),
         give_json);
  if (!is_there(file)) return;
  const boost::json::value value = parse_json(read_text(file, "Tokenizer"), "Tokenizer", file.string());
  const JsonPart config{value, file.string(), "Tokenizer"};
  if (const std::string type = config.text("tokenizer_class", "GPT2Tokenizer");
      type != "GPT2Tokenizer" && type != "GPT2TokenizerFast")
    config.at("tokenizer_class")
        .refuse(fmt::format("\"{}\" given, expected GPT2Tokenizer. {}", shortened(type), give_json));
  if (config.has("added_tokens_decoder"))
    for (const auto& [id, token] : config.at("added_tokens_decoder").members())
      if (const std::string content = token.at("content").text(); content != end_of_text)
        token.refuse(fmt::format("\"{}\" given, expected only {}. {}", shortened(content), end_of_text, give_json));
  for (const char* key : {"add_prefix_space", "add_bos_token"})
    if (config.flag(key, false)) config.at(key).refuse(fmt::format("true given, expected false. {}", give_json));
}

}  // namespace

Tokenizer Tokenizer::open(const std::filesystem::path& path) {
  require_unicode();
  const std::filesystem::path json = is_folder(path) ? path / "tokenizer.json" : path;
  if (!is_folder(path) || is_there(json))
    return from_json(read_text(json, "Tokenizer", max_tokenizer_bytes), json.string());
  const std::filesystem::path vocabulary = path / "vocab.json", merges = path / "merges.txt";
  if (!is_there(vocabulary) || !is_there(merges))
    fail(ErrorKind::invalid_file, "Tokenizer", "{}: has neither tokenizer.json nor vocab.json with merges.txt.",
         path.string());
  check_config_is_gpt2(path);
  boost::json::array pairs;
  const std::string text = read_text(merges, "Tokenizer", max_tokenizer_bytes);
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) pairs.emplace_back(line);
  }
  boost::json::value ids =
      parse_json(read_text(vocabulary, "Tokenizer", max_tokenizer_bytes), "Tokenizer", vocabulary.string());
  using Object = boost::json::object;
  boost::json::array added;
  if (const auto* object = ids.if_object())
    if (const auto* id = object->if_contains(end_of_text))
      added.push_back(Object{{"id", *id}, {"content", end_of_text}, {"special", true}});
  const boost::json::value value =
      Object{{"added_tokens", std::move(added)},
             {"pre_tokenizer", Object{{"type", "ByteLevel"}, {"add_prefix_space", false}}},
             {"decoder", Object{{"type", "ByteLevel"}}},
             {"model", Object{{"type", "BPE"}, {"vocab", std::move(ids)}, {"merges", std::move(pairs)}}}};
  const JsonPart file{value, path.string(), "Tokenizer"};
  auto parts = std::make_shared<const Parts>(file);
  check_is_gpt2(path, file.at("model"), parts->model);
  return Tokenizer(std::move(parts));
}

namespace {

void check_length(size_t bytes, const char* verb) {
  if (bytes > INT32_MAX)
    fail(ErrorKind::invalid_argument, verb, "{} bytes of text, expected fewer than 2^31. Split it.", bytes);
}

// Removes the white space at the ends of a byte-level token from its range.
std::pair<int64_t, int64_t> trimmed(std::pair<int64_t, int64_t> range, std::string_view token, bool keeps_first) {
  std::vector<bool> is_space;
  for (size_t i = 0; i < token.size(); i += character_bytes(token[i])) {
    const char32_t c = character_at(token, i);
    const int byte = byte_of_character(c);
    is_space.push_back(is_white_space(c) || byte == ' ');
  }
  const auto first = std::find(is_space.begin(), is_space.end(), false);
  const auto last = std::find(is_space.rbegin(), is_space.rend(), false);
  int64_t leading = first - is_space.begin();
  if (leading == 1 && keeps_first) leading = 0;
  range.first = std::min(range.first + leading, range.second);
  range.second = std::max(range.second - (last - is_space.rbegin()), range.first);
  return range;
}

// Calls on_token for the added tokens of a text, and on_text(begin, end) for what is between them, in order.
template <class OnToken, class OnText>
void in_sections(std::string_view text, const AddedTokens& added, OnToken on_token, OnText on_text) {
  size_t done = 0;
  for (const AddedTokens::Found& token : added.find(text)) {
    if (done < token.begin) on_text(done, token.begin);
    on_token(token);
    done = token.end;
  }
  if (done < text.size()) on_text(done, text.size());
}

}  // namespace

// One call of encode.
struct Tokenizer::Encoder {
  const Parts& parts;
  std::string_view text;
  WordCache::Loan cache{parts.word_cache};
  StepBudget budget{text.size()};
  CharacterCounts characters{text};
  Encoding result = {};
  bool is_first = true;

  void add_special(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) result.ids.push_back(id), result.offsets.emplace_back(0, 0);
  }

  // Adds a token; `bytes` is its range of the text, and `spelled` the token as the file spells it.
  void add(int32_t id, ByteRange bytes, std::string_view spelled) {
    const auto place = [&](int32_t byte) { return characters.before(static_cast<size_t>(byte)); };
    std::pair<int64_t, int64_t> range{place(bytes.begin), place(bytes.end)};
    if (parts.post.trims_offsets) range = trimmed(range, spelled, is_first && parts.post.adds_prefix_space);
    is_first = false;
    result.ids.push_back(id);
    result.offsets.push_back(range);
  }

  void add_word(const AlignedText& word) {
    const std::string_view all = word.text();
    for (size_t from = 0, to, begin = 0; from < all.size(); from = to) {
      to = parts.model.section_end(all, from);
      for (const BytePairEncoding::Token& token : cache.encode(parts.model, all.substr(from, to - from))) {
        const size_t end = begin + static_cast<size_t>(token.bytes);
        add(token.id, word.origin(begin, end), parts.tokens[static_cast<size_t>(token.id)]);
        begin = end;
      }
    }
  }

  void add_section(size_t begin, size_t end) {
    AlignedText normalized =
        parts.normalizer(AlignedText(text.substr(begin, end - begin), static_cast<int32_t>(begin)), budget);
    const std::string_view all = normalized.text();
    in_sections(
        all, parts.in_normalized,
        [&](const AddedTokens::Found& found) {
          add(found.token->id, normalized.origin(found.begin, found.end),
              all.substr(found.begin, found.end - found.begin));
        },
        [&](size_t from, size_t to) {
          AlignedText part = to - from == all.size() ? std::move(normalized) : normalized.part(from, to);
          parts.pre_tokenizer(std::move(part), budget, [&](const AlignedText& word) { add_word(word); });
        });
  }
};

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (!parts_) return encoded_bytes(text);
  if (const int64_t place = first_invalid_utf8(text); place >= 0)
    fail(ErrorKind::invalid_argument, "Tokenizer.encode", "the byte at {} is not UTF-8.", place);
  check_length(text.size(), "Tokenizer.encode");
  Encoder encoder{*parts_, text};
  if (options.add_special_tokens) encoder.add_special(parts_->post.before);
  in_sections(
      text, parts_->in_text,
      [&](const AddedTokens::Found& found) {
        encoder.add(found.token->id, {static_cast<int32_t>(found.begin), static_cast<int32_t>(found.end)},
                    text.substr(found.begin, found.end - found.begin));
      },
      [&](size_t begin, size_t end) { encoder.add_section(begin, end); });
  if (options.add_special_tokens) encoder.add_special(parts_->post.after);
  return std::move(encoder.result);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  if (!parts_) {
    std::string text;
    for (const int32_t id : ids) text += byte_token(id, "Tokenizer.decode");
    return text;
  }
  TokenTexts tokens;
  size_t bytes = 0;
  for (const int32_t id : ids) {
    const auto added = parts_->added_by_id.find(id);
    if (options.skip_special_tokens && added != parts_->added_by_id.end() && added->second->special) continue;
    tokens.push_back(parts_->token(id, "Tokenizer.decode"));
    check_length(bytes += tokens.back().size(), "Tokenizer.decode");
  }
  StepBudget budget(bytes);
  return fmt::format("{}", fmt::join(parts_->decoder(std::move(tokens), budget), ""));
}

int64_t Tokenizer::vocab_size() const { return parts_ ? static_cast<int64_t>(parts_->tokens.size()) : byte_values; }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (!parts_) return token.size() == 1 ? std::optional<int32_t>(static_cast<unsigned char>(token[0])) : std::nullopt;
  if (const auto added = parts_->added_by_content.find(token); added != parts_->added_by_content.end())
    return added->second;
  const auto found = parts_->model.vocabulary().find(std::string(token));
  return found == parts_->model.vocabulary().end() ? std::nullopt : std::optional(found->second);
}

const std::string& Tokenizer::id_to_token(int32_t id) const {
  constexpr const char* verb = "Tokenizer.id_to_token";
  return parts_ ? parts_->token(id, verb) : byte_token(id, verb);
}

}  // namespace tessera::data
