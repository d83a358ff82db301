/* CRC32C against published check values (RFC 3720, appendix B.4). */
#include "aux.h"
#include "harness.h"

TEST(known_values)
{
    uint8_t bytes[32];

    CHECK_EQ(ytpi_crc32c(0, "123456789", 9), 0xE3069283u);
    memset(bytes, 0, sizeof bytes);
    CHECK_EQ(ytpi_crc32c(0, bytes, 32), 0x8A9136AAu);
    memset(bytes, 0xFF, sizeof bytes);
    CHECK_EQ(ytpi_crc32c(0, bytes, 32), 0x62A8AB43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    CHECK_EQ(ytpi_crc32c(0, bytes, 32), 0x46DD794Eu);
}

TEST(pieces_make_the_whole)
{
    const char text[] = "the quick brown fox jumps over the lazy dog";
    size_t len = sizeof text - 1;
    uint32_t whole = ytpi_crc32c(0, text, len);

    for (size_t cut = 0; cut <= len; cut++)
        CHECK_EQ(ytpi_crc32c(ytpi_crc32c(0, text, cut), text + cut, len - cut), whole);
}

TEST(nothing_leaves_it_alone)
{
    CHECK_EQ(ytpi_crc32c(0, "", 0), 0);
    CHECK_EQ(ytpi_crc32c(0x12345678u, "", 0), 0x12345678u);
}

TESTS(T(known_values), T(pieces_make_the_whole), T(nothing_leaves_it_alone))
