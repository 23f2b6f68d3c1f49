// The code of docs/losses.md.
#include <cstdio>

#include <tessera/nn/layers.h>
#include <tessera/nn/transformations.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Batch {
  Array ids, labels, weights;
};

struct Decoder {
  nn::Embedding embed;
  nn::Linear head;

  static Decoder init(const Key& key) {
    const auto [k1, k2] = split<2>(key);
    const Axis vocab{"vocab", 256}, width{"embed", 16};
    return {.embed = nn::Embedding::init(k1, vocab, width),
            .head = nn::Linear::init(k2, width, vocab, {.bias = false})};
  }

  Array hidden(const Array& ids) const { return gelu(embed(ids)); }
  Array operator()(const Array& ids) const { return head(hidden(ids)); }
};

Array masked_loss(const Decoder& model, const Batch& batch) {
  return cross_entropy(model(batch.ids), batch.labels, {.weights = batch.weights, .ignore_label = -100});
}

WeightedSum summed_loss(const Decoder& model, const Batch& batch) {
  return cross_entropy_sum(model(batch.ids), batch.labels, {.weights = batch.weights, .ignore_label = -100});
}

Array chunked_loss(const Decoder& model, const Batch& batch) {
  return nn::head_cross_entropy(model.head, model.hidden(batch.ids), batch.labels,
                                {.weights = batch.weights, .ignore_label = -100});
}

int main() {
  const Decoder model = Decoder::init(Key(0));
  const Array ids = randint(Key(1), {8, 32}, 0, 256);
  const Batch batch{ids, where(ids < 64, -100, ids), uniform(Key(2), {8, 32})};
  const auto [whole, whole_grads] = nn::value_and_grad(masked_loss)(model, batch);
  const auto [loss, grads] = nn::accumulate_gradients(summed_loss, 4)(model, batch);
  const auto [same, same_grads] = nn::value_and_grad(chunked_loss)(model, batch);
  std::printf("%.4f %.4f %.4f\n", whole.item<float>(), loss.item<float>(), same.item<float>());
}
