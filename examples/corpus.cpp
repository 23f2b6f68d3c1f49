// Opens files, makes rows of their bytes or tokens, and computes entropies.
#include "examples/corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>

#include <tessera/data/batches.h>
#include <tessera/data/datasets.h>
#include <tessera/data/sources.h>
#include <tessera/data/text.h>
#include <tessera/sharding/operations.h>

#include "examples/tokenize_texts.h"

namespace tessera::examples {

namespace {

using Row = data::PackedRow<int32_t>;

template <class Rows>
data::Loader<data::PackedTokens> batches_of(const Rows& rows, const CorpusOptions& options, const MeshRules& mesh_rules,
                                            int64_t max_segments = 0) {
  const data::PackedTokensBatcher batcher{.max_segments = max_segments};
  return data::shard_batches(
      data::Loader(rows, batcher, {.batch_size = options.batch, .shard = data::ShardByProcess(mesh_rules)}),
      mesh_rules);
}

std::vector<data::PackedTokens> first_of(data::Loader<data::PackedTokens> batches, int64_t count) {
  std::vector<data::PackedTokens> first;
  for (int64_t n = std::clamp<int64_t>(count, 1, 16); n > 0; --n) first.push_back(*batches.next());
  return first;
}

// Returns a row that consists of one document.
Row whole_row(const std::vector<uint8_t>& bytes) {
  Row row{.tokens = {bytes.begin(), bytes.end()},
          .segment_ids = std::vector<int32_t>(bytes.size(), 1),
          .positions = std::vector<int32_t>(bytes.size())};
  std::iota(row.positions.begin(), row.positions.end(), 0);
  return row;
}

}  // namespace

int64_t max_segments_of(int64_t seq) { return std::max<int64_t>(seq / 16, 16) + 1; }

Corpus open_bytes(const std::vector<std::string>& paths, const CorpusOptions& options, const MeshRules& mesh_rules) {
  const auto source = data::ByteSource::open(paths, {.decompress = true});
  const auto [training, held_out] = data::train_validation_split(data::windows(source, options.seq + 1), 0.01);
  const auto batches = [&](const auto& windows) {
    return batches_of(windows.shuffle(options.seed).repeat().map(whole_row), options, mesh_rules);
  };
  if (training.size() < options.batch)
    fail(ErrorKind::invalid_argument, "data",
         fmt::format(
             "{} bytes make {} windows of {} for training, a batch needs {}. Give more data, or lower --batch or "
             "--seq.",
             source.size(), training.size(), options.seq + 1, options.batch));
  return {.symbol = "byte",
          .files = static_cast<int64_t>(source.files().size()),
          .size = source.size(),
          .unigram_entropy = data::unigram_entropy(source),
          .bigram_entropy = data::bigram_entropy(source),
          .training = batches(training),
          .validation = first_of(batches(held_out), held_out.size() / options.batch)};
}

// ---- tokens

namespace {

using Ids = std::vector<int32_t>;
using Documents = data::Dataset<Ids>;
using ChatDocuments = data::Dataset<std::vector<data::WeightedToken>>;

constexpr int64_t max_counted_tokens = 2'000'000;

std::optional<int32_t> end_of_text_of(const data::Tokenizer& tokenizer, const std::string& token) {
  if (token.empty()) return std::nullopt;
  if (const auto id = tokenizer.token_to_id(token)) return id;
  fail(ErrorKind::invalid_argument, "data",
       fmt::format("\"{}\" is not a token of the tokenizer. Give one that is.", token));
}

bool are_token_files(const std::vector<std::string>& paths) {
  const auto files = data::list_files(paths, {});
  return std::any_of(files.begin(), files.end(), [](const data::FileEntry& file) {
    const auto extension = std::filesystem::path(file.path).extension();
    return extension == ".bin" || extension == ".idx" || extension == ".npy";
  });
}

Documents tokenized(const std::vector<std::string>& paths, const TokenCorpusOptions& options) {
  if (!options.tokenizer)
    fail(ErrorKind::invalid_argument, "data",
         "texts without a tokenizer. Give --tokenizer, or token files (.bin, .npy).");
  const auto end = end_of_text_of(*options.tokenizer, options.end_of_text);
  const auto encode = [tokenizer = *options.tokenizer, end](const std::string& text) {
    Ids ids = tokenizer.encode(text).ids;
    if (end) ids.push_back(*end);
    return ids;
  };
  std::optional<data::Dataset<std::string>> texts;
  for (const TextInput& input : text_inputs(paths)) {
    const auto more = texts_of(input, {.field = options.text_field});
    texts = texts ? data::Dataset<std::string>(data::concat(*texts, more)) : more;
  }
  if (!texts) fail(ErrorKind::invalid_argument, "data", "no texts in the files. Give files with texts.");
  return texts->map(encode);
}

Documents of_token_files(const std::vector<std::string>& paths, const TokenCorpusOptions& options) {
  const auto files = data::TokenFiles::open(paths, {.vocab_size = options.vocab});
  if (files.knows_documents()) return data::token_documents(files);
  return data::windows(files, options.rows.seq + 1);
}

// Returns whether a row may hold several documents.
bool are_packed(const std::vector<std::string>& paths) {
  return !paths.empty() && !(are_token_files(paths) && !data::TokenFiles::open(paths).knows_documents());
}

Documents documents_of(const std::vector<std::string>& paths, const TokenCorpusOptions& options) {
  return are_token_files(paths) ? of_token_files(paths, options) : tokenized(paths, options);
}

data::ChatTokens chat_tokens_of(const std::vector<data::ChatMessage>& messages, const TokenCorpusOptions& options) {
  return data::chat_tokens(*options.chat, *options.tokenizer, messages, {.max_length = options.rows.seq + 1});
}

ChatDocuments chats_of(const std::vector<std::string>& paths, const TokenCorpusOptions& options) {
  return data::chat_lines(paths).map(
      [options](const auto& messages) { return chat_tokens_of(messages, options).tokens; });
}

Ids ids_of(Ids document) { return document; }
Ids ids_of(const std::vector<data::WeightedToken>& document) {
  Ids ids;
  for (const data::WeightedToken& token : document) ids.push_back(token.id);
  return ids;
}

void check_vocabulary(const Ids& document, int64_t vocab) {
  for (const int32_t id : document)
    if (id < 0 || id >= vocab)
      fail(ErrorKind::invalid_argument, "data",
           fmt::format(
               "token {} of a model with a vocabulary of {}. Give the tokenizer of the model, or another --vocab.", id,
               vocab));
}

template <class Document>
data::Loader<data::PackedTokens> packed_batches_of(const data::Dataset<Document>& documents,
                                                   const TokenCorpusOptions& options, const MeshRules& mesh_rules) {
  const auto checked = [vocab = options.vocab](Document document) {
    check_vocabulary(ids_of(document), vocab);
    return document;
  };
  const int64_t max_segments = max_segments_of(options.rows.seq);
  const auto rows =
      documents.shuffle(options.rows.seed)
          .repeat()
          .map(checked)
          .pack({.length = options.rows.seq + 1, .split_long = true, .max_sequences_per_bin = max_segments - 1});
  return batches_of(rows, options.rows, mesh_rules, max_segments);
}

// Returns the number of targets: a document predicts all its tokens but the first.
int64_t targets_of(const Ids& document) { return std::max<int64_t>(0, std::ssize(document) - 1); }
int64_t targets_of(const std::vector<data::WeightedToken>& document) {
  return std::count_if(document.begin(), document.end(), [](const auto& token) { return token.weight > 0; });
}

void check_has_targets(double targets, const std::string& set) {
  if (!(targets > 0))
    fail(ErrorKind::invalid_argument, "data",
         fmt::format("{}: no document has two tokens or more, so there is nothing to predict. Give longer documents, "
                     "or with --chat a larger --seq.",
                     set));
}

double targets_in(const std::vector<data::PackedTokens>& batches) {
  double targets = 0;
  for (const data::PackedTokens& batch : batches) targets += gather(sum(batch.weights)).item<double>();
  return targets;
}

// `open` returns the documents of files.
template <class Open>
Corpus corpus_of(const Open& open, const std::vector<std::string>& paths, const TokenCorpusOptions& options,
                 const MeshRules& mesh_rules) {
  const auto all = open(paths, options);
  using Documents = std::decay_t<decltype(all)>;
  if (all.size() < 2)
    fail(ErrorKind::invalid_argument, "data",
         fmt::format("{} documents, expected two or more, of which one is for validation.", all.size()));
  const auto [first, last] = data::train_validation_split(all, 0.01);
  const Documents training = options.eval.empty() ? Documents(first) : all;
  const Documents held_out = options.eval.empty() ? Documents(last) : open(options.eval, options);
  data::TokenEntropies entropies;
  int64_t tokens = 0, targets = 0, held_out_tokens = 0, held_out_targets = 0;
  for (int64_t i = 0; i < training.size() && (tokens < max_counted_tokens || targets == 0); ++i) {
    const auto document = training[i];
    entropies.add(ids_of(document)), tokens += std::ssize(document), targets += targets_of(document);
  }
  check_has_targets(static_cast<double>(targets), "the training set");
  const int64_t row = options.rows.seq + 1, batch = row * options.rows.batch;
  for (int64_t i = 0; i < held_out.size() && (held_out_tokens < 16 * batch || held_out_targets == 0); ++i) {
    const auto document = held_out[i];
    held_out_tokens += std::ssize(document), held_out_targets += targets_of(document);
  }
  const std::string validation_set = options.eval.empty()
                                         ? "the validation set, the last hundredth of the documents"
                                         : fmt::format("the validation set, --eval {}", fmt::join(options.eval, " "));
  check_has_targets(static_cast<double>(held_out_targets), validation_set);
  auto validation = first_of(packed_batches_of(held_out, options, mesh_rules), held_out_tokens / batch);
  check_has_targets(targets_in(validation), validation_set);  // all sampled documents may be too short
  return {.symbol = "token",
          .files = static_cast<int64_t>(data::list_files(paths, {}).size()),
          .size = all.size(),
          .is_packed = options.chat || are_packed(paths) || are_packed(options.eval),
          .unigram_entropy = entropies.unigram(),
          .bigram_entropy = entropies.bigram(),
          .training = packed_batches_of(training, options, mesh_rules),
          .validation = std::move(validation)};
}

}  // namespace

Corpus open_tokens(const std::vector<std::string>& paths, const TokenCorpusOptions& options,
                   const MeshRules& mesh_rules) {
  if (!options.chat) return corpus_of(documents_of, paths, options, mesh_rules);
  Corpus corpus = corpus_of(chats_of, paths, options, mesh_rules);
  corpus.dropped_turns = 0;
  const auto chats = data::chat_lines(paths);
  for (int64_t i = 0, tokens = 0; i < chats.size() && tokens < max_counted_tokens; ++i) {
    const data::ChatTokens chat = chat_tokens_of(chats[i], options);
    tokens += std::ssize(chat.tokens), *corpus.dropped_turns += chat.dropped_turns;
  }
  return corpus;
}

}  // namespace tessera::examples
