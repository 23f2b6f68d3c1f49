// train_transformer on tokens: texts and token files, from scratch and from a folder, stopped and resumed.
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/sources/token_writer.h"
#include "data/text/tokenizer.h"
#include "nn/models.h"
#include "sharding/base.h"
#include "tests/data/skip_without.h"
#include "tests/examples/training.h"

namespace tessera::examples::train_tokens_test {
namespace {

namespace fs = std::filesystem;

const std::string tokenizer = std::string(TESSERA_REFERENCE_DIR) + "/tokenizers/gpt2";
const std::string gguf_tokenizer = std::string(TESSERA_REFERENCE_DIR) + "/gguf/gpt-2";  // without lstrip
const std::string sizes = " --embed 32 --heads 4 --layers 2 --mlp 32";
const std::string steps = " --seq 16 --batch 8 --steps 3 --warmup 1";

class TrainTokens : public Training {
 protected:
  void SetUp() override {
    testing::skip_without("without ICU", [&] { data::Tokenizer::open(tokenizer); });
    for (int i = 0; i < 40; ++i)
      folder_.write("texts/" + std::to_string(100 + i) + ".txt", some_text().substr(i * 50, 100 + 13 * (i % 7)));
  }
  std::string texts(const std::string& by = tokenizer) const {
    return " --data " + folder_.path("texts") + " --tokenizer " + by;
  }

  // Runs the program without the data and size flags of the tests on bytes.
  Outcome train_on(const std::string& flags) { return run_program(program_ + flags + steps); }
  Run run_on(const std::string& flags) { return run_of(train_on(flags + metrics_)); }
};

TEST_F(TrainTokens, HaveTheSameLossesOnEveryMesh) {
  for (const std::string model : {" --model llama", " --model gpt"}) {
    const Run alone = run_on(texts() + sizes + model + " --mesh data=1");
    EXPECT_TRUE(alone.outcome.says("40 documents; entropy in nats per token")) << alone.outcome.output;
    EXPECT_TRUE(alone.outcome.says("(perplexity ")) << alone.outcome.output;
    for (const std::string mesh :
         {" --strategy fsdp", " --strategy tp", " --strategy 2d", " --mesh data=2 --micro-batches 2 --remat",
          " --strategy pp --micro-batches 2", " --strategy auto --devices 4"})
      expect_losses(run_on(texts() + sizes + model + mesh), alone, 1e-4);
  }
}

TEST_F(TrainTokens, GoOnFromAFolderAndAreWrittenForTransformers) {
  const std::string from = folder_.path("model");
  const Run first = run_on(texts() + sizes + " --model llama --strategy tp --export " + from);
  const Run more = run_on(texts() + " --mesh data=2 --from " + from + " --export " + folder_.path("more"));
  EXPECT_LT(more.rows.front()["loss"], first.rows.front()["loss"]);
  EXPECT_TRUE(fs::exists(folder_.path("more/config.json")));
  const Run changes = run_on(texts() + " --mesh model=2 --rules heads=model --lora 2 --from " + from + " --export " +
                             folder_.path("changed"));
  EXPECT_TRUE(changes.outcome.says("layers.0.attn.q.lora.a")) << changes.outcome.output;
  EXPECT_FALSE(changes.outcome.says("mu.layers.0.attn.q.kernel")) << changes.outcome.output;
  EXPECT_NEAR(changes.rows.front()["loss"], more.rows.front()["loss"], 1e-4);
  nn::CausalLM before = nn::from_pretrained(from), after = nn::from_pretrained(folder_.path("changed"));
  const auto kernel = [](const nn::CausalLM& model) {
    return std::get<nn::MultiheadAttention>(model.layers[0].attn).o.kernel;
  };
  const auto norm = [](const nn::CausalLM& model) { return model.final_norm.scale; };
  EXPECT_NE(kernel(before).value.to_host<float>(), kernel(after).value.to_host<float>());
  EXPECT_EQ(norm(before).value.to_host<float>(), norm(after).value.to_host<float>());
}

// A llama of two layers has 9 tensors in each, the embedding and the last norm.
TEST_F(TrainTokens, AreWrittenForLlamaCpp) {
  run_on(texts(gguf_tokenizer) + sizes + " --model llama --mesh data=2 --export " + folder_.path("model") +
         " --export-gguf " + folder_.path("model.gguf"));
  const std::string file = folder_.read("model.gguf");
  EXPECT_EQ(file.substr(0, 16), std::string("GGUF\3\0\0\0\24\0\0\0\0\0\0\0", 16));
  nn::save_gguf(folder_.path("model/model.gguf"), nn::from_pretrained(folder_.path("model")),
                {.tokenizer = gguf_tokenizer});
  EXPECT_TRUE(folder_.read("model/model.gguf") == file) << "not the trained weights";
}

TEST_F(TrainTokens, LeaveNothingIfTheyFail) {
  const std::string flags = " --model llama --lr 1e38 --warmup 0 --steps 20 --export " + folder_.path("a/b/model") +
                            " --export-gguf " + folder_.path("model.gguf");
  EXPECT_EQ(run_program(program_ + texts(gguf_tokenizer) + sizes + " --seq 16 --batch 8" + flags).exit_code, 1);
  EXPECT_FALSE(fs::exists(folder_.path("a")));
  EXPECT_FALSE(fs::exists(folder_.path("model.gguf")) || fs::exists(folder_.path("model.gguf.untrained")));
}

TEST_F(TrainTokens, LearnTheAnswersOfConversations) {
  const std::string from = folder_.path("model");
  run_on(texts() + sizes + " --model llama --strategy tp --export " + from);
  fs::copy(tokenizer + "/tokenizer.json", from);
  folder_.write("model/chat_template.jinja",
                "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}"
                "{% if add_generation_prompt %}<assistant>{% endif %}");
  std::string chats;
  for (int i = 0; i < 40; ++i)
    chats += R"({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I"},)"
             R"({"role": "user", "content": ")" +
             std::string(i == 3 ? 300 : 3, 'a') + R"("}, {"role": "assistant", "content": "You"}]})" + "\n";
  const std::string chat = " --chat --data " + folder_.write("chats.jsonl", chats) + " --from " + from;
  const auto run = [&](const std::string& flags) {
    return run_of(run_program(program_ + chat + metrics_ + steps + " --seq 64 " + flags));
  };
  const Run alone = run("--mesh data=1 --sample 4 --prompt Who?");
  EXPECT_TRUE(alone.outcome.says("40 documents")) << alone.outcome.output;
  EXPECT_TRUE(alone.outcome.says("dropped  ")) << alone.outcome.output;
  EXPECT_TRUE(alone.outcome.says("4 tokens at temperature 0.8:\nWho?\n")) << alone.outcome.output;
  expect_losses(run("--strategy fsdp"), alone, 1e-4);
  const auto refused = [&](const std::string& flags, const std::string& words) {
    const Outcome outcome = train_on(flags);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_TRUE(outcome.says(words)) << outcome.output;
  };
  refused(chat + " --end-of-text x", "the chat template ends turns");
  refused(" --chat --vocab 9 --data " + folder_.path("chats.jsonl"), "no chat template");
  refused(" --chat --data " + folder_.path("chats.jsonl"), "the model is trained on bytes");
  refused(chat + " --data " + folder_.path("texts"), "this is not JSON");
  refused(chat, "or with --chat a larger --seq");
}

TEST_F(TrainTokens, OfFilesAreThoseOfTheirTexts) {
  const auto encoder = data::Tokenizer::open(tokenizer);
  data::TokenWriter writer(folder_.path("tokens"), encoder.vocab_size());
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path("texts"))) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::ifstream in(file);
    writer.add(encoder.encode(std::string(std::istreambuf_iterator<char>(in), {})).ids);
  }
  writer.finish();
  const std::string vocab = " --vocab " + std::to_string(encoder.vocab_size());
  expect_losses(run_on(" --data " + folder_.path("tokens.bin") + vocab + sizes + " --mesh data=2"),
                run_on(texts() + sizes + " --mesh data=2"), 1e-6);
}

TEST_F(TrainTokens, OfFilesWithoutDocumentsAreThoseOfOneDocumentARow) {
  constexpr size_t seq = 16;  // as in `steps`
  std::vector<int32_t> ids(25 * seq + 1), header(256);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((7 * i * i + i) % 50);
  header[0] = 20240520, header[1] = 1, header[2] = static_cast<int32_t>(ids.size());
  std::string llm_c(reinterpret_cast<const char*>(header.data()), 4 * header.size());
  for (const int32_t id : ids) llm_c += {static_cast<char>(id), '\0'};
  folder_.write("rows.bin", llm_c);
  data::TokenWriter writer(folder_.path("documents"), 50);
  for (size_t at = 0; at + seq < ids.size(); at += seq) writer.add(std::span(ids).subspan(at, seq + 1));
  writer.finish();
  for (const std::string model : {" --model llama", " --model gpt"}) {
    const std::string flags = " --vocab 50" + sizes + model + " --mesh data=2 --data ";
    expect_losses(run_on(flags + folder_.path("rows.bin")), run_on(flags + folder_.path("documents.bin")), 1e-6);
  }
}

TEST_F(TrainTokens, WriteASample) {
  const std::string flags = texts() + sizes + " --model llama --mesh data=2 --sample 12 --prompt 'the number'";
  const auto sample_of = [&](const std::string& more) {
    const std::string output = train_on(flags + more).output, begin = ":\nthe number";
    const size_t at = output.rfind(begin);
    EXPECT_NE(at, std::string::npos) << output;
    return at == std::string::npos ? "" : output.substr(at + begin.size());
  };
  const std::string likeliest = sample_of(" --temperature 0");
  EXPECT_EQ(sample_of(" --top-k 1"), likeliest);
  EXPECT_EQ(sample_of(" --top-p 1e-9"), likeliest);
  const std::string any = sample_of(" --temperature 2");
  EXPECT_NE(any, likeliest);
  const std::string both = train_on(flags + " 'and then' --temperature 0").output;
  EXPECT_NE(both.find(":\nthe number" + likeliest.substr(0, likeliest.size() - 1) + "\n\n12 "), std::string::npos)
      << both;
  EXPECT_NE(both.find(":\nand then"), std::string::npos) << both;
}

TEST_F(TrainTokens, StopAtASignalAndGoOn) {
  const std::string flags = program_ + texts() + sizes + " --seq 16 --batch 8 --warmup 1 --mesh data=2 --save " +
                            folder_.path("run") + " --save-every 100000 --steps 100000 --export " + folder_.path("out");
  const std::string file = folder_.path("metrics.jsonl");
  const Outcome stopped =
      run_program("sh -c '" + flags + " --save-on-signal --metrics " + file + " & while ! grep -q step " + file +
                  " 2>/dev/null; do sleep 0.1; done; kill -TERM $!; wait $!; echo status $?'");
  EXPECT_TRUE(stopped.says("stopped by a signal after ")) << stopped.output;
  EXPECT_TRUE(stopped.says("status 75")) << stopped.output;
  EXPECT_FALSE(fs::exists(folder_.path("out/config.json"))) << "an unfinished model is exported";
  const size_t at = stopped.output.find("stopped by a signal after ") + 26;
  const std::string done = stopped.output.substr(at, stopped.output.find(' ', at) - at);
  const std::string rest = flags + " --resume --steps " + std::to_string(std::stol(done) + 2);
  const Outcome resumed = run_program(rest);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_TRUE(resumed.says("resumed  after " + done + " of ")) << resumed.output;
  fs::remove(folder_.path("out/config.json"));  // as if it was killed while it exported
  fs::remove(folder_.path("out/model.safetensors.index.json"));
  EXPECT_EQ(run_program(rest).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_.path("out/config.json")));
}

// No axis of these meshes divides the vocabulary, and each one pads it to a different size.
TEST_F(TrainTokens, ResumeOnAMeshThatPadsTheVocabularyToAnotherSize) {
  const int64_t vocab = data::Tokenizer::open(tokenizer).vocab_size() / 6 * 6 + 7;
  const auto on = [&](int devices, const std::string& more) {
    return run_on(texts() + sizes + " --model llama --vocab " + std::to_string(vocab) + " --rules vocab=model" +
                  " --mesh model=" + std::to_string(devices) + more);
  };
  const std::string save = " --save-every 2 --save " + folder_.path("run");
  const Run alone = on(1, ""), other = on(2, save);
  EXPECT_NEAR(other.rows.back()["validation_loss"], alone.rows.back()["validation_loss"], 1e-4);
  fs::remove_all(folder_.path("run/3"));
  const Run resumed = on(3, save + " --resume");
  EXPECT_TRUE(resumed.outcome.says("resumed  after 2 of 3 steps")) << resumed.outcome.output;
  EXPECT_NEAR(resumed.rows.back()["validation_loss"], alone.rows.back()["validation_loss"], 1e-4);
}

TEST_F(TrainTokens, ReplayAStepOfAnAutomaticStrategy) {
  const std::string kept = folder_.path("kept");
  const Outcome failed =
      run_program(program_ + texts() + sizes + " --model llama --strategy auto --devices 2 --lr 1e38" +
                  " --warmup 0 --seq 16 --batch 8 --steps 20 --keep-failed-step " + kept);
  EXPECT_TRUE(failed.says("The step is kept: --replay " + kept)) << failed.output;
  const Outcome again = run_program(program_ + " --replay " + kept);
  EXPECT_TRUE(again.says("replays  step 2 alone, on one device")) << again.output;
  EXPECT_TRUE(again.says(", step 2: ")) << again.output;
}

TEST_F(TrainTokens, DoNotGoOnWithOtherTokens) {
  const std::string run = texts() + sizes + " --mesh data=2 --save " + folder_.path("run");
  EXPECT_EQ(train_on(run).exit_code, 0);
  const Outcome other = train_on(run + " --resume --end-of-text '<|endoftext|>'");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_TRUE(other.says("Give the same --data, --seq and --seed.")) << other.output;
}

TEST_F(TrainTokens, NeedSomethingToPredict) {
  folder_.write("empty.txt", "");
  folder_.write("short/1.txt", "a"), folder_.write("short/2.txt", "a");
  for (const std::string eval : {"empty.txt", "short"}) {
    const Outcome outcome = train_on(texts() + sizes + " --mesh data=2 --eval " + folder_.path(eval));
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(
        outcome.says("[data] the validation set, --eval " + folder_.path(eval) + ": no document has two tokens"))
        << outcome.output;
  }
  const std::string on_short = " --tokenizer " + tokenizer + sizes + " --mesh data=2 --data " + folder_.path("short");
  EXPECT_TRUE(train_on(on_short).says("[data] the training set: no document has two tokens"));
}

TEST_F(TrainTokens, ReportErrors) {
  const auto expect = [&](const std::string& flags, const std::string& words, int exit_code) {
    const Outcome outcome = train_on(flags);
    EXPECT_EQ(outcome.exit_code, exit_code) << flags << "\n" << outcome.output;
    EXPECT_TRUE(outcome.says(words)) << flags << "\n" << outcome.output;
  };
  const std::string reference = std::string(TESSERA_REFERENCE_DIR) + "/hf/llama";
  expect(" --data " + text_ + " --lora 2", "[command line] --lora: the model is trained on bytes.", 2);
  expect(texts() + " --lora 2", "[command line] --lora: no weights to adapt. Give --from FOLDER too.", 2);
  expect(texts() + " --from " + reference + " --layers 2", "[command line] --layers: ", 2);
  expect(texts() + " --router-aux-loss-coef 0.1", "[command line] --router-aux-loss-coef: no routers to balance.", 2);
  expect(" --tokenizer " + tokenizer, "[command line] --data: no files", 2);
  expect(" --vocab 10 --data " + text_, "texts without a tokenizer. Give --tokenizer, or token files", 1);
  expect(texts() + sizes + " --end-of-text '<none>'", "\"<none>\" is not a token of the tokenizer.", 1);
  expect(texts() + " --from " + reference, "of a model with a vocabulary of 101.", 1);
  expect(texts() + " --from " + folder_.path("nothing"), "[from_pretrained] ", 1);
  expect(texts() + sizes + " --export " + folder_.path("texts"), "texts: it is not an empty folder. Give another.", 2);
  expect(texts() + sizes + " --export " + folder_.write("file", "") + "/b", "a folder above it is a file", 2);
  fs::create_symlink("nowhere", folder_.path("link"));
  expect(texts() + sizes + " --export " + folder_.path("link/model"), "a link leads nowhere", 2);
  fs::copy(reference, folder_.path("theirs"));
  expect(texts() + sizes + " --resume --save " + folder_.path("new") + " --export " + folder_.path("theirs"),
         "theirs/config.json: it is the config of another model.", 1);
  const std::string gpt2 = texts() + " --from " + TESSERA_REFERENCE_DIR + "/hf/gpt2";
  EXPECT_TRUE(run_program(program_ + gpt2 + " --seq 200").says("[command line] --seq: 200"));
  expect(texts() + sizes + " --sample 30", "[command line] --sample: 30 tokens after a prompt of", 2);
  expect(" --data " + folder_.path("texts") + " --vocab 9 --sample 3", "--sample: no tokenizer for its prompt.", 2);
  expect(texts() + sizes + " --top-p 2 --sample 3", "[command line] --top-p: \"2\" given", 2);
}

}  // namespace
}  // namespace tessera::examples::train_tokens_test
