// Heartbeats read back as they were written, and other texts are not heartbeats.
#include "sharding/runtime/heartbeat.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace tessera::detail::heartbeat_test {
namespace {

void expect_equal(const std::optional<Heartbeat>& read, const Heartbeat& written) {
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, written.number);
  EXPECT_EQ(read->time, written.time);
  EXPECT_EQ(read->collectives, written.collectives);
  EXPECT_EQ(read->state, written.state);
  EXPECT_EQ(read->description, written.description);
}

TEST(Heartbeat, IsReadAsItWasWritten) {
  constexpr int64_t greatest = std::numeric_limits<int64_t>::max();
  for (const Heartbeat& heartbeat : {
           Heartbeat{7, 1700000000000, 12, ProcessState::waits, "has been waiting in [all_reduce] a b.cpp:41 for 3 s"},
           Heartbeat{1, 0, 0, ProcessState::computes, ""},
           Heartbeat{greatest, greatest, greatest, ProcessState::ended, " has raised: \n\x1b "},
           Heartbeat{2, 1, 1, ProcessState::left, "7 8 9 c x"},
           Heartbeat{2, 1, 1, ProcessState::failed, std::string("a\0b", 3)},
       })
    expect_equal(parse_heartbeat(format_heartbeat(heartbeat)), heartbeat);
}

TEST(Heartbeat, ALongDescriptionIsCut) {
  Heartbeat heartbeat{.number = 1, .state = ProcessState::ended, .description = std::string(1 << 20, 'x')};
  const std::string text = format_heartbeat(heartbeat);
  EXPECT_EQ(text.size(), max_message_bytes);
  heartbeat.description.resize(max_message_bytes - std::string("1 0 0 e ").size());
  expect_equal(parse_heartbeat(text), heartbeat);
  EXPECT_EQ(cut_text("a\u00e9\u20ac", 3), "a\u00e9");
  EXPECT_EQ(cut_text("a\u00e9\u20ac", 5), "a\u00e9");
  EXPECT_EQ(cut_text("\x80\x80", 1), "");
}

TEST(Heartbeat, NoOtherTextIsOne) {
  for (const char* text : {"",
                           " ",
                           "7",
                           "1 2 3",
                           "1 2 3 ",
                           "1 2 3 w",
                           "x 2 3 w words",
                           "1 x 3 w words",
                           "1 2 x w words",
                           "0 2 3 w words",
                           "-1 2 3 w words",
                           "1 -2 3 w words",
                           "1 2 -3 w words",
                           "1 2 3 z words",
                           "1 2 3 wc words",
                           "1 2 3  words",
                           "1  2 3 w words",
                           " 1 2 3 w words",
                           "+1 2 3 w words",
                           "0x1 2 3 w words",
                           "1.5 2 3 w words",
                           "1\t2\t3\tw\twords",
                           "9223372036854775808 2 3 w words",
                           "1 99999999999999999999 3 w words"})
    EXPECT_FALSE(parse_heartbeat(text)) << text;
  EXPECT_TRUE(parse_heartbeat("1 2 3 w " + std::string(max_message_bytes - 8, 'x')));
  EXPECT_FALSE(parse_heartbeat("1 2 3 w " + std::string(max_message_bytes - 7, 'x')));
}

}  // namespace
}  // namespace tessera::detail::heartbeat_test
