/* Name tables: numbers in order of arrival, any bytes, many of them; and memory that runs out. */
#include "names.h"

#include "harness.h"
#include "plat.h"

TEST(numbers_follow_arrival)
{
    ytpi_names_t names = {0};

    CHECK_EQ(ytpi_names_find(&names, "a", 1), YTPI_NONE);
    CHECK(ytpi_names_add(&names, "a", 1));
    CHECK(ytpi_names_add(&names, "", 0));
    CHECK(ytpi_names_add(&names, "a\0b", 3));
    CHECK_EQ(ytpi_names_find(&names, "a", 1), 0);
    CHECK_EQ(ytpi_names_find(&names, "", 0), 1);
    CHECK_EQ(ytpi_names_find(&names, "a\0b", 3), 2);
    CHECK_EQ(ytpi_names_find(&names, "a\0c", 3), YTPI_NONE);
    CHECK_EQ(ytpi_names_find(&names, "ab", 2), YTPI_NONE);
    CHECK_EQ(names.bytes[0][1], 0);
    ytpi_names_free(&names);
}

TEST(thousands_of_names)
{
    ytpi_names_t names = {0};
    char name[32];

    for (int i = 0; i < 5000; i++) {
        int len = snprintf(name, sizeof name, "channel/%d", i);
        CHECK(ytpi_names_add(&names, name, (size_t)len));
    }
    for (int i = 0; i < 5000; i++) {
        int len = snprintf(name, sizeof name, "channel/%d", i);
        CHECK_EQ(ytpi_names_find(&names, name, (size_t)len), i);
    }
    CHECK_EQ(ytpi_names_find(&names, "channel/5000", 12), YTPI_NONE);
    ytpi_names_free(&names);
}

TEST(keys_lead_to_numbers)
{
    ytpi_table_t table = {0};

    CHECK_EQ(ytpi_table_get(&table, 7), YTPI_NONE);
    for (uint64_t key = 0; key < 1000; key++)
        CHECK(ytpi_table_put(&table, key << 32, (size_t)key));
    for (uint64_t key = 0; key < 1000; key++)
        CHECK_EQ(ytpi_table_get(&table, key << 32), key);
    CHECK_EQ(ytpi_table_get(&table, 5), YTPI_NONE);
    ytpi_table_free(&table);
    CHECK_EQ(ytpi_table_get(&table, 0), YTPI_NONE);
}

TEST(the_seed_tells_speakers_apart)
{
    CHECK(ytpi_hash("text", 4, 1) != ytpi_hash("text", 4, 2));
    CHECK(ytpi_hash("text", 4, 1) == ytpi_hash("text", 4, 1));
}

TEST(without_memory_nothing_is_added)
{
    for (unsigned long nth = 1; nth <= 4; nth++) {
        ytpi_names_t names = {0};
        ytpi_inject_fail(nth, ENOMEM);
        CHECK(!ytpi_names_add(&names, "name", 4));
        ytpi_inject_fail(0, 0);
        CHECK_EQ(names.count, 0);
        CHECK_EQ(ytpi_names_find(&names, "name", 4), YTPI_NONE);
        CHECK(ytpi_names_add(&names, "name", 4));
        CHECK_EQ(ytpi_names_find(&names, "name", 4), 0);
        ytpi_names_free(&names);
    }
}

TEST(without_memory_a_full_table_stays_usable)
{
    ytpi_table_t table = {0};
    uint64_t key = 0;

    for (; table.used * 2 < 64; key++)
        CHECK(ytpi_table_put(&table, key, (size_t)key));
    ytpi_inject_fail(1, ENOMEM);
    CHECK(!ytpi_table_put(&table, key, (size_t)key));
    ytpi_inject_fail(0, 0);
    CHECK_EQ(ytpi_table_get(&table, key), YTPI_NONE);
    CHECK(ytpi_table_put(&table, key, (size_t)key));
    CHECK_EQ(ytpi_table_get(&table, key), key);
    ytpi_table_free(&table);
}

TESTS(T(numbers_follow_arrival), T(thousands_of_names), T(keys_lead_to_numbers), T(the_seed_tells_speakers_apart),
      T(without_memory_nothing_is_added), T(without_memory_a_full_table_stays_usable))
