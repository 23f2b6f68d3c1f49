// Trains a vocabulary: words as ids, pairs in a queue by count, merges until the vocabulary is full.
#include "data/text/tokenizer_trainer.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <queue>
#include <set>
#include <utility>

#include "data/datasets/shuffle.h"
#include "data/sources/text_source.h"
#include "sharding/base/fail.h"

namespace tessera::data {

using namespace detail;

namespace {

namespace json = boost::json;
constexpr int64_t byte_count = 256;

[[noreturn]] void refuse(const std::string& what) { fail(ErrorKind::invalid_argument, "train_tokenizer", what); }

void check(const TokenizerTrainerOptions& options) {
  const std::set<std::string> distinct(options.special_tokens.begin(), options.special_tokens.end());
  if (distinct.size() != options.special_tokens.size() || distinct.contains(""))
    refuse("a special token is empty or given twice.");
  const int64_t least = byte_count + static_cast<int64_t>(options.special_tokens.size());
  if (options.vocab_size < least || options.vocab_size > INT32_MAX)
    refuse(fmt::format("a vocabulary of {}, expected {} (the bytes and the special tokens) to 2^31 - 1.",
                       options.vocab_size, least));
  if (options.min_frequency < 0) refuse(fmt::format("min_frequency {}, expected 0 or more.", options.min_frequency));
}

json::object byte_level_json(bool use_regex, bool add_prefix_space = false) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

json::object pre_tokenizer_json(const std::string& pattern) {
  if (pattern.empty()) return byte_level_json(true);
  const json::object split{
      {"type", "Split"}, {"pattern", json::object{{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", json::array{split, byte_level_json(false)}}};
}

// The tokens so far, by id.
class Vocabulary {
 public:
  int32_t add(const std::string& token) {
    const auto [found, is_new] = ids_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }
  int32_t id_of(std::string_view token) const { return ids_.at(std::string(token)); }
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  const std::vector<std::string>& tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::string> tokens_;
};

// Returns the special tokens, followed by each byte's character in the order of code points.
Vocabulary first_vocabulary(const std::vector<std::string>& special_tokens) {
  Vocabulary vocabulary;
  for (const std::string& token : special_tokens) vocabulary.add(token);
  std::set<std::string> characters;  // UTF-8 sorts in the order of code points
  for (int byte = 0; byte < byte_count; ++byte) {
    const char text = static_cast<char>(byte);
    characters.insert(bytes_as_characters(AlignedText({&text, 1}, 0)).text());
  }
  for (const std::string& character : characters) vocabulary.add(character);
  return vocabulary;
}

using Pair = std::pair<int32_t, int32_t>;
struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key = static_cast<uint64_t>(pair.first) << 32 | static_cast<uint32_t>(pair.second);
    return static_cast<size_t>(murmur_finalizer(key));
  }
};

struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

// Keeps the counts of pairs; a merge changes only the words that contain its pair. A candidate whose count has changed
// since it was queued is queued again with its new count.
class Merger {
 public:
  Merger(Vocabulary vocabulary, std::vector<Word> words)
      : vocabulary_(std::move(vocabulary)), words_(std::move(words)) {
    for (size_t i = 0; i < words_.size(); ++i)
      for (size_t at = 0; at + 1 < words_[i].ids.size(); ++at)
        count({words_[i].ids[at], words_[i].ids[at + 1]}, words_[i].count, i);
    queue_changes();
  }

  void merge_until(int64_t vocab_size, int64_t min_frequency) {
    while (vocabulary_.size() < vocab_size && !queue_.empty()) {
      Candidate best = queue_.top();
      queue_.pop();
      if (const int64_t now = counts_.at(best.pair); best.count != now) {
        best.count = now;
        queue_.push(std::move(best));
        continue;
      }
      if (best.count < 1 || best.count < min_frequency) return;
      merge(best);
    }
  }

  const std::vector<Pair>& merges() const { return merges_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Candidate {
    Pair pair;
    int64_t count;
    std::vector<size_t> words;  // words that may contain the pair
    bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
  };

  // Adds `change` to the pair's count. If it is positive, the pair is new in `word`. Call in ascending word order.
  void count(const Pair& pair, int64_t change, size_t word) {
    counts_[pair] += change;
    if (change < 0) return;
    auto& words = changed_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void queue_changes() {
    for (auto& [pair, words] : changed_)
      if (const int64_t count = counts_.at(pair); count > 0) queue_.push({pair, count, std::move(words)});
    changed_.clear();
  }

  void merge(const Candidate& best) {
    const int32_t id = vocabulary_.add(vocabulary_.token(best.pair.first) + vocabulary_.token(best.pair.second));
    merges_.push_back(best.pair);
    for (const size_t word : best.words) merge_in(word, best.pair, id);
    queue_changes();
  }

  void merge_in(size_t word, const Pair& pair, int32_t id) {
    auto& [ids, times] = words_[word];
    size_t to = 0;
    for (size_t from = 0; from < ids.size(); ++from, ++to) {
      if (ids[from] != pair.first || from + 1 >= ids.size() || ids[from + 1] != pair.second) {
        ids[to] = ids[from];
        continue;
      }
      if (to > 0) {
        count({ids[to - 1], pair.first}, -times, word);
        count({ids[to - 1], id}, times, word);
      }
      ids[to] = id;
      ++from;
      if (from + 1 < ids.size()) {
        count({pair.second, ids[from + 1]}, -times, word);
        count({id, ids[from + 1]}, times, word);
      }
    }
    ids.resize(to);
  }

  Vocabulary vocabulary_;
  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<size_t>, PairHash> changed_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> merges_;
};

Word word_of(const std::string& text, int64_t count, const Vocabulary& vocabulary) {
  Word word{{}, count};
  for (size_t i = 0, n; i < text.size(); i += n) {
    n = character_bytes(text[i]);
    word.ids.push_back(vocabulary.id_of(std::string_view(text).substr(i, n)));
  }
  return word;
}

json::array added_tokens_json(const std::vector<std::string>& special_tokens) {
  json::array tokens;
  for (const std::string& token : special_tokens)
    tokens.push_back(json::object{{"id", tokens.size()},
                                  {"content", token},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  return tokens;
}

json::object model_json(const Merger& learnt) {
  json::object vocabulary;
  json::array merges;
  for (const std::string& token : learnt.vocabulary().tokens()) vocabulary.emplace(token, vocabulary.size());
  for (const auto& [left, right] : learnt.merges())
    merges.push_back(json::array{learnt.vocabulary().token(left), learnt.vocabulary().token(right)});
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

}  // namespace

TokenizerTrainer::TokenizerTrainer(const TokenizerTrainerOptions& options) : options_(options) {
  check(options_);
  require_unicode();
  const json::value pre_tokenizer = pre_tokenizer_json(options_.pattern);
  pre_tokenizer_ = pre_tokenizer_of(JsonPart{pre_tokenizer, "pre_tokenizer", "train_tokenizer"});
}

void TokenizerTrainer::add(std::string_view text) {
  if (const int64_t place = first_invalid_utf8(text); place >= 0)
    refuse(fmt::format("the byte at {} of a text is not UTF-8.", place));
  if (text.size() > INT32_MAX) refuse(fmt::format("a text of {} bytes, expected fewer than 2^31.", text.size()));
  StepBudget budget(text.size());
  pre_tokenizer_(AlignedText(text, 0), budget, [&](const AlignedText& word) { ++words_[std::string(word.text())]; });
}

std::string TokenizerTrainer::to_json() const {
  if (words_.empty()) refuse("no text was given, expected some to learn words from.");
  Vocabulary vocabulary = first_vocabulary(options_.special_tokens);
  std::vector<Word> words;
  for (const auto& [text, count] : words_) words.push_back(word_of(text, count, vocabulary));
  Merger learnt(std::move(vocabulary), std::move(words));
  learnt.merge_until(options_.vocab_size, options_.min_frequency);
  return json::serialize(json::object{{"version", "1.0"},
                                      {"truncation", nullptr},
                                      {"padding", nullptr},
                                      {"added_tokens", added_tokens_json(options_.special_tokens)},
                                      {"normalizer", nullptr},
                                      {"pre_tokenizer", pre_tokenizer_json(options_.pattern)},
                                      {"post_processor", nullptr},
                                      {"decoder", byte_level_json(true, true)},
                                      {"model", model_json(learnt)}});
}

}  // namespace tessera::data
