/* Directory texts: liberal in what is read, strict in what is written. */
#include "harness.h"

static ytp_span_t span(const char *text)
{
    ytp_span_t s = {text, strlen(text)};
    return s;
}

TEST(entries_in_order_with_repeats)
{
    ytp_span_t text = span("CHANNEL a/b\nAPP x y z\n\n\nAPP second\nALONE\nTRAILING \n"), key, value;

    CHECK(ytp_scdp_next(&text, &key, &value));
    CHECK_BYTES(key.ptr, key.len, "CHANNEL");
    CHECK_BYTES(value.ptr, value.len, "a/b");
    CHECK(ytp_scdp_next(&text, &key, &value));
    CHECK_BYTES(key.ptr, key.len, "APP");
    CHECK_BYTES(value.ptr, value.len, "x y z");
    CHECK(ytp_scdp_next(&text, &key, &value));
    CHECK_BYTES(value.ptr, value.len, "second");
    CHECK(ytp_scdp_next(&text, &key, &value));
    CHECK_BYTES(key.ptr, key.len, "ALONE");
    CHECK_EQ(value.len, 0);
    CHECK(ytp_scdp_next(&text, &key, &value));
    CHECK_BYTES(key.ptr, key.len, "TRAILING");
    CHECK_EQ(value.len, 0);
    CHECK(!ytp_scdp_next(&text, &key, &value));
    CHECK_EQ(text.len, 0);
}

TEST(last_line_needs_no_newline)
{
    ytp_span_t text = span("K v"), key, value;

    CHECK(ytp_scdp_next(&text, &key, &value));
    CHECK_BYTES(value.ptr, value.len, "v");
    CHECK(!ytp_scdp_next(&text, &key, &value));
}

TEST(empty_texts_have_no_entries)
{
    ytp_span_t text = span(""), lines = span("\n\n\n"), nothing = {NULL, 0}, key, value;

    CHECK(!ytp_scdp_next(&text, &key, &value));
    CHECK(!ytp_scdp_next(&lines, &key, &value));
    CHECK(!ytp_scdp_next(&nothing, &key, &value));
}

TEST(a_line_may_begin_with_a_space)
{
    ytp_span_t text = span(" v\n"), key, value;

    CHECK(ytp_scdp_next(&text, &key, &value));
    CHECK_EQ(key.len, 0);
    CHECK_BYTES(value.ptr, value.len, "v");
}

TEST(find_gives_the_first)
{
    ytp_span_t value;

    CHECK(ytp_scdp_find(span("A 1\nB 2\nA 3\n"), "A", &value));
    CHECK_BYTES(value.ptr, value.len, "1");
    CHECK(ytp_scdp_find(span("A 1\nB 2\n"), "B", &value));
    CHECK_BYTES(value.ptr, value.len, "2");
    CHECK(!ytp_scdp_find(span("AB 1\n"), "A", &value));
    CHECK(!ytp_scdp_find(span(""), "A", &value));
}

TEST(put_writes_what_next_reads)
{
    char buf[64];
    size_t used = 0;
    ytp_span_t empty = {NULL, 0};

    CHECK(ytp_scdp_put(buf, sizeof buf, &used, span("KEY"), span("a value")));
    CHECK(ytp_scdp_put(buf, sizeof buf, &used, span("EMPTY"), empty));
    CHECK_BYTES(buf, used, "KEY a value\nEMPTY \n");
}

TEST(put_refuses_what_next_could_not_read)
{
    char buf[64];
    size_t used = 0;

    CHECK(!ytp_scdp_put(buf, sizeof buf, &used, span(""), span("v")));
    CHECK(!ytp_scdp_put(buf, sizeof buf, &used, span("a b"), span("v")));
    CHECK(!ytp_scdp_put(buf, sizeof buf, &used, span("a\nb"), span("v")));
    CHECK(!ytp_scdp_put(buf, sizeof buf, &used, span("a"), span("v\nw")));
    CHECK_EQ(used, 0);
}

TEST(put_keeps_inside_the_buffer)
{
    char buf[8];
    size_t used = 0, beyond = 9;

    CHECK(!ytp_scdp_put(buf, 4, &used, span("abcd"), span("")));
    CHECK(!ytp_scdp_put(buf, 4, &used, span("a"), span("bcde")));
    CHECK(!ytp_scdp_put(buf, 4, &used, span("ab"), span("c")));
    CHECK(ytp_scdp_put(buf, 4, &used, span("a"), span("b")));
    CHECK_EQ(used, 4);
    CHECK(!ytp_scdp_put(buf, 4, &used, span("a"), span("")));
    CHECK(!ytp_scdp_put(buf, 8, &beyond, span("a"), span("")));
}

TESTS(T(entries_in_order_with_repeats), T(last_line_needs_no_newline), T(empty_texts_have_no_entries),
      T(a_line_may_begin_with_a_space), T(find_gives_the_first), T(put_writes_what_next_reads),
      T(put_refuses_what_next_could_not_read), T(put_keeps_inside_the_buffer))
