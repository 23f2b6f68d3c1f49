// The code of docs/chat.md. main() first writes a small model with random weights, a tokenizer and conversations.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/datasets.h>
#include <tessera/data/loader.h>
#include <tessera/data/sources.h>
#include <tessera/data/text.h>
#include <tessera/data/text/tokenizer_trainer.h>
#include <tessera/nn/models.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>

using namespace tessera;

namespace shown {

void render() {
  const auto chat = data::ChatTemplate::open("Qwen2.5-0.5B-Instruct");
  std::cout << chat.render({{"system", "Be brief."}, {"user", "What is 2 + 2?"}}, {.add_generation_prompt = true});
}

void spans() {
  const auto chat = data::ChatTemplate::open("Qwen2.5-0.5B-Instruct");
  const auto [text, assistant] = chat.render_with_spans({{"user", "What is 2 + 2?"}, {"assistant", "4"}});
  for (const auto& [begin, end] : assistant) std::cout << "\nlearned: " << text.substr(begin, end - begin);
}

nn::CausalLM fine_tune() {
  const std::string folder = "Qwen2.5-0.5B-Instruct";
  const auto tokenizer = data::Tokenizer::open(folder);
  const auto chat = data::ChatTemplate::open(folder);
  constexpr int64_t seq = 512;
  const auto tokens_of = [=](const std::vector<data::ChatMessage>& messages) {
    return data::chat_tokens(chat, tokenizer, messages, {.max_length = seq + 1}).tokens;
  };
  const auto rows = data::chat_lines({"train.jsonl"})
                        .shuffle(0)
                        .repeat()
                        .map(tokens_of)
                        .pack({.length = seq + 1, .max_sequences_per_bin = 32});

  const Mesh mesh = make_mesh({{"fsdp", 2}});
  const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh)};
  auto loader = data::shard_batches(data::Loader(rows, data::PackedTokensBatcher{.max_segments = 33},
                                                 {.batch_size = 4, .shard = data::ShardByProcess(mesh_rules)}),
                                    mesh_rules);
  auto model = nn::with_lora(Key(0), nn::from_pretrained(folder, mesh_rules), {.rank = 8});

  const auto loss = [](const nn::CausalLM& model, const data::PackedTokens& batch) {
    return model.loss(batch.inputs, batch.targets, batch.weights,
                      {.positions = batch.positions, .segment_starts = batch.segment_starts});
  };
  const nn::Filter trained = nn::by_path("**.lora.**");
  auto optimizer = optim::Optimizer(model, optim::masked(optim::adamw({.learning_rate = 2e-4}), trained));
  for (int step = 0; step < 10; ++step) {
    const auto batch = *loader.next();
    const auto [mean, grads] = nn::value_and_grad(loss, trained)(model, batch);
    optimizer.update(model, grads);
  }
  model = nn::merge_lora(model);
  nn::save_pretrained("tuned", model, folder);
  nn::save_gguf("tuned.gguf", model, {.dtype = float16, .tokenizer = "tuned"});
  return model;
}

void answer(const nn::CausalLM& model) {
  const auto tokenizer = data::Tokenizer::open("tuned");
  const auto chat = data::ChatTemplate::open("tuned");
  const std::string prompt = chat.render({{"user", "What is 2 + 2?"}}, {.add_generation_prompt = true});
  const auto ids = tokenizer.encode(prompt, {.add_special_tokens = false}).ids;
  const auto end = tokenizer.encode(chat.end_of_turn(), {.add_special_tokens = false}).ids.front();
  const auto answers = nn::generate(model, Key(0), {ids},
                                    {.max_new_tokens = 64, .sampling = {.temperature = 0.7}, .eos_token_id = {end}});
  std::cout << tokenizer.decode(answers[0]) << '\n';
}

void count(int64_t seq) {
  const auto tokenizer = data::Tokenizer::open("Qwen2.5-0.5B-Instruct");
  const auto chat = data::ChatTemplate::open("Qwen2.5-0.5B-Instruct");
  const auto chats = data::chat_lines({"train.jsonl"});
  int64_t dropped = 0;
  for (int64_t i = 0; i < chats.size(); ++i)
    dropped += data::chat_tokens(chat, tokenizer, chats[i], {.max_length = seq + 1}).dropped_turns;
  std::cout << dropped << " turns do not fit\n";
}

}  // namespace shown

namespace {

constexpr const char* chat_template = R"({%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

void write_small_model(const std::string& folder) {
  std::ofstream chats("train.jsonl");
  for (int i = 0; i < 40; ++i)
    chats << R"({"messages": [{"role": "user", "content": "What is )" << i << R"( + 1?"}, {"role": "assistant", )"
          << R"("content": ")" << i + 1 << "\"}]}\n";
  chats.close();
  const std::string tokenizer = data::train_tokenizer(
      data::lines({"train.jsonl"}),
      {.vocab_size = 300, .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, .min_frequency = 2});
  nn::save_pretrained(folder, nn::CausalLM::init(Key(0), {.model_type = "qwen2",
                                                          .vocab_size = 300,
                                                          .hidden_size = 32,
                                                          .num_hidden_layers = 2,
                                                          .num_attention_heads = 4,
                                                          .num_key_value_heads = 2,
                                                          .head_dim = 8,
                                                          .intermediate_size = 64,
                                                          .attention_bias = true}));
  std::ofstream(folder + "/tokenizer.json") << tokenizer;
  std::ofstream(folder + "/chat_template.jinja") << chat_template;
}

}  // namespace

int main() {
  write_small_model("Qwen2.5-0.5B-Instruct");
  shown::render();
  shown::spans();
  shown::count(512);
  const nn::CausalLM model = shown::fine_tune();
  shown::answer(model);
}
