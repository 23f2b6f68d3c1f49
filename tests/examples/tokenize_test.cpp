// tokenize: the documents of each kind of text; the same bytes for any number of threads and after any interruption.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "data/sources/token_files.h"
#include "data/text/tokenizer.h"
#include "examples/tokenize_files.h"
#include "tests/data/scratch_folder.h"
#include "tests/data/skip_without.h"
#include "tests/examples/program.h"
#include "tests/sharding/expect_error.h"

extern char** environ;

namespace tessera::examples::tokenize_test {
namespace {

using Ids = std::vector<int32_t>;
using Files = std::map<std::string, std::string>;

// Tokens for each letter, a space, a newline, "ab", some that no merge makes, and the end of a text.
constexpr const char* small = R"({
  "added_tokens": [{"id": 9, "content": "<end>", "special": true}, {"id": 10, "content": "<s>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [10], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "Ċ": 4, "ab": 5, "aa": 6, "bb": 7, "cc": 8},
            "merges": ["a b"]}
})";

class Tokenize : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("tokenizer.json", small);
    testing::skip_without("without ICU", [&] { data::Tokenizer::open(folder.path()); });
  }

  TokenizeOptions options(const std::string& out, const std::vector<std::string>& files) const {
    TokenizeOptions options{.tokenizer = folder.path("tokenizer.json"), .out = folder.path(out), .files = {}};
    for (const std::string& file : files) options.files.push_back(folder.path(file));
    return options;
  }

  std::vector<Ids> documents(const std::string& out) const {
    std::vector<Ids> documents;
    const auto dataset = data::token_documents(data::TokenFiles::open({folder.path(out)}));
    for (int64_t i = 0; i < dataset.size(); ++i) documents.push_back(dataset[i]);
    return documents;
  }

  // The files of a folder except the lock and the partial files of a stopped run.
  Files contents(const std::string& out) const {
    Files files;
    for (const auto& file : std::filesystem::directory_iterator(folder.path(out))) {
      const std::string name = file.path().filename().string();
      if (!name.ends_with(".partial") && name != ".lock") files[name] = folder.read(out + "/" + name);
    }
    return files;
  }

  // Writes 400 documents to three files of three kinds.
  std::vector<std::string> corpus() const {
    std::string lines, blanks;
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (int j = 0; j < 7 * i % 50 + 1; ++j) text += j * i % 5 == 0 ? "ab " : i % 3 ? "cab" : "b";
      lines += "{\"id\": 1, \"text\": \"" + text + "\"}\n";
      if (i % 3 == 0) blanks += text + "\n" + text + "\n\n";
    }
    folder.write("texts/1.jsonl", lines);
    folder.write("texts/2.txt", blanks);
    return {"texts"};
  }

  data::ScratchFolder folder;
};

TEST_F(Tokenize, ReadsEveryKindOfText) {
  folder.write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n");
  folder.write("b.txt", "a b\n");
  folder.write("c.txt", "c");
  auto whole = options("whole", {"a.jsonl", "b.txt", "c.txt"});
  const TokenizeProgress done = tokenize_files(whole);
  EXPECT_EQ(documents("whole"), (std::vector<Ids>{{5}, {}, {0, 3, 1, 4}, {2}}));
  EXPECT_TRUE(done.is_finished);
  EXPECT_EQ(done.documents, 4);
  EXPECT_EQ(done.tokens, 6);
  EXPECT_EQ(done.bytes, 7);
  EXPECT_EQ(done.shards, 1);
  auto ended = options("ended", {"c.txt", "a.jsonl"});
  ended.end_of_text = "<end>";
  tokenize_files(ended);
  EXPECT_EQ(documents("ended"), (std::vector<Ids>{{2, 9}, {5, 9}, {9}}));
}

TEST_F(Tokenize, HaveNoByteOrderMark) {
  folder.write("a.txt",
               "\xef\xbb\xbf"
               "abc");
  folder.write("b.jsonl", "\xef\xbb\xbf{\"text\": \"ab\"}\n\n");
  tokenize_files(options("tokens", {"a.txt", "b.jsonl"}));
  EXPECT_EQ(documents("tokens"), (std::vector<Ids>{{5, 2}, {5}}));
}

TEST_F(Tokenize, ReadsTheGivenFieldOfJsonLines) {
  folder.write("a.jsonl", "{\"meta\": {\"body\": \"ab\"}, \"text\": \"c\", \"score\": NaN}\n\n");
  auto job = options("out", {"a.jsonl"});
  job.text_field = "meta.body";
  tokenize_files(job);
  EXPECT_EQ(documents("out"), (std::vector<Ids>{{5}}));
  job.text_field = "meta.text";
  testing::expect_error(ErrorKind::invalid_file, {"field \"meta.body\"; now given: ", "field \"meta.text\"."},
                        [&] { tokenize_files(job); });
}

TEST_F(Tokenize, RefusesAFolderThatAnotherRunWrites) {
  TokenizeOptions job = options("tokens", corpus());
  job.shard_documents = 100;
  int refused = 0;
  const auto expect_locked = [&](const TokenizeProgress&) {
    testing::expect_error(ErrorKind::invalid_file, {"[tokenize] " + job.out + ": another run"},
                          [&] { tokenize_files(job); });
    ++refused;
  };
  EXPECT_TRUE(tokenize_files(job, expect_locked).is_finished);
  EXPECT_EQ(refused, 4);
  EXPECT_TRUE(tokenize_files(job).is_finished);  // the lock is released when its run ends
}

TEST_F(Tokenize, DivideTextAtSeparators) {
  folder.write("a.txt", "\n\na\nb\n\n\nc\n");
  folder.write("b.txt", "ab\nc\nab\nc\nc\n");
  auto blank = options("blank", {"a.txt", "b.txt"});
  blank.separator = "";
  tokenize_files(blank);
  EXPECT_EQ(documents("blank"), (std::vector<Ids>{{0, 4, 1}, {2}, {5, 4, 2, 4, 5, 4, 2, 4, 2}}));
  auto lines = options("lines", {"b.txt"});
  lines.separator = "c";
  tokenize_files(lines);
  EXPECT_EQ(documents("lines"), (std::vector<Ids>{{5}, {5}}));
}

TEST_F(Tokenize, AnyNumberOfThreadsWritesTheSameBytes) {
  auto chosen = options("one", corpus());
  chosen.separator = "", chosen.end_of_text = "<end>", chosen.shard_documents = 37;
  const TokenizeProgress done = tokenize_files(chosen);
  EXPECT_EQ(done.documents, 400);
  EXPECT_EQ(done.shards, 11);
  const Files expected = contents("one");
  EXPECT_EQ(expected.size(), 23u);
  EXPECT_EQ(documents("one").size(), 400u);
  for (const int threads : {2, 5}) {
    chosen.out = folder.path("threads" + std::to_string(threads));
    chosen.threads = threads;
    tokenize_files(chosen);
    EXPECT_EQ(contents("threads" + std::to_string(threads)), expected) << threads;
  }
}

TEST_F(Tokenize, ContinuesAfterAnyShard) {
  auto chosen = options("whole", corpus());
  chosen.separator = "", chosen.shard_documents = 50;
  tokenize_files(chosen);
  const Files expected = contents("whole");
  for (int64_t stop = 1; stop <= 8; ++stop) {
    const std::string out = "stopped" + std::to_string(stop);
    chosen.out = folder.path(out);
    chosen.stop_after = stop;
    chosen.threads = static_cast<int>(stop % 3) + 1;
    int64_t starts = 1;
    while (!tokenize_files(chosen).is_finished) ++starts;
    EXPECT_EQ(starts, 8 / stop + 1) << stop;  // + 1: a run that stops after the last shard has not seen the end
    EXPECT_EQ(contents(out), expected) << stop;
    EXPECT_EQ(tokenize_files(chosen).new_tokens, 0) << "it had finished";
  }
}

// Kills the program at moments spread over its run, and restarts it until it finishes.
TEST_F(Tokenize, ContinuesAfterItWasKilledAnywhere) {
  corpus();
  const auto command = [&](const std::string& out) {
    return std::vector<std::string>{TESSERA_TOKENIZE,
                                    "--tokenizer",
                                    folder.path("tokenizer.json"),
                                    "--out",
                                    folder.path(out),
                                    "--separator",
                                    "",
                                    "--shard-documents",
                                    "30",
                                    "--threads",
                                    "2",
                                    folder.path("texts")};
  };
  // Runs for at most this many microseconds, then kills the program. Returns whether it had finished.
  const auto finishes = [&](const std::string& out, int64_t microseconds) {
    std::vector<std::string> words = command(out);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    EXPECT_EQ(::posix_spawn(&child, arguments[0], &quiet, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&quiet);
    if (microseconds > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      ::kill(child, SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(finishes("whole", 0));
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
  const Files expected = contents("whole");
  EXPECT_EQ(expected.size(), 2u * 14 + 1);
  int killed = 0;
  for (int round = 1; round < 6; ++round) {
    const std::string out = "killed" + std::to_string(round);
    killed += !finishes(out, static_cast<int64_t>(took.count() * round / 6));
    killed += !finishes(out, static_cast<int64_t>(took.count() * (6 - round) / 6));
    ASSERT_TRUE(finishes(out, 0));
    EXPECT_EQ(contents(out), expected) << round;
  }
  EXPECT_GT(killed, 0);
}

TEST_F(Tokenize, RefusesAnotherJobsFolder) {
  folder.write("a.txt", "ab");
  auto chosen = options("out", {"a.txt"});
  tokenize_files(chosen);
  using testing::expect_error;
  const auto refused = [&](const TokenizeOptions& other) {
    expect_error(ErrorKind::invalid_file,
                 {"[tokenize] " + folder.path("out"), "the tokens there were made from 1 files"},
                 [&] { tokenize_files(other); });
  };
  auto other = chosen;
  other.end_of_text = "<end>";
  refused(other);
  other = chosen;
  other.shard_documents = 3;
  refused(other);
  for (const char* text : {"abc", "ba"}) {
    folder.write("a.txt", text);
    refused(chosen);
  }
  folder.write("a.txt", "ab");
  EXPECT_TRUE(tokenize_files(chosen).is_finished);
  folder.write("tokenizer.json", std::string(small) + " ");
  refused(chosen);
  folder.write("tokenizer.json", small);
  const std::string made = folder.read("out/tokenize.json");
  folder.write("out/tokenize.json", "{}");
  expect_error(ErrorKind::invalid_file, {"made from nothing"}, [&] { tokenize_files(chosen); });
  std::string state = made;
  state.replace(state.find("\"tokens\":"), 9, "\"tokens\":4611686018427387904,\"was\":");
  folder.write("out/tokenize.json", state);
  expect_error(ErrorKind::invalid_file, {"has no number \"tokens\""}, [&] { tokenize_files(chosen); });
  std::filesystem::remove(folder.path("out/tokenize.json"));
  expect_error(ErrorKind::invalid_file, {folder.path("out") + ": has tokens-00000.", "no tokenize.json"},
               [&] { tokenize_files(chosen); });
  chosen.out = folder.path("other"), chosen.end_of_text = "nothing";
  expect_error(ErrorKind::invalid_argument, {"[tokenize] \"nothing\" is not a token of"},
               [&] { tokenize_files(chosen); });
}

// Damaged shards are written again, for each kind of damage, even after tokenize has finished.
TEST_F(Tokenize, MakesDamagedShardsAgain) {
  auto chosen = options("out", corpus());
  chosen.separator = "", chosen.shard_documents = 50;
  tokenize_files(chosen);
  const Files expected = contents("out");
  const auto flip = [&](const std::string& name) {
    std::string bytes = folder.read(name);
    bytes[bytes.size() / 2] ^= 1;
    folder.write(name, bytes);
  };
  const std::function<void()> damages[] = {
      [&] { flip("out/tokens-00002.bin"); }, [&] { flip("out/tokens-00002.idx"); },
      [&] { std::filesystem::resize_file(folder.path("out/tokens-00002.bin"), 10); },
      [&] { std::filesystem::remove(folder.path("out/tokens-00002.idx")); },
      [&] { flip("out/tokens-00002.bin"), flip("out/tokens-00006.bin"); }};
  for (const auto& damage : damages) {
    damage();
    chosen.stop_after = 1;
    std::vector<std::string> damaged;
    const TokenizeProgress stopped =
        tokenize_files(chosen, [&](const TokenizeProgress& now) { damaged.push_back(now.damaged); });
    EXPECT_EQ(damaged, std::vector<std::string>(2, folder.path("out/tokens-00002")));
    EXPECT_EQ(stopped.shards, 3);
    EXPECT_FALSE(stopped.is_finished);
    chosen.stop_after = 0;
    const TokenizeProgress done = tokenize_files(chosen);
    EXPECT_TRUE(done.is_finished);
    EXPECT_EQ(done.damaged, "");
    EXPECT_EQ(done.documents, 400);
    EXPECT_EQ(contents("out"), expected);
  }
}

TEST_F(Tokenize, RefusesAPlaceThatIsAFileOrAmongTheTexts) {
  folder.write("texts/deep/a.txt", "ab");
  folder.write("b.txt", "ab");
  const auto refused = [&](const std::string& out, const std::string& file, const std::string& words) {
    testing::expect_error(ErrorKind::invalid_argument, {"[tokenize] " + folder.path(out) + words},
                          [&] { tokenize_files(options(out, {file})); });
  };
  refused("texts", "texts", ": is in " + folder.path("texts"));
  refused("texts/new/tokens", "texts/", ": is in ");
  refused("texts/deep/../tokens", "texts", ": is in ");
  refused("b.txt", "texts", ": a file, expected a folder, or a name for one.");
  testing::expect_error(ErrorKind::invalid_file, {"[tokenize] " + folder.path("b.txt/tokens") + ": Not a directory."},
                        [&] { tokenize_files(options("b.txt/tokens", {"texts"})); });
  EXPECT_EQ(folder.read("b.txt"), "ab");
  EXPECT_TRUE(tokenize_files(options("texts_of_tokens", {"texts"})).is_finished) << "a folder next to the texts";
}

TEST_F(Tokenize, UnreadableTextIsAnErrorAndRepairedTextIsDifferent) {
  folder.write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": 7}     \n");
  auto chosen = options("out", {"a.jsonl"});
  chosen.shard_documents = 1;
  testing::expect_error(ErrorKind::invalid_file, {folder.path("a.jsonl") + ", line 2", "record.text: 7 given"},
                        [&] { tokenize_files(chosen); });
  folder.write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"abab\"}\n");
  testing::expect_error(ErrorKind::invalid_file, {"the tokens there were made from 1 files of 32 bytes ("},
                        [&] { tokenize_files(chosen); });
  chosen.out = folder.path("mended");
  EXPECT_TRUE(tokenize_files(chosen).is_finished);
  EXPECT_EQ(documents("mended"), (std::vector<Ids>{{5}, {5, 5}}));
}

TEST_F(Tokenize, AStartThatFailedLeavesTheFolderFree) {
  folder.write("a.txt", "abc");
  TokenizeOptions job = options("tokens", {"a.txt"});
  job.end_of_text = "nothing";
  EXPECT_THROW(tokenize_files(job), Error);
  job.end_of_text = "<end>";
  EXPECT_EQ(tokenize_files(job).documents, 1);
  EXPECT_EQ(documents("tokens"), (std::vector<Ids>{{5, 2, 9}}));
}

TEST_F(Tokenize, TheProgramReportsItsWorkAndItsErrors) {
  folder.write("a.txt", "ab c");
  const std::string program = TESSERA_TOKENIZE,
                    given = " --tokenizer " + folder.path() + " --out " + folder.path("out");
  const Outcome made = run_program(program + given + " --threads 2 " + folder.path("a.txt"));
  EXPECT_EQ(made.exit_code, 0);
  EXPECT_TRUE(made.says("1 shards, 1 documents, 3 tokens, ")) << made.output;
  EXPECT_TRUE(made.says("Finished: 1 shards in " + folder.path("out") + ", 1 documents, 3 tokens of 4 bytes of text"))
      << made.output;
  EXPECT_TRUE(run_program(program + " --help").says("--end-of-text TOKEN"));
  const std::pair<std::string, std::string> refused[] = {
      {given, "[command line] FILES: none given"},
      {" --out x y", "[command line] --tokenizer: missing"},
      {given + " --threads 0 x", "[command line] --threads: \"0\" given, expected a whole number from 1"},
      {given + " --fast 1 x", "[command line] --fast: no such flag"},
      {given + " x --threads", "[command line] --threads: no value follows"}};
  for (const auto& [arguments, words] : refused) {
    const Outcome outcome = run_program(program + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_TRUE(outcome.says(words)) << outcome.output;
  }
  EXPECT_EQ(run_program(program + given + " " + folder.path("none.txt")).exit_code, 1);
}

}  // namespace
}  // namespace tessera::examples::tokenize_test
