/* Columns out of a log through the Arrow C stream interface. */
#include "scan.h"

#include "harness.h"

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

#define LONG "a payload of more than twelve bytes"

/* Three channels of two peers; message i has time 10 * i and payload "i" or, every third, "iLONG". */
static ytp_bus_t *sample(const char *path, ytp_format_t format, uint64_t count)
{
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_CREATE, format);
    ytp_writer_t writers[] = {writer_of(bus, "p", "a/x"), writer_of(bus, "q", "a/y"), writer_of(bus, "p", "b")};
    char text[64];

    for (uint64_t i = 0; i < count; i++) {
        (void)snprintf(text, sizeof text, "%d%s", (int)i, i % 3 == 2 ? LONG : "");
        write_text(bus, writers[i % 3], 10 * i, text);
    }
    return bus;
}

/* --- taking batches apart --- */

typedef struct row {
    int64_t offset, seqno, time;
    char peer[32], channel[32], payload[64];
} row_t;

static row_t rows[5000];
static size_t row_count, batch_count;

static void text_at(const struct ArrowArray *a, int64_t i, char *out, size_t size)
{
    const int32_t *offsets = a->buffers[1];
    const char *bytes = a->buffers[2];
    size_t len = (size_t)(offsets[i + 1] - offsets[i]);
    CHECK(len < size);
    memcpy(out, bytes + offsets[i], len);
    out[len] = 0;
}

static bool is_null(const struct ArrowArray *a, int64_t i)
{
    const uint8_t *valid = a->buffers[0];
    return valid && !(valid[i / 8] >> i % 8 & 1);
}

static void name_at(const struct ArrowArray *a, int64_t i, char *out, size_t size)
{
    (void)snprintf(out, size, "(none)");
    if (is_null(a, i))
        return;
    if (a->dictionary) {
        int32_t index = ((const int32_t *)a->buffers[1])[i];
        CHECK(index >= 0 && index < a->dictionary->length);
        text_at(a->dictionary, index, out, size);
    } else {
        text_at(a, i, out, size);
    }
}

static void view_at(const struct ArrowArray *a, int64_t i, char *out, size_t size)
{
    const uint8_t *view = (const uint8_t *)a->buffers[1] + 16 * i;
    int32_t len, window, offset;
    memcpy(&len, view, 4);
    CHECK((size_t)len < size);
    const char *bytes = (const char *)view + 4;
    if (len > 12) {
        memcpy(&window, view + 8, 4);
        memcpy(&offset, view + 12, 4);
        CHECK(window + 3 < a->n_buffers);
        CHECK(offset + len <= ((const int64_t *)a->buffers[a->n_buffers - 1])[window]);
        bytes = (const char *)a->buffers[2 + window] + offset;
        CHECK(memcmp(bytes, view + 4, 4) == 0);
    }
    memcpy(out, bytes, (size_t)len);
    out[len] = 0;
}

static void take_batch(const struct ArrowSchema *schema, const struct ArrowArray *batch)
{
    CHECK_EQ(batch->n_children, schema->n_children);
    for (int64_t i = 0; i < batch->length; i++) {
        row_t *row = &rows[row_count++];
        memset(row, 0, sizeof *row);
        for (int64_t k = 0; k < batch->n_children; k++) {
            const struct ArrowArray *a = batch->children[k];
            const char *name = schema->children[k]->name, *format = schema->children[k]->format;
            CHECK_EQ(a->length, batch->length);
            if (strcmp(name, "offset") == 0)
                row->offset = ((const int64_t *)a->buffers[1])[i];
            else if (strcmp(name, "seqno") == 0)
                row->seqno = ((const int64_t *)a->buffers[1])[i];
            else if (strcmp(name, "time") == 0)
                row->time = ((const int64_t *)a->buffers[1])[i];
            else if (strcmp(name, "peer") == 0)
                name_at(a, i, row->peer, sizeof row->peer);
            else if (strcmp(name, "channel") == 0)
                name_at(a, i, row->channel, sizeof row->channel);
            else if (strcmp(format, "vz") == 0)
                view_at(a, i, row->payload, sizeof row->payload);
            else
                text_at(a, i, row->payload, sizeof row->payload);
        }
    }
}

static unsigned owners_released;

static void release_owner(void *owner)
{
    CHECK(owner == &owners_released);
    owners_released++;
}

/* Runs a scan to its end; returns what get_next returned last. */
static int scan(ytp_bus_t *bus, const ytp_scan_options_t *options)
{
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    int e;

    row_count = batch_count = 0;
    owners_released = 0;
    memset(&stream, 0, sizeof stream);
    OK(ytp_scan_open(bus, options, &owners_released, release_owner, &stream, &fault));
    CHECK_EQ(stream.get_schema(&stream, &schema), 0);
    while ((e = stream.get_next(&stream, &batch)) == 0 && batch.release) {
        batch_count++;
        take_batch(&schema, &batch);
        batch.release(&batch);
        CHECK(batch.release == NULL);
    }
    if (e) {
        CHECK(strlen(stream.get_last_error(&stream)) > 0);
        fault = *ytp_scan_error(&stream);
    }
    schema.release(&schema);
    stream.release(&stream);
    CHECK(stream.release == NULL);
    CHECK_EQ(owners_released, 1);
    return e;
}

static ytp_scan_options_t defaults(void)
{
    ytp_scan_options_t o;
    ytp_scan_defaults(&o);
    return o;
}

static void expect_numbers(const char *numbers)
{
    char all[4096] = "";
    for (size_t i = 0; i < row_count; i++)
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s%d", i ? " " : "", atoi(rows[i].payload));
    if (strcmp(all, numbers) != 0)
        FAIL("'%s', not '%s'", all, numbers);
}

/* --- tests --- */

TEST(all_columns_in_every_form)
{
    const unsigned forms[] = {0, YTP_SCAN_COPY, YTP_SCAN_PLAIN_NAMES, YTP_SCAN_BINARY_NAMES | YTP_SCAN_INTEGER_TIME,
                              YTP_SCAN_COPY | YTP_SCAN_PLAIN_NAMES | YTP_SCAN_BINARY_NAMES};

    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = sample(scratch("columns"), *f, 3000);
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            ytp_scan_options_t o = defaults();
            o.flags = forms[k];
            o.batch_rows = 700;
            CHECK_EQ(scan(bus, &o), 0);
            CHECK_EQ(row_count, 3000);
            CHECK_EQ(batch_count, 5);
            for (size_t i = 0; i < row_count; i++) {
                CHECK_EQ(rows[i].time, 10 * i);
                CHECK_EQ(rows[i].seqno, i + 1 + (*f == YTP_FORMAT_YTP ? 5 : 0));
                CHECK_EQ(atoi(rows[i].payload), i);
                CHECK(strcmp(rows[i].peer, i % 3 == 1 ? "q" : "p") == 0);
                CHECK(strcmp(rows[i].channel, i % 3 == 0 ? "a/x" : i % 3 == 1 ? "a/y" : "b") == 0);
                CHECK((strstr(rows[i].payload, LONG) != NULL) == (i % 3 == 2));
                CHECK(rows[i].offset > 0);
            }
        }
        ytp_bus_free(bus);
    }
}

TEST(only_the_columns_asked_for)
{
    ytp_bus_t *bus = sample(scratch("some"), YTP_FORMAT_YTP, 10);
    ytp_scan_options_t o = defaults();
    const ytp_scan_column_t times[] = {YTP_SCAN_TIME}, names[] = {YTP_SCAN_CHANNEL, YTP_SCAN_OFFSET};
    const ytp_scan_column_t twice[] = {YTP_SCAN_TIME, YTP_SCAN_TIME}, wild[] = {(ytp_scan_column_t)77};
    const ytp_scan_column_t many[7] = {0};
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;

    o.columns = times;
    o.column_count = 1;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK_EQ(rows[9].time, 90);
    o.columns = names;
    o.column_count = 2;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK(strcmp(rows[1].channel, "a/y") == 0);
    o.column_count = 0;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK_EQ(row_count, 10);
    o.columns = twice;
    o.column_count = 2;
    CODE(ytp_scan_open(bus, &o, NULL, NULL, &stream, &fault), YTP_ERR_INVALID);
    o.columns = wild;
    o.column_count = 1;
    CODE(ytp_scan_open(bus, &o, NULL, NULL, &stream, &fault), YTP_ERR_INVALID);
    o.columns = many;
    o.column_count = 7;
    CODE(ytp_scan_schema(&o, &schema, &fault), YTP_ERR_INVALID);
    o = defaults();
    o.batch_rows = (size_t)1 << 30;
    CODE(ytp_scan_open(bus, &o, NULL, NULL, &stream, &fault), YTP_ERR_INVALID);
    o = defaults();
    o.batch_bytes = SIZE_MAX;
    CODE(ytp_scan_open(bus, &o, NULL, NULL, &stream, &fault), YTP_ERR_INVALID);
    ytp_bus_free(bus);
}

static ytp_name_match_t match(ytp_match_kind_t kind, uint32_t group, const char *text)
{
    ytp_name_match_t m = {kind, group, {text, strlen(text)}};
    return m;
}

TEST(filters)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = sample(scratch("filters"), *f, 12);
        uint64_t announced = *f == YTP_FORMAT_YTP ? 5 : 0;
        ytp_scan_options_t o = defaults();
        ytp_name_match_t one[3];

        o.time_min = 20;
        o.time_max = 50;
        CHECK_EQ(scan(bus, &o), 0);
        expect_numbers("2 3 4 5");
        o = defaults();
        o.seqno_min = announced + 10;
        o.seqno_max = announced + 11;
        CHECK_EQ(scan(bus, &o), 0);
        expect_numbers("9 10");
        o = defaults();
        o.channels = one;
        o.channel_count = 1;
        one[0] = match(YTP_MATCH_PATTERN, 0, "a/");
        CHECK_EQ(scan(bus, &o), 0);
        expect_numbers("0 1 3 4 6 7 9 10");
        one[0] = match(YTP_MATCH_EXACT, 0, "b");
        CHECK_EQ(scan(bus, &o), 0);
        expect_numbers("2 5 8 11");
        one[0] = match(YTP_MATCH_PREFIX, 0, "a");
        one[1] = match(YTP_MATCH_EXACT, 1, "a/y");
        one[2] = match(YTP_MATCH_EXACT, 1, "nothing");
        o.channel_count = 3;
        CHECK_EQ(scan(bus, &o), 0);
        expect_numbers("1 4 7 10");
        one[0] = match((ytp_match_kind_t)9, 0, "a");
        CHECK_EQ(scan(bus, &o), 0);
        expect_numbers("");
        o = defaults();
        o.peers = one;
        o.peer_count = 2;
        one[0] = match(YTP_MATCH_PREFIX, 0, "");
        one[1] = match(YTP_MATCH_EXACT, 0, "");
        CHECK_EQ(scan(bus, &o), 0);
        CHECK_EQ(row_count, 12);
        ytp_bus_free(bus);
    }
}

TEST(control_messages_too)
{
    ytp_bus_t *bus = sample(scratch("kinds"), YTP_FORMAT_YTP, 2);
    ytp_scan_options_t o = defaults();

    o.kinds = ~0u;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK_EQ(row_count, 7);
    CHECK(strcmp(rows[0].peer, "(none)") == 0); /* an announcement belongs to nobody */
    o.flags = YTP_SCAN_PLAIN_NAMES;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK(strcmp(rows[0].channel, "(none)") == 0);
    CHECK(strcmp(rows[6].channel, "a/y") == 0);
    ytp_bus_free(bus);
}

TEST(names_are_made_printable)
{
    static const struct {
        const char *raw, *text;
    } cases[] = {
        {"plain", "plain"},
        {"\xC3\xA4", "\xC3\xA4"},
        {"\xE2\x82\xAC\xF0\x9F\x98\x80", "\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"a\xFFz", "a\xEF\xBF\xBDz"},
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE2\x82", "\xEF\xBF\xBD"},
        {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x80\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
    };
    char out[64];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = ytpi_utf8_replace(cases[i].raw, strlen(cases[i].raw), out);
        CHECK_BYTES(out, len, cases[i].text);
    }
}

TEST(names_given_beforehand_are_all_there_is)
{
    ytp_bus_t *bus = sample(scratch("given"), YTP_FORMAT_YTP, 3);
    ytp_scan_options_t o = defaults();
    const ytp_span_t peers[] = {{"P", 1}, {"", 0}}, channels[] = {{"A", 1}};

    o.peer_names = peers;
    o.peer_name_count = 2;
    o.channel_names = channels;
    o.channel_name_count = 1;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK(strcmp(rows[0].peer, "P") == 0);
    CHECK(strcmp(rows[1].peer, "") == 0);
    CHECK(strcmp(rows[0].channel, "A") == 0);
    CHECK(strcmp(rows[1].channel, "(none)") == 0);
    ytp_bus_free(bus);
}

TEST(many_names)
{
    ytp_bus_t *bus = open_bus(scratch("names"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_scan_options_t o = defaults();
    char name[16];

    for (int i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof name, "c%d", i);
        write_text(bus, writer_of(bus, "p", name), 1, "x");
    }
    o.batch_rows = 50; /* the dictionary grows from batch to batch */
    CHECK_EQ(scan(bus, &o), 0);
    for (int i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof name, "c%d", i);
        CHECK(strcmp(rows[i].channel, name) == 0);
    }
    ytp_bus_free(bus);
}

TEST(batches_keep_their_limits)
{
    ytp_bus_t *bus = open_bus(scratch("limits"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "peer", "channel");
    ytp_scan_options_t o = defaults();

    for (uint64_t i = 0; i < 100; i++)
        write_text(bus, writer, i, "twenty bytes of data");
    o.flags = YTP_SCAN_COPY;
    o.batch_bytes = 100;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK_EQ(batch_count, 20);
    CHECK_EQ(row_count, 100);
    o.batch_bytes = 1; /* one row may exceed it */
    CHECK_EQ(scan(bus, &o), 0);
    CHECK_EQ(batch_count, 100);
    o.flags = YTP_SCAN_PLAIN_NAMES;
    o.batch_bytes = 22;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK_EQ(batch_count, 50);
    for (size_t i = 0; i < 100; i++)
        CHECK_EQ(rows[i].time, i);
    ytp_bus_free(bus);
}

TEST(views_far_apart_have_windows_of_their_own)
{
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_bus_t *bus = NULL;
    ytp_scan_options_t o = defaults();
    ytp_name_match_t wanted = match(YTP_MATCH_EXACT, 0, "small");
    char *big = calloc(1, 100000);

    options.address_space = YTP_PAGE_SIZE; /* several ranges */
    OK(ytp_bus_open(scratch("windows"), &options, &bus, &fault));
    ytp_writer_t small = writer_of(bus, "p", "small"), large = writer_of(bus, "p", "large");
    for (uint64_t i = 0; i < 1200; i++) {
        write_text(bus, small, i, LONG);
        OK(ytp_bus_write(bus, &large, i, big, 12000, NULL, &fault));
    }
    o.channels = &wanted;
    o.channel_count = 1;
    CHECK_EQ(scan(bus, &o), 0);
    CHECK_EQ(row_count, 1200);
    CHECK_EQ(batch_count, 2); /* 1024 windows are the most */
    for (size_t i = 0; i < 1200; i++)
        CHECK(strcmp(rows[i].payload, LONG) == 0);
    free(big);
    ytp_bus_free(bus);
}

TEST(ranges_are_read_one_after_the_other)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = sample(scratch("ranges"), *f, 10);
        ytp_stretch_options_t cut = {.max_count = 4};
        ytp_stretch_t stretches[8];
        ytp_scan_range_t ranges[3];
        ytp_scan_options_t o = defaults();
        size_t filled = 0;
        uint64_t head = ytp_yamal_begin(ytp_bus_yamal(bus), 0);

        CODE(ytp_bus_stretches(bus, head, 0, &cut, stretches, 8, &filled, &fault), YTP_END);
        CHECK_EQ(filled, *f == YTP_FORMAT_YTP ? 4 : 3);
        ranges[0] = stretches[filled - 2].range;
        ranges[1] = ranges[0];
        ranges[1].start = ranges[1].end; /* empty */
        ranges[2] = stretches[filled - 1].range;
        o.ranges = ranges;
        o.range_count = 3;
        CHECK_EQ(scan(bus, &o), 0);
        expect_numbers(*f == YTP_FORMAT_YTP ? "3 4 5 6 7 8 9" : "4 5 6 7 8 9");
        o.range_count = 0;
        CHECK_EQ(scan(bus, &o), 0);
        CHECK_EQ(row_count, 0);
        o.range_count = 1;
        ranges[0].start += 8; /* not a message */
        CHECK_EQ(scan(bus, &o), EIO);
        CHECK_TEXT("no longer here");
        ranges[0] = ranges[2];
        ranges[0].end = 4096; /* never met */
        CHECK_EQ(scan(bus, &o), EIO);
        CHECK_TEXT("before offset 4096");
        ranges[0] = ranges[2];
        ranges[0].end_seqno++;
        CHECK_EQ(scan(bus, &o), EIO);
        CHECK_TEXT("the file was replaced");
        ytp_bus_free(bus);
    }
}

TEST(damage_comes_after_what_is_good)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("damage");
        ytp_bus_t *bus = sample(path, *f, 10);
        ytp_scan_options_t o = defaults();

        CHECK_EQ(scan(bus, &o), 0);
        poke64(path, (uint64_t)rows[6].offset, 0);
        CHECK_EQ(scan(bus, &o), EIO);
        expect_numbers("0 1 2 3 4 5");
        CHECK_EQ(fault.code, YTP_ERR_CORRUPT);
        ytp_bus_free(bus);
    }
}

TEST(batches_outlive_the_bus)
{
    ytp_bus_t *bus = sample(scratch("outlive"), YTP_FORMAT_YTP, 10);
    ytp_scan_options_t o = defaults();
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray batch, moved;

    row_count = 0;
    OK(ytp_scan_open(bus, &o, NULL, NULL, &stream, &fault));
    CHECK_EQ(stream.get_schema(&stream, &schema), 0);
    CHECK_EQ(stream.get_next(&stream, &batch), 0);
    stream.release(&stream);
    ytp_bus_free(bus);
    take_batch(&schema, &batch);
    expect_numbers("0 1 2 3 4 5 6 7 8 9");
    moved = *batch.children[5]; /* a consumer may take one column along */
    batch.children[5]->release = NULL;
    batch.release(&batch);
    char text[64];
    view_at(&moved, 2, text, sizeof text);
    CHECK(strcmp(text, "2" LONG) == 0);
    moved.release(&moved);
    struct ArrowSchema field = *schema.children[3];
    schema.children[3]->release = NULL;
    schema.release(&schema);
    CHECK(strcmp(field.dictionary->format, "u") == 0);
    field.release(&field);
}

TEST(a_closed_handle_says_so)
{
    ytp_bus_t *bus = sample(scratch("closed"), YTP_FORMAT_YTP, 3);
    ytp_scan_options_t o = defaults();
    struct ArrowArrayStream stream;
    struct ArrowArray batch;

    OK(ytp_scan_open(bus, &o, NULL, NULL, &stream, &fault));
    ytp_yamal_close(ytp_bus_yamal(bus));
    CHECK_EQ(stream.get_next(&stream, &batch), EINVAL);
    CHECK_EQ(ytp_scan_error(&stream)->code, YTP_ERR_HANDLE);
    stream.release(&stream);
    CODE(ytp_scan_open(bus, &o, NULL, NULL, &stream, &fault), YTP_ERR_HANDLE);
    ytp_bus_free(bus);
}

TEST(stretches_say_what_is_in_them)
{
    ytp_bus_t *bus = sample(scratch("stretches"), YTP_FORMAT_YTP, 20);
    ytp_stretch_options_t o = {0};
    ytp_stretch_t s[30];
    size_t filled = 0;

    CODE(ytp_bus_stretches(bus, 0, 0, &o, s, 30, &filled, &fault), YTP_END);
    CHECK_EQ(filled, 1);
    CHECK_EQ(s[0].count, 25);
    CHECK_EQ(s[0].rows, 20);
    CHECK_EQ(s[0].announcements, 5);
    CHECK_EQ(s[0].time_min, 0);
    CHECK_EQ(s[0].time_max, 190);
    CHECK_EQ(s[0].channels, 7);
    CHECK_EQ(s[0].peers, 3);
    CHECK_EQ(s[0].range.end_seqno, 25);
    o.max_bytes = 60;
    OK(ytp_bus_stretches(bus, 0, 0, &o, s, 2, &filled, &fault)); /* no room for more */
    CHECK_EQ(filled, 2);
    CHECK(s[1].bytes <= 60);
    CHECK_EQ(s[1].range.start, s[0].range.end);
    CHECK_EQ(s[1].range.seqno, s[0].range.end_seqno);
    o.max_bytes = 0;
    o.limit_rows = 4;
    OK(ytp_bus_stretches(bus, 0, 0, &o, s, 30, &filled, &fault));
    CHECK_EQ(s[0].rows, 4);
    o.limit_rows = 0;
    o.limit_bytes = 20;
    OK(ytp_bus_stretches(bus, 0, 0, &o, s, 30, &filled, &fault));
    CHECK(s[0].bytes <= 20);
    o.limit_bytes = 0;
    o.last = s[0].range.end;
    CODE(ytp_bus_stretches(bus, 0, 0, &o, s, 30, &filled, &fault), YTP_END_CLOSED);
    CHECK_EQ(s[0].range.end, o.last);
    CODE(ytp_bus_stretches(bus, o.last, s[0].range.end_seqno, &o, s, 30, &filled, &fault), YTP_END);
    CHECK_EQ(filled, 0);
    CODE(ytp_bus_stretches(bus, 0, 0, &o, s, 0, &filled, &fault), YTP_ERR_INVALID);
    CODE(ytp_bus_stretches(bus, 12345, 0, &o, s, 1, &filled, &fault), YTP_ERR_NOTFOUND);
    ytp_bus_free(bus);
}

TEST(stretches_leap_over_what_the_index_knows)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("leap");
        ytp_bus_t *bus = sample(path, *f, 5000), *other;
        ytp_stretch_options_t o = {.max_count = 2048};
        ytp_stretch_t slow[10], fast[10];
        size_t slow_count = 0, fast_count = 0;
        uint64_t head = ytp_yamal_begin(ytp_bus_yamal(bus), 0);

        CODE(ytp_bus_stretches(bus, head, 0, &o, slow, 10, &slow_count, &fault), YTP_END);
        OK(ytp_bus_index_update(bus, 0, &fault));
        other = open_bus(path, YTP_OPEN_READ, *f);
        CODE(ytp_bus_stretches(other, head, 0, &o, fast, 10, &fast_count, &fault), YTP_END);
        CHECK_EQ(fast_count, slow_count);
        for (size_t i = 0; i < fast_count; i++) {
            CHECK_EQ(fast[i].range.start, slow[i].range.start);
            CHECK_EQ(fast[i].range.end, slow[i].range.end);
            CHECK_EQ(fast[i].range.end_seqno, slow[i].range.end_seqno);
            CHECK_EQ(fast[i].count, slow[i].count);
            CHECK_EQ(fast[i].rows, slow[i].rows);
            CHECK_EQ(fast[i].time_min, slow[i].time_min);
            CHECK_EQ(fast[i].time_max, slow[i].time_max);
            CHECK_EQ(fast[i].channels, slow[i].channels);
            CHECK_EQ(fast[i].peers, slow[i].peers);
        }
        /* Limits are kept although messages are leapt over. */
        o.limit_rows = 1500;
        OK(ytp_bus_stretches(other, head, 0, &o, fast, 10, &fast_count, &fault));
        CHECK_EQ(fast[0].rows, 1500);
        o.limit_rows = 0;
        o.limit_bytes = 30000;
        OK(ytp_bus_stretches(other, head, 0, &o, fast, 10, &fast_count, &fault));
        uint64_t bytes = 0;
        for (size_t i = 0; i < fast_count; i++)
            bytes += fast[i].bytes;
        CHECK(bytes <= 30000 && bytes > 29000);
        o.limit_bytes = 0;
        OK(ytp_bus_stretches(other, head, 0, &o, fast, 1, &fast_count, &fault)); /* room for one */
        CHECK_EQ(fast[0].count, 2048);
        o.max_count = 100; /* finer than the index */
        OK(ytp_bus_stretches(other, head, 0, &o, fast, 10, &fast_count, &fault));
        CHECK_EQ(fast[9].count, 100);
        ytp_bus_free(other);
        ytp_bus_free(bus);
    }
}

TEST(stretches_do_without_an_index_that_lies)
{
    ytp_bus_t *bus = sample(scratch("lies"), YTP_FORMAT_YTP, 5000);
    ytp_stretch_options_t o = {.max_count = 2048};
    ytp_stretch_t truth[10], found[10];
    size_t true_count = 0, count = 0;

    CODE(ytp_bus_stretches(bus, 0, 0, &o, truth, 10, &true_count, &fault), YTP_END);
    for (uint64_t number = 1; number <= 4; number++) {
        uint64_t record[9] = {number * 64, number * ytp_bus_index_stretch(bus)}; /* no message is there */
        CHECK(ytpi_chain_put(&bus->index.checkpoints, number - 1, record));
    }
    CHECK_EQ(ytp_bus_index_count(bus), 4);
    CODE(ytp_bus_stretches(bus, 0, 0, &o, found, 10, &count, &fault), YTP_END);
    CHECK_EQ(count, true_count);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(found[i].range.end, truth[i].range.end);
        CHECK_EQ(found[i].rows, truth[i].rows);
        CHECK_EQ(found[i].time_max, truth[i].time_max);
    }
    o.limit_rows = 2 * ytp_bus_index_stretch(bus); /* ends right at a checkpoint */
    OK(ytp_bus_stretches(bus, 0, 0, &o, found, 10, &count, &fault));
    CHECK_EQ(found[0].rows + (count > 1 ? found[1].rows : 0), o.limit_rows);
    ytp_bus_free(bus);
}

TESTS(T(all_columns_in_every_form), T(only_the_columns_asked_for), T(filters), T(control_messages_too),
      T(names_are_made_printable), T(names_given_beforehand_are_all_there_is), T(many_names),
      T(batches_keep_their_limits), T(views_far_apart_have_windows_of_their_own),
      T(ranges_are_read_one_after_the_other), T(damage_comes_after_what_is_good), T(batches_outlive_the_bus),
      T(a_closed_handle_says_so), T(stretches_say_what_is_in_them), T(stretches_leap_over_what_the_index_knows),
      T(stretches_do_without_an_index_that_lies))
