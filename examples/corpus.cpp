// Opens the files, cuts them into windows, and counts.
#include "examples/corpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/entropy.h"
#include "data/on_mesh.h"

namespace tessera::examples {

Corpus Corpus::open(const std::vector<std::string>& paths, const CorpusOptions& options, const Layout& layout) {
  const auto source = data::ByteSource::open(paths);
  const auto [training, held_out] = data::train_validation_split(data::windows(source, options.seq + 1), 0.01);
  const auto batches_of = [&](const auto& windows) {
    return data::on_mesh(data::Loader(windows.shuffle(options.seed).repeat(), data::token_batch,
                                      {.batch_size = options.batch, .shard = data::ShardByProcess(layout)}),
                         layout);
  };
  if (training.size() < options.batch)
    fail(ErrorKind::bad_argument, "data",
         fmt::format(
             "{} bytes make {} windows of {} for training, a batch needs {}. Give more data, or lower --batch or "
             "--seq.",
             source.size(), training.size(), options.seq + 1, options.batch));
  std::vector<data::TokenBatch> validation;
  auto batches = batches_of(held_out);
  for (int64_t n = std::clamp<int64_t>(held_out.size() / options.batch, 1, 16); n > 0; --n)
    validation.push_back(*batches.next());
  return {.files = static_cast<int64_t>(source.files().size()),
          .bytes = source.size(),
          .unigram_entropy = data::unigram_entropy(source),
          .bigram_entropy = data::bigram_entropy(source),
          .training = batches_of(training),
          .validation = std::move(validation)};
}

}  // namespace tessera::examples
